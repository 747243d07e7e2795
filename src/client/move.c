#include "client/move.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "client/fault.h"
#include "client/gang.h"
#include "client/share.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef UFFD_FEATURE_MINOR_SHMEM
#define UFFD_FEATURE_MINOR_SHMEM (1 << 10)
#endif
#ifndef UFFDIO_REGISTER_MODE_MINOR
#define UFFDIO_REGISTER_MODE_MINOR ((__u64)1 << 2)
#endif

/* Of private memory pages are missing, once they are away. A file's are there still, and it is to
 * be caught who maps them again, until we take them out of the file: then they are missing. */
#define PRIVATE UFFDIO_REGISTER_MODE_MISSING
#define SHARED (UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR)

enum { CHUNK = 2 << 20 }; /* each thread takes so much memory twice while it copies */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int uffd = -1;

static uint8_t *at(uint64_t address)
{
    return (uint8_t *)(uintptr_t)address;
}

/* From here on who touches what is moved away in there waits for wake(). `mode`: MISSING for
 * private memory, MINOR for a file that has all its pages. */
static bool guard(int fd, uint64_t low, uint64_t size, uint64_t mode)
{
    struct uffdio_register reg = {.range = {low, size}, .mode = mode};
    return ioctl(fd, UFFDIO_REGISTER, &reg) == 0;
}

/* The pages of one guarded mapping, or of a part of it, go to `away`, which was kept free. */
static bool move_away(uint64_t low, uint64_t size, uint8_t *away)
{
    return mremap(at(low), size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, away) !=
           MAP_FAILED;
}

/* Ends both; what is away stays away. */
static void unguard(uint64_t low, uint64_t size)
{
    struct uffdio_range range = {low, size};
    ioctl(uffd, UFFDIO_UNREGISTER, &range);
}

/* Puts pages where nobody can look; that ends the watch. */
static void move_to(uint8_t *from, uint64_t low, uint64_t size)
{
    while (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at(low)) == MAP_FAILED) {
        tow_time_sleep(TOW_TIME_MS); /* others took what the system had; who waits cannot go on */
    }
}

static void wake(uint64_t low, uint64_t size)
{
    struct uffdio_range range = {low, size};
    ioctl(uffd, UFFDIO_WAKE, &range);
}

/* Whether a system call that looks there is caught: a descriptor for this purpose refuses. */
static bool is_caught(const int *probe, const uint8_t *address)
{
    return write(probe[1], address, 1) < 0 && errno == EFAULT;
}

/* Whether this kernel holds up who touches a page that is away, private or shared. */
static bool catches(int fd, const int *probe, uint8_t *own, uint8_t *shared, uint8_t *alias,
                    uint8_t *away, uint64_t page)
{
    own[0] = shared[0] = 1;
    uint64_t low = (uint64_t)(uintptr_t)own;
    if (!guard(fd, low, page, PRIVATE) || !move_away(low, page, away) || !is_caught(probe, own) ||
        away[0] != 1) {
        return false;
    }
    low = (uint64_t)(uintptr_t)shared;
    return guard(fd, low, page, SHARED) && move_away(low, page, away) && is_caught(probe, shared) &&
           alias[0] == 1 && madvise(alias, page, MADV_REMOVE) == 0 && is_caught(probe, shared) &&
           madvise(alias, page, MADV_POPULATE_WRITE) == 0;
}

