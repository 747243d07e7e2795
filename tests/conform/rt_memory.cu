/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's memory: kinds of copies, pointers, symbols, pitched, pinned, managed, pools. */
#include "runtime.h"

__device__ int rt_number = 7;
__device__ int rt_table[10];
__constant__ int rt_fixed[4] = {2, 3, 5, 7};
__managed__ int rt_shared = 11;

__global__ void rt_read(int *to)
{
    to[0] = rt_number;
    to[1] = rt_fixed[2];
    to[2] = rt_shared;
    to[3] = rt_table[9];
}

CASE(rt_copy_kinds, "each kind of copy does what it says")
{
    int *w = rt_words(2), in = 5, out = 0, other = 0;
    IS(cudaMemcpy(w, &in, 4, cudaMemcpyHostToDevice), cudaSuccess);
    IS(cudaMemcpy(w + 1, w, 4, cudaMemcpyDeviceToDevice), cudaSuccess);
    IS(cudaMemcpy(&out, w + 1, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    IS(cudaMemcpy(&other, &out, 4, cudaMemcpyHostToHost), cudaSuccess);
    EQ(other, 5);
}

CASE(rt_copy_default_kind, "the default kind finds out by the addresses")
{
    int *w = rt_words(2), in = 6, out = 0, other = 0;
    IS(cudaMemcpy(w, &in, 4, cudaMemcpyDefault), cudaSuccess);
    IS(cudaMemcpy(w + 1, w, 4, cudaMemcpyDefault), cudaSuccess);
    IS(cudaMemcpy(&out, w + 1, 4, cudaMemcpyDefault), cudaSuccess);
    IS(cudaMemcpy(&other, &out, 4, cudaMemcpyDefault), cudaSuccess);
    EQ(other, 6);
}

CASE(rt_copy_wrong_kind, "what happens when the kind and the addresses do not agree")
{
    int *w = rt_words(2), in = 6;
    SEE(cudaMemcpy(w, &in, 4, cudaMemcpyDeviceToHost));
    SEE(cudaGetLastError());
    SEE(cudaMemcpy(&in, w, 4, cudaMemcpyHostToDevice));
    SEE(cudaGetLastError());
    SEE(cudaDeviceSynchronize());
}

CASE(rt_copy_nothing, "copies and fills of nothing succeed")
{
    int *w = rt_words(1), h = 3;
    IS(cudaMemcpy(w, &h, 0, cudaMemcpyHostToDevice), cudaSuccess);
    IS(cudaMemcpyAsync(&h, w, 0, cudaMemcpyDeviceToHost, rt_side), cudaSuccess);
    IS(cudaMemset(w, 1, 0), cudaSuccess);
    IS(cudaMemcpy2D(w, 4, &h, 4, 0, 5, cudaMemcpyDefault), cudaSuccess);
    IS(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault), cudaSuccess);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(h, 3);
}

CASE(rt_malloc_nothing, "an allocation of no bytes gives no address, and freeing none is fine")
{
    void *p = (void *)1;
    IS(cudaMalloc(&p, 0), cudaSuccess);
    TRUE(p == NULL);
    IS(cudaFree(NULL), cudaSuccess);
    IS(cudaFreeHost(NULL), cudaSuccess);
    IS(cudaMallocHost(&p, 0), cudaSuccess);
    NUM(p == NULL);
}

CASE(rt_free_mistakes, "freeing what was not allocated")
{
    int *w = rt_words(4), mine = 0;
    IS(cudaFree(&mine), cudaErrorInvalidValue);
    IS(cudaFree(w + 1), cudaErrorInvalidValue);
    IS(cudaFreeHost(&mine), cudaErrorInvalidValue);
    IS(cudaFree(w), cudaSuccess);
    IS(cudaFree(w), cudaErrorInvalidValue);
    IS(cudaGetLastError(), cudaErrorInvalidValue);
    IS(cudaDeviceSynchronize(), cudaSuccess);
}

static void kind_of(const char *what, const void *p)
{
    cudaPointerAttributes a;
    memset(&a, 0x55, sizeof a);
    cudaError_t r = cudaPointerGetAttributes(&a, p);
    conform_say("%s -> %s: type %d, device %d, device pointer %s, host pointer %s", what,
                cudaGetErrorName(r), a.type, a.device,
                a.devicePointer == NULL ? "none"
                : a.devicePointer == p  ? "the same"
                                        : "other",
                a.hostPointer == NULL ? "none"
                : a.hostPointer == p  ? "the same"
                                      : "other");
}

CASE(rt_pointer_attributes, "addresses tell what they are")
{
    int *w = rt_words(4), mine = 0, *pinned = NULL, *managed = NULL, *later = NULL;
    OK(cudaMallocHost((void **)&pinned, 64));
    OK(cudaMallocManaged((void **)&managed, 64));
    OK(cudaMallocAsync((void **)&later, 64, rt_side));
    OK(cudaStreamSynchronize(rt_side));
    kind_of("device", w + 1);
    kind_of("malloc", &mine);
    kind_of("pinned", pinned + 1);
    kind_of("managed", managed);
    kind_of("stream-ordered", later);
    kind_of("null", NULL);
    SEE(cudaGetLastError());
}

CASE(rt_symbols, "symbols are copied to and from, with offsets")
{
    int value = 21, out = 0, nine = 99;
    int *w = rt_words(4);
    IS(cudaMemcpyToSymbol(rt_number, &value, 4), cudaSuccess);
    IS(cudaMemcpyFromSymbol(&out, rt_number, 4), cudaSuccess);
    EQ(out, 21);
    IS(cudaMemcpyToSymbol(rt_table, &nine, 4, 36), cudaSuccess);
    IS(cudaMemcpyToSymbol(rt_fixed, &value, 4, 8, cudaMemcpyHostToDevice), cudaSuccess);
    rt_shared = 12;
    rt_read<<<1, 1>>>(w);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    conform_say("%d %d %d %d", rt_peek(w, 0), rt_peek(w, 1), rt_peek(w, 2), rt_peek(w, 3));
    IS(cudaMemcpyToSymbol(rt_number, &value, 8), cudaErrorInvalidValue);
    IS(cudaMemcpyToSymbol(rt_table, &nine, 4, 40), cudaErrorInvalidValue);
}

CASE(rt_symbol_address, "symbols have addresses and sizes")
{
    void *at = NULL;
    size_t size = 0;
    int mine = 0;
    IS(cudaGetSymbolAddress(&at, rt_table), cudaSuccess);
    IS(cudaGetSymbolSize(&size, rt_table), cudaSuccess);
    EQ(size, 40);
    TRUE(at != NULL);
    IS(cudaGetSymbolSize(&size, (const void *)&mine), cudaErrorInvalidSymbol);
    SEE(cudaGetSymbolAddress(&at, (const void *)rt_read));
}

CASE(rt_pitch, "pitched memory is filled and copied by rows")
{
    int *p = NULL, out[6] = {0}, in[6] = {1, 2, 3, 4, 5, 6};
    size_t pitch = 0;
    IS(cudaMallocPitch((void **)&p, &pitch, 12, 2), cudaSuccess);
    EQ(pitch % 256, 0);
    IS(cudaMemset2D(p, pitch, 0xff, 12, 2), cudaSuccess);
    IS(cudaMemcpy2D(p, pitch, in, 12, 8, 2, cudaMemcpyHostToDevice), cudaSuccess);
    IS(cudaMemcpy2D(out, 12, p, pitch, 12, 2, cudaMemcpyDeviceToHost), cudaSuccess);
    conform_say("%d %d %d %d %d %d", out[0], out[1], out[2], out[3], out[4], out[5]);
    IS(cudaMemcpy2D(out, 4, p, pitch, 12, 2, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
    SEE(cudaMemcpy2D(out, 12, p, 8, 12, 2, cudaMemcpyDeviceToHost));
}

CASE(rt_box, "three-dimensional memory is copied with positions")
{
    cudaPitchedPtr box;
    cudaExtent all = make_cudaExtent(16, 3, 2);
    static int in[24], out[24];
    for (int i = 0; i < 24; i++) {
        in[i] = i;
    }
    IS(cudaMalloc3D(&box, all), cudaSuccess);
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(in, 16, 4, 3);
    p.dstPtr = box;
    p.extent = all;
    p.kind = cudaMemcpyHostToDevice;
    IS(cudaMemcpy3D(&p), cudaSuccess);
    cudaMemcpy3DParms q = {};
    q.srcPtr = box;
    q.srcPos = make_cudaPos(4, 1, 1);
    q.dstPtr = make_cudaPitchedPtr(out, 16, 4, 3);
    q.extent = make_cudaExtent(8, 2, 1);
    q.kind = cudaMemcpyDeviceToHost;
    IS(cudaMemcpy3D(&q), cudaSuccess);
    conform_say("%d %d %d %d", out[0], out[1], out[4], out[5]);
}

CASE(rt_array, "arrays tell what they are and are copied by rows")
{
    cudaArray_t array = NULL;
    cudaChannelFormatDesc d = cudaCreateChannelDesc<int>(), got;
    cudaExtent extent;
    unsigned flags = 99;
    int in[12], out[4] = {0};
    for (int i = 0; i < 12; i++) {
        in[i] = i;
    }
    IS(cudaMallocArray(&array, &d, 4, 3), cudaSuccess);
    IS(cudaArrayGetInfo(&got, &extent, &flags, array), cudaSuccess);
    conform_say("%d %d %d %d kind %d, %zu x %zu x %zu, flags %u", got.x, got.y, got.z, got.w, got.f,
                extent.width, extent.height, extent.depth, flags);
    IS(cudaMemcpy2DToArray(array, 0, 0, in, 16, 16, 3, cudaMemcpyHostToDevice), cudaSuccess);
    IS(cudaMemcpy2DFromArray(out, 8, array, 4, 1, 8, 2, cudaMemcpyDeviceToHost), cudaSuccess);
    conform_say("%d %d %d %d", out[0], out[1], out[2], out[3]);
    IS(cudaFreeArray(array), cudaSuccess);
}

/* Alone, as hostmem_flags_are_kept is. */
CASE_ALONE(rt_pinned_flags, "page-locked memory tells flags and its device address")
{
    int *p = NULL;
    void *at = NULL;
    unsigned flags = 99;
    OK(cudaHostAlloc((void **)&p, 64, cudaHostAllocMapped | cudaHostAllocPortable));
    IS(cudaHostGetFlags(&flags, p), cudaSuccess);
    NUM(flags);
    IS(cudaHostGetDevicePointer(&at, p, 0), cudaSuccess);
    TRUE(at == p);
    p[0] = 1;
    rt_inc<<<1, 1>>>(p, 5);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(p[0], 6);
}

CASE(rt_register, "registering twice and unregistering what is not are refused")
{
    char *mine = (char *)aligned_alloc(4096, 8192);
    IS(cudaHostRegister(mine, 8192, cudaHostRegisterDefault), cudaSuccess);
    IS(cudaHostRegister(mine, 8192, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    IS(cudaHostUnregister(mine), cudaSuccess);
    IS(cudaHostUnregister(mine), cudaErrorHostMemoryNotRegistered);
    IS(cudaGetLastError(), cudaErrorHostMemoryNotRegistered);
    free(mine);
}

CASE(rt_managed, "managed memory is shared by host and kernels, and can be prefetched")
{
    int *p = NULL, device = -1;
    cudaMemLocation here = {};
    here.type = cudaMemLocationTypeDevice;
    here.id = 0;
    OK(cudaMallocManaged((void **)&p, 1 << 16));
    p[100] = 4;
    IS(cudaMemPrefetchAsync(p, 1 << 16, here, 0, rt_side), cudaSuccess);
    rt_inc<<<1, 1, 0, rt_side>>>(p + 100, 1);
    IS(cudaStreamSynchronize(rt_side), cudaSuccess);
    EQ(p[100], 5);
    IS(cudaMemRangeGetAttribute(&device, 4, cudaMemRangeAttributeLastPrefetchLocation, p, 1 << 16),
       cudaSuccess);
    EQ(device, 0);
}

CASE_ALONE(rt_pools, "stream-ordered memory comes from the device's pool")
{
    int *a = NULL, *w = rt_words(1);
    cudaMemPool_t pool = NULL, again = NULL;
    uint64_t used = 0;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaDeviceGetMemPool(&again, 0));
    TRUE(pool == again);
    IS(cudaMallocAsync((void **)&a, 1 << 20, rt_side), cudaSuccess);
    rt_set<<<1, 1, 0, rt_side>>>(a, 8);
    rt_copy<<<1, 1, 0, rt_side>>>(w, a);
    OK(cudaStreamSynchronize(rt_side));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    EQ(used, 1 << 20);
    IS(cudaFreeAsync(a, rt_side), cudaSuccess);
    IS(cudaStreamSynchronize(rt_side), cudaSuccess);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    EQ(used, 0);
    EQ(rt_peek(w, 0), 8);
}

CASE(rt_pool_mixed_frees, "cudaFree takes stream-ordered memory")
{
    int *a = NULL;
    OK(cudaMallocAsync((void **)&a, 256, rt_side));
    IS(cudaFree(a), cudaSuccess);
    IS(cudaDeviceSynchronize(), cudaSuccess);
}

CASE(rt_free_while_in_use, "freeing memory that queued work uses waits for that work")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    int *a = rt_words(1), *b = rt_words(1);
    rt_hold(s);
    rt_set<<<1, 1, 0, s>>>(a, 5);
    rt_copy<<<1, 1, 0, s>>>(b, a);
    rt_let_go_in(30);
    IS(cudaFree(a), cudaSuccess);
    NUM(rt_peek(b, 0));
    IS(cudaStreamSynchronize(s), cudaSuccess);
    EQ(rt_peek(b, 0), 5);
}

CASE(rt_memset_bytes, "cudaMemset fills bytes with the low byte of its value")
{
    int *w = rt_words(2);
    IS(cudaMemset(w, 0x1ff, 6), cudaSuccess);
    OK(cudaDeviceSynchronize());
    EQ((unsigned)rt_peek(w, 0), 0xffffffffu);
    EQ((unsigned)rt_peek(w, 1), 0xffffu);
}

CASE(rt_copy_async_pageable,
     "an asynchronous copy from pageable memory has read it when it returns")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    int *w = rt_words(1024);
    static int host[1024];
    for (int i = 0; i < 1024; i++) {
        host[i] = 3;
    }
    IS(cudaMemcpyAsync(w, host, sizeof host, cudaMemcpyHostToDevice, s), cudaSuccess);
    memset(host, 0, sizeof host);
    IS(cudaStreamSynchronize(s), cudaSuccess);
    EQ(rt_peek(w, 1023), 3);
}

CASE_ALONE(rt_managed_after_reset, "a managed variable after cudaDeviceReset, once the device is used again")
{
    int *w = rt_words(4);
    rt_shared = 13;
    rt_read<<<1, 1>>>(w);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    IS(cudaDeviceReset(), cudaSuccess);
    OK(cudaMalloc((void **)&w, 64));
    rt_read<<<1, 1>>>(w);
    SEE(cudaDeviceSynchronize());
    NUM(rt_shared);
}
