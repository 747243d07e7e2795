/* SPDX-License-Identifier: Apache-2.0 */
/* Watches managed memory with userfaultfd: fetches a block when it is touched, takes all away
 * after work. */
#include "client/hostmem/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/tree.h"
#include "client/hostmem/copy_pool.h"
#include "client/link/side.h"
#include "wire/control.h"
#include "wire/diff.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum {
    RUN = TOW_FETCH_MAX, /* bytes that come or leave together at most */
    AHEAD = 2 << 20,     /* behind so many bytes what follows is fetched untouched */
    STAYING = 256 << 10, /* runs of so many bytes stay when they were compared */
    SHARE = 512 << 10,   /* what one thread places or drops at a time */
    FASTER = 4,          /* who walks gets so many times as much each time */
    BATCH = 64,          /* runs whose changes go out together at most */
};

/* Process-wide: bytes of a block. Some systems have larger pages. */
static size_t block_size = TOW_FAULT_BLOCK;

enum state {
    ABSENT,
    NEW,    /* here, and all of it goes out: it was zeros, where the worker may have something else,
             * or the program writes all of it and nobody else does */
    FRESH,  /* here since the last push, or changed before it */
    AGED,   /* here, and was compared once */
    CLEAN,  /* here, and as the worker has it: who writes it is stopped first */
    MOVING, /* what changed in it has not gone out yet: nobody may fetch or write it */
};

/* Blocks of a range that are here: what a push looks at, and what only a synchronisation does. */
enum { CHANGING, RESTING, KINDS };
struct part {
    size_t count;                  /* of blocks: */
    size_t low, high;              /* all in [low, high) */
    struct range *previous, *next; /* with such blocks, of its link */
};

/* How the program walks through a range. */
struct walk {
    size_t expected; /* the block that it touches next if it goes on */
    size_t last;     /* blocks that it got together last */
};

struct range {
    struct tow_node node;   /* by its base; first: a range is its node */
    struct towc_link *link; /* borrowed */
    uint64_t base, size;    /* whole pages: its last block may be short */
    uint8_t *known;         /* owned mapping: what both sides had, of FRESH and AGED blocks;
                             * NULL: there never were any */
    uint8_t *states;        /* owned: enum state of each block */
    struct part parts[KINDS];
    struct walk touched, written;
    uint64_t made;      /* pushes before it was made */
    bool filled, zeros; /* the worker had something there from the beginning, or zeros */
    uint64_t serial;    /* no other range ever has it */
    uint64_t visited;   /* the last push that was here */
};

/* Of one link, guarded by watched.lock. */
struct towc_faults {
    struct {
        struct range *first, *last; /* ranges of which something is here; a push begins with the
                                       first and puts what it has seen behind the last */
    } lists[KINDS];
    size_t ranges;   /* all of them */
    uint64_t pushes; /* how often work may have gone out */
    uint64_t epoch;  /* rises when what was fetched before may be old */
};

/* Process-wide: addresses are the process's; each range names its link. */
static struct {
    struct tow_mutex lock;  /* guards all below, and links' faults; never held while sending, nor
                             * while an absent block is touched */
    pthread_cond_t moved;   /* nothing is MOVING any more */
    struct tow_tree ranges; /* of all links */
    uint64_t serials;
    bool said; /* that memory cannot be moved: one line is enough */
} watched = {.lock = TOW_MUTEX(CLIENT_FAULTS), .moved = PTHREAD_COND_INITIALIZER};

/* Process-wide: the kernel has one userfaultfd of the process for us, and one thread serves it. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int uffd = -1;
static bool protects;    /* it stops those who write, too */
static uint8_t *scratch; /* RUN bytes of addresses: where blocks are moved to; the pusher's: */
static size_t scratch_used;
static uint8_t *fetched; /* RUN bytes: what came from the worker; the fault thread's */
static uint8_t *zeros;   /* RUN bytes that are never written */

/* ---- getting ready ---- */

int towc_fault_open(uint64_t features)
{
    /* System calls that the program makes on its memory must fault as well, so nothing less will
     * do. */
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
#ifdef USERFAULTFD_IOC_NEW
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        fd = device >= 0 ? ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC) : -1;
        if (device >= 0) {
            close(device);
        }
    }
