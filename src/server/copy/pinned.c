/* SPDX-License-Identifier: Apache-2.0 */
/* The list of page-locked pieces, kept by size and used again. */
#include "server/copy/pinned.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "server/session/session.h"
#include "gen/event.h"
#include "gen/memory.h"
#include "gen/stream.h"

enum {
    SLAB = 64 << 10, /* small pieces are made many at a time: asking the driver takes long */
    WORD = 64,       /* of each piece, behind all of them: a line of the cache */
};

/* Pieces of one context that were taken and not given back. */
struct tow_out {
    uint32_t context;
    unsigned count; /* never 0 */
    struct tow_out *next;
};

void tow_pinned_init(struct tow_pinned *pinned)
{
    *pinned = (struct tow_pinned){.lock = TOW_MUTEX(SERVER_PINNED)};
}

void tow_pinned_fini(struct tow_pinned *pinned)
{
    for (unsigned i = 0; i < TOW_PINNED_ORDERS; i++) {
        while (pinned->kept[i] != NULL) {
            struct tow_piece *next = pinned->kept[i]->next;
            free(pinned->kept[i]);
            pinned->kept[i] = next;
        }
    }
    while (pinned->outs != NULL) {
        struct tow_out *next = pinned->outs->next;
        free(pinned->outs);
        pinned->outs = next;
    }
    tow_mutex_fini(&pinned->lock);
}

/* With the lock held: where the context's is, or would be. */
static struct tow_out **out_of(struct tow_pinned *pinned, uint32_t context)
{
    struct tow_out **at = &pinned->outs;
    while (*at != NULL && (*at)->context != context) {
        at = &(*at)->next;
    }
    return at;
}

/* With the lock held: somebody is about to have a piece. Whoever ends a context takes its number
 * first, and then waits for those that are counted here. */
