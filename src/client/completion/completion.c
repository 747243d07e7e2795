/* SPDX-License-Identifier: Apache-2.0 */
/* What both sources share: the questions, their life with the link, and when neither will do. */
#include "client/completion/inside.h"

#include <stdlib.h>

#include "base/clock.h"
#include "client/session/modes.h"

struct towc_completions *towc_completions_make(void)
{
    return calloc(1, sizeof(struct towc_completions));
}

void towc_completions_destroy(struct towc_completions *completions)
{
    if (completions != NULL) {
        towc_share_area_fini(&completions->slot_area);
        towc_share_area_fini(&completions->event_area);
        free(atomic_load(&completions->watches));
        free(completions);
    }
}

bool towc_completion_brings_more(struct towc_link *link)
{
    return atomic_load_explicit(&towc_wait_always, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&towc_mirror_count, memory_order_relaxed) != 0 ||
           towc_link_expects(link);
}

void towc_completion_hear(struct towc_link *link)
{
    if (link->completions != NULL) {
        atomic_fetch_add(&link->completions->heard, 1);
    }
}

bool towc_completion_possible(void)
{
    return atomic_load_explicit(&towc_wait_always, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&towc_mirror_count, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0;
}

static const struct towc_completion_source *source_of(const struct towc_completion *completion,
                                                      const struct towc_link *link)
{
    return completion->polled || link->share == NULL ? &towc_completion_by_server
                                                     : &towc_completion_by_gpu;
}

/* ---- values ---- */

/* With the lock held: a value that was never given out. */
static uint32_t next_value(struct towc_completion *completion)
{
    completion->given += completion->given == UINT32_MAX ? 2 : 1; /* never 0 */
    return completion->given;
}

/* A mark with a new value. `asks`: for a question, which ends with `asking`. */
static bool begin_mark(struct towc_completion *completion, struct towc_link *link, bool asks,
                       struct towc_completion_mark *ret_mark)
{
    const struct towc_completion_source *source = source_of(completion, link);
    tow_mutex_lock(&completion->lock);
    bool without = completion->link != link;
    tow_mutex_unlock(&completion->lock);
    const struct tow_fence_word *word = without ? source->word(link) : NULL;
    tow_mutex_lock(&completion->lock);
    if (word != NULL && completion->link != link) {
        completion->mark = (struct towc_completion_mark){source, word, 0};
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

bool towc_completion_follow(struct towc_completion *completion, struct towc_link *link,
                            struct towc_completion_mark *ret_mark)
{
    bool can = source_of(completion, link) == &towc_completion_by_gpu
                   ? atomic_load(&towc_captures) == 0
                   : towc_completion_possible();
    return can && begin_mark(completion, link, false, ret_mark);
}

void towc_completion_put(struct towc_call *call, const struct towc_completion_mark *mark)
{
    mark->source->put(call, mark);
}

void towc_completion_await(struct towc_completion *completion, uint32_t value)
{
    completion->mark.value = value != 0 && value == completion->given ? value : 0;
    if (completion->mark.value == 0) {
        next_value(completion); /* a question that is under way is not to be believed */
    }
}

void towc_completion_void(struct towc_completion *completion)
{
    tow_mutex_lock(&completion->lock);
    towc_completion_await(completion, 0);
    tow_mutex_unlock(&completion->lock);
}

/* ---- questions ---- */

static enum towc_completion_outcome look_at(struct towc_completion *completion,
                                            struct towc_link *link, bool wait, uint64_t *ret_number)
{
    tow_mutex_lock(&completion->lock);
    struct towc_completion_mark mark = completion->mark;
    bool told = completion->link == link && mark.value != 0;
    uint64_t heard = completion->heard;
    int64_t asked_ns = completion->asked_ns;
    if (ret_number != NULL) {
        *ret_number = completion->number;
    }
    tow_mutex_unlock(&completion->lock);
    enum towc_completion_outcome outcome =
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

enum towc_completion_outcome towc_completion_query(struct towc_completion *completion,
                                                   struct towc_link *link, uint64_t *ret_number)
{
    return look_at(completion, link, false, ret_number);
}

enum towc_completion_outcome towc_completion_wait(struct towc_completion *completion,
                                                  struct towc_link *link)
{
    return look_at(completion, link, true, NULL);
}

CUresult towc_completion_ask(struct towc_completion *completion, struct towc_link *link,
                             unsigned fn, uint64_t id)
{
    struct towc_completion_mark mark = {0};
    bool told = source_of(completion, link) == &towc_completion_by_server &&
                towc_completion_possible() && begin_mark(completion, link, true, &mark);
    uint64_t number = 0;
    struct towc_call call;
    CUresult status = towc_call_begin(&call, fn, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status == CUDA_SUCCESS) {
        number = towc_link_next(link);
        tow_enc_u64(&call.enc, id);
        if (told) {
            towc_completion_put(&call, &mark);
        }
        status = towc_call_end(&call, towc_call_wait(&call));
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
