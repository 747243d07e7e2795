#include "client/fault.h"

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
#include "base/thread.h"
#include "client/side.h"
#include "wire/control.h"
#include "wire/diff.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum {
    BLOCK = TOW_FAULT_BLOCK,
    RUN = TOW_FETCH_MAX / BLOCK, /* blocks that come or leave together at most */
};

enum state {
    ABSENT,
    FRESH,  /* here since the last push, or changed before it */
    AGED,   /* here, and was compared once */
    MOVING, /* taken away, but what changed in it has not gone out yet: nobody may fetch it */
};

struct range {
    struct tow_link *link; /* borrowed */
    uint64_t base, size;   /* whole blocks */
    uint8_t *known;        /* owned mapping: what both sides had, of blocks that are here */
    uint8_t *states;       /* owned: enum state of each block */
    size_t here;           /* blocks that are not ABSENT */
    size_t expected;       /* the block that a program touches next which walks through it */
    size_t ahead;          /* blocks that were fetched together last */
    bool blank;            /* no work went out since it was made: the worker has zeros */
    uint64_t epoch;        /* rises when what was fetched before may be old */
    uint64_t serial;       /* no other range ever has it */
    struct range *next;
};

atomic_uint tow_fault_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* never held while sending, nor while an
                                                            absent block is touched */
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;  /* with lock: nothing is MOVING any more */
static struct range *ranges;                             /* guarded by lock */
static uint64_t serials;                                 /* guarded by lock */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int uffd = -1;
static uint8_t *scratch; /* RUN blocks of addresses: where blocks are moved to; the pusher's */
static uint8_t *fetched; /* RUN blocks: what came from the worker; the fault thread's */
static uint8_t *zeros;   /* RUN blocks that are never written */

/* ---- getting ready ---- */

int tow_fault_open(uint64_t features)
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

static bool watch(int fd, uint64_t base, uint64_t size)
{
    struct uffdio_register reg = {.range = {base, size}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    return ioctl(fd, UFFDIO_REGISTER, &reg) == 0 && (reg.ioctls & (1ull << _UFFDIO_COPY)) != 0;
}

/* Puts bytes where nothing is. */
static bool place(int fd, uint64_t at, const uint8_t *bytes, uint64_t size)
{
    uint64_t done = 0;
    while (done < size) {
        struct uffdio_copy copy = {
            .dst = at + done, .src = (uint64_t)(uintptr_t)bytes + done, .len = size - done};
        if (ioctl(fd, UFFDIO_COPY, &copy) == 0) {
            return true;
        }
        int error = errno;
        done += copy.copy > 0 ? (uint64_t)copy.copy : 0;
        if (error == EEXIST) {
            done += (uint64_t)sysconf(_SC_PAGESIZE); /* somebody was faster */
        } else if (error == ENOMEM) {
            tow_time_sleep(TOW_TIME_MS); /* whoever waits for it cannot go on without */
        } else if (error != EAGAIN) {
            return false;
        }
    }
    return true;
}

static bool move_away(void *from, size_t size)
{
    return mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, scratch) ==
           scratch;
}

