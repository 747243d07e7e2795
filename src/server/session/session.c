#include "server/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "gen/server_api.h"
#include "gen/context.h"
#include "gen/stream.h"
#include "server/code/code.h"
#include "server/family/context.h"
#include "server/copy/copy.h"
#include "server/family/device.h"
#include "server/copy/hostfn.h"
#include "server/session/lane.h"
#include "server/copy/mirror.h"
#include "server/code/prints.h"
#include "server/family/shareable.h"
#include "server/session/side.h"
#include "server/session/transfer.h"
#include "server/session/watch.h"
#include "transport/lanes.h"
#include "wire/handshake.h"
#include "wire/id.h"
#include "wire/limits.h"

/* What is kept for one client thread. Guarded by the session's thread lock. */
struct tow_session_thread {
    CUresult deferred; /* first error of its no-reply calls that it was not told yet */
    unsigned stream_count;
    struct {
        uint32_t context;
        CUstream stream;
    } streams[8]; /* a thread rarely uses more than one context */
};

/* A thread that has answered a call looks out for the next one this long: calls that wait come in
 * rows (allocations, queries), and waking a thread costs more than the calls themselves. */
#define LOOK_OUT_NS (50 * TOW_TIME_US)

/* The context that this server thread made current last, so that most commands need not. */
static _Thread_local struct {
    const struct tow_session *session;
    uint32_t context;
    unsigned ended; /* the session's contexts_ended then */
} current;

void tow_session_end(struct tow_session *session, int result)
{
    pthread_mutex_lock(&session->lead_lock);
    if (session->result == 1) {
        session->result = result;
    }
    pthread_cond_broadcast(&session->lead_free);
    pthread_mutex_unlock(&session->lead_lock);
    tow_line_shutdown(session->line);
    tow_lanes_shutdown(session->lanes);
    tow_side_end(session);
    tow_hostfn_end(session);
    tow_watch_end(session);
}

void *tow_session_make_state(struct tow_session *session, enum tow_session_family family,
                             size_t size, void (*init)(struct tow_session *session, void *state),
                             void (*free_state)(struct tow_session *session, void *state))
{
    void *state = tow_session_state(session, family);
    if (state != NULL) {
        return state;
    }
    pthread_mutex_lock(&session->thread_lock);
    state = tow_session_state(session, family);
    if (state == NULL && (state = calloc(1, size)) != NULL) {
        init(session, state);
        session->families[family].free = free_state;
        atomic_store_explicit(&session->families[family].state, state, memory_order_release);
    }
    pthread_mutex_unlock(&session->thread_lock);
    return state;
}

/* ---- sending ---- */

int tow_session_send(struct tow_session *session, uint16_t kind, uint16_t thread, uint32_t context,
                     uint32_t seq, const void *body, size_t size)
{
    uint32_t length = tow_frame_length(size);
    if (length > TOW_FRAME_MAX) {
        return -EMSGSIZE;
    }
    struct tow_frame frame = {
        .length = length, .kind = kind, .thread = thread, .context = context, .seq = seq};
    pthread_mutex_lock(&session->reply_lock);
    uint8_t *at = NULL;
    int error = tow_line_reserve(session->line, length, &at);
    if (error >= 0) {
        tow_frame_write(at, &frame);
        if (size > 0) {
            memcpy(at + TOW_FRAME_HEADER, body, size);
        }
        memset(at + TOW_FRAME_HEADER + size, 0, length - TOW_FRAME_HEADER - size);
        /* Someone waits for it: sent from here if the line's sender sleeps. */
        tow_line_commit_now(session->line, length);
    }
    pthread_mutex_unlock(&session->reply_lock);
    atomic_fetch_add_explicit(&session->stats->bytes_out, length, memory_order_relaxed);
    return error;
}

