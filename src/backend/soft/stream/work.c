/* What ops and graph nodes do: copying, filling, calling the host, and taking care of references.
 */
#include "backend/soft/ground/soft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

void tow_soft_work_fini(struct tow_soft_work *work)
{
    switch (work->kind) {
    case TOW_SOFT_WORK_KERNEL:
        if (work->kernel.function != NULL) {
            tow_soft_module_unref(work->kernel.function->module);
        }
        free(work->kernel.params);
        break;
    case TOW_SOFT_WORK_COPY:
        tow_soft_array_unref(work->copy.dst_array);
        tow_soft_array_unref(work->copy.src_array);
        free(work->copy.staged);
        break;
    case TOW_SOFT_WORK_RECORD:
    case TOW_SOFT_WORK_WAIT:
        tow_soft_mark_unref(work->event.mark);
        break;
    case TOW_SOFT_WORK_MEMOPS:
        free(work->memops.ops);
        break;
    case TOW_SOFT_WORK_GRAPH:
        for (size_t i = 0; i < work->graph.mark_count; i++) {
            /* Also when the graph failed or was thrown away. */
            tow_soft_mark_finish(work->graph.marks[i]);
            tow_soft_mark_unref(work->graph.marks[i]);
        }
        free(work->graph.marks);
        tow_soft_plan_unref(work->graph.plan);
        break;
    case TOW_SOFT_WORK_CHILD:
        tow_soft_graph_free(work->child.graph);
        break;
    case TOW_SOFT_WORK_BRANCH:
        tow_soft_branch_fini(work);
        break;
    case TOW_SOFT_WORK_ALLOC:
        tow_soft_graph_va_unref(work->alloc.va);
        break;
    default:
        break;
    }
    memset(work, 0, sizeof *work);
}

static void *copy_bytes(const void *bytes, size_t size)
{
    void *copy = malloc(size != 0 ? size : 1);
    if (copy != NULL && size != 0) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

int tow_soft_work_clone(const struct tow_soft_work *work, struct tow_soft_work *ret_work)
{
    struct tow_soft_work copy = *work;
    switch (work->kind) {
    case TOW_SOFT_WORK_KERNEL:
        copy.kernel.params = copy_bytes(work->kernel.params, work->kernel.param_bytes);
        if (copy.kernel.params == NULL) {
            return -ENOMEM;
        }
        tow_soft_module_ref(copy.kernel.function->module);
        break;
    case TOW_SOFT_WORK_COPY:
        if (work->copy.staged != NULL) {
            return -EINVAL; /* only queued ops are staged, and they are not cloned */
        }
        tow_soft_array_ref(copy.copy.dst_array);
        tow_soft_array_ref(copy.copy.src_array);
        break;
    case TOW_SOFT_WORK_RECORD:
    case TOW_SOFT_WORK_WAIT:
        tow_soft_mark_ref(copy.event.mark);
        break;
    case TOW_SOFT_WORK_MEMOPS:
        copy.memops.ops =
            copy_bytes(work->memops.ops, work->memops.count * sizeof *copy.memops.ops);
        if (copy.memops.ops == NULL) {
            return -ENOMEM;
        }
        break;
    case TOW_SOFT_WORK_GRAPH: /* only queued */
    case TOW_SOFT_WORK_CHILD: /* who copies a graph sees to these */
    case TOW_SOFT_WORK_BRANCH:
        return -EINVAL;
    case TOW_SOFT_WORK_ALLOC:
        tow_soft_graph_va_ref(copy.alloc.va);
        break;
    default:
        break;
    }
    *ret_work = copy;
    return 0;
}

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

static CUresult copy_run(struct tow_soft_copy_work *copy, struct tow_soft_ctx *ctx)
{
    if (copy->width == 0 || copy->height == 0 || copy->depth == 0) {
        return CUDA_SUCCESS;
    }
    if ((copy->dst_device &&
         !extent_ok(copy->dst, copy->dst_pitch, copy->dst_slice, copy, true, ctx)) ||
        (copy->src_device &&
         !extent_ok(copy->src, copy->src_pitch, copy->src_slice, copy, false, ctx))) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
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

static CUresult set_run(struct tow_soft_set_work *set, struct tow_soft_ctx *ctx)
{
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
        fill_row((uint8_t *)(uintptr_t)(set->dst + y * set->pitch), set->value, set->element,
                 set->width);
    }
    return CUDA_SUCCESS;
}

static bool value_reached(uint64_t have, uint64_t want, unsigned flags, bool wide)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return wide ? (int64_t)(have - want) >= 0 : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return have == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (have & want) != 0;
    default:
        return wide ? ~(have | want) != 0 : (uint32_t) ~(have | want) != 0;
    }
}

bool tow_soft_memop_try(const CUstreamBatchMemOpParams *op, const struct tow_soft_ctx *ctx,
                        CUresult *ret_result)
{
    bool wide = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    bool write = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                 op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (op->operation == CU_STREAM_MEM_OP_BARRIER ||
        op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
        atomic_thread_fence(memory_order_seq_cst);
        return true;
    }
    if (!tow_soft_range_ok(ctx, op->waitValue.address, wide ? 8 : 4, write)) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                "a stream memory operation used 0x%llx, which is not allocated any more",
                (unsigned long long)op->waitValue.address);
        *ret_result = CUDA_ERROR_ILLEGAL_ADDRESS;
        return true;
    }
    void *at = (void *)(uintptr_t)op->waitValue.address;
    if (write) {
        if (wide) {
            atomic_store((_Atomic uint64_t *)at, op->writeValue.value64);
        } else {
            atomic_store((_Atomic uint32_t *)at, op->writeValue.value);
        }
        return true;
    }
    if (wide) {
        return value_reached(atomic_load((_Atomic uint64_t *)at), op->waitValue.value64,
                             op->waitValue.flags, true);
    }
    return value_reached(atomic_load((_Atomic uint32_t *)at), op->waitValue.value,
                         op->waitValue.flags, false);
}

/* NVIDIA's driver has one thread for all host functions. */
static void host_run(const struct tow_soft_work *work)
{
    static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
    bool strict = tow_soft.strict;
    if (strict) {
        pthread_mutex_lock(&alone);
    }
    if (work->host.callback != NULL) {
        work->host.callback(work->host.stream, work->host.status, work->host.user);
    } else {
        work->host.fn(work->host.user);
    }
    if (strict) {
        pthread_mutex_unlock(&alone);
    }
}

CUresult tow_soft_work_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    switch (work->kind) {
    case TOW_SOFT_WORK_KERNEL:
        return tow_soft_kernel_run(&work->kernel, ctx);
    case TOW_SOFT_WORK_COPY:
        return copy_run(&work->copy, ctx);
    case TOW_SOFT_WORK_SET:
        return set_run(&work->set, ctx);
    case TOW_SOFT_WORK_HOST:
        tow_soft_print_flush(ctx);
        host_run(work);
        return CUDA_SUCCESS;
    case TOW_SOFT_WORK_GRAPH:
        return tow_soft_plan_run(work, ctx);
    default:
        return CUDA_SUCCESS;
    }
}
