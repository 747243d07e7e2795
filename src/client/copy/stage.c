/* SPDX-License-Identifier: Apache-2.0 */
/* Moves bytes through the staging memory that the worker shares, a slot at a time in both
 * directions. */
#include "client/copy/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/stream/stream.h"
#include "client/hostmem/copy_pool.h"
#include "client/copy/part.h"
#include "client/copy/shared.h"
#include "client/completion/completion.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/stream.h"

enum {
    SLOTS = TOW_PIPELINE_SLOTS, /* some are filled while others are emptied */
    SLOT_SIZE = 2 << 20,        /* one transfer of the device's copy engine */
    SMALL_SLOTS = 8, /* slots for small uploads, which nobody waits for: their stream may stand */
    SMALL_SLOT_SIZE = TOW_COPY_INLINE_MAX,
    STRIPE = 128 << 10,    /* what one thread copies at a time; */
    STRIPE_UP = 32 << 10,  /* of uploads that are over soon, so that no thread is left without */
    SOON = 16 << 20,       /* such an upload, at most */
    CHUNK_MIN = 128 << 10, /* the least that goes through one slot of several, */
    CHUNK_MIN_DOWN = 64 << 10, /* but small downloads, which one thread empties as they come */
};

/* A full staging is looked at this often, and this often the server is asked whether the stream
 * still lives. */
#define NAP_NS (50 * TOW_TIME_US)
#define NAPS_PER_QUESTION 200

struct slot {
    uint32_t value;   /* of its newest fence word; none comes twice, so it never begins anew */
    uint32_t context; /* where it was used last, and by which stream */
    CUstream stream;
};

struct towc_stage {
    struct towc_share_area area; /* fence words, one for each slot; then the slots */
    struct tow_mutex lock;       /* held by the thread that copies: the staging is its own */
    struct slot slots[SLOTS + SMALL_SLOTS];
    unsigned next_slot, next_small;
};

struct towc_stage *towc_stage_make(const struct towc_link *link)
{
    struct towc_stage *stage = link->share != NULL ? calloc(1, sizeof *stage) : NULL;
    if (stage != NULL) {
        tow_mutex_init(&stage->lock, CLIENT_STAGE);
    }
    return stage;
}

void towc_stage_destroy(struct towc_stage *stage)
{
    if (stage != NULL) {
        towc_share_area_fini(&stage->area);
        tow_mutex_fini(&stage->lock);
        free(stage);
    }
}

/* ---- slots ---- */

static struct tow_fence_word *slot_word(const struct towc_stage *stage, unsigned slot)
{
    return (struct tow_fence_word *)(stage->area.base +
                                     (size_t)slot * sizeof(struct tow_fence_word));
}

static uint8_t *slot_at(const struct towc_stage *stage, unsigned slot)
{
    return stage->area.base + (slot < SLOTS ? (size_t)(slot + 1) * SLOT_SIZE
                                            : (size_t)(SLOTS + 1) * SLOT_SIZE +
                                                  (size_t)(slot - SLOTS) * SMALL_SLOT_SIZE);
}

static bool is_free(const struct towc_stage *stage, unsigned slot)
{
    uint32_t value = stage->slots[slot].value;
    return value == 0 ||
           towc_fence_word_query(slot_word(stage, slot), value) != TOW_COMPLETION_PENDING;
}

/* Asks in the context in which a slot was used: whether its stream has work, or waits for all. In
 * one that has ended nobody has. */
static CUresult ask_for_slot(struct towc_link *link, const struct slot *slot, unsigned fn)
{
    struct towc_call call;
    CUresult status = towc_call_begin_on(&call, link, slot->context, fn, 8, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)slot->stream);
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    return status == CUDA_ERROR_CONTEXT_IS_DESTROYED || status == CUDA_ERROR_INVALID_CONTEXT
               ? CUDA_SUCCESS
               : status;
}

/* Until the device is through with a slot. Work that will never be done, because its context has
 * ended or failed, leaves it free as well; whoever goes on is told by what is asked next. An
 * error of an earlier call, which the question brought, is the caller's. */
