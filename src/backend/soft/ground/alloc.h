/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory of all kinds: made, found, dropped. tow_soft.lock guards all of it. */
#ifndef TOW_SOFT_GROUND_ALLOC_H
#define TOW_SOFT_GROUND_ALLOC_H

#include "backend/soft/ground/index.h"
#include "gen/cuda_types.h"

struct tow_soft_block;
struct tow_soft_ctx;
struct tow_soft_graph_va;
struct tow_soft_memory;
struct tow_soft_pool;

#define TOW_SOFT_BLOCK                                                                             \
    (UINT64_C(2) << 20)   /* small allocations are cut from blocks of this size                    \
                           */
#define TOW_SOFT_UNIT 512 /* alignment of every allocation */

/* One live piece of memory. */
struct tow_soft_alloc {
    uint64_t base, size; /* exactly what was asked for */
    uint64_t reserved;   /* what it occupies, from base - lead on */
    uint64_t lead;       /* see tow_soft_alloc_shift */
    enum tow_soft_alloc_kind kind;
    struct tow_soft_ctx *ctx; /* borrowed; NULL for host-wide memory */
    int device;
    unsigned flags; /* of the allocating call */
    uint64_t id;
    uint64_t number; /* the how manieth of all */
    bool sync_memops, read_mostly;
    bool freeing;  /* a stream-ordered free of it is queued */
    bool variable; /* of a module, and not freed but by it */
    bool followed; /* who writes it is seen, see written.h */
    CUmemLocation preferred, prefetched;
    uint32_t accessed_by;           /* devices, by cuMemAdvise; bit 31: the host */
    struct tow_soft_block *block;   /* borrowed; NULL for memory with pages of its own */
    struct tow_soft_pool *pool;     /* borrowed; for POOL */
    bool in_file;                   /* for POOL: its pages are part of the pool's file */
    uint64_t file_offset;           /* in_file: where in it */
    bool imported;                  /* another worker's, which counts it */
    struct tow_soft_memory *memory; /* counted; for VMM */
    struct tow_soft_graph_va
        *va; /* counted; for GRAPH: its pages outlive it, the graph may come again */
    void (*gone)(struct tow_soft_alloc *alloc); /* for POOL and IPC: whose it was hears of it */
    struct tow_soft_alloc *prev, *next;         /* in ctx->allocs, or kept by module.c */
};

/* Allocates and enters it into the index and the context's list. `ctx` NULL is allowed for HOST. */
CUresult tow_soft_alloc_make(struct tow_soft_ctx *ctx, int device, enum tow_soft_alloc_kind kind,
                             uint64_t size, unsigned flags, struct tow_soft_alloc **ret_alloc);
/* Enters memory that somebody else provides (registered, mapped); -ENOMEM. */
int tow_soft_alloc_enter(struct tow_soft_alloc *alloc);
/* New memory with pages of its own begins so many bytes later. */
CUresult tow_soft_alloc_shift(struct tow_soft_alloc *alloc, uint64_t lead);
/* It no longer ends with its context. */
void tow_soft_alloc_disown(struct tow_soft_alloc *alloc);
/* Forgets it: kernels that start from now on fault on it; its pages go when no kernel that may
 * still use them runs. */
void tow_soft_alloc_drop(struct tow_soft_alloc *alloc);
/* The allocation that holds [address, address + size), NULL if none or if it ends before. */
struct tow_soft_alloc *tow_soft_alloc_at(uint64_t address);
/* True when every byte of the range is live and `ctx` may use it. */
bool tow_soft_range_ok(const struct tow_soft_ctx *ctx, uint64_t address, uint64_t size, bool write);
/* True when the address is memory that the driver knows (device, managed, pinned). */
bool tow_soft_range_known(uint64_t address);
/* Calls `run(object, a, b)` once no op that is running now runs any more. */
void tow_soft_retire(void (*run)(void *object, uint64_t a, uint64_t b), void *object, uint64_t a,
                     uint64_t b);
/* Runs what has become due: the op that runs longest began at `oldest`; UINT64_MAX if none runs. */
void tow_soft_retire_poll(uint64_t oldest);
/* Memory of a GPU that counts there: pages at an address or, with a descriptor, a part of a memory
 * file. */
struct tow_soft_area {
    int device;
    uint64_t base, size;
    int fd; /* borrowed; -1: none, then `base` is an address; else it is an offset */
};
typedef void tow_soft_area_fn(void *user, const struct tow_soft_area *area);
/* Calls `visit` for all that is no file. */
void tow_soft_pages_each(tow_soft_area_fn *visit, void *user);

/* Device malloc and free; unlocked. */
uint64_t tow_soft_heap_alloc(struct tow_soft_ctx *ctx, uint64_t bytes);
int tow_soft_heap_free(struct tow_soft_ctx *ctx, uint64_t address);
void tow_soft_heap_fini(struct tow_soft_ctx *ctx);

/* The address of a graph's allocation. Pages are put behind it when it is first used. */
struct tow_soft_graph_va {
    unsigned refs;
    uint64_t base, size;
    int device;
    bool committed;
    bool held; /* in the order of calls: a launch allocates it, and nothing after that frees it */
    struct tow_soft_graph_va *next; /* borrowed: in the list of all */
};
struct tow_soft_graph_va *tow_soft_graph_va_create(int device, uint64_t size);
struct tow_soft_graph_va *tow_soft_graph_va_ref(struct tow_soft_graph_va *va);
void tow_soft_graph_va_unref(struct tow_soft_graph_va *va);
CUresult tow_soft_graph_va_commit(struct tow_soft_graph_va *va);
/* The one that begins there, or NULL. Borrowed, while the lock is held. */
struct tow_soft_graph_va *tow_soft_graph_va_at(uint64_t base);
/* Whether a graph's node may name this memory: there is some, or an allocation node will make it.
 * Locked. */
bool tow_soft_graph_range_ok(uint64_t address, uint64_t size, bool write);

#endif