static void clear_scratch(void)
{
    mmap(scratch, (size_t)RUN * BLOCK, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void *map(int protection)
{
    void *at = mmap(NULL, (size_t)RUN * BLOCK, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

/* Whether this kernel does all that is needed, tried on one block. */
static bool try_out(int fd)
{
    uint8_t *block = map(PROT_READ | PROT_WRITE);
    bool works = block != NULL && watch(fd, (uint64_t)(uintptr_t)block, BLOCK);
    if (works) {
        fetched[0] = 1;
        works = place(fd, (uint64_t)(uintptr_t)block, fetched, BLOCK) && block[0] == 1 &&
                move_away(block, BLOCK) && scratch[0] == 1 &&
                place(fd, (uint64_t)(uintptr_t)block, zeros, BLOCK) && block[0] == 0;
        clear_scratch();
    }
    if (block != NULL) {
        munmap(block, (size_t)RUN * BLOCK);
    }
    return works;
}

static void *fault_thread(void *arg);

static void begin(void)
{
    const char *wish = getenv("TOWLINE_MANAGED");
    if ((wish != NULL && strcmp(wish, "compare") == 0) || BLOCK % sysconf(_SC_PAGESIZE) != 0) {
        return;
    }
    pthread_t thread;
    int fd = tow_fault_open(0);
    scratch = map(PROT_NONE);
    fetched = map(PROT_READ | PROT_WRITE);
    zeros = map(PROT_READ);
    if (fd >= 0 && scratch != NULL && fetched != NULL && zeros != NULL && try_out(fd)) {
        uffd = fd;
        if (tow_thread_start("towline-fault", fault_thread, NULL, &thread) == 0) {
            pthread_detach(thread);
            return;
        }
        uffd = -1;
    }
    tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
            "large managed memory is compared at every launch: this system does not let the "
            "program watch its memory (userfaultfd)");
    if (fd >= 0) {
        close(fd);
    }
}

bool tow_fault_wanted(struct tow_link *link, uint64_t size)
{
    if (size < TOW_FAULT_MIN || size > UINT64_C(1) << 46 ||
        strncmp(link->address, "self:", 5) == 0) {
        return false;
    }
    pthread_once(&once, begin);
    if (uffd < 0 || tow_link_listen(link) < 0) {
        return false;
    }
    tow_side_open(link);
    return tow_side_is_open(link);
}

/* ---- ranges ---- */

/* With the lock held. */
static struct range *find(uint64_t address)
{
    struct range *r = ranges;
    while (r != NULL && address - r->base >= r->size) {
        r = r->next;
    }
    return r;
}

/* With the lock held: the range that the serial belongs to, unless that is gone. */
static struct range *find_serial(uint64_t serial)
{
    struct range *r = ranges;
    while (r != NULL && r->serial != serial) {
        r = r->next;
    }
    return r;
}

bool tow_fault_add(struct tow_link *link, uint64_t base, uint64_t size)
{
    struct range *r = calloc(1, sizeof *r);
    uint8_t *states = calloc(size / BLOCK, 1);
    uint8_t *known = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r == NULL || states == NULL || known == MAP_FAILED || base % BLOCK != 0 ||
        size % BLOCK != 0 || !watch(uffd, base, size)) {
        if (known != MAP_FAILED) {
            munmap(known, size);
        }
        free(states);
        free(r);
        return false;
    }
    *r = (struct range){.link = link,
                        .base = base,
                        .size = size,
                        .known = known,
                        .states = states,
                        .ahead = 1,
                        .blank = true};
    pthread_mutex_lock(&lock);
    r->serial = ++serials;
    r->next = ranges;
    ranges = r;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&tow_fault_count, 1);
    return true;
}

void tow_fault_filled(uint64_t base)
{
    pthread_mutex_lock(&lock);
    struct range *r = find(base);
    if (r != NULL) {
        r->blank = false;
    }
    pthread_mutex_unlock(&lock);
}

void tow_fault_remove(uint64_t base)
{
    pthread_mutex_lock(&lock);
    struct range **at = &ranges;
    while (*at != NULL && (*at)->base != base) {
        at = &(*at)->next;
    }
    struct range *gone = *at;
    if (gone != NULL) {
        *at = gone->next;
    }
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
    if (gone != NULL) {
        atomic_fetch_sub(&tow_fault_count, 1);
        munmap(gone->known, gone->size);
        free(gone->states);
        free(gone);
    }
}

void tow_fault_wake(uint64_t base, uint64_t size)
{
    struct uffdio_range range = {base, size};
    ioctl(uffd, UFFDIO_WAKE, &range);
}

/* ---- blocks that come ---- */

/* Asks the worker, behind all changes that went out. False: it has nothing there, or is lost. */
static bool fetch(struct tow_link *link, uint64_t address, size_t size)
{
    uint8_t head[TOW_FETCH_HEAD];
    struct tow_line *line = atomic_load_explicit(&link->side, memory_order_acquire);
    tow_fetch_head(&(struct tow_fetch){address, size}, head);
    if (tow_side_send(link, TOW_CONTROL_FETCH, head, sizeof head, NULL, 0) != CUDA_SUCCESS) {
        return false;
    }
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
            error = tow_line_recv_into(line, fetched + got, data.size);
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
        tow_link_lose(link, "a connection of its session was closed");
    }
    return error == 0 && !failed;
}

