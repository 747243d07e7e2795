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
#include "client/copy/gang.h"
#include "client/copy/part.h"
#include "client/copy/shared.h"
#include "client/completion/completion.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/stream.h"

enum {
    BAYS = TOW_FLOW_BAYS, /* some are filled while others are emptied */
    BAY_SIZE = 2 << 20,   /* one transfer of the device's copy engine */
    SLOTS = 8, /* bays for small uploads, which nobody waits for: their stream may stand */
    SLOT_SIZE = TOW_COPY_INLINE_MAX,
    PIECE = 128 << 10,   /* what one thread copies at a time; */
    PIECE_UP = 32 << 10, /* of uploads that are over soon, so that no thread is left without */
    SOON = 16 << 20,     /* such an upload, at most */
    LOT = 128 << 10,     /* the least that goes through one bay of several, */
    LOT_DOWN = 64 << 10, /* but small downloads, which one thread empties as they come */
};

/* A full staging is looked at this often, and this often the server is asked whether the stream
 * still lives. */
#define NAP_NS (50 * TOW_TIME_US)
#define NAPS_PER_QUESTION 200

struct bay {
    uint32_t value;   /* of its newest note; none comes twice, so it never begins anew */
    uint32_t context; /* where it was used last, and by which stream */
    CUstream stream;
};

struct towc_stage {
    struct towc_share_piece piece; /* notes, one for each bay; then the bays */
    struct tow_mutex lock;         /* held by the thread that copies: the staging is its own */
    struct bay bays[BAYS + SLOTS];
    unsigned next_bay, next_slot;
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
        towc_share_piece_fini(&stage->piece);
        tow_mutex_fini(&stage->lock);
        free(stage);
    }
}

/* ---- bays ---- */

static struct tow_share_note *bay_note(const struct towc_stage *stage, unsigned bay)
{
    return (struct tow_share_note *)(stage->piece.base +
                                     (size_t)bay * sizeof(struct tow_share_note));
}

static uint8_t *bay_at(const struct towc_stage *stage, unsigned bay)
{
    return stage->piece.base +
           (bay < BAYS ? (size_t)(bay + 1) * BAY_SIZE
                       : (size_t)(BAYS + 1) * BAY_SIZE + (size_t)(bay - BAYS) * SLOT_SIZE);
}

static bool is_free(const struct towc_stage *stage, unsigned bay)
{
    uint32_t value = stage->bays[bay].value;
    return value == 0 ||
           towc_fence_word_query(bay_note(stage, bay), value) != TOW_COMPLETION_PENDING;
}

/* Asks in the context in which a bay was used: whether its stream has work, or waits for all. In
 * one that has ended nobody has. */
static CUresult ask_for_bay(struct towc_link *link, const struct bay *bay, unsigned fn)
{
    struct towc_call call;
    CUresult status = towc_call_begin_on(&call, link, bay->context, fn, 8, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)bay->stream);
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    return status == CUDA_ERROR_CONTEXT_IS_DESTROYED || status == CUDA_ERROR_INVALID_CONTEXT
               ? CUDA_SUCCESS
               : status;
}

/* Until the device is through with a bay. Work that will never be done, because its context has
 * ended or failed, leaves it free as well; whoever goes on is told by what is asked next. An
 * error of an earlier call, which the question brought, is the caller's. */
