#include "client/share.h"

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
#include "client/context.h"
#include "client/gang.h"
#include "client/mirror.h"
#include "client/stream.h"
#include "client/thread.h"
#include "client/watch.h"
#include "gen/client_api.h"
#include "wire/share.h"

enum {
    DESKS = 64,           /* threads that wait at once; the others ask in the ordinary way */
    DESK_SIZE = 8 << 10,  /* a note, then room for a small download */
    SLIPS = 1024,         /* notes for events */
    BAYS = TOW_FLOW_BAYS, /* of the staging: some are filled while others are emptied */
    BAY_SIZE = 2 << 20,   /* one transfer of the device's copy engine */
    PIECE = 128 << 10,    /* what one thread copies at a time */
};

/* How long to look at a note before asking, and sleeping until the answer comes. NVIDIA's driver
 * looks for ever unless the context says that it is to sleep; this much covers what a step of
 * training or a token takes. Where there are few processors the worker needs them. */
#define LOOK_NS (5 * TOW_TIME_MS)
#define LOOK_BRIEF_NS (100 * TOW_TIME_US)

/* A full staging is looked at this often, and this often the server is asked whether the stream
 * still lives. */
#define NAP_NS (50 * TOW_TIME_US)
#define NAPS_PER_QUESTION 200

/* Where a thread waits. */
struct desk {
    atomic_bool taken;
    uint32_t value; /* of the newest note; whoever took the desk */
};

struct bay {
    uint32_t value;   /* of its newest note */
    uint32_t context; /* where it was used last, and by which stream */
    CUstream stream;
};

enum share_state { UNTRIED, READY, ABSENT };

struct tow_share {
    struct tow_line *line; /* borrowed */
    atomic_uint_fast64_t next_number;
    pthread_mutex_t make_lock; /* guards making the three below */
    atomic_int desks_state, bays_state, slips_state;
    uint8_t *desk_base, *bay_base, *slip_base; /* owned; set once */
    atomic_uint slips;                         /* given out */
    struct desk desks[DESKS];
    _Atomic uint64_t owed; /* tow_share_owe; a bit stands for all streams of the same hash */

    pthread_mutex_t bay_lock; /* held by the thread that copies: the staging is its own */
    struct bay bays[BAYS];
    unsigned next_bay;

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
        pthread_mutex_init(&share->bay_lock, NULL);
    }
    return share;
}

void tow_share_destroy(struct tow_share *share)
{
    if (share != NULL) {
        if (share->desk_base != NULL) {
            munmap(share->desk_base, DESKS * DESK_SIZE);
        }
        if (share->bay_base != NULL) {
            munmap(share->bay_base, (size_t)(BAYS + 1) * BAY_SIZE);
        }
        if (share->slip_base != NULL) {
            munmap(share->slip_base, SLIPS * sizeof(struct tow_share_note));
        }
        pthread_mutex_destroy(&share->make_lock);
        pthread_mutex_destroy(&share->bay_lock);
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
        tow_call_rests(&call);
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
        tow_call_rests(&call);
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

/* Makes a piece for our own use, once. */
static bool ready(struct tow_link *link, atomic_int *state, uint8_t **base, size_t size)
{
    struct tow_share *share = link->share;
    if (atomic_load_explicit(state, memory_order_acquire) != UNTRIED) {
        return atomic_load_explicit(state, memory_order_relaxed) == READY;
    }
    pthread_mutex_lock(&share->make_lock);
    if (atomic_load(state) == UNTRIED) {
        void *at = NULL;
        CUresult status = tow_share_alloc(link, size, &at);
        *base = at;
        if (status != CUDA_SUCCESS) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                    "%s: memory cannot be shared (error %d); bytes are sent instead", link->address,
                    (int)status);
        }
        atomic_store_explicit(state, status == CUDA_SUCCESS ? READY : ABSENT, memory_order_release);
    }
    pthread_mutex_unlock(&share->make_lock);
    return atomic_load(state) == READY;
}

static bool desks_ready(struct tow_link *link)
{
    return link->share != NULL && ready(link, &link->share->desks_state, &link->share->desk_base,
                                        (size_t)DESKS * DESK_SIZE);
}