/* Tried on a page of each. */
static bool try_out(void)
{
    const int rw = PROT_READ | PROT_WRITE;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int probe[2] = {-1, -1}, memfd = -1;
    int fd = tow_fault_open(UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_SIGBUS);
    bool works = false;
    if (fd >= 0 && pipe2(probe, O_CLOEXEC) == 0 && tow_share_make_memory(page, &memfd) == 0) {
        void *own = mmap(NULL, page, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void *shared = mmap(NULL, page, rw, MAP_SHARED, memfd, 0);
        void *alias = mmap(NULL, page, rw, MAP_SHARED, memfd, 0);
        void *away = mmap(NULL, page, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        works = own != MAP_FAILED && shared != MAP_FAILED && alias != MAP_FAILED &&
                away != MAP_FAILED && catches(fd, probe, own, shared, alias, away, page);
        munmap(own, page);
        munmap(shared, page);
        munmap(alias, page);
        munmap(away, page);
    }
    const int opened[] = {fd, probe[0], probe[1], memfd};
    for (unsigned i = 0; i < sizeof opened / sizeof opened[0]; i++) {
        if (opened[i] >= 0) {
            close(opened[i]);
        }
    }
    return works;
}

/* A handler of the program's could touch what only this thread can bring back. */
static void hush(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

/* Bytes that the gang copies, in pieces of CHUNK. */
struct copy {
    uint8_t *to, *from;
    uint64_t size;
    int letting_go;   /* advice: the pages of a piece that was copied go, by that */
    uint8_t *moved;   /* one for each piece: `from` has it no more */
    atomic_int error; /* the first failure; what has not been moved then stays */
};

static size_t pieces_of(uint64_t size)
{
    return (size_t)((size + CHUNK - 1) / CHUNK);
}

static size_t piece_size(const struct copy *copy, size_t index)
{
    uint64_t left = copy->size - (uint64_t)index * CHUNK;
    return left < CHUNK ? (size_t)left : CHUNK;
}

static void copy_piece(void *user, size_t index)
{
    struct copy *copy = user;
    uint64_t at = (uint64_t)index * CHUNK;
    size_t n = piece_size(copy, index);
    if (atomic_load_explicit(&copy->error, memory_order_relaxed) != 0) {
        return;
    }
    /* A system call says so if there is no memory. */
    if (madvise(copy->to + at, n, MADV_POPULATE_WRITE) != 0) {
        int none = 0;
        atomic_compare_exchange_strong(&copy->error, &none, -errno);
        return;
    }
    memcpy(copy->to + at, copy->from + at, n);
    copy->moved[index] = 1;
    madvise(copy->from + at, n, copy->letting_go);
}

/* All of it; or why not, and nothing. */
static int copy_all(struct copy *copy)
{
    size_t count = pieces_of(copy->size);
    tow_gang_run(count, copy_piece, copy);
    int error = atomic_load(&copy->error);
    for (size_t i = 0; error < 0 && i < count; i++) {
        uint64_t at = (uint64_t)i * CHUNK;
        if (copy->moved[i]) {
            memcpy(copy->from + at, copy->to + at, piece_size(copy, i));
        }
    }
    return error;
}

/* What is needed while nothing may be asked for: where the pages come from goes to `ret_away`. */
static int prepare(struct copy *copy, int memfd, uint8_t **ret_away)
{
    const int rw = PROT_READ | PROT_WRITE;
    void *made = memfd >= 0 ? mmap(NULL, copy->size, rw, MAP_SHARED, memfd, 0)
                            : mmap(NULL, copy->size, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *away = made != MAP_FAILED ? mmap(NULL, copy->size, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                    : MAP_FAILED;
    copy->moved = away != MAP_FAILED ? calloc(pieces_of(copy->size), 1) : NULL;
    if (copy->moved == NULL) {
        int error = -ENOMEM;
        if (away != MAP_FAILED) {
            munmap(away, copy->size);
        }
        if (made != MAP_FAILED) {
            munmap(made, copy->size);
        }
        return error;
    }
    copy->to = made;
    *ret_away = away;
    tow_gang_prepare();
    return 0;
}

int tow_move_in(const struct tow_move_part *parts, unsigned count, int memfd)
{
    uint64_t low = parts[0].low, size = parts[count - 1].low + parts[count - 1].size - low;
    struct copy copy = {.size = size, .letting_go = MADV_DONTNEED};
    uint8_t *away = NULL;
    int error = prepare(&copy, memfd, &away);
    if (error < 0) {
        return error;
    }
    copy.from = away;
    sigset_t before;
    hush(&before);
    error = guard(uffd, low, size, PRIVATE) ? 0 : -errno;
    unsigned gone = 0;
    for (; error == 0 && gone < count; gone++) {
        const struct tow_move_part *part = &parts[gone];
        if (!move_away(part->low, part->size, away + (part->low - low))) {
            error = -errno;
            break;
        }
    }
    error = error == 0 ? copy_all(&copy) : error;
    if (error == 0) {
        move_to(copy.to, low, size);
    }
    for (unsigned i = 0; error < 0 && i < gone; i++) {
        move_to(away + (parts[i].low - low), parts[i].low, parts[i].size);
    }
    if (error < 0) {
        unguard(low, size);
    }
    wake(low, size);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    munmap(error == 0 ? away : copy.to, size);
    free(copy.moved);
    return error;
}

int tow_move_out(uint64_t low, uint64_t size, uint8_t *alias, int protection)
{
    struct copy copy = {.from = alias, .size = size, .letting_go = MADV_REMOVE};
    uint8_t *away = NULL;
    int error = prepare(&copy, -1, &away);
    if (error < 0) {
        return error;
    }
    sigset_t before;
    hush(&before);
    bool gone = guard(uffd, low, size, SHARED) && move_away(low, size, away);
    error = gone ? copy_all(&copy) : -errno;
    if (error == 0) {
        mprotect(copy.to, size, protection);
        move_to(copy.to, low, size);
    } else if (gone) {
        move_to(away, low, size);
    }
    if (error < 0) {
        unguard(low, size);
    }
    wake(low, size);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    munmap(error == 0 ? away : copy.to, size);
    free(copy.moved);
    return error;
}

/* There and back again, with the gang. All functions that are called meanwhile are known to the
 * dynamic linker then, which would take locks, too. */
static bool rehearse(void)
{
    const uint64_t size = 2 * CHUNK;
    int memfd = -1;
    uint8_t *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *alias = tow_share_make_memory(size, &memfd) == 0
                         ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0)
                         : MAP_FAILED;
    bool works = own != MAP_FAILED && alias != MAP_FAILED;
    if (works) {
        uint64_t low = (uint64_t)(uintptr_t)own;
        struct tow_move_part part = {.low = low, .size = size};
        uint8_t *last = own + size - 1, *there = alias + size - 1;
        *last = 1;
        works = tow_move_in(&part, 1, memfd) == 0 && *last == 1 && ++*there == *last &&
                tow_move_out(low, size, alias, PROT_READ | PROT_WRITE) == 0 && *last == 2 &&
                *there == 0;
    }
    munmap(own, size);
    munmap(alias, size);
    if (memfd >= 0) {
        close(memfd);
    }
    return works;
}

static void begin(void)
{
    uffd = try_out() ? tow_fault_open(UFFD_FEATURE_MINOR_SHMEM) : -1;
    if (uffd >= 0 && !rehearse()) {
        close(uffd);
        uffd = -1;
    }
    if (uffd < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                "memory that the program registers is staged: this system does not let the program "
                "watch its memory (userfaultfd)");
    }
}

bool tow_move_ready(void)
{
    pthread_once(&once, begin);
    return uffd >= 0;
}
