/* SPDX-License-Identifier: Apache-2.0 */
/* Page-locked memory of the worker, for bytes on their way between the device and the client.
 *
 * Giving such memory back to the driver waits until the GPU has nothing to do. A stream may be
 * waiting for a host function of the client just then, and the client for the bytes: so nothing is
 * given back while the context lives. Buffers are kept and used again; their number is the most
 * that were on their way at once. Those of a green context are memory of its device's primary
 * context, which has them when the green one has ended, and lends those that it does not use to the
 * next.
 */
#ifndef TOW_SERVER_PINNED_H
#define TOW_SERVER_PINNED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/mutex.h"

struct tows_session;

enum {
    TOW_PINNED_ORDERS = 11,                /* powers of two: the orders */
    TOW_PINNED_MIN = 4 << 10,              /* bytes of the smallest */
    TOW_PINNED_MAX = TOW_PINNED_MIN << 10, /* of the largest */
    TOW_PINNED_TOTAL = 1 << 30 /* bytes of one pool: a client that wants more is told so */
};

struct tows_pinned_buffer {
    uint8_t *bytes; /* the driver's */
    CUevent filled; /* the driver's, for the user's purposes; of the buffer's context. NULL while
                       nobody has used it there */
    _Atomic uint32_t *word; /* the driver's, page-locked: the device writes `value` to it */
    uint32_t value;         /* of the newest mark */
    bool marked;            /* the newest mark was taken; else only the event tells */
    uint32_t context;
    unsigned order;
    struct tows_pinned_buffer *next; /* in the list of whoever holds it */
};

struct tows_pinned {
    struct tows_session *session; /* borrowed: ends after us */
    struct tow_mutex lock;        /* guards the rest */
    struct tows_pinned_buffer *idle[TOW_PINNED_ORDERS];
    size_t total;          /* bytes of all buffers */
    struct tows_out *outs; /* owned: what each context has */
};

void tows_pinned_init(struct tows_pinned *pinned, struct tows_session *session);
/* Frees the records; the memory goes with its context. */
void tows_pinned_fini(struct tows_pinned *pinned);

/* A buffer of at least `size` bytes (at most TOW_PINNED_MAX) of the context `context`, which is
 * current: CUDA_ERROR_CONTEXT_IS_DESTROYED if its number is not in use any more. Never waits for
 * the GPU. CUDA_ERROR_OUT_OF_MEMORY beyond TOW_PINNED_TOTAL. */
CUresult tows_pinned_take(struct tows_pinned *pinned, struct tows_session *session,
                          uint32_t context, size_t size, struct tows_pinned_buffer **ret_buffer);
/* Has the stream mark the buffer when it gets there: by the event, and by the word, which tells it
 * without a call of the driver's. */
CUresult tows_pinned_mark(struct tows_pinned_buffer *buffer, const struct tow_driver *driver,
                          CUstream stream);
/* Whether it has been, or never will be. Calls the driver only if it did not take words; the
 * buffer's context is current then. */
bool tows_pinned_is_marked(const struct tows_pinned_buffer *buffer,
                           const struct tow_driver *driver);

/* The device no longer writes to the buffer. */
void tows_pinned_give(struct tows_pinned *pinned, struct tows_pinned_buffer *buffer);
/* The device may still write to it, but nobody here uses it: its memory goes with the context. */
void tows_pinned_lose(struct tows_pinned *pinned, struct tows_pinned_buffer *buffer);
/* A context ends, whose number is not in use any more, and is current: forgets its buffers, or
 * gives them to the heir, if there is one that lives on. False if somebody has one: its memory must
 * not go before. */
bool tows_pinned_drop_context(struct tows_pinned *pinned, struct tows_session *session,
                              uint32_t context, uint32_t heir);

#endif
