/* SPDX-License-Identifier: Apache-2.0 */
/* Sends what the host changed and takes in what the GPU changed, at CUDA's synchronisation points.
 */
#include "client/hostmem/mirror.h"

#include "base/mutex.h"
#include "client/stream/capture.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/tree.h"
#include "client/stream/context.h"
#include "client/hostmem/fault.h"
#include "client/hostmem/lend.h"
#include "client/hostmem/region.h"
#include "client/link/side.h"
#include "client/hostmem/track.h"
#include "gen/context_client.h"
#include "gen/memory.h"
#include "wire/control.h"
#include "wire/diff.h"

enum {
    CHUNK = 256 << 10, /* changes sent in one frame */
    RUNS = 32,         /* of pages that were written, asked for at once */
};

struct mirror {
    struct tow_node node;     /* by its base; first: a mirror is its node */
    struct tow_node compared; /* the same, of those with `known` that are not tracked */
    struct towc_link *link;   /* borrowed */
    uint64_t base, size;      /* kept equal on both sides */
    uint8_t *known; /* owned: what both sides had at the last exchange; NULL: really shared, or: */
    bool paged;     /* managed memory, see client/hostmem/fault.h */
    bool tracked; /* managed memory that is compared where the program wrote: client/hostmem/track.h
                   */
    unsigned uses;
    bool managed;    /* its pages are ours; small neighbours have pages in common */
    bool foreign;    /* the program's memory, never page-locked: it may vanish without a word */
    uint64_t serial; /* no other mirror ever has it */
    bool leaving;    /* the worker is being told of its end; it takes no new users */
    struct mirror *next_gone;
};

/* Of one link, guarded by mirrors.lock; no two mirrors of it have a byte in common. */
struct towc_mirrors {
    struct tow_tree all, compared;
};

/* Process-wide: addresses are the process's, and one may be mirrored on several servers; changes go
 * to one after the other. */
static struct {
    struct tow_mutex lock;                     /* guards all below; never held while sending */
    pthread_cond_t left;                       /* one has left the list */
    struct towc_mirrors list[TOW_SERVERS_MAX]; /* by links' numbers */
    uint64_t serials;
    uint64_t tracked_low, tracked_high; /* where the tracked ones are, of: */
    unsigned tracked_count;             /* of all links */
} mirrors = {.lock = TOW_MUTEX(CLIENT_MIRRORS), .left = PTHREAD_COND_INITIALIZER};
/* Two threads that need the same memory make one mirror, and none is made of memory that is being
 * freed. */
static struct {
    struct tow_mutex
        lock; /* guards the step from memory without a mirror to one with it, and back */
} making = {.lock = TOW_MUTEX(CLIENT_MIRROR_MAKE)};
/* One sender at a time: newer follows older. */
static struct {
    struct tow_mutex lock;
    uint8_t *chunk; /* owned: where changes are gathered. Kept: this runs at every launch, and fresh
                     * memory costs faults */
} push = {.lock = TOW_MUTEX(CLIENT_MIRROR_PUSH)};

static bool is_self(const struct towc_link *link)
{
    return tow_line_is_in_process(link->line);
}

static uint64_t mirror_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* With the lock held: the last mirror at this server's worker of which something is below `end`,
 * if anything of it is at `base` or above. */
static struct mirror *last_in(const struct towc_link *link, uint64_t base, uint64_t end)
{
    struct mirror *m = (struct mirror *)tow_tree_floor(&mirrors.list[link->index].all, end - 1);
    return m != NULL && m->base + m->size > base ? m : NULL;
}

/* With the lock held: the mirror that holds `address` at this server's worker; NULL: at any. */
static struct mirror *mirror_find(const struct towc_link *link, uint64_t address)
{
    if (link != NULL) {
        return last_in(link, address, address + 1);
    }
    struct mirror *m = NULL;
    for (unsigned i = 0; i < towc_client_link_count() && m == NULL; i++) {
        m = last_in(towc_client_link_at(i), address, address + 1);
    }
    return m;
}

/* With the lock held: the first one at or behind an address that is compared. */
static struct mirror *next_compared(const struct towc_link *link, uint64_t address)
{
    struct tow_node *node = tow_tree_ceiling(&mirrors.list[link->index].compared, address);
    return node == NULL ? NULL
                        : (struct mirror *)((uint8_t *)node - offsetof(struct mirror, compared));
}

