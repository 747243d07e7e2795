/* SPDX-License-Identifier: Apache-2.0 */
/* A program for a client and a server of different versions: computes, and says what it is answered
 * by functions that the two may not have in common. Exits 0 when the computing was right. */
#include <cuda.h>
#include <stdio.h>

static const char text[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry twice(.param .u64 at)\n{\n"
    "    .reg .b32 %i, %v;\n    .reg .b64 %at, %o;\n"
    "    ld.param.u64 %at, [at];\n    mov.u32 %i, %tid.x;\n    mul.wide.u32 %o, %i, 4;\n"
    "    add.s64 %at, %at, %o;\n    ld.global.u32 %v, [%at];\n    add.u32 %v, %v, %v;\n"
    "    st.global.u32 [%at], %v;\n    ret;\n}\n";

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            printf("%s: %d\n", #call, (int)result_);                                               \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

enum { COUNT = 64 };

static int compute(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction twice;
    CUdeviceptr memory;
    int values[COUNT];
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    TRY(cuModuleLoadData(&module, text));
    TRY(cuModuleGetFunction(&twice, module, "twice"));
    TRY(cuMemAlloc(&memory, sizeof values));
    for (int i = 0; i < COUNT; i++) {
        values[i] = i;
    }
    TRY(cuMemcpyHtoD(memory, values, sizeof values));
    void *arguments[] = {&memory};
    TRY(cuLaunchKernel(twice, 1, 1, 1, COUNT, 1, 1, 0, NULL, arguments, NULL));
    TRY(cuCtxSynchronize());
    TRY(cuMemcpyDtoH(values, memory, sizeof values));
    for (int i = 0; i < COUNT; i++) {
        if (values[i] != 2 * i) {
            printf("value %d is %d\n", i, values[i]);
            return 1;
        }
    }
    CUexecAffinityParam affinity = {0};
    CUfunction functions[1];
    for (int again = 0; again < 2; again++) {
        printf("more %d\n",
               cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
        printf("fewer %d\n", cuCtxResetPersistingL2Cache());
        printf("other %d\n", cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
        printf("hand %d\n", cuModuleEnumerateFunctions(functions, 1, module));
    }
    TRY(cuMemFree(memory));
    TRY(cuModuleUnload(module));
    TRY(cuDevicePrimaryCtxRelease(device));
    return 0;
}

int main(void)
{
    return compute();
}
