/* SPDX-License-Identifier: Apache-2.0 */
/* Work: a stream queues it as an op, a graph keeps it as a node. */
#ifndef TOW_SOFT_ENGINE_WORK_H
#define TOW_SOFT_ENGINE_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tow_backend_span;
struct tow_soft_array;
struct tow_soft_condition;
struct tow_soft_ctx;
struct tow_soft_function;
struct tow_soft_graph;
struct tow_soft_graph_va;
struct tow_soft_mark;
struct tow_soft_plan;

enum tow_soft_work_kind {
    TOW_SOFT_WORK_EMPTY,
    TOW_SOFT_WORK_KERNEL,
    TOW_SOFT_WORK_COPY,
    TOW_SOFT_WORK_SET,
    TOW_SOFT_WORK_HOST,
    TOW_SOFT_WORK_RECORD,
    TOW_SOFT_WORK_WAIT,
    TOW_SOFT_WORK_MEMOPS,
    TOW_SOFT_WORK_ALLOC, /* graph nodes only */
    TOW_SOFT_WORK_FREE,
    TOW_SOFT_WORK_GRAPH,  /* a launched graph */
    TOW_SOFT_WORK_CHILD,  /* graph nodes only */
    TOW_SOFT_WORK_BRANCH, /* a conditional node */
    TOW_SOFT_WORK_KINDS
};

struct tow_soft_kernel_work {
    struct tow_soft_function *function; /* counted through its module */
    uint32_t grid[3], block[3], cluster[3], shared;
    bool cooperative;
    int priority;
    uint8_t *params; /* owned */
    size_t param_bytes;
    CUlaunchAttribute attrs[8]; /* what the caller set, for graph queries */
    unsigned attr_count;
    bool through_kernel; /* the caller named a CUkernel */
};

struct tow_soft_copy_work {
    uint8_t *dst;
    const uint8_t *src;
    size_t dst_pitch, dst_slice, src_pitch, src_slice, width, height, depth;
    bool dst_device, src_device;                  /* checked against live memory when it runs */
    bool dst_host, src_host;                      /* the host's, pinned or not */
    struct tow_soft_array *dst_array, *src_array; /* counted */
    void *staged; /* owned: what was read from pageable memory; then `src` points into it */
    CUDA_MEMCPY3D desc;
};

struct tow_soft_set_work {
    uint64_t dst;
    size_t pitch, width, height; /* width in elements */
    uint32_t value, element;
};

struct tow_soft_work {
    enum tow_soft_work_kind kind;
    union {
        struct tow_soft_kernel_work kernel;
        struct tow_soft_copy_work copy;
        struct tow_soft_set_work set;
        struct {
            CUhostFn fn;
            CUstreamCallback callback; /* instead of fn */
            CUstream stream;
            void *user;
            CUresult status; /* for the callback: the context's when it begins */
        } host;
        struct {
            struct tow_soft_mark *mark; /* counted */
            uint64_t event;             /* handle, for graph nodes: recorded anew at each launch */
            bool timing;
        } event;
        struct {
            CUstreamBatchMemOpParams *ops; /* owned */
            unsigned count, flags;
        } memops;
        struct {
            struct tow_soft_graph_va *va; /* counted */
            uint64_t size;
            CUDA_MEM_ALLOC_NODE_PARAMS params; /* without its pointers */
        } alloc;
        struct {
            uint64_t address;
        } release;
        struct {
            struct tow_soft_plan *plan;   /* counted */
            struct tow_soft_mark **marks; /* owned: one for each event that the graph records */
            size_t mark_count;
        } graph;
        struct {
            struct tow_soft_graph *graph; /* owned */
        } child;
        struct {
            struct tow_soft_condition *condition; /* counted */
            CUgraphConditionalNodeType type;
            unsigned count;
            struct tow_soft_graph **bodies; /* owned, and so are the graphs */
            CUgraph *handles;               /* owned: theirs; NULL in an instance */
        } branch;
    };
};

/* What there is to know of a kind of work. */
struct tow_soft_work_ops {
    /* Does it; unlocked, on any thread. Returns the error that the context then has. */
    CUresult (*run)(struct tow_soft_work *work, struct tow_soft_ctx *ctx);
    /* Frees what it holds. */
    void (*fini)(struct tow_soft_work *work);
    /* Of the bytes of another: gives it references of its own. -EINVAL if it is never copied. */
    int (*clone)(struct tow_soft_work *copy);
    /* For a timeline: what it is, and a kernel's name. NULL: it is not shown. */
    const char *(*describe)(const struct tow_soft_work *work, struct tow_backend_span *span);
};
CUresult tow_soft_work_no_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx);
void tow_soft_work_no_fini(struct tow_soft_work *work);
int tow_soft_work_plain_clone(struct tow_soft_work *copy);
int tow_soft_work_no_clone(struct tow_soft_work *copy);
/* NULL if there is no memory. */
void *tow_soft_copy_bytes(const void *bytes, size_t size);
/* Where the work is that this thread is about to run, for a timeline. */
struct tow_soft_work_place {
    uint64_t given_ns, command;
    uint32_t stream, queued;
};
void tow_soft_work_of(struct tow_soft_work_place place);
/* Frees what the work holds. */
void tow_soft_work_fini(struct tow_soft_work *work);
/* Copies it with references of its own; not what holds graphs (tow_soft_graph_copy does that). */
int tow_soft_work_clone(const struct tow_soft_work *work, struct tow_soft_work *ret_work);
/* One stream memory operation; false if it has to wait. Needs no lock. */
bool tow_soft_memop_try(const CUstreamBatchMemOpParams *op, const struct tow_soft_ctx *ctx,
                        CUresult *ret_result);
/* Does it; unlocked, on any thread. Returns the error that the context then has. */
CUresult tow_soft_work_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx);

#endif
