/* SPDX-License-Identifier: Apache-2.0 */
/* What copies and fills do when their turn comes. */
#include "backend/backend.h"
#include "backend/soft/copy/copy.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"
#include "backend/soft/memory/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"

static bool extent_ok(const void *base, size_t pitch, size_t slice,
                      const struct tow_soft_copy_work *copy, bool write, struct tow_soft_ctx *ctx)
{
    uint64_t size = (copy->depth - 1) * slice + (copy->height - 1) * pitch + copy->width;
    if (tow_soft_range_ok(ctx, (uint64_t)(uintptr_t)base, size, write)) {
        return true;
    }
    tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
            "a copy was to %s %llu bytes at 0x%llx, which is not (or no longer) allocated",
            write ? "write" : "read", (unsigned long long)size,
            (unsigned long long)(uintptr_t)base);
    return false;
}

/* What nobody wrote is so at the place of the copy, too. */
static void copy_written(const struct tow_soft_copy_work *copy)
{
    tow_mutex_lock(&tow_soft.lock);
    const struct tow_soft_alloc *alloc = tow_soft_alloc_at((uint64_t)(uintptr_t)copy->dst);
    bool followed = alloc != NULL && alloc->followed;
    tow_mutex_unlock(&tow_soft.lock);
    for (size_t z = 0; z < copy->depth; z++) {
        for (size_t y = 0; y < copy->height; y++) {
            tow_soft_written_copy(
                (uint64_t)(uintptr_t)copy->dst + z * copy->dst_slice + y * copy->dst_pitch,
                (uint64_t)(uintptr_t)copy->src + z * copy->src_slice + y * copy->src_pitch,
                copy->width, followed);
        }
    }
}

static CUresult copy_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    const struct tow_soft_copy_work *copy = &work->copy;
    if (copy->width == 0 || copy->height == 0 || copy->depth == 0) {
        return CUDA_SUCCESS;
    }
    if ((copy->dst_device &&
         !extent_ok(copy->dst, copy->dst_pitch, copy->dst_slice, copy, true, ctx)) ||
        (copy->src_device &&
         !extent_ok(copy->src, copy->src_pitch, copy->src_slice, copy, false, ctx))) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (tow_soft_written() != NULL) {
        copy_written(copy);
    }
    for (size_t z = 0; z < copy->depth; z++) {
        uint8_t *dst = copy->dst + z * copy->dst_slice;
        const uint8_t *src = copy->src + z * copy->src_slice;
        if (copy->dst_pitch == copy->width && copy->src_pitch == copy->width) {
            memmove(dst, src, copy->width * copy->height);
            continue;
        }
        for (size_t y = 0; y < copy->height; y++) {
            memmove(dst + y * copy->dst_pitch, src + y * copy->src_pitch, copy->width);
        }
    }
    return CUDA_SUCCESS;
}

/* Stores one element of a fill, whole; `at` is a multiple of its size. */
static void fill_one(uint8_t *at, uint32_t value, uint32_t element)
{
    if (element == 2) {
        atomic_store_explicit((_Atomic uint16_t *)at, (uint16_t)value, memory_order_relaxed);
    } else {
        atomic_store_explicit((_Atomic uint32_t *)at, value, memory_order_relaxed);
    }
}

/* Elements wider than a byte are stored whole, two or four at a time: another stream may wait for
 * one of them (tow_soft_memop_try), and must see it as it was or as it is. */
static void fill_row(uint8_t *at, uint32_t value, uint32_t element, size_t n)
{
    if (element == 1) {
        memset(at, (int)(value & 0xff), n);
        return;
    }
    uint8_t *end = at + n * element;
    uint64_t pattern = element == 2 ? (value & 0xffff) * UINT64_C(0x0001000100010001)
                                    : value * UINT64_C(0x0000000100000001);
    for (; at < end && (uintptr_t)at % sizeof(pattern) != 0; at += element) {
        fill_one(at, value, element);
    }
    for (; (size_t)(end - at) >= sizeof(pattern); at += sizeof(pattern)) {
        atomic_store_explicit((_Atomic uint64_t *)at, pattern, memory_order_relaxed);
    }
    for (; at < end; at += element) {
        fill_one(at, value, element);
    }
}

static CUresult set_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    const struct tow_soft_set_work *set = &work->set;
    if (set->width == 0 || set->height == 0) {
        return CUDA_SUCCESS;
    }
    uint64_t size = (set->height - 1) * set->pitch + set->width * set->element;
    if (!tow_soft_range_ok(ctx, set->dst, size, true)) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                "a memset was to write %llu bytes at 0x%llx, which is not (or no longer) allocated",
                (unsigned long long)size, (unsigned long long)set->dst);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    for (size_t y = 0; y < set->height; y++) {
        tow_soft_written_all(set->dst + y * set->pitch, set->width * set->element);
        fill_row((uint8_t *)(uintptr_t)(set->dst + y * set->pitch), set->value, set->element,
                 set->width);
    }
    return CUDA_SUCCESS;
}

static void copy_fini(struct tow_soft_work *work)
{
    tow_soft_array_unref(work->copy.dst_array);
    tow_soft_array_unref(work->copy.src_array);
    free(work->copy.staged);
}

static int copy_clone(struct tow_soft_work *copy)
{
    if (copy->copy.staged != NULL) {
        return -EINVAL; /* only queued ops are staged, and they are not cloned */
    }
    tow_soft_array_ref(copy->copy.dst_array);
    tow_soft_array_ref(copy->copy.src_array);
    return 0;
}

static const char *copy_describe(const struct tow_soft_work *work, struct tow_backend_span *span)
{
    const struct tow_soft_copy_work *copy = &work->copy;
    span->kind = copy->src_host ? (copy->dst_host ? TOW_BACKEND_COPY_HOST : TOW_BACKEND_COPY_IN)
                                : (copy->dst_host ? TOW_BACKEND_COPY_OUT : TOW_BACKEND_COPY_DEVICE);
    span->bytes = copy->width * copy->height * copy->depth;
    return NULL;
}

static const char *set_describe(const struct tow_soft_work *work, struct tow_backend_span *span)
{
    span->kind = TOW_BACKEND_FILL;
    span->bytes = (uint64_t)work->set.width * work->set.element * work->set.height;
    return NULL;
}

const struct tow_soft_work_ops tow_soft_copy_ops = {copy_run, copy_fini, copy_clone, copy_describe};
const struct tow_soft_work_ops tow_soft_set_ops = {set_run, tow_soft_work_no_fini,
                                                   tow_soft_work_plain_clone, set_describe};