/* Memory that a graph reads or writes belongs to the program, which may have freed it since. */
static bool is_gone(const struct mirror *m)
{
    return m->foreign && msync((void *)(uintptr_t)m->base, m->size, MS_ASYNC) != 0 &&
           errno == ENOMEM;
}

/* What cuMemHostGetDevicePointer_v2 is told of the memory. */
enum { ASK_HOST, ASK_MANAGED, ASK_PAGED };

/* ret_blank: of ASK_PAGED, whether the worker has zeros there; else NULL. */
static CUresult mirror_ask(struct towc_link *link, unsigned fn, uint64_t base, uint64_t size,
                           uint32_t kind, bool *ret_blank)
{
    struct towc_context *context = towc_context_current();
    struct towc_call call;
    bool here = context != NULL && context->link == link;
    CUresult status =
        towc_call_begin_on(&call, link, here ? context->number : 0, fn, 24, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, base);
    tow_enc_u64(&call.enc, size);
    tow_enc_u32(&call.enc, kind);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS && ret_blank != NULL) {
        *ret_blank = tow_dec_u32(&call.dec) != 0;
    }
    return towc_call_end(&call, status);
}

enum { HOST, MANAGED, PAGED, TRACKED };

static CUresult mirror_enlist(struct towc_link *link, uint64_t base, uint64_t size, unsigned kind)
{
    bool managed = kind != HOST, paged = kind == PAGED, tracked = kind == TRACKED;
    struct mirror *made = calloc(1, sizeof *made);
    bool compared = !is_self(link) && !paged;
    uint8_t *known = compared ? calloc(1, size) : NULL;
    if (made == NULL || (known == NULL && compared)) {
        free(made);
        free(known);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct towc_region region;
    bool foreign =
        !managed && !towc_region_find(base, &region) && !towc_region_find(base + size - 1, &region);
    *made = (struct mirror){.link = link,
                            .base = base,
                            .size = size,
                            .known = known,
                            .uses = 1,
                            .managed = managed,
                            .paged = paged,
                            .tracked = tracked,
                            .foreign = foreign};
    tow_mutex_lock(&mirrors.lock);
    made->serial = ++mirrors.serials;
    made->node.key = made->compared.key = base;
    tow_tree_insert(&mirrors.list[link->index].all, &made->node);
    if (tracked) {
        mirrors.tracked_low =
            mirrors.tracked_count == 0 || base < mirrors.tracked_low ? base : mirrors.tracked_low;
        mirrors.tracked_high = mirrors.tracked_count == 0 || base + size > mirrors.tracked_high
                                   ? base + size
                                   : mirrors.tracked_high;
        mirrors.tracked_count++;
    } else if (known != NULL) {
        tow_tree_insert(&mirrors.list[link->index].compared, &made->compared);
    }
    tow_mutex_unlock(&mirrors.lock);
    if (known != NULL || paged) {
        atomic_fetch_add(&towc_mirror_count, 1);
    }
    return CUDA_SUCCESS;
}

/* ---- the end of mirrors ---- */

/* With the lock held: true if a page holds managed memory. */
static bool is_page_used(uint64_t at)
{
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        const struct mirror *m = last_in(towc_client_link_at(i), at, at + mirror_page());
        if (m != NULL && m->managed) {
            return true; /* only managed memory has neighbours on its pages */
        }
    }
    return false;
}

/* With the lock held, and [base, base + size) in no mirror: the pages that only it needs. Of the
 * first and the last one a part may be a neighbour's. */
static void pages_alone(uint64_t base, uint64_t size, uint64_t *ret_low, uint64_t *ret_high)
{
    uint64_t low = base & ~(mirror_page() - 1),
             high = (base + size + mirror_page() - 1) & ~(mirror_page() - 1);
    if (is_page_used(low)) {
        low += mirror_page();
    }
    if (low < high && is_page_used(high - mirror_page())) {
        high -= mirror_page();
    }
    *ret_low = low;
    *ret_high = high;
}

/* With the make lock held: one user less of everything in [base, base + size). Those that nobody
 * uses any more are to leave. */
