/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program guards: it may be touched only when a handler of the program's has opened
 * it, as garbage collectors and paging libraries do. Copies from and to it open it, whoever
 * touches it. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum { BLOCK = 1 << 20, BLOCKS = 64, SIZE = BLOCK * BLOCKS };

static unsigned char *guarded;
static volatile sig_atomic_t opened;

static void open_block(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    size_t at = (size_t)((unsigned char *)info->si_addr - guarded);
    if (at >= SIZE || mprotect(guarded + at / BLOCK * BLOCK, BLOCK, PROT_READ | PROT_WRITE) != 0) {
        _Exit(4);
    }
    opened = opened + 1;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = open_block, .sa_flags = SA_SIGINFO};
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    guarded = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guarded == MAP_FAILED || sigaction(SIGSEGV, &action, NULL) != 0) {
        return 3;
    }
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, SIZE));
    memset(guarded, 0x5a, SIZE);
    mprotect(guarded, SIZE, PROT_NONE);
    CHECK(cuMemcpyHtoD(memory, guarded, SIZE));
    int up = opened;
    /* In rows, which are packed before they leave. */
    mprotect(guarded, SIZE, PROT_NONE);
    CHECK(cuMemcpy2D(&(CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                                      .srcHost = guarded,
                                      .srcPitch = 1000,
                                      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .dstDevice = memory,
                                      .dstPitch = 1000,
                                      .WidthInBytes = 999,
                                      .Height = SIZE / 1000}));
    int rows = opened - up;
    memset(guarded, 0, SIZE);
    mprotect(guarded, SIZE, PROT_NONE);
    CHECK(cuMemcpyDtoH(guarded, memory, SIZE));
    for (size_t i = 0; i < SIZE; i++) {
        if (guarded[i] != 0x5a) {
            fprintf(stderr, "FAILED: byte %zu is %d\n", i, guarded[i]);
            return 1;
        }
    }
    printf("%d %d %d\n", up, rows, (int)opened - up - rows);
    return 0;
}
