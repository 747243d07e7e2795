/* SPDX-License-Identifier: Apache-2.0 */
/* Words that the GPU writes when it is done, in memory that is shared. */
#include "client/completion/inside.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "client/link/current.h"
#include "client/session/modes.h"
#include "client/session/thread.h"
#include "gen/context.h"
#include "gen/stream.h"
#include "gen/stream_client.h"

enum {
    SLOT_SIZE = TOW_WAIT_SLOT_ROOM + sizeof(struct tow_fence_word), /* a word, then room */
    EVENT_WORDS = 1024,
};

/* How long to look at a fence word before asking, and sleeping until the answer comes. NVIDIA's
 * driver looks for ever unless the context says that it is to sleep; this much covers what a step
 * of training or a token takes. Where there are few processors the worker needs them. */
#define LOOK_NS (5 * TOW_TIME_MS)
#define LOOK_BRIEF_NS (100 * TOW_TIME_US)

/* NULL where the GPU writes no words for this link. */
static struct towc_completions *words_of(const struct towc_link *link)
{
    return link->share != NULL ? link->completions : NULL;
}

/* The GPU writes `done` behind the work that it tells of, with a fence for the whole system
 * (cuStreamWriteValue32), and the worker stores with release: whoever sees the value with acquire
 * sees what that work wrote to shared memory. `refused` brings nothing with it but the question
 * that follows. */
enum towc_completion_outcome towc_fence_word_query(const struct tow_fence_word *word,
                                                   uint32_t value)
{
    if (atomic_load_explicit(&word->done, memory_order_acquire) == value) {
        return TOW_COMPLETION_DONE;
    }
    return atomic_load_explicit(&word->refused, memory_order_acquire) == value
               ? TOW_COMPLETION_REFUSED
               : TOW_COMPLETION_PENDING;
}

bool towc_fence_word_owes(const struct tow_fence_word *word, uint32_t value)
{
    return atomic_load_explicit(&word->owing, memory_order_relaxed) == value;
}

enum towc_completion_outcome towc_fence_word_wait_long(const struct tow_fence_word *word,
                                                       uint32_t value, int64_t more_ns)
{
    enum towc_completion_outcome outcome = towc_fence_word_query(word, value);
    const struct towc_context *context = towc_context_current();
    unsigned wish = context != NULL ? atomic_load(&context->flags) & CU_CTX_SCHED_MASK : 0;
    bool crowded = tow_cpu_count() <= 2 || wish == CU_CTX_SCHED_YIELD;
    bool brief = tow_cpu_count() <= 2 || wish == CU_CTX_SCHED_BLOCKING_SYNC;
    int64_t until = tow_time_now_ns() + (brief ? LOOK_BRIEF_NS : LOOK_NS + more_ns);
    int64_t began_ns = outcome == TOW_COMPLETION_PENDING ? towc_wait_begins() : 0;
    for (unsigned round = 1; outcome == TOW_COMPLETION_PENDING; round++) {
        if (crowded) {
            sched_yield(); /* the worker needs this processor */
        } else {
            tow_thread_pause();
        }
        outcome = towc_fence_word_query(word, value);
        if ((crowded || round % 64 == 0) && tow_time_now_ns() > until) {
            break;
        }
    }
    towc_wait_ends(began_ns);
    return outcome;
}

enum towc_completion_outcome towc_fence_word_wait(const struct tow_fence_word *word, uint32_t value)
{
    return towc_fence_word_wait_long(word, value, 0);
}

/* NULL if there is none to be had. */
static struct towc_wait_slot *wait_slot_take(struct towc_link *link)
{
    struct towc_thread *self = towc_thread_self();
    struct towc_completions *words = words_of(link);
    if (self == NULL || words == NULL ||
        !towc_share_area_ready(link, &words->slot_area, (size_t)TOW_WAIT_SLOTS * SLOT_SIZE)) {
        return NULL;
    }
    unsigned index = self->number % TOW_WAIT_SLOTS;
    struct towc_wait_slot *slot = &words->slots[index];
    if (atomic_exchange_explicit(&slot->taken, true, memory_order_acquire)) {
        return NULL;
    }
    uint8_t *base = words->slot_area.base + (size_t)index * SLOT_SIZE;
    slot->word = (struct tow_fence_word *)base;
    slot->room = base + sizeof *slot->word;
    if (++slot->value == 0) {
        slot->value = 1;
    }
    return slot;
}

enum towc_completion_outcome towc_completion_run(struct towc_awaited *awaited, CUresult *ret_status)
{
    struct towc_wait_slot *slot =
        towc_completion_brings_more(awaited->link) ? NULL : wait_slot_take(awaited->link);
    enum towc_completion_outcome outcome = TOW_COMPLETION_REFUSED;
    *ret_status = CUDA_SUCCESS;
    if (slot == NULL) {
        return outcome;
    }
    awaited->sent = true;
    *ret_status = awaited->send(awaited, slot);
    if (*ret_status == CUDA_SUCCESS) {
        outcome = awaited->answered
                      ? TOW_COMPLETION_DONE
                      : towc_fence_word_wait_long(slot->word, slot->value, awaited->more_ns);
    }
    if (outcome == TOW_COMPLETION_PENDING && awaited->ask != NULL) {
        *ret_status = awaited->ask(awaited);
        outcome = *ret_status == CUDA_SUCCESS ? towc_fence_word_query(slot->word, slot->value)
                                              : TOW_COMPLETION_REFUSED;
    }
    if (outcome == TOW_COMPLETION_DONE) {
        towc_completion_hear(awaited->link);
        awaited->owing = towc_fence_word_owes(slot->word, slot->value);
        if (awaited->take != NULL) {
            awaited->take(awaited, slot);
        }
    }
    atomic_store_explicit(&slot->taken, false, memory_order_release);
    return outcome;
}

