/* SPDX-License-Identifier: Apache-2.0 */
/* What the client knows of addresses: live allocations, for pointer queries, checks and copies by
 * address.
 *
 * An address that lies in a range of a server but in no region may still be device memory (a
 * module's variable).
 */
#ifndef TOW_CLIENT_REGION_H
#define TOW_CLIENT_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stream/context.h"

enum towc_region_kind {
    TOW_REGION_DEVICE,     /* cuMemAlloc */
    TOW_REGION_POOL,       /* stream-ordered */
    TOW_REGION_VMM,        /* mapped by cuMemMap */
    TOW_REGION_RESERVED,   /* address space only */
    TOW_REGION_HOST,       /* cuMemHostAlloc */
    TOW_REGION_REGISTERED, /* the program's own, cuMemHostRegister */
    TOW_REGION_MANAGED,
    TOW_REGION_IPC, /* another process's, opened */
};

struct towc_region {
    uint64_t base, size;
    enum towc_region_kind kind;
    unsigned flags;    /* as given by the program */
    uint64_t id;       /* CU_POINTER_ATTRIBUTE_BUFFER_ID: never used again; set by add */
    CUcontext context; /* in which it was made; NULL for stream-ordered and VMM memory */
    CUdevice device;
    struct towc_link *link; /* borrowed: the server that has it */
    CUmemoryPool pool;
    bool sync_memops;
    bool graph;    /* of a graph's allocation node: freed and allocated again by launches */
    bool variable; /* a __managed__ one, which ends with its module or library only */
    /* Host memory that the worker has too: all of it, or whole pages of it; both 0: nothing. */
    uint64_t shared_low, shared_high;
};

/* True if the worker has all of it. */
static inline bool towc_region_is_shared(const struct towc_region *region)
{
    return region->shared_low == region->base && region->shared_high == region->base + region->size;
}

static inline bool towc_region_is_host(const struct towc_region *region)
{
    return region->kind == TOW_REGION_HOST || region->kind == TOW_REGION_REGISTERED;
}

/* What is made in the current context. */
static inline struct towc_region towc_region_here(uint64_t base, uint64_t size,
                                                  enum towc_region_kind kind, unsigned flags)
{
    const struct towc_context *context = towc_context_current();
    return (struct towc_region){.base = base,
                                .size = size,
                                .kind = kind,
                                .flags = flags,
                                .context = context->handle,
                                .device = context->device,
                                .link = context->link};
}

/* Memory of a pool, of the current context's device: it belongs to no context. */
static inline struct towc_region towc_region_of_pool(uint64_t base, uint64_t size,
                                                     CUmemoryPool pool)
{
    struct towc_region region = towc_region_here(base, size, TOW_REGION_POOL, 0);
    region.context = NULL;
    region.pool = pool;
    return region;
}

/* How many regions the program itself can look at, host and managed memory: 0 keeps copies short.
 */
extern atomic_uint towc_region_visible;

/* Reserves the address ranges of a server in this process, as far as they are free. */
void towc_region_attach(struct towc_link *link);
/* True if all of [base, base + size) is in one range of that server which could be reserved:
 * nothing but its managed memory is mapped there. */
bool towc_region_is_reserved_here(const struct towc_link *link, uint64_t base, uint64_t size);

int towc_region_add(const struct towc_region *region);
/* The region that holds `address`. Regions of kind RESERVED are found only where nothing else is.
 */
bool towc_region_find(uint64_t address, struct towc_region *ret_region);
/* The reservation that holds `address`, mapped or not. */
bool towc_region_find_reserved(uint64_t address, struct towc_region *ret_region);
/* True if any region has an address of [base, base + size), which does not wrap. */
bool towc_region_overlaps(uint64_t base, uint64_t size);
/* Removes the region that begins at `base` and is of a kind in `kinds` (a mask of 1 << kind). */
bool towc_region_remove(uint64_t base, unsigned kinds, struct towc_region *ret_region);
/* Removes the mappings that begin in [base, base + size), which does not wrap. */
void towc_region_remove_mappings(uint64_t base, uint64_t size);
/* Changes the region at `base` by the caller's function, under the lock. */
bool towc_region_edit(uint64_t base, void (*edit)(struct towc_region *region, void *user),
                      void *user);
/* A context is gone, and with it what was allocated in it. */
void towc_region_drop_context(CUcontext context);
/* Takes one region of managed memory of a context that ends out of the map; false: there is none.
 */
bool towc_region_take_managed(CUcontext context, struct towc_region *ret_region);

/* The same for registered memory of which something is shared: that is not so any more, and the
 * region stays. */
bool towc_region_unshare(CUcontext context, struct towc_region *ret_region);

/* True if the address is device memory or may be: a region that is not host memory, or a server's
 * range. */
bool towc_region_is_device(uint64_t address);
/* CUDA_ERROR_INVALID_VALUE if [address, address + size) is known not to be device memory all
 * through. */
CUresult towc_region_check_device(uint64_t address, uint64_t size);
/* True if all of it is memory that is known here: one region, or mappings side by side. Of a
 * module's variable nothing is known but where it is. */
bool towc_region_holds(uint64_t address, uint64_t size);

/* What is known of [address, address + size), for a copy: one search answers all of it. */
struct towc_region_view {
    struct towc_region region; /* the one that holds the first byte; `link` is NULL if none does */
    bool device;               /* as towc_region_check_device says */
    bool visible;              /* host and device both see it: managed or page-locked memory */
    bool whole;                /* all of it is of this one region; */
    bool pinned;               /* which is page-locked, */
    bool shared; /* and the worker of the link has it too, so that copies may name its address */
    /* How many of the bytes are alike: of memory that the program registered, whole pages may be
     * shared and its ends are not. Each part is copied in its own way. */
    uint64_t alike;
};
void towc_region_look(const struct towc_link *link, uint64_t address, uint64_t size,
                      struct towc_region_view *ret_view);

#endif
