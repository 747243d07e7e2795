/* SPDX-License-Identifier: Apache-2.0 */
/* What both sources share: the questions, their life with the link, and when neither will do. */
#include "client/completion/inside.h"

#include <stdlib.h>

#include "base/clock.h"
#include "client/session/modes.h"

struct tow_completions *tow_completions_make(void)
{
    return calloc(1, sizeof(struct tow_completions));
}

void tow_completions_destroy(struct tow_completions *completions)
{
    if (completions != NULL) {
        tow_share_piece_fini(&completions->slot_piece);
        tow_share_piece_fini(&completions->event_piece);
        free(atomic_load(&completions->watches));
        free(completions);
    }
}

bool tow_completion_brings_more(struct tow_link *link)
{
    return atomic_load_explicit(&tow_wait_always, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) != 0 ||
           tow_link_expects(link);
}

void tow_completion_hear(struct tow_link *link)
{
    if (link->completions != NULL) {
        atomic_fetch_add(&link->completions->heard, 1);
    }
}

bool tow_completion_possible(void)
{
    return atomic_load_explicit(&tow_wait_always, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0;
}

static const struct tow_completion_source *source_of(const struct tow_completion *completion,
                                                     const struct tow_link *link)
{
    return completion->polled || link->share == NULL ? &tow_completion_by_server
                                                     : &tow_completion_by_gpu;
}

/* ---- values ---- */

/* With the lock held: a value that was never given out. */
static uint32_t next_value(struct tow_completion *completion)
{
    completion->given += completion->given == UINT32_MAX ? 2 : 1; /* never 0 */
    return completion->given;
}

/* A mark with a new value. `asks`: for a question, which ends with `asking`. */
static bool begin_mark(struct tow_completion *completion, struct tow_link *link, bool asks,
                       struct tow_completion_mark *ret_mark)
{
    const struct tow_completion_source *source = source_of(completion, link);
    tow_mutex_lock(&completion->lock);
    bool without = completion->link != link;
    tow_mutex_unlock(&completion->lock);
    const struct tow_share_note *word = without ? source->word(link) : NULL;
    tow_mutex_lock(&completion->lock);
    if (word != NULL && completion->link != link) {
        completion->mark = (struct tow_completion_mark){source, word, 0};
        completion->link = link;
    }
    bool had = completion->link == link && !(asks && completion->asking);
    if (had) {
        *ret_mark = completion->mark;
        ret_mark->value = next_value(completion);
        completion->asking = completion->asking || asks;
        if (source->asks) {
            completion->asked_ns = tow_time_now_ns();
            completion->heard = atomic_load(&link->completions->heard);
        }
    }
    tow_mutex_unlock(&completion->lock);
    return had;
}

bool tow_completion_follow(struct tow_completion *completion, struct tow_link *link,
                           struct tow_completion_mark *ret_mark)
{
    bool can = source_of(completion, link) == &tow_completion_by_gpu
                   ? atomic_load(&tow_captures) == 0
                   : tow_completion_possible();
    return can && begin_mark(completion, link, false, ret_mark);
}

void tow_completion_put(struct tow_call *call, const struct tow_completion_mark *mark)
{
    mark->source->put(call, mark);
}

void tow_completion_await(struct tow_completion *completion, uint32_t value)
{
    completion->mark.value = value != 0 && value == completion->given ? value : 0;
    if (completion->mark.value == 0) {
        next_value(completion); /* a question that is under way is not to be believed */
    }
}

void tow_completion_void(struct tow_completion *completion)
{
    tow_mutex_lock(&completion->lock);
    tow_completion_await(completion, 0);
    tow_mutex_unlock(&completion->lock);
}

/* ---- questions ---- */

static enum tow_completion_outcome look_at(struct tow_completion *completion, struct tow_link *link,
                                           bool wait, uint64_t *ret_number)
{
    tow_mutex_lock(&completion->lock);
    struct tow_completion_mark mark = completion->mark;
    bool told = completion->link == link && mark.value != 0;
    uint64_t heard = completion->heard;
    int64_t asked_ns = completion->asked_ns;
    if (ret_number != NULL) {
        *ret_number = completion->number;
    }
    tow_mutex_unlock(&completion->lock);
    enum tow_completion_outcome outcome =
        told ? mark.source->look(link, &mark, heard, wait) : TOW_COMPLETION_REFUSED;
    int64_t now = outcome == TOW_COMPLETION_PENDING ? tow_time_now_ns() : 0;
    if (now != 0 && now - asked_ns > mark.source->silence_ns) {
        /* It may never come: the context broke, or the server does not tell. Others need not ask
         * meanwhile. */
        tow_mutex_lock(&completion->lock);
        completion->asked_ns = now;
        tow_mutex_unlock(&completion->lock);
        outcome = TOW_COMPLETION_REFUSED;
    }
    return outcome;
}

enum tow_completion_outcome tow_completion_query(struct tow_completion *completion,
                                                 struct tow_link *link, uint64_t *ret_number)
{
    return look_at(completion, link, false, ret_number);
}

enum tow_completion_outcome tow_completion_wait(struct tow_completion *completion,
                                                struct tow_link *link)
{
    return look_at(completion, link, true, NULL);
}

CUresult tow_completion_ask(struct tow_completion *completion, struct tow_link *link, unsigned fn,
                            uint64_t id)
{
    struct tow_completion_mark mark = {0};
    bool told = source_of(completion, link) == &tow_completion_by_server &&
                tow_completion_possible() && begin_mark(completion, link, true, &mark);
    uint64_t number = 0;
    struct tow_call call;
    CUresult status = tow_call_begin(&call, fn, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status == CUDA_SUCCESS) {
        number = tow_link_next(link);
        tow_enc_u64(&call.enc, id);
        if (told) {
            tow_completion_put(&call, &mark);
        }
        status = tow_call_end(&call, tow_call_wait(&call));
    }
    if (told) {
        tow_mutex_lock(&completion->lock);
        completion->asking = false;
        if (completion->given == mark.value) { /* the server knows the newest only */
            completion->mark.value = status == CUDA_ERROR_NOT_READY ? mark.value : 0;
            completion->number = number;
        }
        tow_mutex_unlock(&completion->lock);
    }
    return status;
}