int tow_session_send_data(struct tow_session *session, uint32_t transfer, uint64_t offset,
                          const void *bytes, size_t size, uint32_t flags)
{
    const uint8_t *from = bytes;
    do {
        size_t n = size < TOW_DATA_MAX ? size : TOW_DATA_MAX;
        struct tow_data data = {.transfer = transfer,
                                .flags = n == size ? flags : flags & ~TOW_DATA_LAST,
                                .offset = offset,
                                .size = (uint32_t)n};
        uint8_t head[TOW_DATA_HEAD];
        uint32_t pad = 0;
        static const uint8_t zeros[8];
        int error = tow_data_head_encode(&data, 0, 0, head, &pad);
        if (error < 0) {
            return error;
        }
        struct iovec parts[3] = {
            {head, sizeof head}, {(void *)(uintptr_t)from, n}, {(void *)(uintptr_t)zeros, pad}};
        pthread_mutex_lock(&session->reply_lock);
        error = tow_line_send_direct(session->line, parts, 3);
        pthread_mutex_unlock(&session->reply_lock);
        if (error < 0) {
            return error;
        }
        atomic_fetch_add_explicit(&session->stats->bytes_out, sizeof head + n + pad,
                                  memory_order_relaxed);
        from += n;
        offset += n;
        size -= n;
    } while (size > 0);
    return 0;
}

/* ---- contexts, threads ---- */

void tow_session_forget_current(void)
{
    current.session = NULL;
}

CUresult tow_session_enter(struct tow_session *session, uint32_t context)
{
    unsigned ended = atomic_load_explicit(&session->contexts_ended, memory_order_acquire);
    if (current.session == session && current.context == context && current.ended == ended) {
        return CUDA_SUCCESS;
    }
    CUcontext handle = NULL;
    if (context != 0) {
        const struct tow_handle_entry *entry =
            tow_handles_at(&session->handles, TOW_H_CONTEXT, context);
        if (entry == NULL) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        if (entry->error != CUDA_SUCCESS) {
            return entry->error;
        }
        handle = entry->handle;
    }
    CUresult status = tow_drive(session->driver, cuCtxSetCurrent)(handle);
    if (status == CUDA_SUCCESS) {
        current.session = session;
        current.context = context;
        current.ended = ended;
    }
    return status;
}

void tow_session_leave_all(struct tow_session *session)
{
    current.ended = atomic_fetch_add(&session->contexts_ended, 1) + 1;
}

bool tow_session_goes_on(struct tow_session *session)
{
    pthread_mutex_lock(&session->lead_lock);
    bool goes_on = session->result == 1;
    pthread_mutex_unlock(&session->lead_lock);
    return goes_on;
}

CUresult tow_session_enter_primary(struct tow_session *session)
{
    CUresult status = CUDA_SUCCESS;
    pthread_mutex_lock(&session->thread_lock);
    unsigned flags = 0;
    int active = 0;
    if (session->primary != NULL) { /* the program may have reset it meanwhile */
        tow_drive(session->driver, cuDevicePrimaryCtxGetState)(0, &flags, &active);
    }
    if (!active) {
        status = tow_drive(session->driver, cuDevicePrimaryCtxRetain)(&session->primary, 0);
    }
    CUcontext primary = session->primary;
    pthread_mutex_unlock(&session->thread_lock);
    tow_session_forget_current();
    return status == CUDA_SUCCESS ? tow_drive(session->driver, cuCtxSetCurrent)(primary) : status;
}

static struct tow_session_thread *thread_of(struct tow_session *session, uint16_t number)
{
    struct tow_session_thread *t = session->client_threads[number];
    if (t == NULL) {
        t = session->client_threads[number] = calloc(1, sizeof *t);
    }
    return t;
}