/* With the lock held: how many blocks from `first` on are to come together. A program that walks
 * through its memory finds more and more of it there. */
static size_t how_many(struct range *r, size_t first)
{
    size_t most = first != r->expected ? 1 : r->ahead < RUN ? r->ahead * 2 : RUN;
    size_t end = r->size / BLOCK, n = 1;
    while (n < most && first + n < end && r->states[first + n] == ABSENT) {
        n++;
    }
    r->ahead = most;
    r->expected = first + n;
    return n;
}

/* With the lock held. */
static void arrive(struct range *r, size_t first, size_t n, const uint8_t *bytes)
{
    uint64_t offset = first * BLOCK;
    if (bytes != zeros) {
        memcpy(r->known + offset, bytes, n * BLOCK);
    }
    if (!place(uffd, r->base + offset, bytes, n * BLOCK)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "managed memory at 0x%llx cannot be filled: %s",
                (unsigned long long)(r->base + offset), strerror(errno));
    }
    memset(r->states + first, FRESH, n);
    r->here += n;
}

/* Somebody waits for the memory at `address`. */
static void serve(uint64_t address)
{
    pthread_mutex_lock(&lock);
    struct range *r = find(address);
    for (;;) {
        while (r != NULL && r->states[(address - r->base) / BLOCK] == MOVING) {
            pthread_cond_wait(&moved, &lock);
            r = find(address);
        }
        size_t block = r != NULL ? (address - r->base) / BLOCK : 0;
        if (r == NULL || r->states[block] != ABSENT) {
            break;
        }
        size_t n = how_many(r, block);
        if (r->blank) {
            arrive(r, block, n, zeros);
            break;
        }
        uint64_t serial = r->serial, epoch = r->epoch, at = r->base + block * BLOCK;
        struct tow_link *link = r->link;
        pthread_mutex_unlock(&lock);
        bool known = fetch(link, at, n * BLOCK);
        pthread_mutex_lock(&lock);
        r = find(address);
        if (r != NULL && r->serial == serial && r->epoch == epoch) {
            /* A program whose server is lost goes on with zeros; its calls say what happened. */
            if (!known) {
                memset(fetched, 0, n * BLOCK);
            }
            arrive(r, block, n, fetched);
            break;
        }
        if (r != NULL && r->serial == serial) {
            r->expected = block; /* the same again: it had been synchronised meanwhile */
        }
    }
    pthread_mutex_unlock(&lock);
    tow_fault_wake(address & ~(uint64_t)(BLOCK - 1), BLOCK);
}

static void *fault_thread(void *arg)
{
    struct uffd_msg message;
    for (;;) {
        ssize_t n = read(uffd, &message, sizeof message);
        if (n == (ssize_t)sizeof message && message.event == UFFD_EVENT_PAGEFAULT) {
            serve(message.arg.pagefault.address);
        } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return arg;
        }
    }
}

/* ---- blocks that leave ---- */

/* What is compared together. */
struct run {
    size_t first, n;
    bool moves;
};

/* With the lock held: the next blocks from `from` on that are here and are treated alike. */
static bool next_run(const struct range *r, size_t from, bool stale, struct run *ret_run)
{
    size_t end = r->size / BLOCK, first = from;
    while (first < end && r->states[first] == ABSENT) {
        first++;
    }
    if (r->here == 0 || first == end) {
        return false;
    }
    bool moves = stale || r->states[first] == AGED;
    size_t n = 1;
    while (n < RUN && first + n < end && r->states[first + n] != ABSENT &&
           (stale || r->states[first + n] == r->states[first])) {
        n++;
    }
    *ret_run = (struct run){first, n, moves};
    return true;
}

