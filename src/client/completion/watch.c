/* SPDX-License-Identifier: Apache-2.0 */
/* Asks to be told of events and streams, and keeps the words that DONE frames write. */
#include "client/completion/inside.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct towc_watches {
    atomic_uint given;    /* fence words */
    atomic_bool applying; /* a frame's watch numbers hold all at once: nobody looks meanwhile */
    struct tow_fence_word words[TOW_WATCH_MAX];
};

/* The link's, or NULL before they are needed. */
static struct towc_watches *watches_of(const struct towc_link *link)
{
    return link->completions != NULL
               ? atomic_load_explicit(&link->completions->watches, memory_order_acquire)
               : NULL;
}

static struct towc_watches *make_watches(const struct towc_link *link)
{
    struct towc_watches *watches = watches_of(link);
    if (watches == NULL && link->completions != NULL) {
        struct towc_watches *made = aligned_alloc(_Alignof(struct towc_watches), sizeof *made);
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

static const struct tow_fence_word *server_word(struct towc_link *link)
{
    struct towc_watches *watches = make_watches(link);
    unsigned index = watches != NULL ? atomic_load(&watches->given) : TOW_WATCH_MAX;
    do {
        if (index == TOW_WATCH_MAX) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&watches->given, &index, index + 1));
    return &watches->words[index];
}

static void server_put(struct towc_call *call, const struct towc_completion_mark *mark)
{
    tow_enc_u32(&call->enc, (uint32_t)(mark->word - watches_of(call->link)->words));
    tow_enc_u32(&call->enc, mark->value);
}

/* The reader of the line stores a word with release (raise_to) when it has taken all that came
 * before the DONE frame: whoever sees the value with acquire (towc_fence_word_query) sees the bytes
 * that it tells of. */
static enum towc_completion_outcome watch_look(const struct towc_watches *watches,
                                               const struct towc_completion_mark *mark)
{
    while (atomic_load(&watches->applying)) {
        sched_yield(); /* the reader may need this processor */
    }
    return towc_fence_word_query(mark->word, mark->value);
}

static enum towc_completion_outcome server_look(struct towc_link *link,
                                                const struct towc_completion_mark *mark,
                                                uint64_t heard, bool wait)
{
    (void)wait; /* who waits sleeps until a reply comes */
    const struct towc_watches *watches = watches_of(link);
    if (!towc_completion_possible()) {
        return TOW_COMPLETION_REFUSED;
    }
    enum towc_completion_outcome outcome = watch_look(watches, mark);
    if (outcome == TOW_COMPLETION_PENDING) {
        towc_link_catch_up(link);
        outcome = watch_look(watches, mark);
    }
    if (outcome == TOW_COMPLETION_DONE) {
        /* What was downloaded comes with a reply. */
        return towc_link_expects(link) ? TOW_COMPLETION_REFUSED : outcome;
    }
    if (atomic_load(&link->lost) != 0 || atomic_load(&link->completions->heard) != heard) {
        return TOW_COMPLETION_REFUSED;
    }
    return outcome;
}

const struct towc_completion_source towc_completion_by_server = {
    .word = server_word,
    .put = server_put,
    .look = server_look,
    .silence_ns = 200 * TOW_TIME_MS,
    .asks = true,
};

/* The server may tell of an old value behind a newer one. */
static void raise_to(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t old = atomic_load_explicit(word, memory_order_relaxed);
    if (old == 0 || (int32_t)(value - old) > 0) {
        atomic_store_explicit(word, value, memory_order_release);
    }
}

int towc_completion_take(struct towc_link *link, const struct tow_done *done)
{
    struct towc_watches *watches = watches_of(link);
    if (watches == NULL) {
        return -EPROTO;
    }
    int error = 0;
    atomic_store(&watches->applying, true);
    for (uint32_t i = 0; i < done->count && error == 0; i++) {
        if (done->entries[i].watch_id >= atomic_load(&watches->given)) {
            error = -EPROTO;
        } else {
            struct tow_fence_word *word = &watches->words[done->entries[i].watch_id];
            raise_to(done->entries[i].refused ? &word->refused : &word->done,
                     done->entries[i].value);
        }
    }
    atomic_store(&watches->applying, false);
    return error;
}