static bool bays_ready(struct tow_link *link)
{
    return link->share != NULL && ready(link, &link->share->bays_state, &link->share->bay_base,
                                        (size_t)(BAYS + 1) * BAY_SIZE);
}

/* ---- notes ---- */

static enum tow_share_outcome look(const struct tow_share_note *note, uint32_t value)
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
    enum tow_share_outcome outcome = look(note, value);
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
        outcome = look(note, value);
        if ((crowded || round % 64 == 0) && tow_time_now_ns() > until) {
            break;
        }
    }
    return outcome;
}

static enum tow_share_outcome await(const struct tow_share_note *note, uint32_t value)
{
    return await_long(note, value, 0);
}

static struct desk *take_desk(struct tow_link *link, struct tow_share_note **ret_note,
                              uint8_t **ret_room)
{
    struct tow_thread *self = tow_thread_self();
    if (self == NULL || !desks_ready(link)) {
        return NULL;
    }
    unsigned index = self->number % DESKS;
    struct desk *desk = &link->share->desks[index];
    if (atomic_exchange_explicit(&desk->taken, true, memory_order_acquire)) {
        return NULL;
    }
    uint8_t *base = link->share->desk_base + (size_t)index * DESK_SIZE;
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

/* What a synchronisation brings besides the news that it is over: then it must be asked for. */
static bool brings_more(struct tow_link *link)
{
    return atomic_load_explicit(&tow_wait_always, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) != 0 ||
           tow_link_expects(link);
}

const struct tow_share_note *tow_share_slip(struct tow_link *link)
{
    struct tow_share *share = link->share;
    if (share == NULL || !ready(link, &share->slips_state, &share->slip_base,
                                SLIPS * sizeof(struct tow_share_note))) {
        return NULL;
    }
    unsigned index = atomic_load(&share->slips);
    do {
        if (index == SLIPS) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&share->slips, &index, index + 1));
    return (const struct tow_share_note *)share->slip_base + index;
}

enum tow_share_outcome tow_share_look(struct tow_link *link, const struct tow_share_note *note,
                                      uint32_t value, bool wait)
{
    if (brings_more(link)) {
        return TOW_SHARE_REFUSED;
    }
    enum tow_share_outcome outcome = wait ? await(note, value) : look(note, value);
    if (outcome == TOW_SHARE_DONE) {
        tow_watch_hear(link);
    }
    return outcome;
}

/* Between begin and send: the number that the command will have. */
static uint64_t number_of(const struct tow_call *call)
{
    return tow_link_sent(call->link) + 1;
}

static uint32_t context_here(void)
{
    const struct tow_context *context = tow_context_current();
    return context != NULL ? context->number : 0;
}

static void note_quiet(struct tow_link *link, CUstream stream, uint64_t number)
{
    tow_watch_hear(link);
    if (stream == CU_STREAM_PER_THREAD) {
        return; /* another one in every thread */
    }
    tow_lock_take(&link->send_lock);
    if (tow_link_sent(link) == number) {
        link->share->quiet = stream;
        link->share->quiet_at = number;
        link->share->quiet_context = context_here();
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
                 link->share->quiet_context == context_here();
    tow_lock_give(&link->send_lock);
    return quiet;
}

/* Asks, and sleeps until the answer comes. */
static CUresult ask_and_wait(struct tow_link *link, CUstream stream)
{
    struct tow_call call;
    CUresult status =
        tow_call_begin(&call, TOW_FN_cuStreamSynchronize, 8, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint64_t number = number_of(&call);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    status = tow_call_end(&call, tow_call_wait(&call));
    if (status == CUDA_SUCCESS) {
        note_quiet(link, stream, number);
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
    if (tow_call_begin(&call, fn, 24, TOW_CALL_CONTEXT) == CUDA_SUCCESS) {
        bool waits = call.waits; /* host functions are outstanding: it was asked for after all */
        number = number_of(&call);
        if (stream != NULL) {
            tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)*stream);
        }
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)note);
        tow_enc_u32(&call.enc, desk->value);
        tow_enc_u32(&call.enc, 0);
        CUresult status = tow_call_send(&call);
        if (waits) {
            leave_desk(desk);
            *ret_status = status; /* the answer, and the only one: an error is told once */
            return true;
        }
        if (status == CUDA_SUCCESS) {
            outcome = await(note, desk->value);
        }
    }
    leave_desk(desk);
    if (outcome == TOW_SHARE_DONE) {
        if (stream != NULL) {
            note_quiet(link, *stream, number);
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
    if (link->share == NULL || brings_more(link)) {
        return tow_send_cuStreamSynchronize(stream);
    }
    if (pay(link->share, stream)) {
        return ask_and_wait(link, stream);
    }
    CUresult status = CUDA_SUCCESS;
    return tow_share_is_quiet(link, stream) || synchronize_by_note(link, &stream, &status)
               ? status
               : ask_and_wait(link, stream);
}

bool tow_share_synchronize_context(struct tow_link *link, CUresult *ret_status)
{
    return link->share != NULL && !brings_more(link) &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&link->share->owed, memory_order_relaxed) == 0 &&
           synchronize_by_note(link, NULL, ret_status);
}