CUresult tow_session_thread_stream(struct tow_session *session, uint16_t thread, uint32_t context,
                                   CUstream *ret_stream)
{
    CUresult status = CUDA_SUCCESS;
    if (context == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&session->thread_lock);
    struct tow_session_thread *t = thread_of(session, thread);
    unsigned i = 0;
    while (t != NULL && i < t->stream_count && t->streams[i].context != context) {
        i++;
    }
    if (t == NULL || i == sizeof t->streams / sizeof t->streams[0]) {
        status = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (i == t->stream_count) {
        CUstream stream = NULL;
        status = tow_drive(session->driver, cuStreamCreate)(&stream, CU_STREAM_DEFAULT);
        if (status == CUDA_SUCCESS) {
            t->streams[i].context = context;
            t->streams[i].stream = stream;
            t->stream_count++;
        }
    }
    if (status == CUDA_SUCCESS) {
        *ret_stream = t->streams[i].stream;
    }
    pthread_mutex_unlock(&session->thread_lock);
    return status;
}

void tow_session_drop_thread(struct tow_session *session, uint16_t thread)
{
    pthread_mutex_lock(&session->thread_lock);
    struct tow_session_thread *t = session->client_threads[thread];
    session->client_threads[thread] = NULL;
    pthread_mutex_unlock(&session->thread_lock);
    if (t != NULL && t->stream_count > 0) {
        tow_busy_lose(session); /* what they were given goes on */
        tow_transfer_settle(session);
    }
    for (unsigned i = 0; t != NULL && i < t->stream_count; i++) {
        if (tow_session_enter(session, t->streams[i].context) == CUDA_SUCCESS) {
            tow_drive(session->driver, cuStreamDestroy_v2)(t->streams[i].stream);
        }
    }
    free(t);
}

void tow_session_drop_context(struct tow_session *session, uint32_t context)
{
    pthread_mutex_lock(&session->thread_lock);
    for (uint32_t n = 0; n <= TOW_THREADS_MAX; n++) {
        struct tow_session_thread *t = session->client_threads[n];
        for (unsigned i = 0; t != NULL && i < t->stream_count; i++) {
            if (t->streams[i].context == context) {
                /* The stream goes with its context. */
                t->streams[i] = t->streams[--t->stream_count];
                i--;
            }
        }
    }
    pthread_mutex_unlock(&session->thread_lock);
}

void tow_session_defer(struct tow_session *session, uint16_t thread, uint16_t fn, CUresult status,
                       const char *arguments)
{
    const struct tow_fn_info *info = tow_fn_info(fn);
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s(%s) of client thread %u failed with error %d",
            info != NULL ? info->name : "a call", arguments, thread, (int)status);
    pthread_mutex_lock(&session->thread_lock);
    struct tow_session_thread *t = thread_of(session, thread);
    if (t != NULL && t->deferred == CUDA_SUCCESS) {
        t->deferred = status;
    }
    pthread_mutex_unlock(&session->thread_lock);
}

/* The first words of a command as they travelled: 8-byte arguments first, then the 4-byte ones, two
 * in a word. */
static void write_arguments(const uint8_t *at, const struct tow_frame *frame, char *text,
                            size_t size)
{
    enum { WORDS = 6 };
    struct tow_dec body = tow_frame_body(at, frame);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < WORDS; i++) {
        uint64_t word = tow_dec_u64(&body);
        if (body.bad || used >= size) {
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s0x%llx", i > 0 ? " " : "",
                                 (unsigned long long)word);
    }
}

CUresult tow_session_take_deferred(struct tow_session *session, uint16_t thread)
{
    pthread_mutex_lock(&session->thread_lock);
    struct tow_session_thread *t = session->client_threads[thread];
    CUresult status = CUDA_SUCCESS;
    if (t != NULL) {
        status = t->deferred;
        t->deferred = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&session->thread_lock);
    return status;
}

bool tow_session_owes(struct tow_session *session, uint16_t thread)
{
    if (tow_prints_maybe(session)) {
        return true;
    }
    pthread_mutex_lock(&session->thread_lock);
    const struct tow_session_thread *t = session->client_threads[thread];
    bool owes = t != NULL && t->deferred != CUDA_SUCCESS;
    pthread_mutex_unlock(&session->thread_lock);
    return owes;
}

/* ---- carrying out ---- */

static void call_init(struct tow_serve *call, struct tow_session *session, const uint8_t *at,
                      const struct tow_frame *frame)
{
    call->session = session;
    call->driver = session->driver;
    call->frame = *frame;
    call->in = tow_frame_body(at, frame);
    call->out_start = (uint8_t *)call->small;
    call->out = tow_enc_init(call->small, sizeof call->small);
    call->status = CUDA_SUCCESS;
    call->malformed = false;
    call->blocks = NULL;
    call->held = 0;
    call->streams = 0;
}

struct block_head {
    struct block_head *next;
};

static void call_fini(struct tow_serve *call)
{
    struct block_head *block = (struct block_head *)call->blocks;
    while (block != NULL) {
        struct block_head *next = block->next;
        free(block);
        block = next;
    }
}

static void carry_out(struct tow_serve *call)
{
    struct tow_session *session = call->session;
    tow_serve_fn *serve = session->table[call->frame.kind];
    if (serve == NULL) {
        call->status = CUDA_ERROR_NOT_SUPPORTED;
        return;
    }
    call->status = tow_session_enter(session, call->frame.context);
    serve(call);
    tow_hold_leave(call);
}

