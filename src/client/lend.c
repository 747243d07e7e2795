#include "client/lend.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "client/move.h"
#include "client/share.h"
#include "client/stream.h"
#include "client/vma.h"

enum {
    /* Private memory below this is staged. To lend it or to take it back costs some 120 us and 0.7
     * us for each KiB; copies of 64 KiB through the staging cost 50 us more than others at most. */
    PRIVATE_MIN = 64 << 10,
    PAYS = 16,  /* times that memory is copied, for which it is worth to be lent */
    DOUBTS = 2, /* times that it was not, after which such memory is staged */
    USES = 64,
    FRAMES = 256 << 10, /* more than our functions take of a stack */
    PARTS = 16,         /* mappings that private memory may consist of */
};

enum state {
    LENT,
    MOVING, /* on its way: the worker does not have it yet, or not any more */
    KEPT,   /* could not be put back; is tried again, and a child must not share it */
};

struct lend {
    struct tow_link *link; /* borrowed */
    enum state state;      /* guarded by lock */
    uint64_t low, high;
    uint8_t *alias; /* owned: the memfd again, for us; NULL: a file of the program's */
    dev_t device;   /* of the memfd, as /proc/self/maps names it */
    ino_t inode;
    struct lend *next;
};

/* A mapping of a memfd of ours, as the program has left it. */
struct piece {
    uint64_t low, high, offset;
    int protection;
    const uint8_t *alias; /* borrowed: where its bytes are */
    uint8_t *copy;        /* owned: a child's */
};

struct pieces {
    const struct lend *lends; /* those of these, linked by next; */
    const struct lend *only;  /* or of this one alone */
    struct piece *list;       /* owned */
    size_t count;
    bool failed; /* for want of memory: there are more */
};

static pthread_mutex_t move_lock = PTHREAD_MUTEX_INITIALIZER; /* held while memory is moved, and by
                                                                 who forks; taken before: */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;      /* guards the list */
static struct lend *lends;

/* Bytes copied, by where the memory begins. Two that share one count for each other. */
static _Atomic uint64_t uses[USES];
static unsigned doubts;        /* guarded by lock */
static uint64_t doubtful_size; /* guarded by lock: the largest that did not pay */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool watched_forks;

static uint8_t *at(uint64_t address)
{
    return (uint8_t *)(uintptr_t)address;
}

/* ---- whether it pays ---- */

static _Atomic uint64_t *uses_of(uint64_t low)
{
    return &uses[(low >> 12 ^ low >> 18 ^ low >> 24) % USES];
}

void tow_lend_count(uint64_t low, uint64_t bytes)
{
    atomic_fetch_add_explicit(uses_of(low), bytes, memory_order_relaxed);
}

void tow_lend_count_mapped(uint64_t low)
{
    atomic_fetch_or_explicit(uses_of(low), UINT64_C(1) << 62, memory_order_relaxed);
}

static bool is_doubtful(uint64_t size)
{
    pthread_mutex_lock(&lock);
    bool doubtful = doubts >= DOUBTS && size <= doubtful_size;
    pthread_mutex_unlock(&lock);
    return doubtful;
}

/* Private memory has been lent, and comes back. */
static void judge(uint64_t low, uint64_t size)
{
    bool paid = atomic_exchange_explicit(uses_of(low), 0, memory_order_relaxed) / PAYS >= size;
    pthread_mutex_lock(&lock);
    doubts = paid ? 0 : doubts + (doubts < DOUBTS);
    doubtful_size = paid ? 0 : size > doubtful_size ? size : doubtful_size;
    pthread_mutex_unlock(&lock);
}

/* ---- what the program has mapped ---- */

static bool add_piece(struct pieces *pieces, const struct piece *piece)
{
    struct piece *more = realloc(pieces->list, (pieces->count + 1) * sizeof *more);
    if (more == NULL) {
        pieces->failed = true;
        return false;
    }
    pieces->list = more;
    more[pieces->count++] = *piece;
    return true;
}

