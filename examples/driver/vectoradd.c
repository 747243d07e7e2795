/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest real use of the CUDA driver API: adds two vectors with a kernel written in PTX,
 * checks every element, prints what it ran on. Needs no CUDA toolkit: `cc vectoradd.c -lcuda` and a
 * cuda.h, NVIDIA's or the one that `make` leaves in build/include. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/* Each thread adds the elements at its own global index. */
static const char kernel_text[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry vector_add(\n"
    "    .param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %index, %size, %thread, %count;\n"
    "    .reg .b64 %a, %b, %sum, %offset;\n"
    "    .reg .f32 %x, %y;\n"
    "    mov.u32 %index, %ctaid.x;\n"
    "    mov.u32 %size, %ntid.x;\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    mad.lo.s32 %index, %index, %size, %thread;\n"
    "    ld.param.u32 %count, [count];\n"
    "    setp.ge.u32 %p, %index, %count;\n"
    "    @%p bra done;\n"
    "    ld.param.u64 %a, [a];\n"
    "    ld.param.u64 %b, [b];\n"
    "    ld.param.u64 %sum, [sum];\n"
    "    cvta.to.global.u64 %a, %a;\n"
    "    cvta.to.global.u64 %b, %b;\n"
    "    cvta.to.global.u64 %sum, %sum;\n"
    "    mul.wide.u32 %offset, %index, 4;\n"
    "    add.s64 %a, %a, %offset;\n"
    "    add.s64 %b, %b, %offset;\n"
    "    add.s64 %sum, %sum, %offset;\n"
    "    ld.global.f32 %x, [%a];\n"
    "    ld.global.f32 %y, [%b];\n"
    "    add.f32 %x, %x, %y;\n"
    "    st.global.f32 [%sum], %x;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

enum { COUNT = 1000003, THREADS = 256 };

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        const char *name = "unknown error";
        cuGetErrorName(result, &name);
        fprintf(stderr, "vectoradd: %s: %s\n", what, name);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

int main(void)
{
    CUdevice device;
    CUcontext context;
    char name[128];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));

    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, kernel_text));
    CHECK(cuModuleGetFunction(&function, module, "vector_add"));

    static float a[COUNT], b[COUNT], sum[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(i % 1000);
        b[i] = (float)(i % 77) * 0.5f;
    }
    CUdeviceptr device_a, device_b, device_sum;
    CHECK(cuMemAlloc(&device_a, sizeof a));
    CHECK(cuMemAlloc(&device_b, sizeof b));
    CHECK(cuMemAlloc(&device_sum, sizeof sum));
    CHECK(cuMemcpyHtoD(device_a, a, sizeof a));
    CHECK(cuMemcpyHtoD(device_b, b, sizeof b));

    unsigned count = COUNT;
    void *arguments[] = {&device_a, &device_b, &device_sum, &count};
    CHECK(cuLaunchKernel(function, (COUNT + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, NULL,
                         arguments, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(sum, device_sum, sizeof sum));

    for (int i = 0; i < COUNT; i++) {
        /* Exact: all values are small multiples of a half. */
        if (sum[i] != a[i] + b[i]) {
            fprintf(stderr, "vectoradd: element %d is %g, not %g\n", i, sum[i], a[i] + b[i]);
            return 1;
        }
    }
    CHECK(cuMemFree(device_a));
    CHECK(cuMemFree(device_b));
    CHECK(cuMemFree(device_sum));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));
    printf("vectoradd: %d sums are right, computed on %s\nOK\n", COUNT, name);
    return 0;
}