static CUresult await_slot(struct towc_link *link, unsigned index)
{
    struct slot *slot = &link->stage->slots[index];
    const struct tow_fence_word *word = slot_word(link->stage, index);
    if (slot->value == 0 || towc_fence_word_wait(word, slot->value) != TOW_COMPLETION_PENDING) {
        return CUDA_SUCCESS;
    }
    unsigned naps = 0;
    while (towc_fence_word_query(word, slot->value) == TOW_COMPLETION_PENDING) {
        CUresult status = naps++ % NAPS_PER_QUESTION == 0
                              ? ask_for_slot(link, slot, TOW_FN_cuStreamQuery)
                              : CUDA_ERROR_NOT_READY;
        if (status == CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
        if (status != CUDA_ERROR_NOT_READY &&
            towc_fence_word_query(word, slot->value) != TOW_COMPLETION_PENDING) {
            return status;
        }
        if (status != CUDA_ERROR_NOT_READY) {
            /* The stream was destroyed: what it had to do is still done. */
            status = ask_for_slot(link, slot, TOW_FN_cuCtxSynchronize);
            return towc_fence_word_query(word, slot->value) != TOW_COMPLETION_PENDING
                       ? status
                       : CUDA_SUCCESS;
        }
        tow_time_sleep(NAP_NS);
    }
    return CUDA_SUCCESS;
}

/* The staging, if it is there and nobody uses it. */
static struct towc_stage *take_slots(struct towc_link *link)
{
    struct towc_stage *stage = link->stage;
    if (stage == NULL ||
        !towc_share_area_ready(link, &stage->area,
                               (size_t)(SLOTS + 1) * SLOT_SIZE +
                                   (size_t)SMALL_SLOTS * SMALL_SLOT_SIZE) ||
        atomic_load_explicit(&towc_wait_always, memory_order_relaxed) != 0 ||
        !tow_mutex_try(&stage->lock)) {
        return NULL;
    }
    return stage;
}

/* How much goes through one slot: small copies are cut too, so that copying and transfer overlap.
 */
static size_t chunk_size(size_t size, bool up)
{
    if (!up && size <= (size_t)SLOTS * CHUNK_MIN_DOWN) {
        return CHUNK_MIN_DOWN;
    }
    size_t half = (size / 2 + CHUNK_MIN - 1) / CHUNK_MIN * CHUNK_MIN;
    return half < CHUNK_MIN ? CHUNK_MIN : half > SLOT_SIZE ? SLOT_SIZE : half;
}

/* ---- parts ---- */

static CUresult send_3d(const struct tow_copy_3d *copy_3d, const struct tow_fence_word *word,
                        uint32_t value, uint64_t *ret_number)
{
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof *copy_3d + 16, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_number = towc_link_next(call.link);
    tow_enc_bytes(&call.enc, copy_3d, sizeof *copy_3d);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)word);
    tow_enc_u32(&call.enc, value);
    tow_enc_u32(&call.enc, 0);
    return towc_call_send(&call);
}

CUresult towc_staged_send(const struct towc_staged *what, const struct towc_part *part,
                          uint8_t *packed, const struct tow_fence_word *word, uint32_t value,
                          uint64_t *ret_number)
{
    if (what->copy_3d == NULL) {
        unsigned fn = what->up ? TOW_FN_cuMemcpyHtoDAsync_v2 : TOW_FN_cuMemcpyDtoHAsync_v2;
        return towc_shared_send(fn, what->device + part->x, packed, part->width, what->stream, word,
                                value, ret_number);
    }
    struct tow_copy_3d copy_3d = towc_copy_3d_part(what->copy_3d, part);
    struct tow_copy_operand *host = what->up ? &copy_3d.from : &copy_3d.to;
    host->kind = TOW_AT_ADDRESS;
    host->address = (uint64_t)(uintptr_t)packed;
    copy_3d.bytes = 0; /* that travel */
    copy_3d.flags |= TOW_COPY_3D_FENCE_WORD;
    return send_3d(&copy_3d, word, value, ret_number);
}

/* A copy on its way through the slots, a part of it in each. */
struct staged_copy {
    struct towc_link *link;
    const struct towc_staged *what;
    struct towc_cut cut;
    bool flat;      /* the program's bytes lie side by side */
    size_t stripe;  /* its size */
    size_t stripes; /* of a part, at most */
    unsigned first_slot;
    uint64_t number; /* of the last command */
};

static struct staged_copy staged_copy_begin(struct towc_link *link, const struct towc_staged *what)
{
    size_t size = towc_host_rect_size(&what->host);
    struct staged_copy p = {.link = link,
                            .what = what,
                            .flat = what->host.rows == 1 && what->host.planes == 1,
                            .stripe = what->up && size <= SOON ? STRIPE_UP : STRIPE,
                            .first_slot = link->stage->next_slot};
    p.cut = towc_cut_make(&what->host, chunk_size(size, what->up));
    p.stripes = (towc_part_size(&p.cut.each) + p.stripe - 1) / p.stripe;
    return p;
}

static unsigned slot_of(const struct staged_copy *p, size_t chunk)
{
    return p->first_slot < SLOTS ? (p->first_slot + (unsigned)(chunk % SLOTS)) % SLOTS
                                 : p->first_slot;
}

/* How many of `size` bytes a stripe has from `offset` on, perhaps none. */
static size_t stripe_size(const struct staged_copy *p, size_t size, size_t offset)
{
    return offset >= size ? 0 : size - offset < p->stripe ? size - offset : p->stripe;
}

