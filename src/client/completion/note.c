/* SPDX-License-Identifier: Apache-2.0 */
/* Words that the GPU writes when it is done. */
#include "client/completion/note.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "client/completion/watch.h"
#include "client/link/current.h"
#include "client/session/modes.h"
#include "client/session/thread.h"
#include "gen/context.h"
#include "gen/stream.h"
#include "gen/stream_client.h"

enum {
    DESKS = 64, /* threads that wait at once; the others ask in the ordinary way */
    DESK_SIZE = TOW_DESK_ROOM + sizeof(struct tow_share_note), /* a note, then room */
    SLIPS = 1024,                                              /* notes for events */
};

/* How long to look at a note before asking, and sleeping until the answer comes. NVIDIA's driver
 * looks for ever unless the context says that it is to sleep; this much covers what a step of
 * training or a token takes. Where there are few processors the worker needs them. */
#define LOOK_NS (5 * TOW_TIME_MS)
#define LOOK_BRIEF_NS (100 * TOW_TIME_US)

struct tow_notes {
    struct tow_share_piece desk_piece, slip_piece;
    atomic_uint slips; /* given out */
    struct tow_desk desks[DESKS];
    _Atomic uint64_t owed; /* tow_share_owe; a bit stands for all streams of the same hash */

    /* Guarded by the link's send lock: after command number `quiet_at` this stream was empty. */
    uint64_t quiet_at;
    CUstream quiet;
    uint32_t quiet_context; /* a default stream is another one in every context */
};

struct tow_notes *tow_notes_make(const struct tow_link *link)
{
    return link->share != NULL ? calloc(1, sizeof(struct tow_notes)) : NULL;
}

void tow_notes_destroy(struct tow_notes *notes)
{
    if (notes != NULL) {
        tow_share_piece_fini(&notes->desk_piece);
        tow_share_piece_fini(&notes->slip_piece);
        free(notes);
    }
}

enum tow_share_outcome tow_share_seen(const struct tow_share_note *note, uint32_t value)
{
    if (atomic_load_explicit(&note->done, memory_order_acquire) == value) {
        return TOW_SHARE_DONE;
    }
    return atomic_load_explicit(&note->refused, memory_order_acquire) == value ? TOW_SHARE_REFUSED
                                                                               : TOW_SHARE_LATE;
}

enum tow_share_outcome tow_share_await_long(const struct tow_share_note *note, uint32_t value,
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
    return tow_share_await_long(note, value, 0);
}

struct tow_desk *tow_desk_take(struct tow_link *link)
{
    struct tow_thread *self = tow_thread_self();
    if (self == NULL || link->notes == NULL ||
        !tow_share_piece_ready(link, &link->notes->desk_piece, (size_t)DESKS * DESK_SIZE)) {
        return NULL;
    }
    unsigned index = self->number % DESKS;
    struct tow_desk *desk = &link->notes->desks[index];
    if (atomic_exchange_explicit(&desk->taken, true, memory_order_acquire)) {
        return NULL;
    }
    uint8_t *base = link->notes->desk_piece.base + (size_t)index * DESK_SIZE;
    desk->note = (struct tow_share_note *)base;
    desk->room = base + sizeof *desk->note;
    if (++desk->value == 0) {
        desk->value = 1;
    }
    return desk;
}

void tow_desk_leave(struct tow_desk *desk)
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
    struct tow_notes *notes = link->notes;
    if (notes == NULL ||
        !tow_share_piece_ready(link, &notes->slip_piece, SLIPS * sizeof(struct tow_share_note))) {
        return NULL;
    }
    unsigned index = atomic_load(&notes->slips);
    do {
        if (index == SLIPS) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&notes->slips, &index, index + 1));
    return (const struct tow_share_note *)notes->slip_piece.base + index;
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
    if (stream == CU_STREAM_PER_THREAD || link->notes == NULL) {
        return; /* another one in every thread; or there was no memory for notes */
    }
    tow_lock_take(&link->send_lock);
    if (tow_link_sent(link) == number) {
        link->notes->quiet = stream;
        link->notes->quiet_at = number;
        link->notes->quiet_context = tow_context_number();
    }
    tow_lock_give(&link->send_lock);
}

bool tow_share_is_quiet(struct tow_link *link, CUstream stream)
{
    if (link->notes == NULL) {
        return false;
    }
    tow_lock_take(&link->send_lock);
    bool quiet = link->notes->quiet_at != 0 && link->notes->quiet == stream &&
                 link->notes->quiet_at == tow_link_sent(link) &&
                 link->notes->quiet_context == tow_context_number();
    tow_lock_give(&link->send_lock);
    return quiet;
}

/* Nothing was sent since some stream of this context was empty: most likely all of them are. */
static bool may_be_idle(struct tow_link *link)
{
    tow_lock_take(&link->send_lock);
    bool quiet = link->notes->quiet_at != 0 && link->notes->quiet_at == tow_link_sent(link) &&
                 link->notes->quiet_context == tow_context_number();
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
    struct tow_desk *desk = tow_desk_take(link);
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
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)desk->note);
        tow_enc_u32(&call.enc, desk->value);
        tow_enc_u32(&call.enc, idle ? TOW_NOTE_IDLE : 0);
        CUresult status = tow_call_send(&call);
        if (waits) {
            tow_desk_leave(desk);
            *ret_status = status; /* the answer, and the only one: an error is told once */
            return true;
        }
        if (status == CUDA_SUCCESS) {
            outcome = tow_share_await(desk->note, desk->value);
        }
    }
    tow_desk_leave(desk);
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
    if (link->notes != NULL) {
        atomic_fetch_or_explicit(&link->notes->owed, owed_bit(stream), memory_order_relaxed);
    }
}

static bool pay(struct tow_notes *notes, CUstream stream)
{
    uint64_t bit = owed_bit(stream);
    return (atomic_load_explicit(&notes->owed, memory_order_relaxed) & bit) != 0 &&
           (atomic_fetch_and_explicit(&notes->owed, ~bit, memory_order_relaxed) & bit) != 0;
}

CUresult tow_share_synchronize(struct tow_link *link, CUstream stream)
{
    if (link->notes == NULL || tow_share_brings_more(link)) {
        return tow_send_cuStreamSynchronize(stream);
    }
    if (pay(link->notes, stream)) {
        return tow_share_ask(link, stream);
    }
    CUresult status = CUDA_SUCCESS;
    return tow_share_is_quiet(link, stream) || synchronize_by_note(link, &stream, &status)
               ? status
               : tow_share_ask(link, stream);
}

bool tow_share_synchronize_context(struct tow_link *link, CUresult *ret_status)
{
    return link->notes != NULL && !tow_share_brings_more(link) &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&link->notes->owed, memory_order_relaxed) == 0 &&
           synchronize_by_note(link, NULL, ret_status);
}