static bool gather(const struct tow_vma *vma, void *user)
{
    struct pieces *pieces = user;
    const struct lend *l = pieces->only != NULL ? pieces->only : pieces->lends;
    while (l != NULL && (l->alias == NULL || l->inode != vma->inode || l->device != vma->device ||
                         vma->low - (uint64_t)(uintptr_t)l->alias < l->high - l->low)) {
        l = pieces->only != NULL ? NULL : l->next;
    }
    if (l == NULL) {
        return true;
    }
    struct piece piece = {.low = vma->low,
                          .high = vma->high,
                          .offset = vma->offset,
                          .alias = l->alias,
                          .protection = (vma->access[0] == 'r' ? PROT_READ : 0) |
                                        (vma->access[1] == 'w' ? PROT_WRITE : 0) |
                                        (vma->access[2] == 'x' ? PROT_EXEC : 0)};
    /* What was made longer (mremap) has nothing behind its end. */
    bool whole = piece.offset + (piece.high - piece.low) <= l->high - l->low;
    return !whole || add_piece(pieces, &piece);
}

/* ---- forks ---- */

/* Natively a forked child has its own copy of page-locked memory, as of all private memory. It
 * cannot be made in the child, which would find what its parent wrote since. */
static struct pieces forked; /* guarded by lock */

static void before_fork(void)
{
    pthread_mutex_lock(&move_lock);
    pthread_mutex_lock(&lock);
    forked = (struct pieces){.lends = lends};
    if (lends != NULL && tow_vma_visit(gather, &forked) < 0) {
        /* No descriptor is to be had: it is where it was, most likely. */
        for (const struct lend *l = lends; l != NULL; l = l->next) {
            struct piece piece = {.low = l->low,
                                  .high = l->high,
                                  .alias = l->alias,
                                  .protection = PROT_READ | PROT_WRITE};
            if (l->alias != NULL) {
                add_piece(&forked, &piece);
            }
        }
    }
    for (size_t i = 0; i < forked.count; i++) {
        struct piece *piece = &forked.list[i];
        uint64_t size = piece->high - piece->low;
        void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                    "no memory to copy %llu registered bytes for a forked child, which finds zeros",
                    (unsigned long long)size);
            continue;
        }
        memcpy(copy, piece->alias + piece->offset, size);
        mprotect(copy, size, piece->protection);
        piece->copy = copy;
    }
}

static void forget_forked(void)
{
    free(forked.list);
    forked = (struct pieces){0};
}

static void after_fork(void)
{
    for (size_t i = 0; i < forked.count; i++) {
        if (forked.list[i].copy != NULL) {
            munmap(forked.list[i].copy, forked.list[i].high - forked.list[i].low);
        }
    }
    forget_forked();
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&move_lock);
}

static void in_child(void)
{
    for (size_t i = 0; i < forked.count; i++) {
        const struct piece *piece = &forked.list[i];
        uint64_t size = piece->high - piece->low;
        if (piece->copy == NULL || mremap(piece->copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
                                          at(piece->low)) == MAP_FAILED) {
            mmap(at(piece->low), size, piece->protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0);
        }
    }
    forget_forked();
    lends = NULL; /* its memory is its own */
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&move_lock, NULL);
}

static void begin(void)
{
    watched_forks = pthread_atfork(before_fork, after_fork, in_child) == 0;
}

/* ---- lending ---- */

/* What is mapped in [low, high). */
struct search {
    uint64_t low, high;
    uint64_t reached;     /* all is mapped up to here */
    struct tow_vma first; /* the mapping that holds its begin */
    char path[512];
    bool plain; /* private memory, without a file or a special purpose */
    struct tow_move_part parts[PARTS];
    unsigned count;
};

static bool look_for(const struct tow_vma *vma, void *user)
{
    struct search *search = user;
    if (vma->high <= search->reached) {
        return true;
    }
    if (vma->low > search->reached || search->count == PARTS) {
        return false;
    }
    if (search->count == 0) {
        snprintf(search->path, sizeof search->path, "%s", vma->path);
        search->first = *vma;
        search->first.path = search->path;
    }
    /* Memory that has been lent before is no part of its heap's mapping any more, and as good. */
    search->plain = search->plain && strcmp(vma->access, "rw-p") == 0 && vma->inode == 0 &&
                    (vma->path[0] == '\0' || strcmp(vma->path, "[heap]") == 0 ||
                     strncmp(vma->path, "[anon:", 6) == 0);
    uint64_t end = vma->high < search->high ? vma->high : search->high;
    search->parts[search->count++] =
        (struct tow_move_part){.low = search->reached, .size = end - search->reached};
    search->reached = end;
    return end < search->high;
}