static CUresult await_bay(struct towc_link *link, unsigned index)
{
    struct bay *bay = &link->stage->bays[index];
    const struct tow_share_note *note = bay_note(link->stage, index);
    if (bay->value == 0 || towc_fence_word_wait(note, bay->value) != TOW_COMPLETION_PENDING) {
        return CUDA_SUCCESS;
    }
    unsigned naps = 0;
    while (towc_fence_word_query(note, bay->value) == TOW_COMPLETION_PENDING) {
        CUresult status = naps++ % NAPS_PER_QUESTION == 0
                              ? ask_for_bay(link, bay, TOW_FN_cuStreamQuery)
                              : CUDA_ERROR_NOT_READY;
        if (status == CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
        if (status != CUDA_ERROR_NOT_READY &&
            towc_fence_word_query(note, bay->value) != TOW_COMPLETION_PENDING) {
            return status;
        }
        if (status != CUDA_ERROR_NOT_READY) {
            /* The stream was destroyed: what it had to do is still done. */
            status = ask_for_bay(link, bay, TOW_FN_cuCtxSynchronize);
            return towc_fence_word_query(note, bay->value) != TOW_COMPLETION_PENDING ? status
                                                                                     : CUDA_SUCCESS;
        }
        tow_time_sleep(NAP_NS);
    }
    return CUDA_SUCCESS;
}

/* The staging, if it is there and nobody uses it. */
static struct towc_stage *take_bays(struct towc_link *link)
{
    struct towc_stage *stage = link->stage;
    if (stage == NULL ||
        !towc_share_piece_ready(link, &stage->piece,
                                (size_t)(BAYS + 1) * BAY_SIZE + (size_t)SLOTS * SLOT_SIZE) ||
        atomic_load_explicit(&towc_wait_always, memory_order_relaxed) != 0 ||
        !tow_mutex_try(&stage->lock)) {
        return NULL;
    }
    return stage;
}

/* How much goes through one bay: small copies are cut too, so that copying and transfer overlap. */
static size_t bay_share(size_t size, bool up)
{
    if (!up && size <= (size_t)BAYS * LOT_DOWN) {
        return LOT_DOWN;
    }
    size_t half = (size / 2 + LOT - 1) / LOT * LOT;
    return half < LOT ? LOT : half > BAY_SIZE ? BAY_SIZE : half;
}

/* ---- parts ---- */

static CUresult send_shape(const struct tow_copy_shape *shape, const struct tow_share_note *note,
                           uint32_t value, uint64_t *ret_number)
{
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof *shape + 16, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_number = towc_link_next(call.link);
    tow_enc_bytes(&call.enc, shape, sizeof *shape);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)note);
    tow_enc_u32(&call.enc, value);
    tow_enc_u32(&call.enc, 0);
    return towc_call_send(&call);
}

CUresult towc_staged_send(const struct towc_staged *what, const struct towc_part *part,
                          uint8_t *packed, const struct tow_share_note *note, uint32_t value,
                          uint64_t *ret_number)
{
    if (what->shape == NULL) {
        unsigned fn = what->up ? TOW_FN_cuMemcpyHtoDAsync_v2 : TOW_FN_cuMemcpyDtoHAsync_v2;
        return towc_shared_send(fn, what->device + part->x, packed, part->width, what->stream, note,
                                value, ret_number);
    }
    struct tow_copy_shape shape = towc_shape_part(what->shape, part);
    struct tow_copy_side *host = what->up ? &shape.from : &shape.to;
    host->kind = TOW_AT_ADDRESS;
    host->address = (uint64_t)(uintptr_t)packed;
    shape.bytes = 0; /* that travel */
    shape.flags |= TOW_SHAPE_NOTED;
    return send_shape(&shape, note, value, ret_number);
}

/* A copy on its way through the bays, a part of it in each. */
struct passage {
    struct towc_link *link;
    const struct towc_staged *what;
    struct towc_cut cut;
    bool flat;     /* the program's bytes lie side by side */
    size_t piece;  /* its size */
    size_t pieces; /* of a part, at most */
    unsigned first_bay;
    uint64_t number; /* of the last command */
};

static struct passage passage_begin(struct towc_link *link, const struct towc_staged *what)
{
    size_t size = towc_box_size(&what->host);
    struct passage p = {.link = link,
                        .what = what,
                        .flat = what->host.rows == 1 && what->host.planes == 1,
                        .piece = what->up && size <= SOON ? PIECE_UP : PIECE,
                        .first_bay = link->stage->next_bay};
    p.cut = towc_cut_make(&what->host, bay_share(size, what->up));
    p.pieces = (towc_part_size(&p.cut.each) + p.piece - 1) / p.piece;
    return p;
}

static unsigned bay_of(const struct passage *p, size_t lot)
{
    return p->first_bay < BAYS ? (p->first_bay + (unsigned)(lot % BAYS)) % BAYS : p->first_bay;
}

/* How many of `size` bytes a piece has from `offset` on, perhaps none. */
static size_t piece_size(const struct passage *p, size_t size, size_t offset)
{
    return offset >= size ? 0 : size - offset < p->piece ? size - offset : p->piece;
}

static void move_flat_piece(const struct passage *p, size_t lot, size_t offset, uint8_t *bay)
{
    size_t first = lot * p->cut.each.width, left = p->what->host.width - first;
    size_t size = piece_size(p, left < p->cut.each.width ? left : p->cut.each.width, offset);
    uint8_t *host = p->what->host.first + first + offset;
    if (size > 0) {
        memcpy(p->what->up ? bay : host, p->what->up ? host : bay, size);
    }
}

