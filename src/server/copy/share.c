/* SPDX-License-Identifier: Apache-2.0 */
/* Maps memory that the client shares, checks addresses in it, and lets the device write fence
 * words. */
#include "server/copy/share.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "gen/copy.h"
#include "gen/memory_server.h"
#include "server/session/session.h"
#include "wire/share.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* What is smaller is done within any spin. */
#define EXPECTED_MIN (256u << 10)

struct share {
    uint64_t base, size;
    uint32_t context; /* in which the driver page-locked it; 0: it has not */
    bool in_driver;   /* which page-locks it just now, or ends that: who needs it waits */
};

struct share_state {
    struct tow_mutex lock;  /* guards all here; no driver is called with it held */
    pthread_cond_t changed; /* a piece is not in the driver any more */
    struct share *list;     /* owned */
    unsigned count, room;
};

static void shares_fini(struct tows_session *session, void *opaque)
{
    struct share_state *state = opaque;
    (void)session;
    for (unsigned i = 0; i < state->count; i++) {
        munmap((void *)(uintptr_t)state->list[i].base, state->list[i].size);
    }
    free(state->list);
    tow_mutex_fini(&state->lock);
    pthread_cond_destroy(&state->changed);
}

static void shares_init(struct tows_session *session, void *opaque)
{
    struct share_state *state = opaque;
    tow_mutex_init(&state->lock, SERVER_SHARED);
    pthread_cond_init(&state->changed, NULL);
}

static struct share_state *state_of(struct tows_session *session, bool make)
{
    static const struct tows_family_ops ops = {TOW_SESSION_SHARE, sizeof(struct share_state),
                                               shares_init, shares_fini};
    return make ? tows_session_make_state(session, &ops)
                : tows_session_state(session, TOW_SESSION_SHARE);
}

/* With the lock held: the piece that holds all of [address, address + size). */
static struct share *share_find(struct share_state *state, uint64_t address, uint64_t size)
{
    for (unsigned i = 0; i < state->count; i++) {
        struct share *s = &state->list[i];
        if (address - s->base < s->size && size <= s->size - (address - s->base)) {
            return s;
        }
    }
    return NULL;
}

/* The same, out of the driver: the lock is let go while it is there. */
static struct share *find_still(struct share_state *state, uint64_t address, uint64_t size)
{
    struct share *share = share_find(state, address, size);
    while (share != NULL && share->in_driver) {
        tow_mutex_wait(&state->lock, &state->changed);
        share = share_find(state, address, size);
    }
    return share;
}

/* With the lock held, which is let go between the two: the piece is in the driver, where it stays
 * what it is, and then out of it, page-locked in a context or (0) not. */
static void enter_driver(struct share_state *state, struct share *share)
{
    share->in_driver = true;
    tow_mutex_unlock(&state->lock);
}

static void leave_driver(struct share_state *state, uint64_t base, uint32_t context)
{
    tow_mutex_lock(&state->lock);
    struct share *share = share_find(state, base, 1); /* the list may have grown */
    share->in_driver = false;
    share->context = context;
    pthread_cond_broadcast(&state->changed);
}

/* With the lock held, which is let go meanwhile: page-locks it in the current context, unless it
 * is.
 */
static CUresult lock_pages(struct tows_serve *call, struct share_state *state, struct share *share)
{
    if (share->context != 0) {
        return CUDA_SUCCESS;
    }
    uint64_t base = share->base, size = share->size;
    enter_driver(state, share);
    CUresult status = tow_drive(call->driver, cuMemHostRegister_v2)(
        (void *)(uintptr_t)base, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        status = CUDA_SUCCESS; /* it outlived the context that we took to be its own */
    }
    leave_driver(state, base, status == CUDA_SUCCESS ? call->frame.context : 0);
    return status;
}

