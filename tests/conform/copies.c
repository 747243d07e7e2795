/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: by address, by kind, of nothing, in parts, in rows, to arrays, and what orders them. */
#include "driver.h"

static CUdeviceptr of(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

CASE(copy_by_address, "cuMemcpy finds out by itself what is host and what is device")
{
    CUdeviceptr w = words(2);
    static int in = 5, out, other;
    IS(cuMemcpy(w, of(&in), 4), CUDA_SUCCESS);
    IS(cuMemcpy(w + 4, w, 4), CUDA_SUCCESS);
    IS(cuMemcpy(of(&out), w + 4, 4), CUDA_SUCCESS);
    IS(cuMemcpy(of(&other), of(&out), 4), CUDA_SUCCESS);
    EQ(out, 5);
    EQ(other, 5);
}

CASE(copy_by_address_async, "cuMemcpyAsync finds out by itself, too")
{
    CUdeviceptr w = words(2);
    int *pinned;
    OK(cuMemAllocHost((void **)&pinned, 16));
    pinned[0] = 6;
    pinned[1] = 0;
    IS(cuMemcpyAsync(w, of(pinned), 4, side), CUDA_SUCCESS);
    IS(cuMemcpyAsync(w + 4, w, 4, side), CUDA_SUCCESS);
    IS(cuMemcpyAsync(of(pinned + 1), w + 4, 4, side), CUDA_SUCCESS);
    IS(cuMemcpyAsync(of(pinned + 2), of(pinned + 1), 4, side), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(pinned[1], 6);
    EQ(pinned[2], 6);
}

CASE(copy_nothing, "a copy of no bytes succeeds and changes nothing")
{
    CUdeviceptr w = words(2);
    int host = 7;
    IS(cuMemcpyHtoD(w, &host, 0), CUDA_SUCCESS);
    IS(cuMemcpyDtoH(&host, w, 0), CUDA_SUCCESS);
    IS(cuMemcpyDtoD(w, w + 4, 0), CUDA_SUCCESS);
    IS(cuMemcpyHtoDAsync(w, &host, 0, side), CUDA_SUCCESS);
    IS(cuMemcpyDtoHAsync(&host, w, 0, side), CUDA_SUCCESS);
    IS(cuMemcpy(w, of(&host), 0), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(host, 7);
    EQ(peek(w, 0), 0);
}

CASE(copy_odd_addresses, "copies take any address and length")
{
    CUdeviceptr w = words(8);
    unsigned char in[32], out[32];
    for (int i = 0; i < 32; i++) {
        in[i] = (unsigned char)(i + 1);
        out[i] = 0;
    }
    IS(cuMemcpyHtoD(w + 3, in + 1, 13), CUDA_SUCCESS);
    IS(cuMemcpyDtoD(w + 17, w + 5, 7), CUDA_SUCCESS);
    IS(cuMemcpyDtoH(out + 5, w + 1, 25), CUDA_SUCCESS);
    unsigned sum = 0;
    for (int i = 0; i < 32; i++) {
        sum = sum * 31 + out[i];
    }
    NUM(sum);
    EQ(out[7], 2);
    EQ(out[21], 4);
}

CASE(copy_large, "megabytes arrive whole, both ways")
{
    enum { COUNT = 3 << 18 };
    unsigned *in = malloc(COUNT * 4), *out = malloc(COUNT * 4);
    CUdeviceptr a = words(COUNT), b = words(COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        in[i] = i * 2654435761u;
        out[i] = 0;
    }
    IS(cuMemcpyHtoD(a, in, COUNT * 4), CUDA_SUCCESS);
    IS(cuMemcpyDtoD(b, a, COUNT * 4), CUDA_SUCCESS);
    IS(cuMemcpyDtoH(out, b, COUNT * 4), CUDA_SUCCESS);
    EQ(memcmp(in, out, COUNT * 4), 0);
    free(in);
    free(out);
}

CASE(copy_pageable_source_is_free_at_once,
     "after an asynchronous copy from pageable memory its source may change")
{
    CUdeviceptr w = words(1 << 12);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    static int host[1 << 12];
    for (int i = 0; i < 1 << 12; i++) {
        host[i] = 5;
    }
    IS(cuMemcpyHtoDAsync(w, host, sizeof host, s), CUDA_SUCCESS);
    memset(host, 0, sizeof host);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
    EQ(peek(w, (1 << 12) - 1), 5);
}

static int *shared_words;

static void CUDA_CB fill_pinned(void *user)
{
    shared_words[0] = (int)(intptr_t)user;
}

CASE(copy_after_host_function,
     "a copy from page-locked memory sees what a host function before it wrote")
{
    CUdeviceptr w = words(1);
    OK(cuMemAllocHost((void **)&shared_words, 64));
    shared_words[0] = 1;
    OK(cuLaunchHostFunc(side, fill_pinned, (void *)8));
    OK(cuMemcpyHtoDAsync(w, shared_words, 4, side));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 8);
}

static int seen_by_host;

static void CUDA_CB look_at_pinned(void *user)
{
    (void)user;
    seen_by_host = shared_words[0];
}

CASE(copy_before_host_function,
     "a host function sees what a copy before it brought to page-locked memory")
{
    CUdeviceptr w = words(1);
    OK(cuMemAllocHost((void **)&shared_words, 64));
    shared_words[0] = 1;
    OK(launch_set(side, w, 44));
    OK(cuMemcpyDtoHAsync(shared_words, w, 4, side));
    OK(cuLaunchHostFunc(side, look_at_pinned, NULL));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(seen_by_host, 44);
}

CASE(copy_round_trip_in_one_stream,
     "down, up and down again in one stream through page-locked memory")
{
    CUdeviceptr w = words(2);
    int *p;
    OK(cuMemAllocHost((void **)&p, 64));
    memset(p, 0, 64);
    OK(launch_set(side, w, 3));
    OK(cuMemcpyDtoHAsync(p, w, 4, side));
    OK(cuMemcpyHtoDAsync(w + 4, p, 4, side));
    OK(launch_inc(side, w + 4, 10));
    OK(cuMemcpyDtoHAsync(p + 1, w + 4, 4, side));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(p[0], 3);
    EQ(p[1], 13);
}

CASE(copy_parts_in_two_streams, "copies of two streams into one buffer each write their own part")
{
    enum { HALF = 1 << 14 };
    CUdeviceptr w = words(2 * HALF);
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_NON_BLOCKING);
    int *p;
    OK(cuMemAllocHost((void **)&p, 2 * HALF * 4));
    for (int i = 0; i < 2 * HALF; i++) {
        p[i] = i;
    }
    for (int round = 0; round < 8; round++) {
        size_t part = HALF / 8;
        OK(cuMemcpyHtoDAsync(w + round * part * 4, p + round * part, part * 4, a));
        OK(cuMemcpyHtoDAsync(w + (HALF + round * part) * 4, p + HALF + round * part, part * 4, b));
    }
    IS(cuStreamSynchronize(a), CUDA_SUCCESS);
    IS(cuStreamSynchronize(b), CUDA_SUCCESS);
    int *out = malloc(2 * HALF * 4), wrong = 0;
    OK(cuMemcpyDtoH(out, w, 2 * HALF * 4));
    for (int i = 0; i < 2 * HALF; i++) {
        wrong += out[i] != i;
    }
    EQ(wrong, 0);
    free(out);
}

CASE(copy_over_each_other, "copies of one stream to the same place: the last one stays")
{
    CUdeviceptr w = words(4);
    int *p;
    OK(cuMemAllocHost((void **)&p, 400));
    for (int i = 0; i < 100; i++) {
        p[i] = i;
        OK(cuMemcpyHtoDAsync(w + (CUdeviceptr)(i % 3) * 4, p + i, 4, side));
    }
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 99);
    EQ(peek(w, 1), 97);
    EQ(peek(w, 2), 98);
}