static struct mirror *give_up(uint64_t base, uint64_t size)
{
    struct mirror *gone = NULL;
    tow_mutex_lock(&mirrors.lock);
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        struct mirror *m = last_in(towc_client_link_at(i), base, base + size);
        for (; m != NULL; m = m->base > base ? last_in(m->link, base, m->base) : NULL) {
            if (!m->leaving && --m->uses == 0) {
                m->leaving = true;
                m->next_gone = gone;
                gone = m;
            }
        }
    }
    tow_mutex_unlock(&mirrors.lock);
    return gone;
}

/* Pages of managed memory go; the addresses stay the server's. */
static void drop_pages(const struct towc_link *link, uint64_t low, uint64_t high)
{
    if (low < high && !towc_region_is_reserved_here(link, low, high - low)) {
        munmap((void *)(uintptr_t)low, high - low);
    } else if (low < high) {
        (void)mmap((void *)(uintptr_t)low, high - low, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
}

/* Of managed memory nobody waits for it: the worker has nothing to wait for, and whoever frees the
 * memory comes behind it. */
static CUresult tell_end(const struct mirror *m)
{
    struct towc_call call;
    if (!m->managed || is_self(m->link)) {
        return mirror_ask(m->link, TOW_FN_cuMemHostUnregister, m->base, m->size, ASK_HOST, NULL);
    }
    /* The addresses may be another's soon: changes of this one must have been taken, those too that
     * somebody has gathered and not sent. */
    tow_mutex_lock(&push.lock);
    tow_mutex_unlock(&push.lock);
    CUresult status = towc_side_fence(m->link);
    if (status == CUDA_SUCCESS) {
        status = towc_call_begin_on(&call, m->link, 0, TOW_FN_cuMemHostUnregister, 16, 0);
    }
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, m->base);
        tow_enc_u64(&call.enc, m->size);
        status = towc_call_send(&call);
    }
    return status;
}

/* Tells the worker, which waits for work that uses them. What that wrote still comes. */
static CUresult let_go(struct mirror *gone)
{
    CUresult status = CUDA_SUCCESS;
    while (gone != NULL) {
        struct mirror *m = gone;
        gone = m->next_gone;
        CUresult told = tell_end(m);
        status = status == CUDA_SUCCESS ? told : status;
        tow_mutex_lock(&mirrors.lock);
        tow_tree_remove(&mirrors.list[m->link->index].all, &m->node);
        if (m->tracked) {
            mirrors.tracked_count--;
        } else if (m->known != NULL) {
            tow_tree_remove(&mirrors.list[m->link->index].compared, &m->compared);
        }
        uint64_t low = 0, high = 0;
        if (m->managed) {
            pages_alone(m->base, m->size, &low, &high);
        }
        if (m->paged) {
            towc_fault_remove(m->base);
        }
        drop_pages(m->link, low, high);
        if (m->paged) {
            towc_fault_wake(m->base, m->size);
        }
        pthread_cond_broadcast(&mirrors.left);
        tow_mutex_unlock(&mirrors.lock);
        if (m->known != NULL || m->paged) {
            atomic_fetch_sub(&towc_mirror_count, 1);
        }
        free(m->known);
        free(m);
    }
    return status;
}

CUresult towc_mirror_remove(uint64_t base, uint64_t size)
{
    /* Whoever found its region before that was removed makes its mirror first. */
    tow_mutex_lock(&making.lock);
    struct mirror *gone = give_up(base, size);
    /* Of managed memory the pages go too, which nobody may come to share meanwhile. */
    bool managed = gone != NULL && gone->managed;
    if (!managed) {
        tow_mutex_unlock(&making.lock);
    }
    CUresult status = let_go(gone);
    if (managed) {
        tow_mutex_unlock(&making.lock);
    }
    return status;
}

/* ---- their beginning ---- */

/* `link`: only what its worker has; NULL: any. */
static bool mirror_covers(const struct towc_link *link, uint64_t base, uint64_t size)
{
    uint64_t at = base;
    bool more = true;
    tow_mutex_lock(&mirrors.lock);
    while (more && at < base + size) {
        struct mirror *m = mirror_find(link, at);
        if (m != NULL) {
            more = !m->leaving;
            at = more ? m->base + m->size : at;
        } else {
            uint64_t end = towc_lend_until(link, at, base + size, &more);
            at = more ? end : at;
        }
    }
    tow_mutex_unlock(&mirrors.lock);
    return at >= base + size;
}