#endif
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool fault_register(int fd, uint64_t base, uint64_t size)
{
    uint64_t mode =
        UFFDIO_REGISTER_MODE_MISSING | (protects ? UFFDIO_REGISTER_MODE_WP : (uint64_t)0);
    struct uffdio_register reg = {.range = {base, size}, .mode = mode};
    return ioctl(fd, UFFDIO_REGISTER, &reg) == 0 && (reg.ioctls & (1ull << _UFFDIO_COPY)) != 0;
}

/* Stops those who write, or lets them go on. */
static bool fault_protect(int fd, uint64_t at, uint64_t size, bool on)
{
    struct uffdio_writeprotect protect = {.range = {at, size},
                                          .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
    int error;
    do {
        error = ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0 ? 0 : errno;
    } while (error == EAGAIN || error == EINTR);
    return error == 0;
}

/* Puts bytes where nothing is. */
static bool fault_place(int fd, uint64_t at, const uint8_t *bytes, uint64_t size, bool stops)
{
    uint64_t done = 0;
    bool faster = false;
    while (done < size) {
        struct uffdio_copy copy = {.dst = at + done,
                                   .src = (uint64_t)(uintptr_t)bytes + done,
                                   .len = size - done,
                                   .mode = stops ? UFFDIO_COPY_MODE_WP : 0};
        if (ioctl(fd, UFFDIO_COPY, &copy) == 0) {
            break;
        }
        int error = errno;
        done += copy.copy > 0 ? (uint64_t)copy.copy : 0;
        if (error == EEXIST) {
            faster = true; /* somebody was */
            done += (uint64_t)sysconf(_SC_PAGESIZE);
        } else if (error == ENOMEM) {
            tow_time_sleep(TOW_TIME_MS); /* whoever waits for it cannot go on without */
        } else if (error != EAGAIN) {
            return false;
        }
    }
    return !faster || !stops || fault_protect(fd, at, size, true);
}

/* What is placed by several threads: the kernel takes long for each page. */
struct placing {
    uint64_t at, size;
    const uint8_t *bytes;
    bool stops;
    atomic_int error;
};

static void place_stripe(void *user, size_t index)
{
    struct placing *placing = user;
    uint64_t from = index * SHARE, left = placing->size - from;
    if (!fault_place(uffd, placing->at + from, placing->bytes + from, left < SHARE ? left : SHARE,
                     placing->stops)) {
        atomic_store(&placing->error, errno);
    }
}

/* What is dropped at once. */
struct span {
    void *at;
    size_t size;
};

static void drop_stripe(void *user, size_t index)
{
    const struct span *span = (const struct span *)user + index;
    madvise(span->at, span->size, MADV_DONTNEED);
}

/* Where it is then; NULL: it cannot be moved. */
static uint8_t *move_away(void *from, size_t size)
{
    uint8_t *to = scratch + scratch_used;
    bool done =
        mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
    scratch_used += done ? size : 0;
    return done ? to : NULL;
}

static void clear_scratch(void)
{
    if (scratch_used > 0) {
        (void)mmap(scratch, scratch_used, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        scratch_used = 0;
    }
}

static void *fault_map(int protection)
{
    void *at = mmap(NULL, RUN, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

/* Whether this kernel does all that is needed, tried on one block. */
static bool try_out(int fd)
{
    uint8_t *block = fault_map(PROT_READ | PROT_WRITE);
    bool works = block != NULL && fault_register(fd, (uint64_t)(uintptr_t)block, block_size);
    if (works) {
        fetched[0] = 1;
        uint64_t at = (uint64_t)(uintptr_t)block;
        works = fault_place(fd, at, fetched, block_size, protects) && block[0] == 1 &&
                (!protects || fault_protect(fd, at, block_size, false)) &&
                move_away(block, block_size) != NULL && scratch[0] == 1 &&
                fault_place(fd, at, zeros, block_size, false) && block[0] == 0 &&
                (!protects || fault_protect(fd, at, block_size, true));
        clear_scratch();
    }
    if (block != NULL) {
        munmap(block, RUN);
    }
    return works;
}

static void *fault_thread(void *arg);

/* A descriptor that stops those who write as well, if that can be. */
static int open_protecting(const char *wish)
{
    int fd = wish != NULL && strcmp(wish, "touch") == 0
                 ? -1
                 : towc_fault_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    protects = fd >= 0;
    return fd >= 0 ? fd : towc_fault_open(0);
}

static void fault_begin(void)
{
    const char *wish = getenv("TOWLINE_MANAGED");
    bool unwanted = wish != NULL && (strcmp(wish, "compare") == 0 || strcmp(wish, "track") == 0);
    if (unwanted) {
        return;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    block_size = page > block_size ? page : block_size;
    pthread_t thread;
    int fd = open_protecting(wish);
    scratch = fault_map(PROT_NONE);
    fetched = fault_map(PROT_READ | PROT_WRITE);
    zeros = fault_map(PROT_READ);
    if (fd >= 0 && scratch != NULL && fetched != NULL && zeros != NULL && try_out(fd)) {
        uffd = fd;
        if (tow_thread_start("towline-fault", fault_thread, NULL, &thread) == 0) {
            pthread_detach(thread);
            return;
        }
        uffd = -1;
    }
    tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
            "managed memory is compared at every launch: this system does not let the "
            "program watch its memory (userfaultfd)");
    if (fd >= 0) {
        close(fd);
    }
}

bool towc_fault_wanted(struct towc_link *link, uint64_t size)
{
    if (size > UINT64_C(1) << 46 || tow_line_is_in_process(link->line)) {
        return false;
    }
    pthread_once(&once, fault_begin);
    if (uffd < 0 || towc_link_listen(link) < 0) {
        return false;
    }
    tow_mutex_lock(&watched.lock);
    if (link->faults == NULL) {
        link->faults = calloc(1, sizeof *link->faults);
    }
    bool known = link->faults != NULL;
    tow_mutex_unlock(&watched.lock);
    towc_side_open(link);
    return known && towc_side_is_open(link);
}

/* ---- ranges ---- */

/* With the lock held. */
static struct range *fault_find(uint64_t address)
{
    struct range *r = (struct range *)tow_tree_floor(&watched.ranges, address);
    return r != NULL && address - r->base < r->size ? r : NULL;
}

/* With the lock held: the range that was at `base` with that serial, unless it is gone. */
static struct range *find_again(uint64_t base, uint64_t serial)
{
    struct range *r = fault_find(base);
    return r != NULL && r->serial == serial ? r : NULL;
}

static size_t blocks_of(const struct range *r)
{
    return (r->size + block_size - 1) / block_size;
}

/* How many bytes `n` blocks from `first` on have. */
static size_t bytes_of(const struct range *r, size_t first, size_t n)
{
    size_t left = r->size - first * block_size;
    return n * block_size < left ? n * block_size : left;
}

/* With the lock held: a range comes to a list of its link, at the end, or leaves it. */
static void fault_list(struct range *r, unsigned kind)
{
    struct towc_faults *faults = r->link->faults;
    struct range *last = faults->lists[kind].last;
    r->parts[kind].previous = last;
    r->parts[kind].next = NULL;
    *(last != NULL ? &last->parts[kind].next : &faults->lists[kind].first) = r;
    faults->lists[kind].last = r;
}

static void fault_unlist(struct range *r, unsigned kind)
{
    struct towc_faults *faults = r->link->faults;
    const struct part *part = &r->parts[kind];
    *(part->previous != NULL ? &part->previous->parts[kind].next : &faults->lists[kind].first) =
        part->next;
    *(part->next != NULL ? &part->next->parts[kind].previous : &faults->lists[kind].last) =
        part->previous;
}

/* With the lock held: blocks come to a part, or leave it. */
static void part_add(struct range *r, unsigned kind, size_t first, size_t n)
{
    struct part *part = &r->parts[kind];
    if (part->count == 0) {
        fault_list(r, kind);
        part->low = first;
        part->high = first + n;
    }
    part->count += n;
    part->low = first < part->low ? first : part->low;
    part->high = first + n > part->high ? first + n : part->high;
}

static void part_take(struct range *r, unsigned kind, size_t n)
{
    r->parts[kind].count -= n;
    if (r->parts[kind].count == 0) {
        fault_unlist(r, kind);
    }
}

/* With the lock held: no work went out since it was made, and the worker had nothing there. */
static bool is_blank(const struct range *r)
{
    return !r->filled && r->made == r->link->faults->pushes;
}

bool towc_fault_add(struct towc_link *link, uint64_t base, uint64_t size)
{
    struct range *r = calloc(1, sizeof *r);
    uint8_t *states = calloc((size + block_size - 1) / block_size, 1);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (r == NULL || states == NULL || base % page != 0 || size % page != 0 ||
        !fault_register(uffd, base, size)) {
        free(states);
        free(r);
        return false;
    }
    *r = (struct range){.node = {.key = base},
                        .link = link,
                        .base = base,
                        .size = size,
                        .states = states,
                        .touched = {.last = 1},
                        .written = {.last = 1}};
    tow_mutex_lock(&watched.lock);
    r->serial = ++watched.serials;
    r->made = link->faults->pushes;
    bool first = link->faults->ranges++ == 0;
    tow_tree_insert(&watched.ranges, &r->node);
    tow_mutex_unlock(&watched.lock);
    atomic_fetch_add(&towc_fault_count, 1);
    if (first) {
        towc_link_doubts(link); /* nobody counted the work before */
    }
    return true;
}

void towc_fault_told(uint64_t base, bool blank)
{
    tow_mutex_lock(&watched.lock);
    struct range *r = fault_find(base);
    if (r != NULL) {
        r->filled = !blank;
        r->zeros = blank;
    }
    tow_mutex_unlock(&watched.lock);
}

static void range_free(struct range *r)
{
    if (r->known != NULL) {
        munmap(r->known, r->size);
    }
    free(r->states);
    free(r);
}

void towc_fault_remove(uint64_t base)
{
    tow_mutex_lock(&watched.lock);
    struct range *gone = fault_find(base);
    gone = gone != NULL && gone->base == base ? gone : NULL;
    if (gone != NULL) {
        tow_tree_remove(&watched.ranges, &gone->node);
        gone->link->faults->ranges--;
        for (unsigned kind = 0; kind < KINDS; kind++) {
            if (gone->parts[kind].count > 0) {
                fault_unlist(gone, kind);
            }
        }
    }
    pthread_cond_broadcast(&watched.moved);
    tow_mutex_unlock(&watched.lock);
    if (gone != NULL) {
        atomic_fetch_sub(&towc_fault_count, 1);
        range_free(gone);
    }
}

void towc_fault_wake(uint64_t base, uint64_t size)
{
    struct uffdio_range range = {base, size};
    ioctl(uffd, UFFDIO_WAKE, &range);
}

/* ---- blocks that come ---- */

/* Asks the worker, behind all changes that went out. */
static bool fault_ask(struct towc_link *link, uint64_t address, size_t size)
{
    return towc_side_ask(link, &(struct tow_fetch){address, size}) == CUDA_SUCCESS;
}

/* Takes the answer. False: the worker has nothing there, or is lost. */
static bool fault_take(struct towc_link *link, uint8_t *into, size_t size)
{
    struct tow_line *line = atomic_load_explicit(&link->side, memory_order_acquire);
    size_t got = 0;
    bool failed = false;
    int error = 0;
    while (error == 0 && got < size && !failed) {
        const uint8_t *at = NULL;
        size_t available = 0;
        struct tow_frame frame;
        struct tow_data data;
        uint32_t pad = 0;
        error = tow_line_peek(line, TOW_DATA_HEAD, TOW_TIME_FOREVER, &at, &available);
        if (error == 0) {
            error = tow_frame_read(at, &frame);
        }
        if (error == 0) {
            error = tow_data_head_decode(at, &frame, &data, &pad);
        }
        failed = error == 0 && (data.flags & TOW_DATA_FAILED) != 0;
        if (error == 0 &&
            (data.offset != got || data.size > size - got || (data.size == 0 && !failed))) {
            error = -EPROTO;
        }
        if (error == 0) {
            tow_line_consume(line, TOW_DATA_HEAD);
            error = tow_line_recv_into(line, into + got, data.size);
        }
        if (error == 0 && pad > 0) {
            error = tow_line_discard(line, pad);
        }
        if (error == 0) {
            got += data.size;
            atomic_fetch_add_explicit(&link->counters.side_in, frame.length, memory_order_relaxed);
        }
    }
    if (error < 0) {
        towc_link_lose(link, "a connection of its session was closed");
    }
    return error == 0 && !failed;
}

/* With the lock held: how many blocks of that state from `first` on are to be had together. A
 * program that walks through its memory gets more and more of it. */
static size_t how_many(const struct range *r, struct walk *walk, size_t first, enum state state)
{
    size_t run = RUN / block_size, more = first != walk->expected ? 1 : walk->last * FASTER;
    size_t most = more < run ? more : run, end = blocks_of(r), n = 1;
    /* So that large runs begin where large pages do. */
    size_t room = most == run ? run - first % run : most;
    while (n < room && first + n < end && r->states[first + n] == state) {
        n++;
    }
    walk->last = most;
    walk->expected = first + n;
    return n;
}

/* With the lock held: where what both sides have is kept; NULL: there is no memory for it. */
static uint8_t *known_of(struct range *r, size_t first, size_t n)
{
    if (r->known == NULL) {
        void *at = mmap(NULL, r->size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        r->known = at != MAP_FAILED ? at : NULL;
    }
    if (r->known != NULL && n * block_size == RUN) {
        madvise(r->known + first * block_size, bytes_of(r, first, n), MADV_HUGEPAGE);
    }
    return r->known != NULL ? r->known + first * block_size : NULL;
}

/* With the lock held: what the program does with blocks that it writes, and that are as the worker
 * has them. If that is all of them and nobody else writes, they need not be compared. */
static enum state state_written(struct range *r, size_t first, size_t n, const uint8_t *bytes)
{
    bool alone = n * block_size >= AHEAD && !is_blank(r) && towc_link_idle(r->link).context != 0;
    uint8_t *known = alone && protects ? NULL : known_of(r, first, n);
    if (known != NULL) {
        tow_diff_copy(known, bytes, bytes_of(r, first, n));
    }
    return known != NULL ? FRESH : NEW; /* NEW without memory, too: all of it goes back */
}

/* With the lock held. `bytes`: what the worker has there; NULL: zeros, which it may not have. */
static void fault_arrive(struct range *r, size_t first, size_t n, const uint8_t *bytes, bool writes)
{
    size_t offset = first * block_size, size = bytes_of(r, first, n);
    bool stops = bytes != NULL && protects && !writes;
    enum state state = stops ? CLEAN : bytes == NULL ? NEW : state_written(r, first, n, bytes);
    struct placing placing = {.at = r->base + offset,
                              .size = size,
                              .bytes = bytes != NULL ? bytes : zeros,
                              .stops = stops};
    towc_copy_pool_run((size + SHARE - 1) / SHARE, place_stripe, &placing);
    int error = atomic_load(&placing.error);
    if (error != 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "managed memory at 0x%llx cannot be filled: %s",
                (unsigned long long)placing.at, strerror(error));
    }
    memset(r->states + first, (int)state, n);
    part_add(r, stops ? RESTING : CHANGING, first, n);
}

/* With the lock held: the program is about to write a block that is CLEAN. */
static void fault_written(struct range *r, size_t block)
{
    size_t n = how_many(r, &r->written, block, CLEAN);
    uint64_t at = r->base + block * block_size;
    enum state state = state_written(r, block, n, (const uint8_t *)(uintptr_t)at);
    memset(r->states + block, (int)state, n);
    part_take(r, RESTING, n);
    part_add(r, CHANGING, block, n);
    fault_protect(uffd, at, bytes_of(r, block, n), false);
}

/* Blocks of a range that come together; the fault thread's. */
struct coming {
    struct towc_link *link;
    uint64_t base, serial; /* of the range */
    uint64_t epoch, pushes;
    size_t first, n;
    size_t size;
};

/* With the lock held. They may be taken as long as is_current says so. */
static struct coming coming_of(struct range *r, size_t first)
{
    size_t n = how_many(r, &r->touched, first, ABSENT);
    return (struct coming){.link = r->link,
                           .base = r->base,
                           .serial = r->serial,
                           .epoch = r->link->faults->epoch,
                           .pushes = r->link->faults->pushes,
                           .first = first,
                           .n = n,
                           .size = bytes_of(r, first, n)};
}

/* With the lock held: the range that it is for, unless that has gone or may have changed. */
static struct range *still_current(const struct coming *coming)
{
    struct range *r = find_again(coming->base, coming->serial);
    return r != NULL && r->link->faults->epoch == coming->epoch ? r : NULL;
}

/* Process-wide: one thread serves all faults. What the program will touch next, if it goes on as it
 * does: it is in `fetched`. That thread's. `link` is NULL if there is none. */
static struct coming ahead;

/* With the lock held: whether the touched block is in it. */
static bool is_ahead(const struct range *r, size_t block)
{
    return ahead.link != NULL && still_current(&ahead) == r && ahead.first <= block &&
           block - ahead.first < ahead.n && r->link->faults->pushes == ahead.pushes;
}

/* With the lock held, which is given meanwhile: the touched block and some that follow. False: it
 * is to be looked for again. */
static bool fault_bring(struct range *r, size_t block, struct coming *ret_come)
{
    if (is_ahead(r, block)) {
        *ret_come = ahead;
        ahead.link = NULL;
        return true;
    }
    if (ahead.link != NULL && ahead.first == block && find_again(ahead.base, ahead.serial) == r) {
        r->touched.expected = block; /* it goes on as before, but that is old */
    }
    ahead.link = NULL;
    struct coming come = coming_of(r, block);
    tow_mutex_unlock(&watched.lock);
    bool known = fault_ask(come.link, come.base + come.first * block_size, come.size) &&
                 fault_take(come.link, fetched, come.size);
    if (!known) {
        /* A program whose server is lost goes on with zeros; its calls say what happened. */
        memset(fetched, 0, come.size);
    }
    tow_mutex_lock(&watched.lock);
    *ret_come = come;
    if (still_current(&come) == NULL) {
        r = find_again(come.base, come.serial);
        if (r != NULL) {
            r->touched.expected = block; /* the same again: it had been synchronised meanwhile */
        }
        return false;
    }
    return true;
}

/* With the lock held, which is given meanwhile: asks for what follows, so that it comes while the
 * program reads what has come. The answer is to be taken before anything that may wait. */
static bool ask_ahead(struct range *r, const struct coming *come)
{
    size_t first = come->first + come->n;
    if (come->size < AHEAD || first >= blocks_of(r) || r->states[first] != ABSENT ||
        towc_link_idle(r->link).context == 0) {
        return false;
    }
    ahead = coming_of(r, first);
    tow_mutex_unlock(&watched.lock);
    bool asked = fault_ask(ahead.link, ahead.base + ahead.first * block_size, ahead.size);
    tow_mutex_lock(&watched.lock);
    if (!asked) {
        ahead.link = NULL;
    }
    return asked;
}

static void take_ahead(void)
{
    if (!fault_take(ahead.link, fetched, ahead.size)) {
        ahead.link = NULL;
    }
}

/* Somebody waits for the memory at `address`. */
static void fault_serve(uint64_t address, bool writes)
{
    bool asked = false;
    tow_mutex_lock(&watched.lock);
    for (;;) {
        struct range *r = fault_find(address);
        while (r != NULL && r->states[(address - r->base) / block_size] == MOVING) {
            tow_mutex_wait(&watched.lock, &watched.moved);
            r = fault_find(address);
        }
        size_t block = r != NULL ? (address - r->base) / block_size : 0;
        if (r != NULL && r->states[block] == CLEAN && writes) {
            fault_written(r, block);
        } else if (r != NULL && r->states[block] != ABSENT && writes && protects) {
            /* What could not be protected or let go as a whole: its writer goes on. */
            fault_protect(uffd, r->base + block * block_size, bytes_of(r, block, 1), false);
        }
        if (r == NULL || r->states[block] != ABSENT) {
            break;
        }
        if (is_blank(r)) {
            fault_arrive(r, block, how_many(r, &r->touched, block, ABSENT), r->zeros ? zeros : NULL,
                         writes);
            break;
        }
        struct coming come;
        if (!fault_bring(r, block, &come)) {
            continue;
        }
        asked = ask_ahead(find_again(come.base, come.serial), &come);
        r = still_current(&come);
        if (r != NULL) {
            fault_arrive(r, come.first, come.n, fetched, writes);
            break;
        }
        if (asked) {
            break; /* whoever waits is told to look again: nothing may be waited for now */
        }
    }
    tow_mutex_unlock(&watched.lock);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    towc_fault_wake(address & ~(page - 1), page);
    if (asked) {
        take_ahead();
    }
}

static void *fault_thread(void *arg)
{
    struct uffd_msg message;
    for (;;) {
        ssize_t n = read(uffd, &message, sizeof message);
        if (n == (ssize_t)sizeof message && message.event == UFFD_EVENT_PAGEFAULT) {
            uint64_t flags = message.arg.pagefault.flags;
            fault_serve(message.arg.pagefault.address,
                        (flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0);
        } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return arg;
        }
    }
}

/* ---- blocks that leave ---- */

/* What is compared together. */
struct run {
    uint64_t base, serial; /* of its range */
    size_t first, n;
    const uint8_t *bytes; /* where its bytes are now */
    bool moves;
    bool stops; /* it stays, and is CLEAN behind it */
};

/* The changes of several runs that go out together. */
struct outgoing {
    struct towc_link *link;
    towc_fault_send *send;
    struct towc_idle idle;
    uint8_t *chunk; /* borrowed */
    size_t room, used;
    struct run moved[BATCH]; /* that are not MOVING any more once they are out */
    size_t count;
    CUresult status;
};

static bool is_compared(const struct range *r, size_t block)
{
    unsigned state = r->states[block];
    return state == NEW || state == FRESH || state == AGED;
}

/* With the lock held: the next blocks from `from` on that are compared and are treated alike. */
static bool next_run(const struct range *r, size_t from, bool stale, struct run *ret_run)
{
    const struct part *part = &r->parts[CHANGING];
    size_t first = from > part->low ? from : part->low;
    while (first < part->high && !is_compared(r, first)) {
        first++;
    }
    if (part->count == 0 || first >= part->high) {
        return false;
    }
    size_t n = 1, room = (RUN - scratch_used) / block_size;
    while (n < room && first + n < part->high && r->states[first + n] == r->states[first]) {
        n++;
    }
    bool moves = stale || n * block_size > STAYING || r->states[first] != FRESH;
    *ret_run =
        (struct run){.base = r->base, .serial = r->serial, .first = first, .n = n, .moves = moves};
    return true;
}

/* With the lock held: a run begins to be compared. Returns whether all of it goes out. */
static bool begin_run(struct range *r, struct run *run)
{
    uint8_t *at = (uint8_t *)(uintptr_t)(r->base + run->first * block_size);
    size_t size = bytes_of(r, run->first, run->n);
    bool whole = r->states[run->first] == NEW;
    run->stops = !run->moves && protects && fault_protect(uffd, (uintptr_t)at, size, true);
    memset(r->states + run->first, run->moves || run->stops ? MOVING : AGED, run->n);
    run->bytes = run->moves ? move_away(at, size) : at;
    if (run->bytes != NULL) {
        return whole;
    }
    run->bytes = at;
    if (!watched.said) {
        watched.said = true;
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "managed memory cannot be moved (%s): what threads write during a synchronisation "
                "may be lost; TOWLINE_MANAGED=compare is safe",
                strerror(errno));
    }
    return whole;
}

/* With the lock held: all that differed has gone out. */
static void end_run(const struct run *run)
{
    struct range *r = find_again(run->base, run->serial);
    if (r == NULL) {
        return;
    }
    size_t offset = run->first * block_size, size = bytes_of(r, run->first, run->n);
    part_take(r, CHANGING, run->n);
    if (run->stops) {
        memset(r->states + run->first, CLEAN, run->n);
        part_add(r, RESTING, run->first, run->n);
        return;
    }
    if ((uint64_t)(uintptr_t)run->bytes == r->base + offset) {
        madvise((void *)(uintptr_t)run->bytes, size, MADV_DONTNEED);
    }
    if (r->known != NULL && size > block_size) {
        madvise(r->known + offset, size, MADV_DONTNEED);
    }
    memset(r->states + run->first, ABSENT, run->n);
}

/* With the lock held: what is as the worker had it goes without a word. */
static void drop_resting(struct towc_faults *faults)
{
    struct range *r;
    struct span spans[BATCH];
    size_t count = 0;
    while ((r = faults->lists[RESTING].first) != NULL) {
        const struct part *part = &r->parts[RESTING];
        for (size_t first = part->low, n; first < part->high; first += n) {
            for (n = 0; first + n < part->high && r->states[first + n] == CLEAN; n++) {
            }
            if (n == 0) {
                n = 1;
                continue;
            }
            memset(r->states + first, ABSENT, n);
            uint64_t at = r->base + first * block_size, end = at + bytes_of(r, first, n);
            for (; at < end; at += spans[count++].size) {
                if (count == BATCH) {
                    towc_copy_pool_run(count, drop_stripe, spans);
                    count = 0;
                }
                spans[count].at = (void *)(uintptr_t)at;
                spans[count].size = end - at < SHARE ? end - at : SHARE;
            }
        }
        part_take(r, RESTING, part->count);
    }
    towc_copy_pool_run(count, drop_stripe, spans);
}

/* With the lock held, which is given meanwhile: sends what was gathered. */
static void fault_flush(struct outgoing *out)
{
    if (out->used > 0 && out->status == CUDA_SUCCESS) {
        tow_mutex_unlock(&watched.lock);
        out->status = out->send(out->link, &out->idle, out->chunk, out->used);
        tow_mutex_lock(&watched.lock);
    }
    out->used = 0;
}

/* The same, and then what was moved is absent. */
static void fault_flush_moved(struct outgoing *out)
{
    fault_flush(out);
    for (size_t i = 0; i < out->count; i++) {
        end_run(&out->moved[i]);
    }
    if (out->count > 0) {
        out->count = 0;
        pthread_cond_broadcast(&watched.moved);
    }
    clear_scratch();
}

/* With the lock held, which may be given meanwhile. */
static void push_run(struct range *r, struct run *run, struct outgoing *out)
{
    bool whole = begin_run(r, run);
    struct tow_diff diff = {.known = whole ? NULL : r->known + run->first * block_size,
                            .now = run->bytes,
                            .address = r->base + run->first * block_size,
                            .size = bytes_of(r, run->first, run->n),
                            .whole = towc_link_still_idle(out->link, &out->idle),
                            .last = run->moves || run->stops};
    while (r != NULL && diff.at < diff.size && out->status == CUDA_SUCCESS) {
        if (out->room - out->used < TOW_DIFF_ROOM_MIN) {
            fault_flush(out);
            r = find_again(run->base, run->serial);
        } else {
            out->used += tow_diff_next(&diff, out->chunk + out->used, out->room - out->used);
        }
    }
    if (run->moves || run->stops) {
        out->moved[out->count++] = *run;
    }
    if (out->count == BATCH || scratch_used > RUN - block_size) {
        fault_flush_moved(out);
    }
}

CUresult towc_fault_push(struct towc_link *link, enum towc_fault_why why, uint8_t *chunk,
                         size_t room, towc_fault_send *send)
{
    bool stale = why == TOW_FAULT_STALE;
    struct outgoing out = {.link = link,
                           .send = send,
                           .chunk = chunk,
                           .room = room,
                           .status = (CUresult)atomic_load(&link->lost)};
    struct towc_faults *faults = atomic_load_explicit(&link->faults, memory_order_acquire);
    if (out.status != CUDA_SUCCESS || faults == NULL) {
        return out.status; /* the program keeps what it has */
    }
    tow_mutex_lock(&watched.lock);
    struct towc_idle idle = towc_link_idle(link);
    if (stale && idle.context != 0) {
        tow_mutex_unlock(&watched.lock);
        return out.status; /* nothing has run since it was fetched */
    }
    if (why == TOW_FAULT_WORK) {
        towc_link_gives(link);
        idle.given++; /* that work comes behind what is sent now */
    }
    if (!stale) {
        /* All that is here was fetched after the device had done its work, and nobody but the
         * program has written since. */
        out.idle = idle;
    }
    uint64_t number = ++faults->pushes;
    faults->epoch += stale;
    if (stale) {
        drop_resting(faults);
    }
    struct range *r = faults->lists[CHANGING].first;
    /* Ranges may come and go while something is sent: each is visited once. */
    while (r != NULL && r->visited != number && out.status == CUDA_SUCCESS) {
        uint64_t base = r->base, serial = r->serial;
        struct run run = {0};
        towc_link_compared(link, r->parts[CHANGING].count * block_size);
        r->visited = number;
        fault_unlist(r, CHANGING);
        fault_list(r, CHANGING);
        while (r != NULL && out.status == CUDA_SUCCESS &&
               next_run(r, run.first + run.n, stale, &run)) {
            push_run(r, &run, &out);
            r = find_again(base, serial);
        }
        r = faults->lists[CHANGING].first;
    }
    fault_flush_moved(&out);
    tow_mutex_unlock(&watched.lock);
    return out.status;
}