static void reply(struct tow_serve *call)
{
    struct tow_session *session = call->session;
    if (call->out.overflow) {
        call->status = CUDA_ERROR_UNKNOWN;
    }
    const struct tow_fn_info *info = tow_fn_info(call->frame.kind);
    if (info != NULL && (info->flags & TOW_FN_SHOWS)) {
        /* Of a context that has failed no more than this comes, and the client's memory is free. */
        tow_copy_flush(session);
        /* Also if it is not ready yet: a program that asks again and again may look at what a
         * running kernel has written so far. */
        if (call->status == CUDA_SUCCESS || call->status == CUDA_ERROR_NOT_READY) {
            tow_mirror_pull(session);
        }
        if (call->status == CUDA_SUCCESS && (info->flags & TOW_FN_SYNCS)) {
            tow_watch_sweep(session);
            /* An earlier call's: what this one brings has come all the same. */
            call->status = tow_session_take_deferred(session, call->frame.thread);
        }
    }
    bool failed = call->status != CUDA_SUCCESS && call->status != CUDA_ERROR_NOT_READY;
    if (session->backend->settle_prints != NULL &&
        (failed || (info != NULL && (info->flags & TOW_FN_SYNCS)))) {
        session->backend->settle_prints(failed);
    }
    /* A later command may end what this one used: the client's causality, made ours. */
    atomic_fetch_add_explicit(&session->replied, 1, memory_order_release);
    size_t size = call->status == CUDA_SUCCESS ? (size_t)(call->out.at - call->out_start) : 0;
    tow_session_send(session, TOW_CONTROL_REPLY, call->frame.thread, (uint32_t)call->status,
                     call->frame.seq, call->out_start, size);
    atomic_fetch_add_explicit(&session->stats->replies, 1, memory_order_relaxed);
}

static int control(struct tow_session *session, const uint8_t *at, const struct tow_frame *frame)
{
    switch (frame->kind) {
    case TOW_CONTROL_SIDE:
        tow_lane_begin(session, false);
        return 0;
    case TOW_CONTROL_FENCE:
        return tow_side_await(session, at, frame);
    case TOW_CONTROL_FORGET:
        return tow_shareable_forget(session, at, frame);
    case TOW_CONTROL_BYE:
        return -ESHUTDOWN;
    case TOW_CONTROL_THREAD_EXIT:
        tow_session_drop_thread(session, frame->thread);
        return 0;
    default:
        return tow_side_take(session, at, frame);
    }
}

/* A number that no function of this table has: that of a newer client. */
static int answer_unknown(struct tow_session *session, const uint8_t *at,
                          const struct tow_frame *frame)
{
    struct tow_serve call;
    call_init(&call, session, at, frame);
    call.status = CUDA_ERROR_NOT_SUPPORTED;
    if (frame->seq != 0) {
        reply(&call);
    } else {
        tow_session_defer(session, frame->thread, frame->kind, call.status, "");
    }
    return 0;
}

/* Whether the leader answers a call itself: handing the lead over and carrying the call out on
 * another processor takes the driver longer than most calls, but it must not stand still where
 * other threads of the client go on. */
static bool is_quick(struct tow_session *session, const uint8_t *at, const struct tow_frame *frame)
{
    const struct tow_fn_info *info = tow_fn_info(frame->kind);
    unsigned flags = info != NULL ? info->flags : 0;
    if ((flags & TOW_FN_QUICK_IDLE) == 0) {
        /* A call beside this one may wait for the device, and keep others out of the driver. */
        return (flags & TOW_FN_QUICK) != 0 && atomic_load(&session->busy.in_flight) == 0;
    }
    struct tow_serve call;
    call_init(&call, session, at, frame);
    return tow_session_enter(session, frame->context) == CUDA_SUCCESS && tow_busy_idle(&call);
}

/* Leads: serves no-reply commands until one comes whose caller waits. That one is copied to *copy
 * and described by *ret_call. Negative when the session is over. */
