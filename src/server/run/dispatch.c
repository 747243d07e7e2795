/* SPDX-License-Identifier: Apache-2.0 */
/* One thread at a time leads: it takes commands off the line, in order. */
#include "server/run/dispatch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/spans.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/copy/download.h"
#include "server/copy/hostfn.h"
#include "server/copy/mirror.h"
#include "server/family/shareable.h"
#include "server/run/lane.h"
#include "server/run/side.h"
#include "server/run/suspend.h"
#include "server/run/timeline.h"
#include "server/session/reasons.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "server/session/completion.h"
#include "wire/limits.h"

/* A thread that has answered a call looks out for the next one this long: calls that wait come in
 * rows (allocations, queries), and waking a thread costs more than the calls themselves. */
#define LOOK_OUT_NS (50 * TOW_TIME_US)
/* How long a client may take to read why its session ends. */
#define FAREWELL_NS (1 * TOW_TIME_S)

void tows_session_release(struct tows_session *session)
{
    tows_side_end(session);
    tows_hostfn_end(session);
    tows_completion_end(session);
    tows_suspend_end(session);
}

/* ---- carrying out ---- */

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

static void call_init(struct tows_serve *call, struct tows_session *session, const uint8_t *at,
                      const struct tow_frame *frame)
{
    call->session = session;
    call->driver = session->driver;
    call->frame = *frame;
    call->number = session->lead.commands;
    call->in = tow_frame_body(at, frame);
    call->out_start = (uint8_t *)call->small;
    call->out = tow_enc_init(call->small, sizeof call->small);
    call->blocks = NULL;
    call->status = CUDA_SUCCESS;
    call->held = 0;
    call->streams = 0;
    call->malformed = false;
}

struct block_head {
    struct block_head *next;
};

static void call_fini(struct tows_serve *call)
{
    struct block_head *block = (struct block_head *)call->blocks;
    while (block != NULL) {
        struct block_head *next = block->next;
        free(block);
        block = next;
    }
}

static void carry_out(struct tows_serve *call)
{
    struct tows_session *session = call->session;
    tows_serve_fn *serve = session->table[call->frame.kind];
    if (serve == NULL) {
        call->status = CUDA_ERROR_NOT_SUPPORTED;
        return;
    }
    call->status = tows_session_enter(session, call->frame.context);
    tow_spans_command = call->number;
    serve(call);
    if (call->held != 0) {
        tows_hold_leave(call);
    }
}

static void dispatch_reply(struct tows_serve *call)
{
    struct tows_session *session = call->session;
    if (call->out.overflow) {
        call->status = CUDA_ERROR_UNKNOWN;
    }
    const struct tow_fn_info *info = tow_fn_info(call->frame.kind);
    if (info != NULL && (info->flags & TOW_FN_SHOWS)) {
        /* Of a context that has failed no more than this comes, and the client's memory is free. */
        tows_copy_flush(session);
        /* Also if it is not ready yet: a program that asks again and again may look at what a
         * running kernel has written so far. */
        if (call->status == CUDA_SUCCESS || call->status == CUDA_ERROR_NOT_READY) {
            tows_mirror_pull(session);
        }
        if (call->status == CUDA_SUCCESS && (info->flags & TOW_FN_SYNCS)) {
            tows_completion_sweep(session);
            /* An earlier call's: what this one brings has come all the same. */
            call->status = tows_session_take_deferred(session, call->frame.thread);
        }
    }
    bool failed = call->status != CUDA_SUCCESS && call->status != CUDA_ERROR_NOT_READY;
    if (session->backend->flush_output != NULL &&
        (failed || (info != NULL && (info->flags & TOW_FN_SYNCS)))) {
        session->backend->flush_output(failed);
    }
    tows_reasons_tell(session); /* a load that fails is a reply that does not */
    /* A later command may end what this one used: the client's causality, made ours. */
    atomic_fetch_add_explicit(&session->replied, 1, memory_order_release);
    size_t size = call->status == CUDA_SUCCESS ? (size_t)(call->out.at - call->out_start) : 0;
    tows_session_send(session, TOW_CONTROL_REPLY, call->frame.thread, (uint32_t)call->status,
                      call->frame.seq, call->out_start, size);
    atomic_fetch_add_explicit(&session->stats->replies, 1, memory_order_relaxed);
}

