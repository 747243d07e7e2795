/* SPDX-License-Identifier: Apache-2.0 */
/* A child made by fork gets CUDA_ERROR_NOT_INITIALIZED from every call; its parent goes on. A child
 * that starts another program (which is what fork is for) does not disturb it either. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "FAILED: %s:%d: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    int value = 17, back = 0, status = -1;
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    EXPECT(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc(&memory, 64) == CUDA_SUCCESS);
    EXPECT(cuMemcpyHtoD(memory, &value, sizeof(value)) == CUDA_SUCCESS);

    for (int round = 0; round < 3; round++) {
        fflush(NULL);
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            CUdeviceptr other;
            int bad = 0;
            bad |= cuMemAlloc(&other, 16) != CUDA_ERROR_NOT_INITIALIZED;
            bad |= cuMemcpyDtoH(&back, memory, sizeof(back)) != CUDA_ERROR_NOT_INITIALIZED;
            bad |= cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED;
            bad |= cuDeviceGet(&device, 0) != CUDA_ERROR_NOT_INITIALIZED;
            if (round == 1) {
                exit(bad); /* with the exit handlers: they must not touch the parent's session */
            }
            if (round == 2 && !bad) {
                execlp("true", "true", (char *)NULL);
            }
            _exit(bad);
        }
        EXPECT(cuMemcpyDtoH(&back, memory, sizeof(back)) == CUDA_SUCCESS);
        EXPECT(back == 17 + round);
        EXPECT(waitpid(child, &status, 0) == child);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        value++;
        EXPECT(cuMemcpyHtoD(memory, &value, sizeof(value)) == CUDA_SUCCESS);
        EXPECT(cuCtxSynchronize() == CUDA_SUCCESS);
    }
    EXPECT(cuMemFree(memory) == CUDA_SUCCESS);
    EXPECT(cuDevicePrimaryCtxRelease(device) == CUDA_SUCCESS);
    puts("OK");
    return 0;
}