static int lead(struct tow_session *session, uint8_t *copy, struct tow_serve *ret_call)
{
    for (;;) {
        const uint8_t *at = NULL;
        size_t available = 0;
        struct tow_frame frame;
        int error =
            tow_line_peek(session->line, TOW_FRAME_HEADER, TOW_TIME_FOREVER, &at, &available);
        if (error < 0) {
            return error;
        }
        atomic_load_explicit(&session->replied, memory_order_acquire);
        error = tow_frame_read(at, &frame);
        if (error < 0) {
            return error;
        }
        if (frame.kind == TOW_CONTROL_DATA) {
            /* Its bytes go from the line to where they belong, without the ring in between. */
            error = tow_transfer_take(session, &frame);
            if (error < 0) {
                return error;
            }
            tow_line_count(&session->stats->bytes_in, frame.length);
            continue;
        }
        if (available < frame.length) {
            error = tow_line_peek(session->line, frame.length, TOW_TIME_FOREVER, &at, &available);
            if (error < 0) {
                return error;
            }
        }
        tow_line_count(&session->stats->bytes_in, frame.length); /* only the leader does */
        if (frame.kind >= TOW_FN_LIMIT) {
            error = tow_frame_is_control(&frame) ? control(session, at, &frame)
                                                 : answer_unknown(session, at, &frame);
            if (error < 0) {
                return error;
            }
            tow_line_consume(session->line, frame.length);
            continue;
        }
        tow_line_count(&session->stats->calls, 1);
        if (frame.seq != 0 && !is_quick(session, at, &frame)) {
            memcpy(copy, at, frame.length);
            tow_line_consume(session->line, frame.length);
            call_init(ret_call, session, copy, &frame);
            return 0;
        }
        struct tow_serve call;
        call_init(&call, session, at, &frame);
        carry_out(&call);
        if (frame.seq != 0) {
            reply(&call);
        } else if (call.status != CUDA_SUCCESS) {
            char arguments[160];
            write_arguments(at, &frame, arguments, sizeof arguments);
            tow_session_defer(session, frame.thread, frame.kind, call.status, arguments);
        }
        call_fini(&call);
        if (call.malformed) {
            return -EPROTO;
        }
        tow_line_consume(session->line, frame.length);
    }
}

static void *serve_thread(void *arg);

/* With the lead lock held: someone else is to lead. */
static int pass_lead(struct tow_session *session)
{
    session->led = false;
    if (session->spinning > 0) {
        return 0; /* that one sees it */
    }
    if (session->idle > 0) {
        pthread_cond_signal(&session->lead_free);
        return 0;
    }
    if (session->threads == TOW_SESSION_THREADS_MAX) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "the session ends: more than %d threads of the client wait at once",
                TOW_SESSION_THREADS_MAX);
        return -EAGAIN;
    }
    pthread_t thread;
    int error = tow_thread_start("towline-serve", serve_thread, session, &thread);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "the session ends: no thread can be started (%s)",
                strerror(-error));
        return error;
    }
    pthread_detach(thread);
    session->threads++;
    return 0;
}

/* With the lead lock held: looks out for the lead for a while, without sleeping. One thread at a
 * time, and only where there are processors to spare. */
static void look_out(struct tow_session *session)
{
    if (session->spinning > 0 || tow_cpu_count() <= 2) {
        return;
    }
    session->spinning++;
    pthread_mutex_unlock(&session->lead_lock);
    int64_t until = tow_time_now_ns() + LOOK_OUT_NS;
    for (unsigned round = 1; atomic_load_explicit(&session->led, memory_order_relaxed) &&
                             atomic_load_explicit(&session->result, memory_order_relaxed) == 1;
         round++) {
        tow_thread_pause();
        if (round % 64 == 0 && tow_time_now_ns() > until) {
            break;
        }
    }
    pthread_mutex_lock(&session->lead_lock);
    session->spinning--;
}

static void *serve_thread(void *arg)
{
    struct tow_session *session = arg;
    uint8_t *copy = malloc(TOW_FRAME_MAX);
    pthread_mutex_lock(&session->lead_lock);
    while (copy != NULL) {
        if (session->led && session->result == 1) {
            look_out(session);
        }
        while (session->led && session->result == 1) {
            session->idle++;
            pthread_cond_wait(&session->lead_free, &session->lead_lock);
            session->idle--;
        }
        if (session->result != 1) {
            break;
        }
        session->led = true;
        pthread_mutex_unlock(&session->lead_lock);
        struct tow_serve call;
        int error = lead(session, copy, &call);
        if (error < 0) {
            tow_session_end(session, error);
            pthread_mutex_lock(&session->lead_lock);
            break;
        }
        atomic_fetch_add(&session->busy.in_flight, 1);
        pthread_mutex_lock(&session->lead_lock);
        error = pass_lead(session);
        pthread_mutex_unlock(&session->lead_lock);
        if (error < 0) {
            tow_session_end(session, error);
        } else {
            carry_out(&call);
            tow_busy_again(&call);
            atomic_fetch_sub(&session->busy.in_flight, 1);
            if (call.malformed) {
                tow_session_end(session, -EPROTO);
            } else {
                reply(&call);
            }
        }
        call_fini(&call);
        pthread_mutex_lock(&session->lead_lock);
    }
    if (copy == NULL && session->result == 1) {
        session->result = -ENOMEM;
    }
    session->threads--;
    pthread_cond_broadcast(&session->lead_free);
    pthread_mutex_unlock(&session->lead_lock);
    free(copy);
    current.session = NULL;
    return NULL;
}