/* With the make lock held. */
static CUresult mirror_make(struct towc_link *link, uint64_t base, uint64_t size)
{
    uint64_t begin = base & ~(mirror_page() - 1), at = begin;
    uint64_t end = (base + size + mirror_page() - 1) & ~(mirror_page() - 1);
    while (at < end) {
        bool lent;
        uint64_t stop = towc_lend_until(link, at, end, &lent);
        if (lent) {
            at = stop;
            continue;
        }
        /* Pages that another piece covers are shared with it; the next run of free ones is new. */
        tow_mutex_lock(&mirrors.lock);
        struct mirror *m = mirror_find(link, at);
        while (m != NULL && m->leaving) {
            tow_mutex_wait(&mirrors.lock, &mirrors.left);
            m = mirror_find(link, at);
        }
        if (m != NULL) {
            m->uses++;
            stop = m->base + m->size;
        } else {
            const struct tow_node *above = tow_tree_ceiling(&mirrors.list[link->index].all, at);
            stop = above != NULL && above->key < stop ? above->key : stop;
        }
        tow_mutex_unlock(&mirrors.lock);
        if (m == NULL) {
            CUresult status = mirror_ask(link, TOW_FN_cuMemHostGetDevicePointer_v2, at, stop - at,
                                         ASK_HOST, NULL);
            if (status == CUDA_SUCCESS) {
                status = mirror_enlist(link, at, stop - at, HOST);
            }
            if (status != CUDA_SUCCESS) {
                tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                        "%s has no room for host memory at 0x%llx (error %d): kernels cannot use "
                        "it, and copies of it behind host functions are waited for",
                        link->address, (unsigned long long)at, (int)status);
                if (begin < at) {
                    let_go(give_up(begin, at - begin));
                }
                return status;
            }
        }
        at = stop;
    }
    return CUDA_SUCCESS;
}

/* Page-locked memory is mirrored as it was page-locked, in one piece: that is how it ends, and how
 * the driver sees it. What one server's worker shares is mirrored at another's. Its address may be
 * in a kernel's arguments by chance, while another thread frees it: then there is nothing to be
 * made, for nobody uses it. */
static CUresult mirror_region(struct towc_link *link, const struct towc_region *region)
{
    if ((towc_region_is_shared(region) && region->link == link) ||
        mirror_covers(link, region->base, region->size)) {
        return CUDA_SUCCESS;
    }
    struct towc_region now;
    tow_mutex_lock(&making.lock);
    bool gone = !towc_region_find(region->base, &now) || now.id != region->id;
    CUresult status = gone || mirror_covers(link, region->base, region->size)
                          ? CUDA_SUCCESS
                          : mirror_make(link, region->base, region->size);
    tow_mutex_unlock(&making.lock);
    return status;
}

static void take_shared(struct towc_region *region, void *user)
{
    *(struct towc_region *)user = *region;
    region->shared_low = region->shared_high = 0;
}

/* What a command names must be one piece to the driver. Memory of which whole pages are lent is
 * not, from end to end: then it is mirrored as a whole from now on. */
static void mirror_join(uint64_t base, uint64_t size)
{
    struct towc_region region;
    uint64_t end = base + size;
    if (towc_region_find(base, &region) && region.shared_high != 0 &&
        ((base < region.shared_low && region.shared_low < end) ||
         (base < region.shared_high && region.shared_high < end)) &&
        towc_region_edit(base, take_shared, &region) && region.shared_high != 0) {
        towc_mirror_unlend(&region);
    }
}

CUresult towc_mirror_host(struct towc_link *link, uint64_t base, uint64_t size)
{
    struct towc_region region;
    mirror_join(base, size);
    if (towc_region_find(base, &region) && towc_region_is_host(&region) &&
        size <= region.size - (base - region.base)) {
        return mirror_region(link, &region);
    }
    if (mirror_covers(link, base, size)) {
        return CUDA_SUCCESS;
    }
    tow_mutex_lock(&making.lock);
    CUresult status =
        mirror_covers(link, base, size) ? CUDA_SUCCESS : mirror_make(link, base, size);
    tow_mutex_unlock(&making.lock);
    return status;
}

