#include "client/completion/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/stream/context.h"
#include "client/hostmem/mirror.h"
#include "client/copy/stage.h"
#include "client/stream/stream.h"
#include "client/session/thread.h"
#include "client/completion/watch.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/memory.h"
#include "gen/stream_client.h"
#include "wire/share.h"

enum {
    DESKS = 64, /* threads that wait at once; the others ask in the ordinary way */
    DESK_SIZE = TOW_SHARE_FETCH_MAX + sizeof(struct tow_share_note), /* a note, then room */
    SLIPS = 1024,                                                    /* notes for events */
};

/* How long to look at a note before asking, and sleeping until the answer comes. NVIDIA's driver
 * looks for ever unless the context says that it is to sleep; this much covers what a step of
 * training or a token takes. Where there are few processors the worker needs them. */
#define LOOK_NS (5 * TOW_TIME_MS)
#define LOOK_BRIEF_NS (100 * TOW_TIME_US)

/* Where a thread waits. */
struct desk {
    atomic_bool taken;
    uint32_t value; /* of the newest note; whoever took the desk */
};

enum piece_state { UNTRIED, READY, ABSENT };

struct tow_share {
    struct tow_line *line; /* borrowed */
    atomic_uint_fast64_t next_number;
    pthread_mutex_t make_lock; /* guards making pieces */
    struct tow_share_piece desk_piece, slip_piece;
    atomic_uint slips; /* given out */
    struct desk desks[DESKS];
    _Atomic uint64_t owed; /* tow_share_owe; a bit stands for all streams of the same hash */

    /* Guarded by the link's send lock: after command number `quiet_at` this stream was empty. */
    uint64_t quiet_at;
    CUstream quiet;
    uint32_t quiet_context; /* a default stream is another one in every context */
};

struct tow_share *tow_share_make(struct tow_line *line)
{
    struct tow_share *share = tow_line_can_share(line) ? calloc(1, sizeof *share) : NULL;
    if (share != NULL) {
        share->line = line;
        atomic_store(&share->next_number, 1);
        pthread_mutex_init(&share->make_lock, NULL);
    }
    return share;
}

void tow_share_destroy(struct tow_share *share)
{
    if (share != NULL) {
        tow_share_piece_fini(&share->desk_piece);
        tow_share_piece_fini(&share->slip_piece);
        pthread_mutex_destroy(&share->make_lock);
        free(share);
    }
}

/* ---- sharing ---- */

static size_t whole_pages(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) & ~(page - 1);
}

int tow_share_make_memory(size_t size, int *ret_fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) {
        return -EFBIG; /* the system would say so by a signal that ends the program */
    }
    int fd = memfd_create("towline-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)size) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    *ret_fd = fd;
    return 0;
}

CUresult tow_share_lend(struct tow_link *link, int fd, uint64_t at, uint64_t size,
                        const uint64_t *offset)
{
    struct tow_share *share = link->share;
    const struct tow_context *context = tow_context_current();
    struct tow_call call;
    if (context == NULL || context->link != link) {
        return CUDA_ERROR_NOT_SUPPORTED; /* the call would go to another worker than the memory */
    }
    uint64_t number = atomic_fetch_add(&share->next_number, 1);
    CUresult status =
        tow_line_send_fd(share->line, fd, number) < 0
            ? CUDA_ERROR_NOT_SUPPORTED
            : tow_call_begin(&call, TOW_FN_cuMemHostAlloc, 32, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, at);
        tow_enc_u64(&call.enc, size);
        tow_enc_u64(&call.enc, number);
        if (offset != NULL) {
            tow_enc_u64(&call.enc, *offset);
        }
        status = tow_call_end(&call, tow_call_wait(&call));
    }
    return status;
}