/* ---- beginning and ending ---- */

static int refuse(struct tow_session *session, uint32_t code, const char *sentence)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "a client was refused: %s", sentence);
    struct tow_refuse refuse = {.code = code, .sentence = sentence};
    uint8_t *at = NULL;
    uint32_t length = 0;
    if (tow_line_reserve(session->line, 2048, &at) >= 0 &&
        tow_refuse_encode(&refuse, at, 2048, &length) == 0) {
        tow_line_commit(session->line, length);
    }
    return -EPROTO;
}

static const char not_understood[] = "The client's hello cannot be understood; use the same "
                                     "version of Towline on both sides.";

static int read_hello(struct tow_session *session, struct tow_hello *ret_hello,
                      const uint8_t **ret_at, struct tow_frame *ret_frame)
{
    int64_t limit =
        session->options->handshake_ns > 0 ? session->options->handshake_ns : 10 * TOW_TIME_S;
    int64_t deadline = tow_time_now_ns() + limit;
    const uint8_t *at = NULL;
    size_t available = 0;
    char why[TOW_SENTENCE_MAX];
    int error = tow_line_peek(session->line, TOW_FRAME_HEADER, deadline, &at, &available);
    if (error < 0) {
        return error;
    }
    if (tow_handshake_sniff(TOW_SIDE_SERVER, at, available, "the client", why, sizeof why) ==
            -EPROTO ||
        tow_frame_read(at, ret_frame) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "a peer that does not speak Towline's protocol was sent away");
        return -EPROTO;
    }
    error = tow_line_peek(session->line, ret_frame->length, deadline, &at, &available);
    if (error < 0) {
        return error;
    }
    *ret_at = at;
    error = tow_hello_decode(at, ret_frame, ret_hello);
    return error < 0 ? refuse(session, TOW_REFUSE_PROTOCOL, not_understood) : 0;
}

static uint32_t hash_of(unsigned number)
{
    const struct tow_fn_info *info = tow_fn_info(number);
    return info != NULL ? info->travels : 0;
}

static void take_common(void *user, unsigned number)
{
    ((bool *)user)[number] = true;
}

/* Which functions both sides know: of the others the server has no handlers from now on. -EPROTO if
 * the client does not say. */
static int agree(struct tow_session *session, const struct tow_hello *hello, uint32_t *ret_lacking,
                 uint32_t *ret_count)
{
    *ret_count = 0;
    if (memcmp(hello->table_hash, tow_table_hash, sizeof tow_table_hash) == 0) {
        return 0;
    }
    bool common[TOW_FN_LIMIT] = {false};
    if (hello->functions == 0 ||
        tow_handshake_agree(hello, hash_of, take_common, common, ret_lacking, ret_count) < 0) {
        return -EPROTO;
    }
    for (unsigned number = 0; number < TOW_FN_LIMIT; number++) {
        if (!common[number]) {
            session->table[number] = NULL;
        }
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
            "the client is Towline %s and this Towline " TOWLINE_VERSION ": %u of its functions "
            "are not known here, or otherwise",
            hello->release, *ret_count);
    return 0;
}