CUresult towc_mirror_host_here(const void *host, size_t size)
{
    struct towc_context *context = towc_context_current();
    uint64_t base = (uint64_t)(uintptr_t)host;
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return size == 0 ? CUDA_SUCCESS : towc_mirror_host(context->link, base, size);
}

bool towc_mirror_lend(struct towc_link *link, uint64_t base, uint64_t size, uint64_t *ret_low,
                      uint64_t *ret_high)
{
    if (link->share == NULL) {
        return false;
    }
    tow_mutex_lock(&making.lock);
    tow_mutex_lock(&mirrors.lock);
    bool free = true;
    for (unsigned i = 0; i < towc_client_link_count() && free; i++) {
        free = last_in(towc_client_link_at(i), base, base + size) == NULL;
    }
    tow_mutex_unlock(&mirrors.lock);
    bool lent = free && towc_lend_begin(link, base, size, ret_low, ret_high);
    tow_mutex_unlock(&making.lock);
    return lent;
}

void towc_mirror_unlend(const struct towc_region *region)
{
    if (!towc_mirror_is_candidate(region)) {
        atomic_fetch_add(&towc_mirror_candidates, 1);
    }
    if (!towc_region_is_shared(region)) {
        towc_mirror_remove(region->base, region->size); /* its ends; the next one is in one piece */
    }
    towc_lend_end(region->link, region->shared_low);
}

/* The worker is told of a __managed__ variable. What it has there comes before its answer, or is
 * fetched: while that is nothing but zeros, it needs not be. */
static CUresult mirror_tell(struct towc_link *link, uint64_t base, uint64_t size, bool paged)
{
    bool blank = true;
    CUresult status = mirror_ask(link, TOW_FN_cuMemHostGetDevicePointer_v2, base, size,
                                 paged ? ASK_PAGED : ASK_MANAGED, paged ? &blank : NULL);
    if (paged) {
        towc_fault_told(base, blank);
    }
    if (status != CUDA_SUCCESS) {
        towc_mirror_remove(base, size);
    }
    return status;
}

/* With the make lock held: the pages that only [base, base + size) needs, where the server says.
 * False: those are no addresses, or some are of another mirror. */
static bool find_pages(uint64_t base, uint64_t size, uint64_t *ret_low, uint64_t *ret_high)
{
    bool free = size > 0 && base >= mirror_page() && size < UINT64_MAX - mirror_page() - base;
    tow_mutex_lock(&mirrors.lock);
    for (unsigned i = 0; i < towc_client_link_count() && free; i++) {
        free = last_in(towc_client_link_at(i), base, base + size) == NULL;
    }
    if (free) {
        pages_alone(base, size, ret_low, ret_high);
    }
    tow_mutex_unlock(&mirrors.lock);
    return free;
}

/* Pages of managed memory come. */
static CUresult map_pages(const struct towc_link *link, uint64_t low, uint64_t high, bool paged)
{
    if (low >= high) {
        return CUDA_SUCCESS;
    }
    /* As a rule the range was reserved for this server: nothing of the program's is there. */
    int flags =
        towc_region_is_reserved_here(link, low, high - low) ? MAP_FIXED : MAP_FIXED_NOREPLACE;
    flags |= paged ? MAP_NORESERVE : 0; /* it is moved about, little of it at a time */
    void *at = mmap((void *)(uintptr_t)low, high - low, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at != MAP_FAILED && (uint64_t)(uintptr_t)at != low) {
        munmap(at, high - low); /* a kernel that takes it for a wish */
        at = MAP_FAILED;
    }
    if (at == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(at, high - low, MADV_DONTFORK);
    return CUDA_SUCCESS;
}

CUresult towc_mirror_managed(struct towc_link *link, uint64_t base, uint64_t size, unsigned how)
{
    if (is_self(link)) {
        return mirror_enlist(link, base, size, HOST);
    }
    bool paged = (how & TOW_MANAGED_PAGED) != 0;
    tow_mutex_lock(&making.lock);
    uint64_t low, high;
    CUresult status = find_pages(base, size, &low, &high) ? map_pages(link, low, high, paged)
                                                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (status != CUDA_SUCCESS) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "managed memory at 0x%llx cannot be had here, where the program has memory of "
                "its own",
                (unsigned long long)base);
    } else {
        /* What a freed neighbour left on a common page is not a change of the program's. */
        uint64_t end = base + size;
        if (base < low) {
            memset((void *)(uintptr_t)base, 0, (low < end ? low : end) - base);
        }
        if (high < end && high >= low) {
            uint64_t from = high > base ? high : base;
            memset((void *)(uintptr_t)from, 0, end - from);
        }
        bool added =
            paged && low == base && high == base + size && towc_fault_add(link, base, size);
        unsigned kind = paged ? PAGED : towc_track_begin(low, high) ? TRACKED : MANAGED;
        status = paged && !added ? CUDA_ERROR_NOT_SUPPORTED : mirror_enlist(link, base, size, kind);
        if (status != CUDA_SUCCESS && added) {
            towc_fault_remove(base);
        }
        if (status != CUDA_SUCCESS) {
            drop_pages(link, low, high);
        }
    }
    tow_mutex_unlock(&making.lock);
    if (status == CUDA_SUCCESS && (how & TOW_MANAGED_TOLD) != 0) {
        status = mirror_tell(link, base, size, paged);
    }
    return status;
}