CASE(copy_onto_itself, "a copy within the device from an address to itself changes nothing")
{
    CUdeviceptr w = words(4);
    OK(cuMemsetD32(w, 3, 4));
    IS_LATE(cuMemcpyDtoD(w, w, 16), CUDA_SUCCESS);
    EQ(peek(w, 3), 3);
}

CASE(copy_sync_is_seen_by_all_streams, "what a synchronous copy brought is there for every stream")
{
    CUdeviceptr w = words(2);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    int value = 17;
    OK(cuMemcpyHtoD(w, &value, 4));
    OK(launch_copy(s, w + 4, w));
    OK(cuStreamSynchronize(s));
    EQ(peek(w, 1), 17);
}

CASE(copy_to_managed_and_pinned, "copies between device, managed and page-locked memory")
{
    CUdeviceptr w = words(1), m = 0;
    int *p;
    OK(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost((void **)&p, 64));
    p[0] = 12;
    IS(cuMemcpy(m, of(p), 4), CUDA_SUCCESS);
    IS(cuMemcpyDtoD(w, m, 4), CUDA_SUCCESS);
    IS(cuMemcpyDtoH(p + 1, w, 4), CUDA_SUCCESS);
    EQ(p[1], 12);
    OK(cuCtxSynchronize());
    EQ(*(int *)(uintptr_t)m, 12);
}