static void move_rows_piece(const struct passage *p, size_t lot, size_t offset, uint8_t *bay)
{
    struct towc_part part = towc_cut_part(&p->cut, lot);
    struct towc_box box = towc_box_part(&p->what->host, &part);
    size_t size = piece_size(p, towc_box_size(&box), offset);
    if (size > 0 && p->what->up) {
        towc_box_gather(&box, offset, bay, size);
    } else if (size > 0) {
        towc_box_scatter(&box, offset, bay, size);
    }
}

/* One piece of a lot, between the program's memory and the lot's bay. */
static void move_piece(const struct passage *p, size_t lot, size_t piece)
{
    size_t offset = piece * p->piece;
    uint8_t *bay = bay_at(p->link->stage, bay_of(p, lot)) + offset;
    if (p->flat) {
        move_flat_piece(p, lot, offset, bay);
    } else {
        move_rows_piece(p, lot, offset, bay);
    }
}

static int send_lot(void *user, size_t lot)
{
    struct passage *p = user;
    struct towc_stage *stage = p->link->stage;
    unsigned index = bay_of(p, lot);
    struct bay *bay = &stage->bays[index];
    struct towc_part part = towc_cut_part(&p->cut, lot);
    struct bay before = *bay;
    bay->value = bay->value == UINT32_MAX ? 1 : bay->value + 1;
    bay->stream = p->what->stream;
    bay->context = towc_context_number();
    CUresult status = towc_staged_send(p->what, &part, bay_at(stage, index), bay_note(stage, index),
                                       bay->value, &p->number);
    if (status != CUDA_SUCCESS) {
        *bay = before; /* no note comes */
    }
    return (int)status;
}

/* ---- uploads ---- */

static void fill_piece(void *user, size_t index)
{
    const struct passage *p = user;
    move_piece(p, index / p->pieces, index % p->pieces);
}

static int open_lot(void *user, size_t lot, bool wait)
{
    const struct passage *p = user;
    unsigned bay = bay_of(p, lot);
    return wait || is_free(p->link->stage, bay) ? (int)await_bay(p->link, bay) : -EAGAIN;
}

bool towc_stage_up(struct towc_link *link, const struct towc_staged *what, bool settle,
                   CUresult *ret_status)
{
    struct towc_stage *stage = take_bays(link);
    if (stage == NULL) {
        return false;
    }
    struct passage p = passage_begin(link, what);
    bool small = towc_box_size(&what->host) <= SLOT_SIZE && p.cut.count == 1;
    if (small && !is_free(stage, BAYS + stage->next_slot)) {
        /* It can go in its command, and need not wait for what is before it. */
        stage->next_slot = (stage->next_slot + 1) % SLOTS;
        tow_mutex_unlock(&stage->lock);
        return false;
    }
    if (small) {
        p.first_bay = BAYS + stage->next_slot;
        stage->next_slot = (stage->next_slot + 1) % SLOTS;
    }
    struct towc_flow flow = {.pieces = p.cut.count * p.pieces,
                             .each = p.pieces,
                             .piece = fill_piece,
                             .open = open_lot,
                             .send = send_lot,
                             .user = &p};
    CUresult status = (CUresult)towc_gang_flow(&flow);
    unsigned last = bay_of(&p, p.cut.count - 1);
    if (!small) {
        stage->next_bay = (last + 1) % BAYS;
    }
    enum towc_completion_outcome outcome =
        status == CUDA_SUCCESS && settle
            ? towc_fence_word_wait(bay_note(stage, last), stage->bays[last].value)
            : TOW_COMPLETION_DONE;
    tow_mutex_unlock(&stage->lock);
    if (settle && outcome == TOW_COMPLETION_DONE && status == CUDA_SUCCESS) {
        towc_completion_set_quiet(link, what->stream, p.number);
    }
    /* What is before it in the stream takes long, and natively that is waited for, too; or it was
     * refused, and this tells why; or it is over, and the reply brings what kernels wrote before
     * it. A capture would not outlive the question. */
    bool asks = outcome != TOW_COMPLETION_DONE ||
                (status == CUDA_SUCCESS && settle && towc_completion_brings_more(link));
    *ret_status = asks && atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0
                      ? towc_completion_ask_stream(link, what->stream)
                      : status;
    return true;
}