static bool lend_file(struct lend *l, const struct tow_vma *vma)
{
    struct statfs system;
    struct stat status;
    uint64_t offset = vma->offset + (l->low - vma->low);
    int fd = tow_vma_open(vma);
    bool lent = fd >= 0 && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
                fstat(fd, &status) == 0 &&
                offset + (l->high - l->low) <= (uint64_t)status.st_size &&
                tow_share_lend(l->link, fd, l->low, l->high - l->low, &offset) == CUDA_SUCCESS;
    if (fd >= 0) {
        close(fd);
    }
    return lent;
}

/* Locked memory has its pages at once, and pages that other devices use (RDMA, io_uring) must stay
 * where they are. Which those are would cost a walk through all memory: any are too many. */
static bool has_fixed_pages(void)
{
    char text[4096] = "", *line = NULL;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    bool locked = n <= 0 || (line = strstr(text, "\nVmLck:")) == NULL || atol(line + 7) != 0;
    return locked || (line = strstr(text, "\nVmPin:")) == NULL || atol(line + 7) != 0;
}

/* Whether this very thread stands on it. */
static bool is_stood_on(const struct lend *l)
{
    uint64_t frame = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    return (l->low <= frame && frame - FRAMES < l->high) ||
           (uint64_t)(uintptr_t)&errno - l->low < l->high - l->low;
}

static void enlist(struct lend *l)
{
    pthread_mutex_lock(&lock);
    l->next = lends;
    lends = l;
    pthread_mutex_unlock(&lock);
}

static void set_state(struct lend *l, enum state state)
{
    pthread_mutex_lock(&lock);
    l->state = state;
    pthread_mutex_unlock(&lock);
}

static void forget(struct lend *l)
{
    pthread_mutex_lock(&lock);
    struct lend **link = &lends;
    while (*link != l) {
        link = &(*link)->next;
    }
    *link = l->next;
    pthread_mutex_unlock(&lock);
    if (l->alias != NULL) {
        munmap(l->alias, l->high - l->low);
    }
    free(l);
}

/* The worker does not have it, or not any more. Of what the program unmapped meanwhile there is
 * nothing to put back, and what it mapped there instead is not ours. */
static void give_back(struct lend *l)
{
    struct pieces pieces = {.only = l};
    pthread_mutex_lock(&move_lock);
    int error = l->alias != NULL ? tow_vma_visit(gather, &pieces) : 0;
    error = error == 0 && pieces.failed ? -ENOMEM : error;
    error = error == 0 && pieces.count > 0 && has_fixed_pages() ? -EBUSY : error;
    for (size_t i = 0; error == 0 && i < pieces.count; i++) {
        const struct piece *piece = &pieces.list[i];
        error = tow_move_out(piece->low, piece->high - piece->low, l->alias + piece->offset,
                             piece->protection);
    }
    if (error == 0) {
        forget(l);
    }
    pthread_mutex_unlock(&move_lock);
    free(pieces.list);
    if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_DEBUG,
                "memory at 0x%llx stays where it was shared with the worker: %s",
                (unsigned long long)l->low, strerror(-error));
        set_state(l, KEPT);
    }
}

/* Private memory: true if it is the memfd's now, and in the list, but not the worker's yet. */
static bool share_private(struct lend *l, struct search *found, int memfd)
{
    uint64_t size = l->high - l->low;
    struct stat status;
    void *alias = fstat(memfd, &status) == 0
                      ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0)
                      : MAP_FAILED;
    if (alias == MAP_FAILED) {
        return false;
    }
    madvise(alias, size, MADV_DONTFORK);
    pthread_mutex_lock(&move_lock);
    int error = tow_move_in(found->parts, found->count, memfd);
    if (error == 0) {
        /* A child gets a copy, see above; one that was forked past the C library had better get
         * nothing than what the GPU reads for its parent. */
        madvise(at(l->low), size, MADV_DONTFORK);
        l->alias = alias;
        l->device = status.st_dev;
        l->inode = status.st_ino;
        l->state = MOVING;
        enlist(l);
    }
    pthread_mutex_unlock(&move_lock);
    if (error < 0) {
        munmap(alias, size);
    }
    return error == 0;
}