bool tows_share_holds(struct tows_serve *call, uint64_t address, uint64_t size)
{
    struct share_state *state = state_of(call->session, false);
    if (state == NULL) {
        return false;
    }
    tows_hold_enter(call);
    tow_mutex_lock(&state->lock);
    struct share *share = find_still(state, address, size);
    if (share != NULL && call->status == CUDA_SUCCESS) {
        call->status = lock_pages(call, state, share);
    }
    tow_mutex_unlock(&state->lock);
    return share != NULL;
}

uint64_t tows_share_from(struct tows_serve *call, uint64_t address)
{
    struct share_state *state = state_of(call->session, false);
    uint64_t left = 0;
    if (state != NULL) {
        tows_hold_enter(call);
        tow_mutex_lock(&state->lock);
        /* What is being page-locked may still fail, and go at once. */
        const struct share *share = find_still(state, address, 1);
        left = share != NULL ? share->size - (address - share->base) : 0;
        tow_mutex_unlock(&state->lock);
    }
    return left;
}

/* With the lock held: one that is page-locked in the context. What is in the driver comes out of it
 * first, perhaps page-locked there. */
static struct share *find_locked(struct share_state *state, uint32_t context)
{
    for (unsigned i = 0; i < state->count; i++) {
        if (state->list[i].in_driver) {
            tow_mutex_wait(&state->lock, &state->changed);
            i = UINT_MAX; /* from the beginning */
        } else if (state->list[i].context == context) {
            return &state->list[i];
        }
    }
    return NULL;
}

void tows_share_drop_context(struct tows_session *session, uint32_t context)
{
    struct share_state *state = state_of(session, false);
    if (state == NULL || context == 0) {
        return;
    }
    tow_mutex_lock(&state->lock);
    struct share *share = NULL;
    while ((share = find_locked(state, context)) != NULL) {
        uint64_t base = share->base;
        enter_driver(state, share);
        tow_drive(session->driver, cuMemHostUnregister)((void *)(uintptr_t)base);
        leave_driver(state, base, 0);
    }
    tow_mutex_unlock(&state->lock);
}

/* ---- fence words, and copies that name addresses ---- */

/* The fence word at an address that the client sent; NULL breaks the protocol. */
static struct tow_fence_word *word_at(struct tows_serve *call, uint64_t address)
{
    if (address % sizeof(struct tow_fence_word) != 0 ||
        !tows_share_holds(call, address, sizeof(struct tow_fence_word))) {
        call->malformed = true;
        return NULL;
    }
    return (struct tow_fence_word *)(uintptr_t)address;
}

struct tow_fence_word *tows_fence_word_decode(struct tows_serve *call, uint32_t *ret_value)
{
    uint64_t address = tow_dec_u64(&call->in);
    *ret_value = tow_dec_u32(&call->in);
    struct tow_fence_word *word = call->in.bad ? NULL : word_at(call, address);
    call->malformed = call->malformed || word == NULL;
    return word;
}

void tows_fence_word_refuse_owing(struct tows_serve *call, bool host_is_source)
{
    if (!host_is_source && call->status == CUDA_SUCCESS &&
        tows_session_deferred(call->session, call->frame.thread)) {
        call->status = CUDA_ERROR_NOT_READY;
    }
}

void tows_fence_word_put_copy(struct tows_serve *call, struct tow_fence_word *word, uint32_t value,
                              bool host_is_source, uint64_t size, CUstream stream)
{
    if (tows_session_owes_any(call->session)) {
        atomic_store_explicit(&word->owing, value, memory_order_release);
    }
    tows_completion_put(call, word, value, stream);
    /* The program looks at the fence word and goes on when the copy is done: a worker that has gone
     * to sleep by then makes it wait for longer than a copy of that size may lose. */
    if (size >= EXPECTED_MIN) {
        tow_line_expect(call->session->line, tow_share_copy_ns(size));
    }
    if (!host_is_source) {
        /* The client, refused, asks in the ordinary way and gets the error there. */
        call->status = CUDA_SUCCESS;
    }
}