static int welcome(struct tow_session *session, uint32_t version, const uint32_t *lacking,
                   uint32_t lacking_count)
{
    uint8_t *snapshot = NULL;
    size_t snapshot_size = 0;
    int error = tow_device_snapshot(session->backend, &snapshot, &snapshot_size);
    if (error < 0) {
        return refuse(session, TOW_REFUSE_DEVICE, "The server has no usable GPU; see its log.");
    }
    struct tow_welcome welcome = {
        .version = version,
        .session = session->options->id,
        .frame_max = TOW_FRAME_MAX,
        .data_max = TOW_DATA_MAX,
        .snapshot = snapshot,
        .snapshot_size = (uint32_t)snapshot_size,
        .lacking_count = lacking_count,
        .lacking = lacking,
    };
    memcpy(welcome.table_hash, tow_table_hash, sizeof tow_table_hash);
    uint8_t facts[TOW_WELCOME_CONTEXT_MAX];
    struct tow_enc enc = tow_enc_init(facts, sizeof facts);
    if (!session->options->in_process &&
        tow_context_describe_ahead(&session->backend->driver, &enc)) {
        welcome.context = facts;
        welcome.context_size = (uint32_t)(enc.at - facts);
    }
    for (unsigned i = 0; i < session->backend->range_count; i++) {
        welcome.ranges[welcome.range_count++] = (struct tow_range){
            session->backend->ranges[i].base, session->backend->ranges[i].size, TOW_RANGE_DEVICE};
    }
    uint8_t *at = NULL;
    uint32_t length = 0;
    size_t room = snapshot_size + 8192 + lacking_count * sizeof *lacking;
    error = tow_line_reserve(session->line, room, &at);
    if (error >= 0) {
        error = tow_welcome_encode(&welcome, at, room, &length);
    }
    if (error >= 0) {
        tow_line_commit(session->line, length);
    }
    free(snapshot);
    return error;
}

static int greet(struct tow_session *session)
{
    struct tow_hello hello;
    struct tow_frame frame;
    const uint8_t *at = NULL;
    int error = read_hello(session, &hello, &at, &frame);
    if (error < 0) {
        return error;
    }
    char why[TOW_SENTENCE_MAX];
    int version = tow_handshake_pick_version(hello.version_min, hello.version_max, TOW_PROTOCOL_MIN,
                                             TOW_PROTOCOL_MAX, why, sizeof why);
    if (version < 0) {
        return refuse(session, TOW_REFUSE_PROTOCOL, why);
    }
    uint32_t lacking[TOW_HELLO_FUNCTIONS_MAX], lacking_count = 0;
    if (agree(session, &hello, lacking, &lacking_count) < 0) {
        return refuse(session, TOW_REFUSE_PROTOCOL, not_understood);
    }
    struct tow_session_stats *stats = session->stats;
    snprintf(stats->client, sizeof stats->client, "%s", hello.name);
    for (char *c = stats->client; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c; /* it ends up on terminals */
    }
    atomic_store(&stats->client_pid, hello.pid);
    atomic_store(&stats->device, -1);
    atomic_store(&stats->started_ns, tow_time_now_ns());
    bool lanes = (hello.capabilities & TOW_CAN_LANES) != 0;
    tow_line_consume(session->line, frame.length);
    error = welcome(session, (uint32_t)version, lacking, lacking_count);
    if (error == 0 && lanes) {
        tow_lane_begin(session, true);
    }
    return error;
}

void tow_session_print(struct tow_session *session, const char *text, size_t length, bool to_stderr)
{
    while (length > 0) {
        uint32_t n = (uint32_t)(length < TOW_PRINT_MAX ? length : TOW_PRINT_MAX);
        uint8_t *at = NULL;
        uint32_t frame_length = 0;
        struct tow_print print = {.size = n, .text = text, .to_stderr = to_stderr};
        pthread_mutex_lock(&session->reply_lock);
        if (tow_line_reserve(session->line, n + 64, &at) >= 0 &&
            tow_print_encode(&print, at, n + 64, &frame_length) == 0) {
            tow_line_commit(session->line, frame_length);
        }
        pthread_mutex_unlock(&session->reply_lock);
        text += n;
        length -= n;
    }
}

static void print_to_client(void *user, const char *text, size_t length)
{
    tow_session_print(user, text, length, false);
}

static void print_error_to_client(void *user, const char *text, size_t length)
{
    tow_session_print(user, text, length, true);
}

static void finish_context(void *user, uint64_t id, const struct tow_handle_entry *entry)
{
    (void)id;
    const struct tow_session *session = user;
    if (entry->handle != NULL &&
        tow_drive(session->driver, cuCtxSetCurrent)(entry->handle) == CUDA_SUCCESS) {
        tow_drive(session->driver, cuCtxSynchronize)();
    }
}