static int dispatch_control(struct tows_session *session, const uint8_t *at,
                            const struct tow_frame *frame)
{
    switch (frame->kind) {
    case TOW_CONTROL_SIDE:
        tows_lane_begin(session, false);
        return 0;
    case TOW_CONTROL_FENCE:
        return tows_side_await(session, at, frame);
    case TOW_CONTROL_TIMELINE:
        return tows_timeline_answer(session, at, frame);
    case TOW_CONTROL_FORGET:
        return tows_shareable_forget(session, at, frame);
    case TOW_CONTROL_BYE:
        return -ESHUTDOWN;
    case TOW_CONTROL_THREAD_EXIT:
        tows_session_drop_thread(session, frame->thread);
        return 0;
    default:
        return tows_side_take(session, at, frame);
    }
}

/* A number that no function of this table has: that of a newer client. */
static int answer_unknown(struct tows_session *session, const uint8_t *at,
                          const struct tow_frame *frame)
{
    struct tows_serve call;
    call_init(&call, session, at, frame);
    call.status = CUDA_ERROR_NOT_SUPPORTED;
    if (frame->seq != 0) {
        dispatch_reply(&call);
    } else {
        tows_session_defer(session, frame->thread, frame->kind, call.status, "");
    }
    return 0;
}

/* Whether the leader answers a call itself: handing the lead over and carrying the call out on
 * another processor takes the driver longer than most calls, but it must not stand still where
 * other threads of the client go on. */
/* Whether the leader may call the driver for it. */
static bool reaches_driver(const struct tow_frame *frame)
{
    return frame->kind < TOW_FN_LIMIT || frame->kind == TOW_CONTROL_THREAD_EXIT ||
           frame->kind == TOW_CONTROL_TIMELINE;
}

static bool is_quick(struct tows_session *session, const uint8_t *at, const struct tow_frame *frame)
{
    const struct tow_fn_info *info = tow_fn_info(frame->kind);
    unsigned flags = info != NULL ? info->flags : 0;
    if ((flags & TOW_FN_QUICK_IDLE) == 0) {
        /* A call beside this one may wait for the device, and keep others out of the driver. */
        return (flags & TOW_FN_QUICK) != 0 && atomic_load(&session->stats->in_flight) == 0;
    }
    struct tows_serve call;
    call_init(&call, session, at, frame);
    return tows_session_enter(session, frame->context) == CUDA_SUCCESS &&
           tows_completion_idle(&call);
}

/* Leads: serves no-reply commands until one comes whose caller waits. That one is copied to *copy
 * and described by *ret_call. Negative when the session is over. */
static int dispatch_lead(struct tows_session *session, uint8_t *copy, struct tows_serve *ret_call)
{
    for (;;) {
        const uint8_t *at = NULL;
        size_t available = 0;
        struct tow_frame frame;
        if (atomic_load_explicit(&session->side.overtakes, memory_order_relaxed) != 0) {
            tows_side_pass(session);
        }
        tows_still_lead(&session->still, false);
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
            tows_still_lead(&session->still, true);
            /* Its bytes go from the line to where they belong, without the ring in between. */
            error = tows_transfer_take(session, &frame);
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
        session->lead.commands += !tow_frame_is_control(&frame);
        tows_still_lead(&session->still, true);
        if (atomic_load_explicit(&session->suspend.wanted, memory_order_relaxed) &&
            reaches_driver(&frame)) {
            error = tows_suspend_stand(session);
            if (error < 0) {
                return error;
            }
        }
        if (frame.kind >= TOW_FN_LIMIT) {
            error = tow_frame_is_control(&frame) ? dispatch_control(session, at, &frame)
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
        struct tows_serve call;
        call_init(&call, session, at, &frame);
        atomic_store_explicit(&session->stats->leads, 1, memory_order_relaxed);
        carry_out(&call);
        atomic_store_explicit(&session->stats->leads, 0, memory_order_relaxed);
        if (frame.seq != 0) {
            dispatch_reply(&call);
        } else if (call.status != CUDA_SUCCESS) {
            char arguments[160];
            write_arguments(at, &frame, arguments, sizeof arguments);
            tows_session_defer(session, frame.thread, frame.kind, call.status, arguments);
        }
        call_fini(&call);
        if (call.malformed) {
            return -EPROTO;
        }
        tow_line_consume(session->line, frame.length);
    }
}

static void *serve_thread(void *arg);

/* With the lead lock held: someone else is to lead. -EDQUOT: the client has all its threads. */
static int pass_lead(struct tows_session *session)
{
    session->lead.led = false;
    if (session->lead.spinning > 0) {
        return 0; /* that one sees it */
    }
    if (session->lead.idle > 0) {
        pthread_cond_signal(&session->lead.free);
        return 0;
    }
    if (!tows_session_claim_thread(session, false)) {
        return -EDQUOT;
    }
    pthread_t thread;
    int error = tow_thread_start("towline-serve", serve_thread, session, &thread);
    if (error < 0) {
        tows_session_unclaim_thread(session);
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "the session ends: no thread can be started (%s)",
                strerror(-error));
        return error;
    }
    pthread_detach(thread);
    session->lead.threads++;
    return 0;
}