void tows_share_copy(struct tows_serve *call, bool host_is_source, CUdeviceptr device,
                     uint64_t size, CUstream stream, uint32_t form)
{
    uint64_t host = tow_dec_u64(&call->in);
    struct tow_fence_word *word = NULL;
    uint32_t value = 0;
    if (form == TOW_COPY_FENCE_WORD) {
        word = tows_fence_word_decode(call, &value);
    }
    if (call->in.bad || form > TOW_COPY_FENCE_WORD || call->malformed) {
        call->malformed = true;
        return;
    }
    if (!tows_share_holds(call, host, size) && call->status == CUDA_SUCCESS) {
        call->status = CUDA_ERROR_INVALID_VALUE; /* another thread's call has just taken it back */
    }
    if (word != NULL) {
        tows_fence_word_refuse_owing(call, host_is_source);
    }
    if (call->status == CUDA_SUCCESS) {
        void *bytes = (void *)(uintptr_t)host;
        call->status =
            host_is_source
                ? tow_drive(call->driver, cuMemcpyHtoDAsync_v2)(device, bytes, (size_t)size, stream)
                : tow_drive(call->driver, cuMemcpyDtoHAsync_v2)(bytes, device, (size_t)size,
                                                                stream);
    }
    if (word != NULL) {
        tows_fence_word_put_copy(call, word, value, host_is_source, size, stream);
    }
}

/* ---- sharing ---- */

/* Memory that the client made for this. Its size cannot change, or our accesses could fault. */
static bool is_sealed(int fd, uint64_t size)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &status) == 0 &&
           (uint64_t)status.st_size == size;
}

/* A file of the program's, in memory: no other would be at hand when it is touched. A program that
 * makes it shorter loses its pages, as anywhere, and if we touch them its session. */
static bool is_in_memory(int fd, uint64_t offset, uint64_t size)
{
    struct stat status;
    struct statfs system;
    return fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC && fstat(fd, &status) == 0 &&
           offset % 4096 == 0 && offset <= (uint64_t)status.st_size &&
           size <= (uint64_t)status.st_size - offset;
}

/* Maps the client's memory where the client has it. */
static int map_at(int fd, uint64_t base, uint64_t size, uint64_t offset)
{
    void *at = mmap((void *)(uintptr_t)base, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED_NOREPLACE, fd, (off_t)offset);
    if (at == MAP_FAILED) {
        return -errno;
    }
    if ((uint64_t)(uintptr_t)at != base) {
        munmap(at, size);
        return -EEXIST;
    }
    return 0;
}

/* With the lock held. NULL: there is no room. */
static struct share *share_enlist(struct share_state *state, struct share share)
{
    if (state->count == state->room) {
        unsigned room = state->room == 0 ? 16 : state->room * 2;
        struct share *grown =
            room <= TOW_SHARE_MAX ? realloc(state->list, room * sizeof *grown) : NULL;
        if (grown == NULL) {
            return NULL;
        }
        state->list = grown;
        state->room = room;
    }
    state->list[state->count] = share;
    return &state->list[state->count++];
}

/* With the lock held: takes the piece that begins there out of the list; false: there is none. */
static bool share_unlist(struct share_state *state, uint64_t base, struct share *ret_share)
{
    struct share *share = find_still(state, base, 1);
    if (share == NULL || share->base != base) {
        return false;
    }
    *ret_share = *share;
    *share = state->list[--state->count];
    return true;
}