CASE(copy_rows, "cuMemcpy2D takes pitch and offsets on both sides")
{
    CUdeviceptr w = words(64);
    unsigned char in[64], out[64];
    CUDA_MEMCPY2D p;
    for (int i = 0; i < 64; i++) {
        in[i] = (unsigned char)i;
        out[i] = 0xff;
    }
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = in, p.srcPitch = 8, p.srcXInBytes = 2,
    p.srcY = 1;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.dstDevice = w, p.dstPitch = 32, p.dstXInBytes = 5,
    p.dstY = 2;
    p.WidthInBytes = 3, p.Height = 4;
    IS(cuMemcpy2D(&p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_DEVICE, p.srcDevice = w, p.srcPitch = 32, p.srcXInBytes = 5,
    p.srcY = 2;
    p.dstMemoryType = CU_MEMORYTYPE_HOST, p.dstHost = out, p.dstPitch = 16;
    p.WidthInBytes = 3, p.Height = 4;
    IS(cuMemcpy2DAsync(&p, side), CUDA_SUCCESS);
    OK(cuStreamSynchronize(side));
    conform_say("%d %d %d %d", out[0], out[2], out[16], out[50]);
    EQ(out[0], 10);
    EQ(out[50], 36);
    EQ(out[3], 0xff);
}

CASE(copy_rows_unified, "cuMemcpy2D with addresses of unknown kind")
{
    CUdeviceptr w = words(16);
    static int in[4] = {1, 2, 3, 4};
    CUDA_MEMCPY2D p;
    memset(&p, 0, sizeof p);
    p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    p.srcDevice = of(in), p.srcPitch = 8;
    p.dstDevice = w, p.dstPitch = 16;
    p.WidthInBytes = 8, p.Height = 2;
    IS(cuMemcpy2DUnaligned(&p), CUDA_SUCCESS);
    EQ(peek(w, 1), 2);
    EQ(peek(w, 4), 3);
    EQ(peek(w, 2), 0);
}

CASE(copy_rows_of_nothing, "cuMemcpy2D and 3D without width, height or depth succeed")
{
    CUdeviceptr w = words(16);
    static int in[4] = {1, 2, 3, 4};
    CUDA_MEMCPY2D p;
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = in, p.srcPitch = 8;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.dstDevice = w, p.dstPitch = 16;
    p.WidthInBytes = 0, p.Height = 2;
    IS(cuMemcpy2D(&p), CUDA_SUCCESS);
    p.WidthInBytes = 8, p.Height = 0;
    IS(cuMemcpy2D(&p), CUDA_SUCCESS);
    CUDA_MEMCPY3D q;
    memset(&q, 0, sizeof q);
    q.srcMemoryType = CU_MEMORYTYPE_HOST, q.srcHost = in, q.srcPitch = 8, q.srcHeight = 2;
    q.dstMemoryType = CU_MEMORYTYPE_DEVICE, q.dstDevice = w, q.dstPitch = 16, q.dstHeight = 2;
    q.WidthInBytes = 8, q.Height = 2, q.Depth = 0;
    IS(cuMemcpy3D(&q), CUDA_SUCCESS);
    EQ(peek(w, 0), 0);
}

CASE(copy_boxes, "cuMemcpy3D takes pitch, height and offsets on both sides")
{
    CUdeviceptr w = words(256);
    unsigned char in[4 * 3 * 8], out[8];
    CUDA_MEMCPY3D p;
    for (int i = 0; i < 96; i++) {
        in[i] = (unsigned char)i;
    }
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = in, p.srcPitch = 8, p.srcHeight = 3;
    p.srcXInBytes = 1, p.srcY = 1, p.srcZ = 2;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.dstDevice = w, p.dstPitch = 16, p.dstHeight = 4;
    p.dstXInBytes = 4, p.dstY = 2, p.dstZ = 1;
    p.WidthInBytes = 4, p.Height = 2, p.Depth = 2;
    IS(cuMemcpy3D(&p), CUDA_SUCCESS);
    OK(cuMemcpyDtoH(out, w + 1 * 64 + 2 * 16 + 4, 4));
    EQ(out[0], 2 * 24 + 8 + 1);
    OK(cuMemcpyDtoH(out, w + 2 * 64 + 3 * 16 + 4, 4));
    EQ(out[3], 3 * 24 + 2 * 8 + 4);
    EQ(peek(w, 0), 0);
}

CASE(copy_boxes_mistakes, "cuMemcpy3D refuses a height or pitch smaller than what is copied")
{
    CUdeviceptr w = words(256);
    static unsigned char in[256];
    CUDA_MEMCPY3D p;
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = in, p.srcPitch = 8, p.srcHeight = 1;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.dstDevice = w, p.dstPitch = 16, p.dstHeight = 4;
    p.WidthInBytes = 4, p.Height = 2, p.Depth = 2;
    IS_LATE(cuMemcpy3D(&p), CUDA_ERROR_INVALID_VALUE);
    p.srcHeight = 4, p.srcPitch = 2;
    IS_LATE(cuMemcpy3D(&p), CUDA_ERROR_INVALID_VALUE);
}

static CUarray array_new(size_t width, size_t height)
{
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR d = {
        .Width = width, .Height = height, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    OK(cuArrayCreate(&array, &d));
    return array;
}

CASE(copy_line_arrays,
     "one-dimensional arrays are copied by byte offsets, to host, device and each other")
{
    CUarray a = array_new(16, 0), b = array_new(16, 0);
    CUdeviceptr w = words(4);
    int in[4] = {1, 2, 3, 4}, out[4] = {0};
    IS(cuMemcpyHtoA(a, 8, in, 16), CUDA_SUCCESS);
    IS(cuMemcpyAtoA(b, 0, a, 12, 8), CUDA_SUCCESS);
    IS(cuMemcpyAtoD(w, b, 0, 8), CUDA_SUCCESS);
    IS(cuMemcpyDtoA(a, 0, w, 8), CUDA_SUCCESS);
    IS(cuMemcpyAtoH(out, a, 0, 16), CUDA_SUCCESS);
    EQ(out[0] * 1000 + out[1] * 100 + out[2] * 10 + out[3], 2312);
    EQ(peek(w, 1), 3);
}

CASE(copy_past_an_array, "a copy past the end of an array is refused")
{
    CUarray a = array_new(4, 0);
    int in[8] = {0};
    IS_LATE(cuMemcpyHtoA(a, 0, in, 20), CUDA_ERROR_INVALID_VALUE);
    IS_LATE(cuMemcpyAtoH(in, a, 8, 12), CUDA_ERROR_INVALID_VALUE);
    IS_LATE(cuMemcpyHtoA(a, 0, in, 16), CUDA_SUCCESS);
}

CASE(copy_line_arrays_in_order, "asynchronous copies to and from an array come in stream order")
{
    CUarray a = array_new(16, 0);
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    int *p;
    OK(cuMemAllocHost((void **)&p, 64));
    memset(p, 0, 64);
    OK(cuMemcpyHtoA(a, 0, p, 64));
    for (int i = 0; i < 4; i++) {
        p[i] = i + 1;
    }
    hold(s);
    IS(cuMemcpyHtoAAsync(a, 8, p, 16, s), CUDA_SUCCESS);
    OK(launch_set(s, w, 7));
    EQ(peek(w, 0), 0);
    let_go_in(20);
    IS(cuMemcpyAtoHAsync(p + 8, a, 4, 16, s), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(p[8] * 1000 + p[9] * 100 + p[10] * 10 + p[11], 123);
    EQ(peek(w, 0), 7);
    OK(cuMemFreeHost(p));
}

/* Boxes of memory and of arrays, for batches. */
static CUmemcpy3DOperand box_at(CUdeviceptr at, size_t row_length)
{
    CUmemcpy3DOperand box;
    memset(&box, 0, sizeof box);
    box.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.op.ptr.ptr = at;
    box.op.ptr.rowLength = row_length;
    return box;
}

static CUmemcpy3DOperand box_in(CUarray array, size_t x, size_t y)
{
    CUmemcpy3DOperand box;
    memset(&box, 0, sizeof box);
    box.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    box.op.array.array = array;
    box.op.array.offset.x = x;
    box.op.array.offset.y = y;
    return box;
}

static CUDA_MEMCPY3D_BATCH_OP box_copy(CUmemcpy3DOperand to, CUmemcpy3DOperand from, size_t width,
                                       size_t height)
{
    CUDA_MEMCPY3D_BATCH_OP op;
    memset(&op, 0, sizeof op);
    op.src = from;
    op.dst = to;
    op.extent.width = width;
    op.extent.height = height;
    op.extent.depth = 1;
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return op;
}

/* 16 ints on the device: 0, 1, 2 ... */
static CUdeviceptr numbers(void)
{
    CUdeviceptr w = words(16);
    int in[16];
    for (int i = 0; i < 16; i++) {
        in[i] = i;
    }
    OK(cuMemcpyHtoD(w, in, sizeof in));
    return w;
}

CASE(copy_batch_of_boxes,
     "a batch copies boxes, of bytes between pointers and of elements where there is an array")
{
    CUdeviceptr w = numbers(), to = words(16);
    CUarray a = array_new(4, 4);
    CUDA_MEMCPY3D_BATCH_OP first[] = {
        box_copy(box_in(a, 0, 0), box_at(w, 0), 4, 4),
        box_copy(box_at(to, 0), box_at(w + 20, 16), 8, 2),
    };
    CUDA_MEMCPY3D_BATCH_OP second[] = {box_copy(box_at(to + 16, 4), box_in(a, 1, 2), 2, 2)};
    IS(cuMemcpy3DBatchAsync(2, first, 0, side), CUDA_SUCCESS);
    IS(cuMemcpy3DBatchAsync(1, second, 0, side), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(to, 0), 5);
    EQ(peek(to, 1), 6);
    EQ(peek(to, 2), 9);
    EQ(peek(to, 3), 10);
    EQ(peek(to, 4), 9);
    EQ(peek(to, 5), 10);
    EQ(peek(to, 6), 0);
    EQ(peek(to, 8), 13);
    EQ(peek(to, 9), 14);
}

CASE(copy_batch_of_boxes_refused,
     "a batch of boxes with flags, or without an order of access, is refused")
{
    CUdeviceptr w = numbers(), to = words(16);
    CUDA_MEMCPY3D_BATCH_OP op = box_copy(box_at(to, 0), box_at(w, 0), 8, 2);
    IS_LATE(cuMemcpy3DBatchAsync(1, &op, 1, side), CUDA_ERROR_INVALID_VALUE);
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    IS_LATE(cuMemcpy3DBatchAsync(1, &op, 0, side), CUDA_ERROR_INVALID_VALUE);
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    IS_LATE(cuMemcpy3DBatchAsync(1, &op, 0, side), CUDA_SUCCESS);
    EQ(peek(to, 3), 3);
}

CASE(copy_batch_of_an_empty_box, "a batch with a box that has no width is refused")
{
    CUdeviceptr w = numbers(), to = words(16);
    CUDA_MEMCPY3D_BATCH_OP op = box_copy(box_at(to, 0), box_at(w, 0), 0, 2);
    IS_LATE(cuMemcpy3DBatchAsync(1, &op, 0, side), CUDA_ERROR_INVALID_VALUE);
}

CASE(copy_batch_of_boxes_first_form, "the batch of CUDA 12.8 copies, and tells which copy is wrong")
{
    CUresult (*batch)(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream) =
        NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUdeviceptr w = numbers(), to = words(16);
    CUDA_MEMCPY3D_BATCH_OP ops[] = {
        box_copy(box_at(to, 0), box_at(w + 16, 0), 8, 2),
        box_copy(box_at(to + 32, 0), box_at(w, 0), 8, 2),
    };
    size_t failed = 99;
    OK(cuGetProcAddress("cuMemcpy3DBatchAsync", (void **)&batch, 12080, 0, &found));
    EQ(found, CU_GET_PROC_ADDRESS_SUCCESS);
    IS_LATE(batch(2, ops, &failed, 0, side), CUDA_SUCCESS);
    EQ(peek(to, 3), 7);
    EQ(peek(to, 11), 3);
    ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    IS_LATE(batch(2, ops, &failed, 0, side), CUDA_ERROR_INVALID_VALUE);
    EQ(failed, 1);
}

CASE(copy_plane_arrays, "rows of a two-dimensional array are copied with offsets")
{
    CUarray a = array_new(4, 4);
    int in[16], out[4] = {0};
    CUDA_MEMCPY2D p;
    for (int i = 0; i < 16; i++) {
        in[i] = i;
    }
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = in, p.srcPitch = 16;
    p.dstMemoryType = CU_MEMORYTYPE_ARRAY, p.dstArray = a;
    p.WidthInBytes = 16, p.Height = 4;
    IS(cuMemcpy2D(&p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_ARRAY, p.srcArray = a, p.srcXInBytes = 4, p.srcY = 2;
    p.dstMemoryType = CU_MEMORYTYPE_HOST, p.dstHost = out, p.dstPitch = 8;
    p.WidthInBytes = 8, p.Height = 2;
    IS(cuMemcpy2D(&p), CUDA_SUCCESS);
    EQ(out[0], 9);
    EQ(out[3], 14);
}

CASE(copy_peer_with_itself, "a peer copy within one context is a plain copy")
{
    CUdeviceptr w = words(2);
    OK(cuMemsetD32(w, 6, 1));
    IS(cuMemcpyPeer(w + 4, ctx, w, ctx, 4), CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    EQ(peek(w, 1), 6);
    IS(cuMemcpyPeerAsync(w, ctx, w + 4, ctx, 0, side), CUDA_SUCCESS);
    OK(cuStreamSynchronize(side));
}

CASE(copy_to_globals, "a module's global is memory that can be copied to")
{
    CUdeviceptr w = words(1), number = 0;
    size_t size = 0;
    int value = 11, index = 1;
    OK(cuModuleGetGlobal(&number, &size, mod, "number"));
    EQ(size, 4);
    IS(cuMemcpyHtoD(number, &value, 4), CUDA_SUCCESS);
    void *params[] = {&w, &index};
    OK(cuLaunchKernel(function("globals"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    EQ(peek(w, 0), 33);
}

CASE(copy_down_waits_in_its_stream,
     "an asynchronous copy to the host comes after its stream's work")
{
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    int *p;
    OK(cuMemAllocHost((void **)&p, 4));
    *p = 1;
    hold(s);
    OK(launch_set(s, w, 9));
    IS(cuMemcpyDtoHAsync(p, w, 4, s), CUDA_SUCCESS);
    conform_sleep_ms(10);
    EQ(*(volatile int *)p, 1);
    let_go();
    OK(cuStreamSynchronize(s));
    EQ(*(volatile int *)p, 9);
}

/* Whether bytes [from, from + size) of w are the pattern's and those around them are 0x11. */
static int filled(CUdeviceptr w, size_t from, size_t size, unsigned pattern, size_t element)
{
    unsigned char out[64];
    if (cuMemcpyDtoH(out, w, sizeof out) != CUDA_SUCCESS) {
        return 0;
    }
    for (size_t i = 0; i < sizeof out; i++) {
        unsigned want = i < from || i >= from + size ? 0x11 : pattern >> (i - from) % element * 8;
        if (out[i] != (want & 0xff)) {
            return 0;
        }
    }
    return 1;
}

CASE(fill_any_start_and_count,
     "fills reach exactly their elements, wherever they start and however many they are")
{
    CUdeviceptr w = words(16);
    int right = 0, tried = 0;
    for (size_t first = 0; first < 9; first++) {
        for (size_t n = 0; n < 8; n++) {
            OK(cuMemsetD8(w, 0x11, 64));
            OK(cuMemsetD8(w + first, 0x23, n));
            right += filled(w, first, n, 0x23, 1);
            OK(cuMemsetD8(w, 0x11, 64));
            OK(cuMemsetD16(w + first * 2, 0x4567, n));
            right += filled(w, first * 2, n * 2, 0x4567, 2);
            OK(cuMemsetD8(w, 0x11, 64));
            OK(cuMemsetD32(w + first * 4, 0x89abcdef, n));
            right += filled(w, first * 4, n * 4, 0x89abcdef, 4);
            tried += 3;
        }
    }
    EQ(tried - right, 0);
}