/* ---- downloads ---- */

/* Until a bay is full, or the copy was refused. */
static CUresult await_full(struct towc_link *link, unsigned index, CUstream stream,
                           bool *ret_refused)
{
    struct towc_stage *stage = link->stage;
    const struct bay *bay = &stage->bays[index];
    const struct tow_share_note *note = bay_note(stage, index);
    enum towc_completion_outcome outcome = towc_fence_word_wait(note, bay->value);
    if (outcome == TOW_COMPLETION_PENDING) {
        /* If that fails the device may still fill the bay: who uses it next asks for that. */
        CUresult status = towc_completion_ask_stream(link, stream);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        outcome = towc_fence_word_query(note, bay->value);
    }
    towc_completion_hear(link);
    *ret_refused = outcome != TOW_COMPLETION_DONE;
    return CUDA_SUCCESS;
}

/* A full bay that several threads empty. */
struct emptying {
    const struct passage *passage;
    size_t lot;
};

static void empty_piece(void *user, size_t piece)
{
    const struct emptying *e = user;
    move_piece(e->passage, e->lot, piece);
}

bool towc_stage_fetch(struct towc_link *link, const struct towc_staged *what, CUresult *ret_status)
{
    uint64_t number = 0;
    size_t size = towc_box_size(&what->host);
    struct towc_wait_slot *slot =
        towc_completion_brings_more(link) ? NULL : towc_wait_slot_take(link);
    if (slot == NULL) {
        return false;
    }
    struct towc_part all = towc_part_all(&what->host);
    CUresult status = towc_staged_send(what, &all, slot->room, slot->note, slot->value, &number);
    enum towc_completion_outcome outcome = status == CUDA_SUCCESS
                                               ? towc_fence_word_wait(slot->note, slot->value)
                                               : TOW_COMPLETION_REFUSED;
    if (outcome == TOW_COMPLETION_PENDING) {
        status = towc_completion_ask_stream(link, what->stream);
        outcome = status == CUDA_SUCCESS ? towc_fence_word_query(slot->note, slot->value)
                                         : TOW_COMPLETION_REFUSED;
    } else if (outcome == TOW_COMPLETION_DONE) {
        towc_completion_set_quiet(link, what->stream, number);
    }
    if (outcome == TOW_COMPLETION_DONE) {
        towc_box_scatter(&what->host, 0, slot->room, size);
    }
    towc_wait_slot_leave(slot);
    *ret_status = status;
    return outcome == TOW_COMPLETION_DONE || status != CUDA_SUCCESS;
}

bool towc_stage_down(struct towc_link *link, const struct towc_staged *what, CUresult *ret_status)
{
    /* What is still to come of an earlier copy into the same memory must not come behind this. */
    struct towc_stage *stage =
        towc_link_expecting(link, what->host.first, towc_box_span(&what->host)) ? NULL
                                                                                : take_bays(link);
    if (stage == NULL) {
        return false;
    }
    struct passage p = passage_begin(link, what);
    CUresult status = CUDA_SUCCESS;
    bool refused = false;
    size_t asked = 0;
    for (size_t done = 0; status == CUDA_SUCCESS && !refused && done < p.cut.count; done++) {
        while (status == CUDA_SUCCESS && asked < p.cut.count && asked - done < BAYS) {
            status = await_bay(link, bay_of(&p, asked));
            if (status == CUDA_SUCCESS) {
                status = (CUresult)send_lot(&p, asked);
            }
            asked++;
        }
        if (status == CUDA_SUCCESS) {
            status = await_full(link, bay_of(&p, done), what->stream, &refused);
        }
        if (status == CUDA_SUCCESS && !refused) {
            struct emptying empty = {.passage = &p, .lot = done};
            towc_gang_run(p.pieces, empty_piece, &empty);
        }
    }
    stage->next_bay = bay_of(&p, asked);
    tow_mutex_unlock(&stage->lock);
    if (refused) {
        return false;
    }
    if (status == CUDA_SUCCESS) {
        towc_completion_set_quiet(link, what->stream, p.number);
    }
    /* Whoever waits for a download has waited for what is before it in the stream. */
    bool asks = status == CUDA_SUCCESS && towc_completion_brings_more(link) &&
                atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0;
    *ret_status = asks ? towc_completion_ask_stream(link, what->stream) : status;
    return true;
}