/* ---- copies ---- */

/* Sends a copy without a reply. `note` may be NULL. */
static CUresult send_copy(unsigned fn, CUdeviceptr device, const void *host, size_t size,
                          CUstream stream, const struct tow_share_note *note, uint32_t value,
                          uint64_t *ret_number)
{
    struct tow_call call;
    CUresult status = tow_call_begin(&call, fn, 56, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_number = number_of(&call);
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
    struct desk *desk = wait && !brings_more(link) ? take_desk(link, &note, &room) : NULL;
    CUresult status =
        send_copy(fn, device, host, size, stream, note, desk != NULL ? desk->value : 0, &number);
    enum tow_share_outcome outcome = status == CUDA_SUCCESS && desk != NULL
                                         ? await_long(note, desk->value, tow_share_copy_ns(size))
                                         : TOW_SHARE_REFUSED;
    if (desk != NULL) {
        leave_desk(desk);
    }
    if (status == CUDA_SUCCESS && wait && outcome != TOW_SHARE_DONE) {
        /* Also after a refusal: this tells what is wrong. */
        status = ask_and_wait(link, stream);
        if (status == CUDA_SUCCESS && outcome == TOW_SHARE_REFUSED && desk != NULL &&
            fn == TOW_FN_cuMemcpyDtoHAsync_v2) {
            status = copy_shared(link, fn, device, host, size, stream, false);
            status = status == CUDA_SUCCESS ? ask_and_wait(link, stream) : status;
        }
    } else if (status == CUDA_SUCCESS && outcome == TOW_SHARE_DONE) {
        note_quiet(link, stream, number);
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

/* ---- staging ---- */

/* One note per bay, in front of the bays. */
static struct tow_share_note *bay_note(const struct tow_share *share, unsigned bay)
{
    return (struct tow_share_note *)(share->bay_base + (size_t)bay * sizeof(struct tow_share_note));
}

static uint8_t *bay_at(const struct tow_share *share, unsigned bay)
{
    return share->bay_base + (size_t)(bay + 1) * BAY_SIZE;
}

static uint32_t next_value(struct bay *bay, CUstream stream)
{
    bay->value = bay->value == UINT32_MAX ? 1 : bay->value + 1;
    bay->stream = stream;
    bay->context = context_here();
    return bay->value;
}

/* Asks in the context in which a bay was used: whether its stream has work, or waits for all. */
static CUresult ask_for_bay(struct tow_link *link, const struct bay *bay, unsigned fn)
{
    struct tow_call call;
    CUresult status = tow_call_begin_on(&call, link, bay->context, fn, 8, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)bay->stream);
        status = tow_call_end(&call, tow_call_wait(&call));
    }
    return status;
}

/* Until the device is through with a bay. Work that will never be done, because its context has
 * ended or failed, leaves it free as well; whoever goes on is told by what is asked next. An
 * error of an earlier call, which the question brought, is the caller's. */
static CUresult await_bay(struct tow_link *link, unsigned index)
{
    struct bay *bay = &link->share->bays[index];
    const struct tow_share_note *note = bay_note(link->share, index);
    if (bay->value == 0 || await(note, bay->value) != TOW_SHARE_LATE) {
        return CUDA_SUCCESS;
    }
    unsigned naps = 0;
    while (look(note, bay->value) == TOW_SHARE_LATE) {
        CUresult status = naps++ % NAPS_PER_QUESTION == 0
                              ? ask_for_bay(link, bay, TOW_FN_cuStreamQuery)
                              : CUDA_ERROR_NOT_READY;
        if (status == CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
        if (status != CUDA_ERROR_NOT_READY && look(note, bay->value) != TOW_SHARE_LATE) {
            return status;
        }
        if (status != CUDA_ERROR_NOT_READY) {
            /* The stream was destroyed: what it had to do is still done. */
            status = ask_for_bay(link, bay, TOW_FN_cuCtxSynchronize);
            return look(note, bay->value) != TOW_SHARE_LATE ? status : CUDA_SUCCESS;
        }
        tow_time_sleep(NAP_NS);
    }
    return CUDA_SUCCESS;
}

/* Memory that several threads copy, piece by piece. */
struct carry {
    uint8_t *to;
    const uint8_t *from;
    size_t size;
};

static void carry_piece(void *user, size_t index)
{
    const struct carry *c = user;
    size_t offset = index * PIECE;
    memcpy(c->to + offset, c->from + offset, c->size - offset < PIECE ? c->size - offset : PIECE);
}

static void carry(void *to, const void *from, size_t size)
{
    struct carry c = {to, from, size};
    tow_gang_run((size + PIECE - 1) / PIECE, carry_piece, &c);
}

/* How much goes through one bay: small copies are cut too, so that copying and transfer overlap. */
static size_t bay_share(size_t size)
{
    size_t half = (size / 2 + PIECE - 1) / PIECE * PIECE;
    return half < PIECE ? PIECE : half > BAY_SIZE ? BAY_SIZE : half;
}

/* The staging, if it is there and nobody uses it. */
static struct tow_share *take_bays(struct tow_link *link)
{
    if (!bays_ready(link) || atomic_load_explicit(&tow_wait_always, memory_order_relaxed) != 0 ||
        pthread_mutex_trylock(&link->share->bay_lock) != 0) {
        return NULL;
    }
    return link->share;
}

static CUresult send_bay(struct tow_share *share, unsigned bay, unsigned fn, CUdeviceptr device,
                         size_t size, CUstream stream)
{
    uint64_t number;
    return send_copy(fn, device, bay_at(share, bay), size, stream, bay_note(share, bay),
                     next_value(&share->bays[bay], stream), &number);
}

/* An upload on its way through the bays. */
struct stage {
    struct tow_link *link;
    CUdeviceptr to;
    const uint8_t *from;
    size_t size, each; /* `each`: bytes in one bay */
    CUstream stream;
    unsigned first_bay;
};

static unsigned bay_of(const struct stage *s, size_t lot)
{
    return (s->first_bay + (unsigned)lot) % BAYS;
}

static void stage_piece(void *user, size_t index)
{
    const struct stage *s = user;
    size_t offset = index * PIECE, rest = s->size - offset;
    memcpy(bay_at(s->link->share, bay_of(s, offset / s->each)) + offset % s->each, s->from + offset,
           rest < PIECE ? rest : PIECE);
}

static int stage_open(void *user, size_t lot, bool wait)
{
    const struct stage *s = user;
    unsigned bay = bay_of(s, lot);
    uint32_t value = s->link->share->bays[bay].value;
    if (!wait && value != 0 && look(bay_note(s->link->share, bay), value) == TOW_SHARE_LATE) {
        return -EAGAIN;
    }
    return (int)await_bay(s->link, bay);
}

static int stage_send(void *user, size_t lot)
{
    const struct stage *s = user;
    size_t offset = lot * s->each, rest = s->size - offset;
    return (int)send_bay(s->link->share, bay_of(s, lot), TOW_FN_cuMemcpyHtoDAsync_v2,
                         s->to + offset, rest < s->each ? rest : s->each, s->stream);
}

CUresult tow_share_stage_up(struct tow_link *link, CUdeviceptr to, const void *from, size_t size,
                            CUstream stream, bool settle)
{
    struct tow_share *share = take_bays(link);
    if (share == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct stage stage = {.link = link,
                          .to = to,
                          .from = from,
                          .size = size,
                          .each = bay_share(size),
                          .stream = stream,
                          .first_bay = share->next_bay};
    struct tow_flow flow = {.pieces = (size + PIECE - 1) / PIECE,
                            .each = stage.each / PIECE,
                            .piece = stage_piece,
                            .open = stage_open,
                            .send = stage_send,
                            .user = &stage};
    CUresult status = (CUresult)tow_gang_flow(&flow);
    size_t lots = (size + stage.each - 1) / stage.each;
    unsigned last = bay_of(&stage, lots - 1);
    share->next_bay = (last + 1) % BAYS;
    enum tow_share_outcome outcome = status == CUDA_SUCCESS && settle
                                         ? await(bay_note(share, last), share->bays[last].value)
                                         : TOW_SHARE_DONE;
    pthread_mutex_unlock(&share->bay_lock);
    /* What is before it in the stream takes long; natively that is waited for, too. A capture would
     * not outlive the question. */
    return outcome == TOW_SHARE_LATE &&
                   atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0
               ? ask_and_wait(link, stream)
               : status;
}

/* Until a bay is full; CUDA_ERROR_NOT_SUPPORTED if the copy was refused. */
static CUresult await_full(struct tow_link *link, unsigned bay, CUstream stream)
{
    struct tow_share *share = link->share;
    enum tow_share_outcome outcome = await(bay_note(share, bay), share->bays[bay].value);
    if (outcome == TOW_SHARE_LATE) {
        CUresult status = ask_and_wait(link, stream);
        if (status != CUDA_SUCCESS) {
            share->bays[bay].value = 0;
            return status;
        }
        outcome = look(bay_note(share, bay), share->bays[bay].value);
    }
    tow_watch_hear(link);
    return outcome == TOW_SHARE_DONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* A download that is small enough for the room beside a note. */
static CUresult down_by_desk(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                             CUstream stream)
{
    struct tow_share_note *note = NULL;
    uint8_t *room = NULL;
    uint64_t number = 0;
    struct desk *desk = brings_more(link) ? NULL : take_desk(link, &note, &room);
    if (desk == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult status = send_copy(TOW_FN_cuMemcpyDtoHAsync_v2, from, room, size, stream, note,
                                desk->value, &number);
    enum tow_share_outcome outcome =
        status == CUDA_SUCCESS ? await(note, desk->value) : TOW_SHARE_REFUSED;
    if (outcome == TOW_SHARE_LATE) {
        status = ask_and_wait(link, stream);
        outcome = status == CUDA_SUCCESS ? look(note, desk->value) : TOW_SHARE_REFUSED;
    } else if (outcome == TOW_SHARE_DONE) {
        note_quiet(link, stream, number);
    }
    if (outcome == TOW_SHARE_DONE) {
        memcpy(to, room, size);
    } else if (status == CUDA_SUCCESS) {
        status = CUDA_ERROR_NOT_SUPPORTED;
    }
    leave_desk(desk);
    return status;
}

CUresult tow_share_stage_down(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                              CUstream stream)
{
    if (link->share == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (size <= DESK_SIZE - sizeof(struct tow_share_note)) {
        return down_by_desk(link, to, from, size, stream);
    }
    struct tow_share *share = take_bays(link);
    if (share == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult status = CUDA_SUCCESS;
    size_t share_of = bay_share(size), asked = 0;
    unsigned first = share->next_bay, ask = first;
    for (size_t done = 0; status == CUDA_SUCCESS && done < size;) {
        while (status == CUDA_SUCCESS && asked < size && ask - first < BAYS) {
            size_t n = size - asked < share_of ? size - asked : share_of;
            status = await_bay(link, ask % BAYS);
            if (status == CUDA_SUCCESS) {
                status = send_bay(share, ask % BAYS, TOW_FN_cuMemcpyDtoHAsync_v2, from + asked, n,
                                  stream);
            }
            asked += n;
            ask++;
        }
        size_t n = size - done < share_of ? size - done : share_of;
        if (status == CUDA_SUCCESS) {
            status = await_full(link, first % BAYS, stream);
        }
        if (status == CUDA_SUCCESS) {
            carry((uint8_t *)to + done, bay_at(share, first % BAYS), n);
        }
        done += n;
        first++;
    }
    share->next_bay = ask;
    pthread_mutex_unlock(&share->bay_lock);
    return status;
}
