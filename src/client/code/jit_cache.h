/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's compile cache, as NVRTC and nvJitLink use it: results of compilations on this
 * machine's disk.
 *
 * CUDA_CACHE_DISABLE=1 turns the disk off, CUDA_CACHE_PATH says where (else the user's cache
 * folder), CUDA_CACHE_MAXSIZE how many bytes at most; the least recently used go first.
 *
 * It also remembers from which PTX a cubin was compiled. A software GPU cannot run cubins and is
 * given the PTX.
 */
#ifndef TOW_CLIENT_JIT_CACHE_H
#define TOW_CLIENT_JIT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "gen/cuda_types.h"

enum towc_jit_kind {
    TOW_JIT_CUBIN = 1, /* the compilation gives a cubin */
    TOW_JIT_PTX = 2,   /* it gives PTX, from the compiler's own bitcode */
};

/* The entries of export table da91. Keys and data are opaque to the caller. */
CUresult towc_jit_cache_key(void **ret_key, int kind, const void *input, size_t n,
                            const char *options);
CUresult towc_jit_cache_free_key(void *opaque);
/* CUDA_ERROR_NOT_FOUND if it is not there; else data to be freed with towc_jit_cache_free_data. */
CUresult towc_jit_cache_find(void *opaque, int unused, void **ret_data, uint32_t *ret_size);
CUresult towc_jit_cache_store(void *opaque, int unused, const void *data, uint32_t size);
CUresult towc_jit_cache_free_data(void *data);

/* Appends the PTX that a cubin was compiled from, without its terminating NUL. -ENOENT if nobody
 * knows. */
int towc_jit_cache_ptx_of(const void *cubin, size_t n, struct tow_buf *ptx);

#endif