bool towc_mirror_covers(uint64_t base, uint64_t size)
{
    return mirror_covers(NULL, base, size);
}

bool towc_mirror_has(const struct towc_link *link, uint64_t base, uint64_t size)
{
    return mirror_covers(link, base, size);
}

static const struct towc_idle busy; /* or nobody knows */

void towc_mirror_pause(void)
{
    tow_mutex_lock(&push.lock);
}

void towc_mirror_resume(void)
{
    tow_mutex_unlock(&push.lock);
}

/* With the push lock held: where changes are gathered. */
static uint8_t *mirror_gathering(void)
{
    if (push.chunk == NULL) {
        push.chunk = malloc(CHUNK);
    }
    return push.chunk;
}

/* With the push lock held: what the program changed in pages that it wrote, of one link. */
static CUresult push_run(const struct towc_link *link, const struct towc_track_run *run,
                         uint8_t *chunk)
{
    CUresult status = CUDA_SUCCESS;
    uint64_t end = run->high;
    while (end > run->low && status == CUDA_SUCCESS) {
        tow_mutex_lock(&mirrors.lock);
        struct mirror *m = last_in(link, run->low, end);
        if (m == NULL || !m->tracked || m->leaving) {
            end = m != NULL ? m->base : run->low;
            tow_mutex_unlock(&mirrors.lock);
            continue;
        }
        uint64_t low = m->base > run->low ? m->base : run->low;
        uint64_t high = m->base + m->size < end ? m->base + m->size : end, serial = m->serial;
        struct tow_diff diff = {.known = m->known + (low - m->base),
                                .now = (const uint8_t *)(uintptr_t)low,
                                .address = low,
                                .size = high - low};
        towc_link_compared(m->link, diff.size);
        size_t n = tow_diff_next(&diff, chunk, CHUNK);
        while (n > 0 && status == CUDA_SUCCESS) {
            struct towc_link *to = m->link;
            tow_mutex_unlock(&mirrors.lock);
            status = towc_side_send_changes(to, &busy, chunk, n);
            tow_mutex_lock(&mirrors.lock);
            if (mirror_find(link, low) != m || m->serial != serial) {
                break; /* removed meanwhile */
            }
            n = tow_diff_next(&diff, chunk, CHUNK);
        }
        end = low;
        tow_mutex_unlock(&mirrors.lock);
    }
    return status;
}

/* With the push lock held: of every server, since the kernel tells each write once. */
static CUresult push_tracked(const struct towc_link *link, uint8_t *chunk)
{
    struct towc_track_run runs[RUNS];
    CUresult status = CUDA_SUCCESS;
    tow_mutex_lock(&mirrors.lock);
    uint64_t at = mirrors.tracked_low & ~(mirror_page() - 1);
    uint64_t high = mirrors.tracked_count > 0
                        ? (mirrors.tracked_high + mirror_page() - 1) & ~(mirror_page() - 1)
                        : at;
    tow_mutex_unlock(&mirrors.lock);
    while (at < high && status == CUDA_SUCCESS) {
        uint64_t low = at;
        int n = towc_track_next(&at, high, runs, RUNS);
        if (n < 0) {
            runs[0] = (struct towc_track_run){low, high}; /* all of it, then */
            n = 1;
        }
        /* These count as unwritten now: every server gets its own, whatever became of another. */
        for (int i = 0; i < n; i++) {
            for (unsigned l = 0; l < towc_client_link_count(); l++) {
                struct towc_link *to = towc_client_link_at(l);
                CUresult sent = push_run(to, &runs[i], chunk);
                status = to == link && status == CUDA_SUCCESS ? sent : status;
            }
        }
    }
    return status;
}