CUresult tow_share_take_back(struct tow_link *link, uint64_t at)
{
    struct tow_context *context = tow_context_current();
    struct tow_call call;
    bool here = context != NULL && context->link == link && atomic_load(&context->alive);
    CUresult status = tow_call_begin_on(&call, link, here ? context->number : 0,
                                        TOW_FN_cuMemFreeHost, 8, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, at);
        status = tow_call_end(&call, tow_call_wait(&call));
    }
    return status;
}

CUresult tow_share_alloc(struct tow_link *link, size_t size, void **ret_at)
{
    int fd = -1;
    if (link->share == NULL || size > SIZE_MAX / 2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    size = whole_pages(size);
    if (tow_share_make_memory(size, &fd) < 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CUresult status = CUDA_ERROR_NOT_SUPPORTED;
    if (at != MAP_FAILED) {
        /* A forked child must not write into what the GPU reads for its parent. */
        madvise(at, size, MADV_DONTFORK);
        status = tow_share_lend(link, fd, (uint64_t)(uintptr_t)at, size, NULL);
    }
    close(fd);
    if (status == CUDA_SUCCESS) {
        *ret_at = at;
    } else if (at != MAP_FAILED) {
        munmap(at, size);
    }
    return status;
}

CUresult tow_share_free(struct tow_link *link, void *at, size_t size)
{
    CUresult status = tow_share_take_back(link, (uint64_t)(uintptr_t)at);
    munmap(at, whole_pages(size));
    return status;
}

bool tow_share_piece_ready(struct tow_link *link, struct tow_share_piece *piece, size_t size)
{
    struct tow_share *share = link->share;
    if (share == NULL || atomic_load_explicit(&piece->state, memory_order_acquire) != UNTRIED) {
        return share != NULL && atomic_load_explicit(&piece->state, memory_order_relaxed) == READY;
    }
    pthread_mutex_lock(&share->make_lock);
    if (atomic_load(&piece->state) == UNTRIED) {
        void *at = NULL;
        CUresult status = tow_share_alloc(link, size, &at);
        piece->base = at;
        piece->size = size;
        if (status != CUDA_SUCCESS) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                    "%s: memory cannot be shared (error %d); bytes are sent instead", link->address,
                    (int)status);
        }
        atomic_store_explicit(&piece->state, status == CUDA_SUCCESS ? READY : ABSENT,
                              memory_order_release);
    }
    pthread_mutex_unlock(&share->make_lock);
    return atomic_load(&piece->state) == READY;
}

void tow_share_piece_fini(struct tow_share_piece *piece)
{
    if (piece->base != NULL) {
        munmap(piece->base, piece->size);
    }
}

/* ---- notes ---- */

enum tow_share_outcome tow_share_seen(const struct tow_share_note *note, uint32_t value)
{
    if (atomic_load_explicit(&note->done, memory_order_acquire) == value) {
        return TOW_SHARE_DONE;
    }
    return atomic_load_explicit(&note->refused, memory_order_acquire) == value ? TOW_SHARE_REFUSED
                                                                               : TOW_SHARE_LATE;
}

/* `more_ns`: what the stream is known to need. */
static enum tow_share_outcome await_long(const struct tow_share_note *note, uint32_t value,
                                         int64_t more_ns)
{
    enum tow_share_outcome outcome = tow_share_seen(note, value);
    const struct tow_context *context = tow_context_current();
    unsigned wish = context != NULL ? atomic_load(&context->flags) & CU_CTX_SCHED_MASK : 0;
    bool crowded = tow_cpu_count() <= 2 || wish == CU_CTX_SCHED_YIELD;
    bool brief = tow_cpu_count() <= 2 || wish == CU_CTX_SCHED_BLOCKING_SYNC;
    int64_t until = tow_time_now_ns() + (brief ? LOOK_BRIEF_NS : LOOK_NS + more_ns);
    for (unsigned round = 1; outcome == TOW_SHARE_LATE; round++) {
        if (crowded) {
            sched_yield(); /* the worker needs this processor */
        } else {
            tow_thread_pause();
        }
        outcome = tow_share_seen(note, value);
        if ((crowded || round % 64 == 0) && tow_time_now_ns() > until) {
            break;
        }
    }
    return outcome;
}

