/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose GPU memory is put out while it wants nothing. It says "ready", and then does what
 * each line says:
 *
 *   take MIB    allocates and writes; says "has" or "full"
 *   free        frees what it took last; says "freed"
 *   check       reads all of it back, and says "right" or "wrong"
 *   work MS     adds 1 to each word again and again, looks at some, and says "worked"
 *   pool MIB    allocates from a pool that keeps, frees, and says "kept" or "full"
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

#define MIB ((size_t)1 << 20)

enum { PIECES_MAX = 32 };

static const char add_ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry add(.param .u64 p, .param .u32 n)\n{\n"
    "  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<3>;\n"
    "  ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n];\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3; setp.ge.u32 %p, %r4, %r0; @%p ret;\n"
    "  mul.wide.u32 %d1, %r4, 4; add.u64 %d2, %d0, %d1;\n"
    "  ld.global.u32 %r5, [%d2]; add.u32 %r5, %r5, 1; st.global.u32 [%d2], %r5;\n"
    "  ret;\n}\n";

static struct {
    CUdeviceptr at[PIECES_MAX];
    size_t size[PIECES_MAX];
    uint32_t added[PIECES_MAX]; /* to the first WORDS of it */
    unsigned count;
    CUfunction add;
} held;

enum { WORDS = 4096 };

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        printf("%s: %d\n", what, (int)result);
        exit(1);
    }
}
#define MUST(call) must(call, #call)

static uint32_t word_of(unsigned piece, size_t i)
{
    return ((uint32_t)i + piece * 977) * 2654435761u + 1;
}

static const char *take(size_t size)
{
    unsigned piece = held.count;
    if (piece == PIECES_MAX || cuMemAlloc_v2(&held.at[piece], size) != CUDA_SUCCESS) {
        return "full";
    }
    uint32_t *words = malloc(size);
    for (size_t i = 0; i < size / 4; i++) {
        words[i] = word_of(piece, i);
    }
    MUST(cuMemcpyHtoD_v2(held.at[piece], words, size));
    free(words);
    held.size[piece] = size;
    held.added[piece] = 0;
    held.count++;
    return "has";
}

static const char *check(void)
{
    for (unsigned piece = 0; piece < held.count; piece++) {
        size_t size = held.size[piece];
        uint32_t *back = calloc(1, size);
        MUST(cuMemcpyDtoH_v2(back, held.at[piece], size));
        for (size_t i = 0; i < size / 4; i++) {
            if (back[i] != word_of(piece, i) + (i < WORDS ? held.added[piece] : 0)) {
                free(back);
                return "wrong";
            }
        }
        free(back);
    }
    return "right";
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const char *work(long ms)
{
    int64_t until = now_ms() + ms;
    unsigned piece = 0;
    uint32_t words = WORDS, first;
    do {
        void *params[] = {&held.at[piece], &words};
        MUST(cuLaunchKernel(held.add, WORDS / 128, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
        held.added[piece]++;
        MUST(cuMemcpyDtoH_v2(&first, held.at[piece], sizeof first));
        if (first != word_of(piece, 0) + held.added[piece]) {
            return "wrong";
        }
        piece = (piece + 1) % held.count;
    } while (now_ms() < until);
    return "worked";
}

static const char *use_pool(size_t size)
{
    CUmemoryPool pool;
    CUdeviceptr at;
    cuuint64_t keep = UINT64_MAX;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    if (cuMemAllocAsync(&at, size, NULL) != CUDA_SUCCESS) {
        return "full";
    }
    MUST(cuMemFreeAsync(at, NULL));
    MUST(cuStreamSynchronize(NULL));
    return "kept";
}

int main(void)
{
    char line[64];
    CUcontext context;
    CUmodule module;
    CUdevice device;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, add_ptx));
    MUST(cuModuleGetFunction(&held.add, module, "add"));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        long number = strtol(line + strcspn(line, " \n"), NULL, 10);
        const char *said = "what?";
        if (strncmp(line, "take", 4) == 0) {
            said = take((size_t)number * MIB);
        } else if (strncmp(line, "free", 4) == 0) {
            MUST(cuMemFree_v2(held.at[--held.count]));
            said = "freed";
        } else if (strncmp(line, "check", 5) == 0) {
            said = check();
        } else if (strncmp(line, "work", 4) == 0) {
            said = work(number);
        } else if (strncmp(line, "pool", 4) == 0) {
            said = use_pool((size_t)number * MIB);
        }
        puts(said);
        fflush(stdout);
    }
    return 0;
}