/* With the lock held: a run begins to be compared. Where its bytes are now. */
static const uint8_t *begin_run(struct range *r, const struct run *run)
{
    uint8_t *at = (uint8_t *)(uintptr_t)(r->base + run->first * BLOCK);
    memset(r->states + run->first, run->moves ? MOVING : AGED, run->n);
    if (!run->moves) {
        return at;
    }
    if (move_away(at, run->n * BLOCK)) {
        return scratch;
    }
    static bool said; /* guarded by lock */
    if (!said) {
        said = true;
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "managed memory cannot be moved (%s): what threads write during a synchronisation "
                "may be lost; TOWLINE_MANAGED=compare is safe",
                strerror(errno));
    }
    return at;
}

/* With the lock held: all that differed has gone out. */
static void end_run(struct range *r, const struct run *run, const uint8_t *bytes)
{
    if (!run->moves) {
        return;
    }
    if (bytes != scratch) {
        madvise((void *)(uintptr_t)bytes, run->n * BLOCK, MADV_DONTNEED);
    }
    madvise(r->known + run->first * BLOCK, run->n * BLOCK, MADV_DONTNEED);
    memset(r->states + run->first, ABSENT, run->n);
    r->here -= run->n;
    pthread_cond_broadcast(&moved);
}

/* Of one range, from block *at on: false when there is nothing more. */
static bool push_run(uint64_t serial, size_t *at, bool stale, uint8_t *piece, size_t room,
                     tow_fault_send *send, CUresult *status)
{
    struct run run;
    pthread_mutex_lock(&lock);
    struct range *r = find_serial(serial);
    if (r == NULL || !next_run(r, *at, stale, &run)) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    const uint8_t *bytes = begin_run(r, &run);
    struct tow_diff diff = {.known = r->known + run.first * BLOCK,
                            .now = bytes,
                            .address = r->base + run.first * BLOCK,
                            .size = run.n * BLOCK};
    struct tow_link *link = r->link;
    size_t n;
    while (r != NULL && *status == CUDA_SUCCESS && (n = tow_diff_next(&diff, piece, room)) > 0) {
        pthread_mutex_unlock(&lock);
        *status = send(link, piece, n);
        pthread_mutex_lock(&lock);
        r = find_serial(serial);
    }
    if (r != NULL) {
        end_run(r, &run, bytes);
    }
    pthread_mutex_unlock(&lock);
    if (bytes == scratch) {
        clear_scratch();
    }
    *at = run.first + run.n;
    return true;
}

/* The first range of the link behind number `after` of which anything is here; 0 if there is none.
 * The list may change meanwhile: go by number, not by pointer. */
static uint64_t next_here(const struct tow_link *link, uint64_t after)
{
    uint64_t found = 0;
    pthread_mutex_lock(&lock);
    for (const struct range *r = ranges; r != NULL; r = r->next) {
        if (r->link == link && r->here > 0 && r->serial > after &&
            (found == 0 || r->serial < found)) {
            found = r->serial;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult tow_fault_push(struct tow_link *link, bool stale, uint8_t *piece, size_t room,
                        tow_fault_send *send)
{
    CUresult status = (CUresult)atomic_load(&link->lost);
    if (status != CUDA_SUCCESS) {
        return status; /* the program keeps what it has */
    }
    pthread_mutex_lock(&lock);
    for (struct range *r = ranges; r != NULL; r = r->next) {
        if (r->link == link) {
            r->blank = false;
            r->epoch += stale;
        }
    }
    pthread_mutex_unlock(&lock);
    uint64_t serial = 0;
    while (status == CUDA_SUCCESS && (serial = next_here(link, serial)) != 0) {
        size_t at = 0;
        while (status == CUDA_SUCCESS && push_run(serial, &at, stale, piece, room, send, &status)) {
        }
    }
    return status;
}