enum tow_share_outcome tow_share_await(const struct tow_share_note *note, uint32_t value)
{
    return await_long(note, value, 0);
}

static struct desk *take_desk(struct tow_link *link, struct tow_share_note **ret_note,
                              uint8_t **ret_room)
{
    struct tow_thread *self = tow_thread_self();
    if (self == NULL ||
        !tow_share_piece_ready(link, &link->share->desk_piece, (size_t)DESKS * DESK_SIZE)) {
        return NULL;
    }
    unsigned index = self->number % DESKS;
    struct desk *desk = &link->share->desks[index];
    if (atomic_exchange_explicit(&desk->taken, true, memory_order_acquire)) {
        return NULL;
    }
    uint8_t *base = link->share->desk_piece.base + (size_t)index * DESK_SIZE;
    *ret_note = (struct tow_share_note *)base;
    *ret_room = base + sizeof **ret_note;
    if (++desk->value == 0) {
        desk->value = 1;
    }
    return desk;
}

static void leave_desk(struct desk *desk)
{
    atomic_store_explicit(&desk->taken, false, memory_order_release);
}

bool tow_share_brings_more(struct tow_link *link)
{
    return atomic_load_explicit(&tow_wait_always, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) != 0 ||
           tow_link_expects(link);
}

const struct tow_share_note *tow_share_slip(struct tow_link *link)
{
    struct tow_share *share = link->share;
    if (share == NULL ||
        !tow_share_piece_ready(link, &share->slip_piece, SLIPS * sizeof(struct tow_share_note))) {
        return NULL;
    }
    unsigned index = atomic_load(&share->slips);
    do {
        if (index == SLIPS) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&share->slips, &index, index + 1));
    return (const struct tow_share_note *)share->slip_piece.base + index;
}

enum tow_share_outcome tow_share_look(struct tow_link *link, const struct tow_share_note *note,
                                      uint32_t value, bool wait)
{
    if (tow_share_brings_more(link)) {
        return TOW_SHARE_REFUSED;
    }
    enum tow_share_outcome outcome =
        wait ? tow_share_await(note, value) : tow_share_seen(note, value);
    if (outcome == TOW_SHARE_DONE) {
        tow_watch_hear(link);
    }
    return outcome;
}

void tow_share_note_quiet(struct tow_link *link, CUstream stream, uint64_t number)
{
    tow_watch_hear(link);
    if (stream == CU_STREAM_PER_THREAD) {
        return; /* another one in every thread */
    }
    tow_lock_take(&link->send_lock);
    if (tow_link_sent(link) == number) {
        link->share->quiet = stream;
        link->share->quiet_at = number;
        link->share->quiet_context = tow_context_number();
    }
    tow_lock_give(&link->send_lock);
}

bool tow_share_is_quiet(struct tow_link *link, CUstream stream)
{
    if (link->share == NULL) {
        return false;
    }
    tow_lock_take(&link->send_lock);
    bool quiet = link->share->quiet_at != 0 && link->share->quiet == stream &&
                 link->share->quiet_at == tow_link_sent(link) &&
                 link->share->quiet_context == tow_context_number();
    tow_lock_give(&link->send_lock);
    return quiet;
}

/* Nothing was sent since some stream of this context was empty: most likely all of them are. */
static bool may_be_idle(struct tow_link *link)
{
    tow_lock_take(&link->send_lock);
    bool quiet = link->share->quiet_at != 0 && link->share->quiet_at == tow_link_sent(link) &&
                 link->share->quiet_context == tow_context_number();
    tow_lock_give(&link->send_lock);
    return quiet;
}