static void end_context(void *user, uint64_t id, const struct tow_handle_entry *entry)
{
    (void)id;
    struct tow_session *session = user;
    CUdevice device = 0;
    if (entry->handle == NULL ||
        tow_drive(session->driver, cuCtxDestroy_v2)(entry->handle) == CUDA_SUCCESS) {
        return;
    }
    /* A primary context is not destroyed but reset. */
    if (tow_drive(session->driver, cuCtxSetCurrent)(entry->handle) == CUDA_SUCCESS &&
        tow_drive(session->driver, cuCtxGetDevice)(&device) == CUDA_SUCCESS) {
        tow_drive(session->driver, cuDevicePrimaryCtxReset_v2)(device);
    }
}

int tow_session_run(struct tow_line *line, struct tow_backend *backend,
                    const struct tow_session_options *options)
{
    struct tow_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return -ENOMEM;
    }
    session->line = line;
    session->backend = backend;
    session->driver = &backend->driver;
    session->options = options;
    session->stats = options->stats != NULL ? options->stats : &session->own_stats;
    session->result = 1;
    session->client_threads = calloc(TOW_THREADS_MAX + 1, sizeof(void *));
    tow_busy_init(&session->busy);
    tow_hold_init(&session->hold);
    pthread_mutex_init(&session->lead_lock, NULL);
    pthread_cond_init(&session->lead_free, NULL);
    pthread_mutex_init(&session->reply_lock, NULL);
    pthread_mutex_init(&session->thread_lock, NULL);
    tow_cond_init(&session->transfer_changed);
    pthread_mutex_init(&session->side_lock, NULL);
    tow_cond_init(&session->side_changed);
    tow_serve_add_all(session->table);
    int result = session->client_threads == NULL ? -ENOMEM : tow_handles_init(&session->handles);
    if (result == 0) {
        result = greet(session);
    }
    if (result == 0) {
        if (backend->print != NULL) {
            *backend->print_user = session;
            *backend->print = print_to_client;
            if (backend->print_error != NULL) {
                *backend->print_error = print_error_to_client;
            }
        }
        session->threads = 1;
        serve_thread(session);
        result = session->result == -ESHUTDOWN ? 0 : session->result;
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the session of %s ends: %s", session->stats->client,
                result == 0 ? "the client left" : strerror(-result));
    }
    if (!options->in_process) {
        /* A record that is not reached any more would keep another session waiting for ever. The
         * client's host functions hold nothing up any more, and a worker whose work never ends is
         * ended by its watcher. */
        if (atomic_load(&session->shares_events)) {
            tow_handles_each(&session->handles, TOW_H_CONTEXT, finish_context, session);
        }
        /* The worker process ends now; other threads may be inside the driver, which frees all. */
        return result;
    }
    tow_handles_each(&session->handles, TOW_H_CONTEXT, end_context, session);
    pthread_mutex_lock(&session->lead_lock);
    while (session->threads > 0) {
        pthread_cond_wait(&session->lead_free, &session->lead_lock);
    }
    pthread_mutex_unlock(&session->lead_lock);
    if (backend->print != NULL) {
        *backend->print = NULL;
        if (backend->print_error != NULL) {
            *backend->print_error = NULL;
        }
    }
    tow_lanes_destroy(session->lanes);
    tow_hold_fini(&session->hold);
    tow_transfer_end_all(session);
    tow_link_state_end(session); /* before the images that links hold */
    for (size_t i = 0; i < sizeof session->families / sizeof session->families[0]; i++) {
        if (session->families[i].free != NULL) {
            session->families[i].free(session, session->families[i].state);
        }
    }
    for (uint32_t i = 0; session->client_threads != NULL && i <= TOW_THREADS_MAX; i++) {
        free(session->client_threads[i]);
    }
    free(session->client_threads);
    tow_handles_fini(&session->handles);
    tow_busy_fini(&session->busy);
    pthread_mutex_destroy(&session->lead_lock);
    pthread_cond_destroy(&session->lead_free);
    pthread_mutex_destroy(&session->reply_lock);
    pthread_mutex_destroy(&session->thread_lock);
    pthread_cond_destroy(&session->transfer_changed);
    pthread_mutex_destroy(&session->side_lock);
    pthread_cond_destroy(&session->side_changed);
    free(session);
    return result;
}