/* ---- events ---- */

static const struct tow_fence_word *gpu_word(struct towc_link *link)
{
    struct towc_completions *words = words_of(link);
    if (words == NULL || !towc_share_area_ready(link, &words->event_area,
                                                EVENT_WORDS * sizeof(struct tow_fence_word))) {
        return NULL;
    }
    unsigned index = atomic_load(&words->event_words);
    do {
        if (index == EVENT_WORDS) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&words->event_words, &index, index + 1));
    return (const struct tow_fence_word *)words->event_area.base + index;
}

static void gpu_put(struct towc_call *call, const struct towc_completion_mark *mark)
{
    tow_enc_u64(&call->enc, (uint64_t)(uintptr_t)mark->word);
    tow_enc_u32(&call->enc, mark->value);
    tow_enc_u32(&call->enc, 0);
}

static enum towc_completion_outcome
gpu_look(struct towc_link *link, const struct towc_completion_mark *mark, uint64_t heard, bool wait)
{
    (void)heard;
    if (towc_completion_brings_more(link)) {
        return TOW_COMPLETION_REFUSED;
    }
    enum towc_completion_outcome outcome = wait ? towc_fence_word_wait(mark->word, mark->value)
                                                : towc_fence_word_query(mark->word, mark->value);
    if (outcome == TOW_COMPLETION_DONE) {
        towc_completion_hear(link);
    }
    return outcome;
}

const struct towc_completion_source towc_completion_by_gpu = {
    .word = gpu_word,
    .put = gpu_put,
    .look = gpu_look,
    .silence_ns = TOW_TIME_MS,
};

/* ---- streams and contexts ---- */

/* Nothing was sent since some stream of this context was empty: most likely all of them are. */
static bool may_be_idle(const struct towc_link *link)
{
    const struct towc_context *context = towc_context_current();
    return context != NULL && atomic_load_explicit(&context->stream_done, memory_order_relaxed) ==
                                  towc_link_sent(link);
}

struct sync {
    struct towc_awaited awaited; /* first: a synchronisation is what is awaited */
    const CUstream *stream;      /* borrowed; NULL: of the whole context */
};

static CUresult send_sync(struct towc_awaited *awaited, const struct towc_wait_slot *slot)
{
    const CUstream *stream = ((struct sync *)awaited)->stream;
    unsigned fn = stream != NULL ? TOW_FN_cuStreamSynchronize : TOW_FN_cuCtxSynchronize;
    bool idle = stream == NULL && may_be_idle(awaited->link);
    struct towc_call call;
    CUresult status = towc_call_begin(&call, fn, 24, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    awaited->answered = call.waits; /* host functions are outstanding: it is asked for after all */
    if (stream != NULL) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)*stream);
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)slot->word);
    tow_enc_u32(&call.enc, slot->value);
    tow_enc_u32(&call.enc, idle ? TOW_FENCE_WORD_IDLE : 0);
    return towc_call_send(&call);
}

/* By a fence word, if that does not take long and nothing has to be fetched: of a stream, or of the
 * whole context. False: it must be asked for. */
static bool sync_by_word(struct towc_link *link, const CUstream *stream, CUresult *ret_status)
{
    struct sync sync = {{.link = link, .send = send_sync}, stream};
    return towc_completion_run(&sync.awaited, ret_status) == TOW_COMPLETION_DONE ||
           *ret_status != CUDA_SUCCESS;
}

static uint64_t owed_bit(CUstream stream)
{
    return UINT64_C(1) << ((uintptr_t)stream % 64);
}

void towc_completion_owe(struct towc_link *link, CUstream stream)
{
    struct towc_completions *words = words_of(link);
    if (words != NULL) {
        atomic_fetch_or_explicit(&words->owed, owed_bit(stream), memory_order_relaxed);
    }
}

static bool pay_owed(struct towc_completions *words, CUstream stream)
{
    uint64_t bit = owed_bit(stream);
    return (atomic_load_explicit(&words->owed, memory_order_relaxed) & bit) != 0 &&
           (atomic_fetch_and_explicit(&words->owed, ~bit, memory_order_relaxed) & bit) != 0;
}

CUresult towc_completion_sync_stream(struct towc_link *link, CUstream stream, bool idle)
{
    struct towc_completions *words = words_of(link);
    if (words == NULL || towc_completion_brings_more(link)) {
        return towc_send_cuStreamSynchronize(stream);
    }
    CUresult status = CUDA_SUCCESS;
    if (!pay_owed(words, stream) && (idle || sync_by_word(link, &stream, &status))) {
        return status;
    }
    status = towc_send_cuStreamSynchronize(stream);
    if (status == CUDA_SUCCESS) {
        towc_completion_hear(link);
    }
    return status;
}

bool towc_completion_sync_context(struct towc_link *link, CUresult *ret_status)
{
    const struct towc_completions *words = words_of(link);
    return words != NULL && !towc_completion_brings_more(link) &&
           atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&words->owed, memory_order_relaxed) == 0 &&
           sync_by_word(link, NULL, ret_status);
}