/* Asks, and sleeps until the answer comes. */
CUresult tow_share_ask(struct tow_link *link, CUstream stream)
{
    struct tow_call call;
    CUresult status =
        tow_call_begin(&call, TOW_FN_cuStreamSynchronize, 8, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint64_t number = tow_link_next(call.link);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    status = tow_call_end(&call, tow_call_wait(&call));
    if (status == CUDA_SUCCESS) {
        tow_share_note_quiet(link, stream, number);
    }
    return status;
}

/* By a note, if that does not take long and nothing has to be fetched: of a stream, or of the whole
 * context. False: it must be asked for. */
static bool synchronize_by_note(struct tow_link *link, const CUstream *stream, CUresult *ret_status)
{
    struct tow_share_note *note = NULL;
    uint8_t *room = NULL;
    struct desk *desk = take_desk(link, &note, &room);
    struct tow_call call;
    if (desk == NULL) {
        return false;
    }
    enum tow_share_outcome outcome = TOW_SHARE_REFUSED;
    uint64_t number = 0;
    unsigned fn = stream != NULL ? TOW_FN_cuStreamSynchronize : TOW_FN_cuCtxSynchronize;
    bool idle = stream == NULL && may_be_idle(link);
    if (tow_call_begin(&call, fn, 24, TOW_CALL_CONTEXT) == CUDA_SUCCESS) {
        bool waits = call.waits; /* host functions are outstanding: it was asked for after all */
        number = tow_link_next(call.link);
        if (stream != NULL) {
            tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)*stream);
        }
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)note);
        tow_enc_u32(&call.enc, desk->value);
        tow_enc_u32(&call.enc, idle ? TOW_NOTE_IDLE : 0);
        CUresult status = tow_call_send(&call);
        if (waits) {
            leave_desk(desk);
            *ret_status = status; /* the answer, and the only one: an error is told once */
            return true;
        }
        if (status == CUDA_SUCCESS) {
            outcome = tow_share_await(note, desk->value);
        }
    }
    leave_desk(desk);
    if (outcome == TOW_SHARE_DONE) {
        if (stream != NULL) {
            tow_share_note_quiet(link, *stream, number);
        } else {
            tow_watch_hear(link);
        }
        *ret_status = CUDA_SUCCESS;
    }
    return outcome == TOW_SHARE_DONE;
}

static uint64_t owed_bit(CUstream stream)
{
    return UINT64_C(1) << ((uintptr_t)stream % 64);
}

void tow_share_owe(struct tow_link *link, CUstream stream)
{
    if (link->share != NULL) {
        atomic_fetch_or_explicit(&link->share->owed, owed_bit(stream), memory_order_relaxed);
    }
}

static bool pay(struct tow_share *share, CUstream stream)
{
    uint64_t bit = owed_bit(stream);
    return (atomic_load_explicit(&share->owed, memory_order_relaxed) & bit) != 0 &&
           (atomic_fetch_and_explicit(&share->owed, ~bit, memory_order_relaxed) & bit) != 0;
}

CUresult tow_share_synchronize(struct tow_link *link, CUstream stream)
{
    if (link->share == NULL || tow_share_brings_more(link)) {
        return tow_send_cuStreamSynchronize(stream);
    }
    if (pay(link->share, stream)) {
        return tow_share_ask(link, stream);
    }
    CUresult status = CUDA_SUCCESS;
    return tow_share_is_quiet(link, stream) || synchronize_by_note(link, &stream, &status)
               ? status
               : tow_share_ask(link, stream);
}

bool tow_share_synchronize_context(struct tow_link *link, CUresult *ret_status)
{
    return link->share != NULL && !tow_share_brings_more(link) &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&link->share->owed, memory_order_relaxed) == 0 &&
           synchronize_by_note(link, NULL, ret_status);
}

/* ---- copies ---- */