/* It cannot wait until one of them is free: what they wait for may stand behind this command. */
static void dismiss_crowd(struct tows_session *session)
{
    char sentence[160];
    tows_session_thread_limit(session, sentence, sizeof sentence);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "session %llu is ended: %s",
            (unsigned long long)session->options->id, sentence);
    tows_session_dismiss(session, sentence, FAREWELL_NS);
}

/* With the lead lock held: looks out for the lead for a while, without sleeping. One thread at a
 * time, and only where there are processors to spare. */
static void look_out(struct tows_session *session)
{
    if (session->lead.spinning > 0 || tow_cpu_count() <= 2) {
        return;
    }
    session->lead.spinning++;
    tow_mutex_unlock(&session->lead.lock);
    int64_t until = tow_time_now_ns() + LOOK_OUT_NS;
    for (unsigned round = 1;
         atomic_load_explicit(&session->lead.led, memory_order_relaxed) &&
         atomic_load_explicit(&session->lead.phase, memory_order_relaxed) == TOW_SESSION_GOES_ON;
         round++) {
        tow_thread_pause();
        if (round % 64 == 0 && tow_time_now_ns() > until) {
            break;
        }
    }
    tow_mutex_lock(&session->lead.lock);
    session->lead.spinning--;
}

static void *serve_thread(void *arg)
{
    struct tows_session *session = arg;
    uint8_t *copy = malloc(TOW_FRAME_MAX);
    tow_mutex_lock(&session->lead.lock);
    while (copy != NULL) {
        if (session->lead.led && tows_session_goes_on(session)) {
            look_out(session);
        }
        while (session->lead.led && tows_session_goes_on(session)) {
            session->lead.idle++;
            tow_mutex_wait(&session->lead.lock, &session->lead.free);
            session->lead.idle--;
        }
        if (!tows_session_goes_on(session)) {
            break;
        }
        session->lead.led = true;
        tow_mutex_unlock(&session->lead.lock);
        struct tows_serve call;
        int error = dispatch_lead(session, copy, &call);
        if (error < 0) {
            tows_session_end(session, error);
            tow_mutex_lock(&session->lead.lock);
            break;
        }
        atomic_fetch_add(&session->stats->in_flight, 1);
        tows_still_enter(session);
        tow_mutex_lock(&session->lead.lock);
        error = pass_lead(session);
        tow_mutex_unlock(&session->lead.lock);
        if (error == -EDQUOT) {
            dismiss_crowd(session);
        } else if (error < 0) {
            tows_session_end(session, error);
        } else {
            carry_out(&call);
            tows_completion_use_again(&call);
            atomic_fetch_sub(&session->stats->in_flight, 1);
            if (call.malformed) {
                tows_session_end(session, -EPROTO);
            } else {
                dispatch_reply(&call);
            }
        }
        tows_still_leave(session);
        call_fini(&call);
        tow_mutex_lock(&session->lead.lock);
    }
    if (copy == NULL && tows_session_goes_on(session)) {
        session->lead.result = -ENOMEM;
        session->lead.phase = TOW_SESSION_ENDS;
    }
    tows_ending_tell(session);
    tows_session_unclaim_thread(session);
    session->lead.threads--;
    pthread_cond_broadcast(&session->lead.free);
    tow_mutex_unlock(&session->lead.lock);
    free(copy);
    tows_session_forget_current();
    return NULL;
}

int tows_session_serve(struct tows_session *session)
{
    session->lead.threads = 1;
    session->stats->threads++;
    serve_thread(session);
    return session->lead.result;
}

void tows_session_await_threads(struct tows_session *session)
{
    tow_mutex_lock(&session->lead.lock);
    while (session->lead.threads > 0) {
        tow_mutex_wait(&session->lead.lock, &session->lead.free);
    }
    tow_mutex_unlock(&session->lead.lock);
}