static CUresult count_out(struct tow_pinned *pinned, struct tow_session *session, uint32_t context)
{
    struct tow_out **at = out_of(pinned, context);
    if (tow_handles_at(&session->handles, TOW_H_CONTEXT, context) == NULL) {
        return context == 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (*at == NULL) {
        *at = calloc(1, sizeof **at);
        if (*at == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        (*at)->context = context;
    }
    (*at)->count++;
    return CUDA_SUCCESS;
}

/* With the lock held. */
static void count_back(struct tow_pinned *pinned, uint32_t context)
{
    struct tow_out **at = out_of(pinned, context), *out = *at;
    if (--out->count == 0) {
        *at = out->next;
        free(out);
    }
}

/* With the lock held. */
static void keep(struct tow_pinned *pinned, struct tow_piece *piece)
{
    piece->next = pinned->kept[piece->order];
    pinned->kept[piece->order] = piece;
}

static CUresult make_piece(const struct tow_driver *driver, uint32_t context, unsigned order,
                           uint8_t *bytes, void *word, struct tow_piece **ret_piece)
{
    struct tow_piece *piece = malloc(sizeof *piece);
    if (piece == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *piece = (struct tow_piece){.bytes = bytes, .word = word, .context = context, .order = order};
    atomic_store(piece->word, 0);
    CUresult status = tow_drive(driver, cuEventCreate)(&piece->filled, CU_EVENT_DISABLE_TIMING);
    if (status != CUDA_SUCCESS) {
        free(piece);
        return status;
    }
    *ret_piece = piece;
    return CUDA_SUCCESS;
}

static void uncount(struct tow_pinned *pinned, size_t bytes)
{
    tow_mutex_lock(&pinned->lock);
    pinned->total -= bytes;
    tow_mutex_unlock(&pinned->lock);
}

/* Asks the driver for a new piece; what else came with it is kept. */
static CUresult make(struct tow_pinned *pinned, const struct tow_driver *driver, uint32_t context,
                     unsigned order, struct tow_piece **ret_piece)
{
    size_t size = (size_t)TOW_PINNED_MIN << order, slab = size < SLAB ? SLAB : size;
    void *memory = NULL;
    tow_mutex_lock(&pinned->lock);
    bool room = slab <= TOW_PINNED_TOTAL - pinned->total;
    pinned->total += room ? slab : 0;
    tow_mutex_unlock(&pinned->lock);
    if (!room) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = tow_drive(driver, cuMemHostAlloc)(
        &memory, slab + slab / size * WORD, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (status != CUDA_SUCCESS) {
        uncount(pinned, slab);
        return status;
    }
    uint8_t *bytes = memory, *word = bytes + slab;
    status = make_piece(driver, context, order, bytes, word, ret_piece);
    if (status != CUDA_SUCCESS) {
        tow_drive(driver, cuMemFreeHost)(memory);
        uncount(pinned, slab);
        return status;
    }
    for (size_t at = size; at < slab; at += size) {
        struct tow_piece *piece;
        word += WORD;
        if (make_piece(driver, context, order, bytes + at, word, &piece) != CUDA_SUCCESS) {
            break; /* its bytes stay unused */
        }
        tow_mutex_lock(&pinned->lock);
        keep(pinned, piece);
        tow_mutex_unlock(&pinned->lock);
    }
    return CUDA_SUCCESS;
}

CUresult tow_pinned_take(struct tow_pinned *pinned, struct tow_session *session, uint32_t context,
                         size_t size, struct tow_piece **ret_piece)
{
    unsigned order = 0;
    while (order < TOW_PINNED_ORDERS && (size_t)TOW_PINNED_MIN << order < size) {
        order++;
    }
    if (order == TOW_PINNED_ORDERS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_mutex_lock(&pinned->lock);
    CUresult status = count_out(pinned, session, context);
    struct tow_piece **at = &pinned->kept[order];
    while (*at != NULL && (*at)->context != context) {
        at = &(*at)->next;
    }
    struct tow_piece *piece = status == CUDA_SUCCESS ? *at : NULL;
    if (piece != NULL) {
        *at = piece->next;
    }
    tow_mutex_unlock(&pinned->lock);
    if (status == CUDA_SUCCESS && piece == NULL) {
        status = make(pinned, session->driver, context, order, &piece);
        if (status != CUDA_SUCCESS) {
            tow_mutex_lock(&pinned->lock);
            count_back(pinned, context);
            tow_mutex_unlock(&pinned->lock);
        }
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    piece->next = NULL;
    *ret_piece = piece;
    return CUDA_SUCCESS;
}

CUresult tow_pinned_mark(struct tow_piece *piece, const struct tow_driver *driver, CUstream stream)
{
    CUresult status = tow_drive(driver, cuEventRecord)(piece->filled, stream);
    piece->value++;
    piece->marked =
        status == CUDA_SUCCESS && tow_drive(driver, cuStreamWriteValue32_v2)(
                                      stream, (CUdeviceptr)(uintptr_t)piece->word, piece->value,
                                      CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
    return status;
}

bool tow_pinned_is_marked(const struct tow_piece *piece, const struct tow_driver *driver)
{
    return piece->marked ? atomic_load_explicit(piece->word, memory_order_acquire) == piece->value
                         : tow_drive(driver, cuEventQuery)(piece->filled) != CUDA_ERROR_NOT_READY;
}

void tow_pinned_give(struct tow_pinned *pinned, struct tow_piece *piece)
{
    tow_mutex_lock(&pinned->lock);
    count_back(pinned, piece->context);
    keep(pinned, piece);
    tow_mutex_unlock(&pinned->lock);
}

void tow_pinned_lose(struct tow_pinned *pinned, struct tow_piece *piece)
{
    tow_mutex_lock(&pinned->lock);
    count_back(pinned, piece->context);
    tow_mutex_unlock(&pinned->lock);
    free(piece);
}

bool tow_pinned_drop_context(struct tow_pinned *pinned, uint32_t context)
{
    tow_mutex_lock(&pinned->lock);
    for (unsigned i = 0; i < TOW_PINNED_ORDERS; i++) {
        struct tow_piece **at = &pinned->kept[i];
        while (*at != NULL) {
            struct tow_piece *piece = *at;
            if (piece->context == context) {
                *at = piece->next;
                pinned->total -= (size_t)TOW_PINNED_MIN << i;
                free(piece);
            } else {
                at = &piece->next;
            }
        }
    }
    bool all = *out_of(pinned, context) == NULL;
    tow_mutex_unlock(&pinned->lock);
    return all;
}