static void move_flat_stripe(const struct staged_copy *p, size_t chunk, size_t offset,
                             uint8_t *slot)
{
    size_t first = chunk * p->cut.each.width, left = p->what->host.width - first;
    size_t size = stripe_size(p, left < p->cut.each.width ? left : p->cut.each.width, offset);
    uint8_t *host = p->what->host.first + first + offset;
    if (size > 0) {
        memcpy(p->what->up ? slot : host, p->what->up ? host : slot, size);
    }
}

static void move_rows_stripe(const struct staged_copy *p, size_t chunk, size_t offset,
                             uint8_t *slot)
{
    struct towc_part part = towc_cut_part(&p->cut, chunk);
    struct towc_host_rect rect = towc_host_rect_part(&p->what->host, &part);
    size_t size = stripe_size(p, towc_host_rect_size(&rect), offset);
    if (size > 0 && p->what->up) {
        towc_host_rect_gather(&rect, offset, slot, size);
    } else if (size > 0) {
        towc_host_rect_scatter(&rect, offset, slot, size);
    }
}

/* One stripe of a chunk, between the program's memory and the chunk's slot. */
static void move_stripe(const struct staged_copy *p, size_t chunk, size_t stripe)
{
    size_t offset = stripe * p->stripe;
    uint8_t *slot = slot_at(p->link->stage, slot_of(p, chunk)) + offset;
    if (p->flat) {
        move_flat_stripe(p, chunk, offset, slot);
    } else {
        move_rows_stripe(p, chunk, offset, slot);
    }
}

static int send_chunk(void *user, size_t chunk)
{
    struct staged_copy *p = user;
    struct towc_stage *stage = p->link->stage;
    unsigned index = slot_of(p, chunk);
    struct slot *slot = &stage->slots[index];
    struct towc_part part = towc_cut_part(&p->cut, chunk);
    struct slot before = *slot;
    slot->value = slot->value == UINT32_MAX ? 1 : slot->value + 1;
    slot->stream = p->what->stream;
    slot->context = towc_context_number();
    CUresult status = towc_staged_send(p->what, &part, slot_at(stage, index),
                                       slot_word(stage, index), slot->value, &p->number);
    if (status != CUDA_SUCCESS) {
        *slot = before; /* no fence word comes */
    }
    return (int)status;
}

/* ---- uploads ---- */

static void fill_stripe(void *user, size_t index)
{
    const struct staged_copy *p = user;
    move_stripe(p, index / p->stripes, index % p->stripes);
}

static int open_chunk(void *user, size_t chunk, bool wait)
{
    const struct staged_copy *p = user;
    unsigned slot = slot_of(p, chunk);
    return wait || is_free(p->link->stage, slot) ? (int)await_slot(p->link, slot) : -EAGAIN;
}

bool towc_stage_up(struct towc_link *link, const struct towc_staged *what, bool synchronous,
                   CUresult *ret_status)
{
    struct towc_stage *stage = take_slots(link);
    if (stage == NULL) {
        return false;
    }
    struct staged_copy p = staged_copy_begin(link, what);
    bool small = towc_host_rect_size(&what->host) <= SMALL_SLOT_SIZE && p.cut.count == 1;
    if (small && !is_free(stage, SLOTS + stage->next_small)) {
        /* It can go in its command, and need not wait for what is before it. */
        stage->next_small = (stage->next_small + 1) % SMALL_SLOTS;
        tow_mutex_unlock(&stage->lock);
        return false;
    }
    if (small) {
        p.first_slot = SLOTS + stage->next_small;
        stage->next_small = (stage->next_small + 1) % SMALL_SLOTS;
    }
    struct towc_copy_pipeline pipeline = {.stripes = p.cut.count * p.stripes,
                                          .each = p.stripes,
                                          .stripe = fill_stripe,
                                          .open = open_chunk,
                                          .send = send_chunk,
                                          .user = &p};
    CUresult status = (CUresult)towc_copy_pool_pipeline(&pipeline);
    unsigned last = slot_of(&p, p.cut.count - 1);
    if (!small) {
        stage->next_slot = (last + 1) % SLOTS;
    }
    enum towc_completion_outcome outcome =
        status == CUDA_SUCCESS && synchronous
            ? towc_fence_word_wait(slot_word(stage, last), stage->slots[last].value)
            : TOW_COMPLETION_DONE;
    bool owing = towc_fence_word_owes(slot_word(stage, last), stage->slots[last].value);
    tow_mutex_unlock(&stage->lock);
    if (synchronous && outcome == TOW_COMPLETION_DONE && status == CUDA_SUCCESS) {
        towc_stream_told(link, what->stream, p.number, owing);
    }
    /* What is before it in the stream takes long, and natively that is waited for, too; or it was
     * refused, and this tells why; or it is over, and the reply brings what kernels wrote before
     * it. A capture would not outlive the question. */
    bool asks = outcome != TOW_COMPLETION_DONE ||
                (status == CUDA_SUCCESS && synchronous && towc_completion_brings_more(link));
    *ret_status = asks && atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0
                      ? towc_stream_ask(link, what->stream)
                      : status;
    return true;
}