/* Page-locked memory: the client or its program has made it, and passes it. */
void tows_serve_cuMemHostAlloc(struct tows_serve *call)
{
    struct share share = {0};
    share.base = tow_dec_u64(&call->in); /* one after another: C does not order initialisers */
    share.size = tow_dec_u64(&call->in);
    uint64_t number = tow_dec_u64(&call->in);
    bool file = tow_dec_left(&call->in) != 0; /* the program's: where in it the memory is */
    uint64_t offset = file ? tow_dec_u64(&call->in) : 0;
    int fd = -1;
    if (call->in.bad) {
        call->malformed = true;
        return;
    }
    int error =
        tow_line_take_fd(call->session->line, number, tow_time_deadline(2 * TOW_TIME_S), &fd);
    if (error == -EPROTO || error == -ETIMEDOUT) {
        call->malformed = true;
        return;
    }
    struct share_state *state = state_of(call->session, true);
    if (error == 0 && (share.base % 4096 != 0 || share.size % 4096 != 0 || share.size == 0)) {
        error = -EINVAL;
    }
    if (error == 0 && !(file ? is_in_memory(fd, offset, share.size) : is_sealed(fd, share.size))) {
        error = -EPROTO;
    }
    if (error == 0) {
        error = state == NULL                           ? -ENOMEM
                : tows_session_may_place(call->session) ? map_at(fd, share.base, share.size, offset)
                                                        : -EADDRNOTAVAIL;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (error == -EEXIST) {
        tows_session_place_is_taken(call->session, share.base);
    }
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "the client's memory at 0x%llx is not shared but copied: %s",
                (unsigned long long)share.base, strerror(-error));
        call->status = CUDA_ERROR_NOT_SUPPORTED;
        return;
    }
    tow_mutex_lock(&state->lock);
    struct share *listed = call->status == CUDA_SUCCESS ? share_enlist(state, share) : NULL;
    if (listed != NULL) {
        call->status = lock_pages(call, state, listed);
        if (call->status != CUDA_SUCCESS) {
            share_unlist(state, share.base, &share);
        }
    } else if (call->status == CUDA_SUCCESS) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    call->session->stats->shared += call->status == CUDA_SUCCESS ? share.size : 0;
    tow_mutex_unlock(&state->lock);
    if (call->status != CUDA_SUCCESS) {
        munmap((void *)(uintptr_t)share.base, share.size);
    }
}

/* A piece that no command finds any more. */
struct ended {
    struct tows_hold_ending ending; /* first */
    struct share share;
};

/* No command uses it any more, but work that one gave to the device may: the driver waits for it.
 */
static CUresult end_share(struct tows_session *session, const struct share *share)
{
    CUresult status = CUDA_SUCCESS;
    if (share->context != 0) {
        status = tow_drive(session->driver, cuMemHostUnregister)((void *)(uintptr_t)share->base);
    }
    munmap((void *)(uintptr_t)share->base, share->size);
    session->stats->shared -= share->size;
    return status;
}

static void end_later(struct tows_session *session, struct tows_hold_ending *ending)
{
    struct ended *ended = (struct ended *)ending;
    tows_session_enter(session, ended->share.context);
    end_share(session, &ended->share);
    free(ended);
}

static bool take_out(struct share_state *state, uint64_t base, struct share *ret_share)
{
    tow_mutex_lock(&state->lock);
    bool found = share_unlist(state, base, ret_share);
    tow_mutex_unlock(&state->lock);
    return found;
}

void tows_serve_cuMemFreeHost(struct tows_serve *call)
{
    uint64_t base = tow_dec_u64(&call->in);
    struct tows_session *session = call->session;
    struct share_state *state = state_of(session, false);
    struct ended *ended = malloc(sizeof *ended);
    if (call->in.bad) {
        call->malformed = true;
    } else if (ended == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (state == NULL || !take_out(state, base, &ended->share)) {
        call->status = CUDA_ERROR_INVALID_VALUE;
    } else if (tows_hold_wait(session)) {
        if (call->frame.context == 0) {
            /* The program's current context is another server's, or it has none. */
            call->status = tows_session_enter(session, ended->share.context);
        }
        CUresult status = end_share(session, &ended->share);
        call->status = call->status == CUDA_SUCCESS ? status : call->status;
    } else {
        ended->ending.end = end_later;
        tows_hold_defer(session, &ended->ending);
        return;
    }
    free(ended);
}
