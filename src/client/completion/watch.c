/* SPDX-License-Identifier: Apache-2.0 */
/* Asks to be told of events and streams, and keeps the words that DONE frames write. */
#include "client/completion/inside.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/session/modes.h"

/* What the server has not told of for so long is asked for: nothing depends on being told. */
#define ASK_NS (200 * TOW_TIME_MS)

struct tow_watches {
    atomic_uint given;    /* notes */
    atomic_bool applying; /* a frame's slips hold all at once: nobody looks meanwhile */
    struct tow_share_note notes[TOW_WATCH_MAX];
};

bool tow_completion_possible(void)
{
    return atomic_load_explicit(&tow_wait_always, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0;
}

/* The link's, or NULL before they are needed. */
static struct tow_watches *watches_of(const struct tow_link *link)
{
    return link->completions != NULL
               ? atomic_load_explicit(&link->completions->watches, memory_order_acquire)
               : NULL;
}

static struct tow_watches *make_watches(const struct tow_link *link)
{
    struct tow_watches *watches = watches_of(link);
    if (watches == NULL && link->completions != NULL) {
        struct tow_watches *made = aligned_alloc(_Alignof(struct tow_watches), sizeof *made);
        if (made == NULL) {
            return NULL;
        }
        memset(made, 0, sizeof *made);
        if (atomic_compare_exchange_strong(&link->completions->watches, &watches, made)) {
            return made;
        }
        free(made);
    }
    return watches;
}

const struct tow_share_note *tow_watch_note(struct tow_link *link)
{
    struct tow_watches *watches = make_watches(link);
    unsigned index = watches != NULL ? atomic_load(&watches->given) : TOW_WATCH_MAX;
    do {
        if (index == TOW_WATCH_MAX) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&watches->given, &index, index + 1));
    return &watches->notes[index];
}

void tow_watch_put(struct tow_call *call, const struct tow_share_note *note, uint32_t value)
{
    const struct tow_watches *watches = watches_of(call->link);
    tow_enc_u32(&call->enc, (uint32_t)(note - watches->notes));
    tow_enc_u32(&call->enc, value);
}

CUresult tow_watch_ask(struct tow_link *link, unsigned fn, uint64_t id,
                       const struct tow_share_note *note, uint32_t value, uint64_t *ret_number)
{
    struct tow_call call;
    CUresult status = tow_call_begin(&call, fn, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (ret_number != NULL) {
        *ret_number = tow_link_next(link);
    }
    tow_enc_u64(&call.enc, id);
    tow_watch_put(&call, note, value);
    return tow_call_end(&call, tow_call_wait(&call));
}

uint32_t tow_watch_next(struct tow_completion *watch)
{
    watch->given += watch->given == UINT32_MAX ? 2 : 1; /* never 0 */
    return watch->given;
}

void tow_watch_asked(struct tow_completion *watch, const struct tow_link *link)
{
    watch->asked_ns = tow_time_now_ns();
    watch->heard = atomic_load(&link->completions->heard);
}

static enum tow_completion_outcome look(const struct tow_watches *watches,
                                        const struct tow_share_note *note, uint32_t value)
{
    while (atomic_load(&watches->applying)) {
        sched_yield(); /* the reader may need this processor */
    }
    if (atomic_load_explicit(&note->done, memory_order_acquire) == value) {
        return TOW_COMPLETION_DONE;
    }
    return atomic_load_explicit(&note->refused, memory_order_acquire) == value
               ? TOW_COMPLETION_REFUSED
               : TOW_COMPLETION_PENDING;
}

enum tow_completion_outcome tow_watch_look(struct tow_link *link,
                                           const struct tow_completion *watch)
{
    const struct tow_watches *watches = watches_of(link);
    if (!tow_completion_possible()) {
        return TOW_COMPLETION_REFUSED;
    }
    enum tow_completion_outcome outcome = look(watches, watch->note, watch->awaited);
    if (outcome == TOW_COMPLETION_PENDING) {
        tow_link_catch_up(link);
        outcome = look(watches, watch->note, watch->awaited);
    }
    if (outcome == TOW_COMPLETION_DONE) {
        /* What was downloaded comes with a reply. */
        return tow_link_expects(link) ? TOW_COMPLETION_REFUSED : outcome;
    }
    if (outcome == TOW_COMPLETION_PENDING &&
        (atomic_load(&link->lost) != 0 || atomic_load(&link->completions->heard) != watch->heard ||
         tow_time_now_ns() - watch->asked_ns > ASK_NS)) {
        return TOW_COMPLETION_REFUSED;
    }
    return outcome;
}

/* The server may tell of an old value behind a newer one. */
static void raise_to(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t old = atomic_load_explicit(word, memory_order_relaxed);
    if (old == 0 || (int32_t)(value - old) > 0) {
        atomic_store_explicit(word, value, memory_order_release);
    }
}

int tow_completion_take(struct tow_link *link, const struct tow_done *done)
{
    struct tow_watches *watches = watches_of(link);
    if (watches == NULL) {
        return -EPROTO;
    }
    int error = 0;
    atomic_store(&watches->applying, true);
    for (uint32_t i = 0; i < done->count && error == 0; i++) {
        if (done->slips[i].slip >= atomic_load(&watches->given)) {
            error = -EPROTO;
        } else {
            struct tow_share_note *note = &watches->notes[done->slips[i].slip];
            raise_to(done->slips[i].refused ? &note->refused : &note->done, done->slips[i].value);
        }
    }
    atomic_store(&watches->applying, false);
    return error;
}