static CUresult mirror_push(struct towc_link *link, bool in_function, enum towc_fault_why why)
{
    CUresult status = CUDA_SUCCESS;
    struct mirror *gone = NULL;
    tow_mutex_lock(&push.lock);
    uint8_t *chunk = mirror_gathering();
    if (chunk == NULL) {
        tow_mutex_unlock(&push.lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* The list may change between pieces: go by address, not by pointer. */
    uint64_t after = 0;
    for (;;) {
        tow_mutex_lock(&mirrors.lock);
        struct mirror *next = next_compared(link, after);
        while (next != NULL && next->leaving) {
            next = next_compared(link, next->base + 1);
        }
        if (next == NULL) {
            tow_mutex_unlock(&mirrors.lock);
            break;
        }
        if (is_gone(next) && in_function) {
            after = next->base + 1; /* another time: the server would wait for this function */
            tow_mutex_unlock(&mirrors.lock);
            continue;
        }
        if (is_gone(next)) {
            next->leaving = true;
            next->next_gone = gone;
            gone = next;
            after = next->base + 1;
            tow_mutex_unlock(&mirrors.lock);
            continue;
        }
        size_t skip = after > next->base ? (size_t)(after - next->base) : 0;
        struct tow_diff diff = {.known = next->known,
                                .now = (const uint8_t *)(uintptr_t)next->base,
                                .address = next->base,
                                .size = next->size,
                                .at = skip};
        uint64_t serial = next->serial;
        towc_link_compared(link, next->size);
        size_t n = tow_diff_next(&diff, chunk, CHUNK);
        while (n > 0 && status == CUDA_SUCCESS) {
            tow_mutex_unlock(&mirrors.lock);
            status = towc_side_send_changes(link, &busy, chunk, n);
            tow_mutex_lock(&mirrors.lock);
            if (mirror_find(link, diff.address) != next || next->serial != serial) {
                break; /* removed meanwhile */
            }
            n = tow_diff_next(&diff, chunk, CHUNK);
        }
        after = diff.address + 1;
        tow_mutex_unlock(&mirrors.lock);
        if (status != CUDA_SUCCESS) {
            break;
        }
    }
    if (status == CUDA_SUCCESS) {
        status = push_tracked(link, chunk);
    }
    if (status == CUDA_SUCCESS && atomic_load(&towc_fault_count) != 0) {
        status = towc_fault_push(link, why, chunk, CHUNK, towc_side_send_changes);
    }
    tow_mutex_unlock(&push.lock);
    /* Not before: the worker may wait for host functions, whose ends push as well. */
    let_go(gone);
    /* Nor this: the own line may be full, and a function's end must not wait for it. */
    return status == CUDA_SUCCESS && !in_function ? towc_side_fence(link) : status;
}

CUresult towc_mirror_push_all(struct towc_link *link)
{
    return mirror_push(link, false, TOW_FAULT_WORK);
}

CUresult towc_mirror_push_shown(struct towc_link *link, bool works)
{
    return mirror_push(link, false, works ? TOW_FAULT_WORK : TOW_FAULT_WAIT);
}

CUresult towc_mirror_push_function(struct towc_link *link)
{
    return atomic_load_explicit(&towc_mirror_count, memory_order_relaxed) == 0
               ? CUDA_SUCCESS
               : mirror_push(link, true, TOW_FAULT_WAIT);
}

void towc_mirror_stale_all(struct towc_link *link)
{
    tow_mutex_lock(&push.lock);
    uint8_t *chunk = mirror_gathering();
    if (chunk != NULL) {
        towc_fault_push(link, TOW_FAULT_STALE, chunk, CHUNK,
                        towc_side_send_changes); /* a lost server tells the next call */
    }
    tow_mutex_unlock(&push.lock);
}

CUresult towc_mirror_sync_device(void)
{
    const struct towc_context *context = towc_context_current();
    bool waits = context != NULL && atomic_load(&context->alive) &&
                 atomic_load(&context->sticky) == 0 && atomic_load(&context->link->lost) == 0 &&
                 atomic_load_explicit(&towc_region_visible, memory_order_relaxed) != 0 &&
                 atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0 &&
                 !towc_thread_in_hostfn();
    return waits ? towc_cuCtxSynchronize_v2(NULL) : CUDA_SUCCESS;
}

CUresult towc_mirror_scan_all(struct towc_link *link, const void *params, size_t size)
{
    const uint8_t *bytes = params;
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        struct towc_region region;
        memcpy(&word, bytes + at, 8);
        if (word >= 4096 && towc_region_find(word, &region) && towc_region_is_host(&region)) {
            CUresult status = mirror_region(link, &region);
            if (status != CUDA_SUCCESS) {
                return status;
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult towc_mirror_reach_all(uint64_t address)
{
    struct towc_region region;
    if (!towc_region_find(address, &region) || !towc_region_is_host(&region)) {
        return CUDA_SUCCESS;
    }
    struct towc_context *context = towc_context_current();
    return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : mirror_region(context->link, &region);
}

bool towc_mirror_sees(uint64_t address)
{
    struct towc_region region;
    return atomic_load_explicit(&towc_region_visible, memory_order_relaxed) != 0 &&
           towc_region_find(address, &region) &&
           (region.kind == TOW_REGION_MANAGED || towc_region_is_host(&region));
}

CUresult towc_mirror_admit(uint64_t address, uint64_t size)
{
    mirror_join(address, size);
    return towc_mirror_reach(address);
}

CUresult towc_mirror_reach_work(uint64_t address)
{
    if (towc_thread_in_hostfn()) {
        return CUDA_ERROR_NOT_PERMITTED; /* a push may wait for what waits for the function */
    }
    struct towc_region region;
    if (atomic_load_explicit(&towc_region_visible, memory_order_relaxed) == 0 ||
        !towc_region_find(address, &region)) {
        return CUDA_SUCCESS;
    }
    if (region.kind == TOW_REGION_MANAGED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_mirror_reach(address);
    const struct towc_context *context = towc_context_current();
    return status == CUDA_SUCCESS && context != NULL && towc_region_is_host(&region)
               ? towc_mirror_push(context->link)
               : status;
}

CUresult towc_mirror_check_device(uint64_t address, uint64_t size)
{
    CUresult status = towc_region_check_device(address, size);
    return status == CUDA_SUCCESS &&
                   atomic_load_explicit(&towc_mirror_candidates, memory_order_relaxed) != 0
               ? towc_mirror_admit(address, size)
               : status;
}

static bool find_bytes(void *user, uint64_t address, size_t size, uint8_t **ret_now,
                       uint8_t **ret_known)
{
    struct mirror *m = mirror_find(user, address);
    if (m == NULL || m->known == NULL || size > m->size - (address - m->base) || is_gone(m)) {
        return false;
    }
    *ret_now = (uint8_t *)(uintptr_t)address;
    *ret_known = m->known + (address - m->base);
    return true;
}

int towc_mirror_apply(struct towc_link *link, const uint8_t *records, size_t size)
{
    tow_mutex_lock(&mirrors.lock);
    int error = tow_diff_apply(records, size, find_bytes, link);
    tow_mutex_unlock(&mirrors.lock);
    return error;
}

CUresult towc_mirror_check_work(CUstream stream, uint64_t address, uint64_t size)
{
    CUresult status = towc_mirror_check_device(address, size);
    return status == CUDA_ERROR_INVALID_VALUE && towc_capture_on(stream) ? CUDA_SUCCESS : status;
}

void towc_mirror_end_context(struct towc_context *context)
{
    struct towc_region region;
    /* The worker must not look at managed memory that ends with the context. */
    while (towc_region_take_managed(context->handle, &region)) {
        towc_mirror_remove(region.base, region.size);
    }
    /* Nor is memory that the program registered page-locked any more: it may free it now. */
    while (towc_region_unshare(context->handle, &region)) {
        towc_mirror_unlend(&region);
    }
    towc_region_drop_context(context->handle);
}
