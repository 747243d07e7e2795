/* SPDX-License-Identifier: Apache-2.0 */
/* One call of the driver API, and the functions of the client that it enters on the caller's
 * thread: tools/moves.py links this with a client that is compiled with -finstrument-functions.
 *
 *     moves launch | upload | download | module   prints their addresses, one in a line
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/cuda_abi.h"

enum { ENTRIES_MAX = 1 << 20, SIZE = 8 << 20 };

static void *entries[ENTRIES_MAX];
static unsigned entry_count;
static _Thread_local bool records;

void __cyg_profile_func_enter(void *function, void *site);
void __cyg_profile_func_exit(void *function, void *site);

void __cyg_profile_func_enter(void *function, void *site)
{
    if (records && entry_count < ENTRIES_MAX) {
        entries[entry_count++] = function;
    }
}

void __cyg_profile_func_exit(void *function, void *site)
{
}

static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry nothing(.param .u64 at, .param .u64 by)\n{\nret;\n}\n";

static CUstream stream;
static CUdeviceptr device;
static CUfunction nothing;
static uint8_t *host;

static CUresult module(unsigned round)
{
    char other[sizeof text + 16];
    snprintf(other, sizeof other, "%s//%u\n", text, round); /* an image that no server knows */
    CUmodule loaded;
    return cuModuleLoadData(&loaded, other);
}

static CUresult call(const char *flow, unsigned round)
{
    if (strcmp(flow, "launch") == 0) {
        uint64_t at = 0, by = 0;
        void *args[] = {&at, &by};
        return cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
    }
    return strcmp(flow, "upload") == 0     ? cuMemcpyHtoDAsync_v2(device, host, SIZE, stream)
           : strcmp(flow, "download") == 0 ? cuMemcpyDtoH_v2(host, device, SIZE)
                                           : module(round);
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule loaded;
    host = calloc(1, SIZE);
    if (argc != 2 || host == NULL || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuModuleLoadData(&loaded, text) != CUDA_SUCCESS ||
        cuModuleGetFunction(&nothing, loaded, "nothing") != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuMemAlloc_v2(&device, SIZE) != CUDA_SUCCESS) {
        fprintf(stderr, "moves: no GPU to try it on\n");
        return 1;
    }
    /* The first makes what all others find. */
    for (unsigned round = 0; round < 2; round++) {
        records = round == 1;
        CUresult status = call(argv[1], round);
        records = false;
        if (status != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS) {
            fprintf(stderr, "moves: %s answers %d\n", argv[1], (int)status);
            return 1;
        }
    }
    for (unsigned i = 0; i < entry_count; i++) {
        printf("%p\n", entries[i]);
    }
    return 0;
}