/* ---- downloads ---- */

/* Until a slot is full, or the copy was refused. */
static CUresult await_full(struct towc_link *link, unsigned index, CUstream stream,
                           bool *ret_refused)
{
    struct towc_stage *stage = link->stage;
    const struct slot *slot = &stage->slots[index];
    const struct tow_fence_word *word = slot_word(stage, index);
    enum towc_completion_outcome outcome = towc_fence_word_wait(word, slot->value);
    if (outcome == TOW_COMPLETION_PENDING) {
        /* If that fails the device may still fill the slot: who uses it next asks for that. */
        CUresult status = towc_stream_ask(link, stream);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        outcome = towc_fence_word_query(word, slot->value);
    }
    towc_completion_hear(link);
    *ret_refused = outcome != TOW_COMPLETION_DONE;
    return CUDA_SUCCESS;
}

/* A full slot that several threads empty. */
struct emptying {
    const struct staged_copy *staged_copy;
    size_t chunk;
};

static void empty_stripe(void *user, size_t stripe)
{
    const struct emptying *e = user;
    move_stripe(e->staged_copy, e->chunk, stripe);
}

struct small_download {
    struct towc_awaited awaited; /* first: a download is what is awaited */
    const struct towc_staged *what;
    uint64_t number; /* of its command */
};

static CUresult send_small(struct towc_awaited *awaited, const struct towc_wait_slot *slot)
{
    struct small_download *small = (struct small_download *)awaited;
    struct towc_part all = towc_part_all(&small->what->host);
    return towc_staged_send(small->what, &all, slot->room, slot->word, slot->value, &small->number);
}

static CUresult ask_small(struct towc_awaited *awaited)
{
    return towc_stream_ask(awaited->link, ((struct small_download *)awaited)->what->stream);
}

static void take_small(struct towc_awaited *awaited, const struct towc_wait_slot *slot)
{
    const struct towc_staged *what = ((struct small_download *)awaited)->what;
    towc_host_rect_scatter(&what->host, 0, slot->room, towc_host_rect_size(&what->host));
}

bool towc_stage_fetch(struct towc_link *link, const struct towc_staged *what, CUresult *ret_status)
{
    struct small_download small = {
        {.link = link, .send = send_small, .ask = ask_small, .take = take_small}, what, 0};
    bool done = towc_completion_run(&small.awaited, ret_status) == TOW_COMPLETION_DONE;
    if (done) {
        towc_stream_told(link, what->stream, small.number, small.awaited.owing);
    }
    return done || *ret_status != CUDA_SUCCESS;
}

bool towc_stage_down(struct towc_link *link, const struct towc_staged *what, CUresult *ret_status)
{
    /* What is still to come of an earlier copy into the same memory must not come behind this. */
    struct towc_stage *stage =
        towc_link_expecting(link, what->host.first, towc_host_rect_span(&what->host))
            ? NULL
            : take_slots(link);
    if (stage == NULL) {
        return false;
    }
    struct staged_copy p = staged_copy_begin(link, what);
    CUresult status = CUDA_SUCCESS;
    bool refused = false;
    size_t asked = 0;
    for (size_t done = 0; status == CUDA_SUCCESS && !refused && done < p.cut.count; done++) {
        while (status == CUDA_SUCCESS && asked < p.cut.count && asked - done < SLOTS) {
            status = await_slot(link, slot_of(&p, asked));
            if (status == CUDA_SUCCESS) {
                status = (CUresult)send_chunk(&p, asked);
            }
            asked++;
        }
        if (status == CUDA_SUCCESS) {
            status = await_full(link, slot_of(&p, done), what->stream, &refused);
        }
        if (status == CUDA_SUCCESS && !refused) {
            struct emptying empty = {.staged_copy = &p, .chunk = done};
            towc_copy_pool_run(p.stripes, empty_stripe, &empty);
        }
    }
    stage->next_slot = slot_of(&p, asked);
    unsigned last = slot_of(&p, p.cut.count - 1);
    bool owing = towc_fence_word_owes(slot_word(stage, last), stage->slots[last].value);
    tow_mutex_unlock(&stage->lock);
    if (refused) {
        return false;
    }
    if (status == CUDA_SUCCESS) {
        towc_stream_told(link, what->stream, p.number, owing);
    }
    /* Whoever waits for a download has waited for what is before it in the stream. */
    bool asks = status == CUDA_SUCCESS && towc_completion_brings_more(link) &&
                atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0;
    *ret_status = asks ? towc_stream_ask(link, what->stream) : status;
    return true;
}