CUresult tow_share_send(unsigned fn, CUdeviceptr device, const void *host, size_t size,
                        CUstream stream, const struct tow_share_note *note, uint32_t value,
                        uint64_t *ret_number)
{
    struct tow_call call;
    CUresult status = tow_call_begin(&call, fn, 56, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_number = tow_link_next(call.link);
    tow_enc_u64(&call.enc, device);
    tow_enc_u64(&call.enc, size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call.enc, 0);
    tow_enc_u32(&call.enc, note != NULL ? TOW_COPY_NOTED : TOW_COPY_SHARED);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)host);
    if (note != NULL) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)note);
        tow_enc_u32(&call.enc, value);
        tow_enc_u32(&call.enc, 0);
    }
    return tow_call_send(&call);
}

static CUresult copy_shared(struct tow_link *link, unsigned fn, CUdeviceptr device,
                            const void *host, size_t size, CUstream stream, bool wait)
{
    struct tow_share_note *note = NULL;
    uint8_t *room = NULL;
    uint64_t number = 0;
    struct desk *desk = wait && !tow_share_brings_more(link) ? take_desk(link, &note, &room) : NULL;
    CUresult status = tow_share_send(fn, device, host, size, stream, note,
                                     desk != NULL ? desk->value : 0, &number);
    enum tow_share_outcome outcome = status == CUDA_SUCCESS && desk != NULL
                                         ? await_long(note, desk->value, tow_share_copy_ns(size))
                                         : TOW_SHARE_REFUSED;
    if (desk != NULL) {
        leave_desk(desk);
    }
    if (status == CUDA_SUCCESS && wait && outcome != TOW_SHARE_DONE) {
        /* Also after a refusal: this tells what is wrong. */
        status = tow_share_ask(link, stream);
        if (status == CUDA_SUCCESS && outcome == TOW_SHARE_REFUSED && desk != NULL &&
            fn == TOW_FN_cuMemcpyDtoHAsync_v2) {
            status = copy_shared(link, fn, device, host, size, stream, false);
            status = status == CUDA_SUCCESS ? tow_share_ask(link, stream) : status;
        }
    } else if (status == CUDA_SUCCESS && outcome == TOW_SHARE_DONE) {
        tow_share_note_quiet(link, stream, number);
    }
    return status;
}

CUresult tow_share_upload(struct tow_link *link, CUdeviceptr to, const void *from, size_t size,
                          CUstream stream, bool wait)
{
    return copy_shared(link, TOW_FN_cuMemcpyHtoDAsync_v2, to, from, size, stream, wait);
}

CUresult tow_share_download(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                            CUstream stream, bool wait)
{
    return copy_shared(link, TOW_FN_cuMemcpyDtoHAsync_v2, from, to, size, stream, wait);
}

CUresult tow_share_fetch(struct tow_link *link, const struct tow_staged *what)
{
    struct tow_share_note *note = NULL;
    uint8_t *room = NULL;
    uint64_t number = 0;
    size_t size = tow_box_size(&what->host);
    struct desk *desk = tow_share_brings_more(link) ? NULL : take_desk(link, &note, &room);
    if (desk == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct tow_part all = tow_part_all(&what->host);
    CUresult status = tow_staged_send(what, &all, room, note, desk->value, &number);
    enum tow_share_outcome outcome =
        status == CUDA_SUCCESS ? tow_share_await(note, desk->value) : TOW_SHARE_REFUSED;
    if (outcome == TOW_SHARE_LATE) {
        status = tow_share_ask(link, what->stream);
        outcome = status == CUDA_SUCCESS ? tow_share_seen(note, desk->value) : TOW_SHARE_REFUSED;
    } else if (outcome == TOW_SHARE_DONE) {
        tow_share_note_quiet(link, what->stream, number);
    }
    if (outcome == TOW_SHARE_DONE) {
        tow_box_scatter(&what->host, 0, room, size);
    } else if (status == CUDA_SUCCESS) {
        status = CUDA_ERROR_NOT_SUPPORTED;
    }
    leave_desk(desk);
    return status;
}