static bool lend_private(struct lend *l, struct search *found)
{
    int memfd = -1;
    bool shared =
        tow_share_make_memory(l->high - l->low, &memfd) == 0 && share_private(l, found, memfd);
    bool lent =
        shared && tow_share_lend(l->link, memfd, l->low, l->high - l->low, NULL) == CUDA_SUCCESS;
    if (memfd >= 0) {
        close(memfd);
    }
    if (lent) {
        set_state(l, LENT);
    } else if (shared) {
        give_back(l);
    } else {
        free(l);
    }
    return lent;
}

/* The user may know better. */
static bool wishes(const char *wanted)
{
    const char *wish = getenv("TOWLINE_REGISTERED");
    return wish != NULL && strcmp(wish, wanted) == 0;
}

/* Owns `l`. */
static bool lend(struct lend *l)
{
    struct search found = {.low = l->low, .high = l->high, .reached = l->low, .plain = true};
    bool mapped = tow_vma_visit(look_for, &found) == 0 && found.reached == l->high;
    if (mapped && found.count == 1 && strcmp(found.first.access, "rw-s") == 0 &&
        lend_file(l, &found.first)) {
        enlist(l);
        return true;
    }
    uint64_t size = l->high - l->low;
    if (mapped && found.plain && size >= PRIVATE_MIN && !is_stood_on(l) &&
        (wishes("share") || !is_doubtful(size))) {
        pthread_once(&once, begin);
        if (watched_forks && tow_move_ready() && !has_fixed_pages()) {
            return lend_private(l, &found);
        }
    }
    free(l);
    return false;
}

/* One in this state, any or what begins at `low`, is on its way now; NULL if there is none. */
static struct lend *take(enum state state, const struct tow_link *link, uint64_t low)
{
    pthread_mutex_lock(&lock);
    struct lend *l = lends;
    while (l != NULL &&
           (l->state != state || (link != NULL && (l->link != link || l->low != low)))) {
        l = l->next;
    }
    if (l != NULL) {
        l->state = MOVING;
    }
    pthread_mutex_unlock(&lock);
    return l;
}

bool tow_lend_begin(struct tow_link *link, uint64_t base, uint64_t size, uint64_t *ret_low,
                    uint64_t *ret_high)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t low = (base + page - 1) & ~(page - 1), high = (base + size) & ~(page - 1);
    /* A capture would not like the worker's calls. */
    if (link->share == NULL || low >= high || atomic_load(&tow_captures) != 0 || wishes("stage")) {
        return false;
    }
    struct lend *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return false;
    }
    struct lend *kept = take(KEPT, NULL, 0);
    if (kept != NULL) {
        give_back(kept);
    }
    *l = (struct lend){.link = link, .low = low, .high = high};
    if (!lend(l)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_DEBUG, "registered memory at 0x%llx is staged",
                (unsigned long long)base);
        return false;
    }
    atomic_store_explicit(uses_of(low), 0, memory_order_relaxed);
    *ret_low = low;
    *ret_high = high;
    return true;
}

CUresult tow_lend_end(struct tow_link *link, uint64_t low)
{
    CUresult status = tow_share_take_back(link, low);
    struct lend *l = take(LENT, link, low);
    if (l != NULL && l->alias != NULL) {
        judge(low, l->high - low);
    }
    if (l != NULL) {
        give_back(l);
    }
    return status;
}

uint64_t tow_lend_until(const struct tow_link *link, uint64_t at, uint64_t end, bool *ret_lent)
{
    *ret_lent = false;
    pthread_mutex_lock(&lock);
    for (const struct lend *l = lends; l != NULL; l = l->next) {
        if (l->state != LENT || (link != NULL && l->link != link)) {
            continue;
        }
        if (at - l->low < l->high - l->low) {
            *ret_lent = true;
            end = l->high;
            break;
        }
        if (l->low > at && l->low < end) {
            end = l->low;
        }
    }
    pthread_mutex_unlock(&lock);
    return end;
}
