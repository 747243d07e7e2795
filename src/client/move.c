#include "client/move.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "client/fault.h"
#include "client/share.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
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

enum { CHUNK = 8 << 20 }; /* how much memory is taken twice while bytes are copied */

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

/* Where the pages of one guarded mapping, or of a part of it, are now; NULL: still there. */
static uint8_t *move_away(uint64_t low, uint64_t size)
{
    void *away = mremap(at(low), size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    return away != MAP_FAILED ? away : NULL;
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
                    uint64_t page)
{
    own[0] = shared[0] = 1;
    uint64_t low = (uint64_t)(uintptr_t)own;
    uint8_t *away = guard(fd, low, page, PRIVATE) ? move_away(low, page) : NULL;
    if (away == NULL) {
        return false;
    }
    bool works = is_caught(probe, own) && away[0] == 1;
    munmap(away, page);
    low = (uint64_t)(uintptr_t)shared;
    away = guard(fd, low, page, SHARED) ? move_away(low, page) : NULL;
    if (away == NULL) {
        return false;
    }
    munmap(away, page);
    return works && is_caught(probe, shared) && alias[0] == 1 &&
           madvise(alias, page, MADV_REMOVE) == 0 && is_caught(probe, shared);
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
        works = own != MAP_FAILED && shared != MAP_FAILED && alias != MAP_FAILED &&
                catches(fd, probe, own, shared, alias, page);
        munmap(own, page);
        munmap(shared, page);
        munmap(alias, page);
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

/* Copies a part that is away into the file, at `offset`. A system call says so if there is no
 * memory, and need not clear it first. */
static int fill(struct tow_move_part *part, int memfd, uint64_t offset)
{
    while (part->filled < part->size) {
        uint8_t *from = part->away + part->filled;
        uint64_t left = part->size - part->filled;
        size_t piece = left < CHUNK ? left : CHUNK;
        ssize_t n = pwrite(memfd, from, piece, (off_t)(offset + part->filled));
        if (n <= 0) {
            return n < 0 ? -errno : -ENOSPC;
        }
        part->filled += (uint64_t)n;
        if (n == CHUNK) {
            madvise(from, CHUNK, MADV_DONTNEED);
        }
    }
    return 0;
}

int tow_move_in(struct tow_move_part *parts, unsigned count, int memfd, uint8_t *alias)
{
    uint64_t low = parts[0].low, size = parts[count - 1].low + parts[count - 1].size - low;
    uint8_t *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (made == MAP_FAILED) {
        return -errno;
    }
    sigset_t before;
    hush(&before);
    int error = guard(uffd, low, size, PRIVATE) ? 0 : -errno;
    for (unsigned i = 0; i < count; i++) {
        parts[i].filled = 0;
        parts[i].away = error == 0 ? move_away(parts[i].low, parts[i].size) : NULL;
        error = error == 0 && parts[i].away == NULL ? -errno : error;
    }
    for (unsigned i = 0; error == 0 && i < count; i++) {
        error = fill(&parts[i], memfd, parts[i].low - low);
    }
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].away != NULL && error == 0) {
            munmap(parts[i].away, parts[i].size);
        } else if (parts[i].away != NULL) {
            memcpy(parts[i].away, alias + (parts[i].low - low), parts[i].filled);
            move_to(parts[i].away, parts[i].low, parts[i].size);
        }
    }
    if (error == 0) {
        move_to(made, low, size);
    } else {
        unguard(low, size);
        munmap(made, size);
    }
    wake(low, size);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int tow_move_out(uint64_t low, uint64_t size, uint8_t *alias, int protection)
{
    uint8_t *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) {
        return -errno;
    }
    sigset_t before;
    hush(&before);
    uint8_t *away = guard(uffd, low, size, SHARED) ? move_away(low, size) : NULL;
    int error = away != NULL ? 0 : -errno;
    if (error == 0) {
        munmap(away, size); /* the file has them, and the alias */
        for (uint64_t done = 0; done < size; done += CHUNK) {
            uint64_t n = size - done < CHUNK ? size - done : CHUNK;
            memcpy(made + done, alias + done, n);
            madvise(alias + done, n, MADV_REMOVE);
        }
        mprotect(made, size, protection);
        move_to(made, low, size);
        wake(low, size);
    } else {
        unguard(low, size);
        munmap(made, size);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* There and back again. All functions that are called meanwhile are known to the dynamic linker
 * then, which would take locks, too. */
static bool rehearse(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int memfd = -1;
    uint8_t *own = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *alias = tow_share_make_memory(page, &memfd) == 0
                         ? mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0)
                         : MAP_FAILED;
    bool works = own != MAP_FAILED && alias != MAP_FAILED;
    if (works) {
        uint64_t low = (uint64_t)(uintptr_t)own;
        struct tow_move_part part = {.low = low, .size = page};
        own[1] = 1;
        works = tow_move_in(&part, 1, memfd, alias) == 0 && own[1] == 1 && ++alias[1] == own[1] &&
                tow_move_out(low, page, alias, PROT_READ | PROT_WRITE) == 0 && own[1] == 2 &&
                alias[1] == 0;
    }
    munmap(own, page);
    munmap(alias, page);
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
