/* SPDX-License-Identifier: Apache-2.0 */
/* The list of page-locked buffers, kept by size and used again. */
#include "server/copy/pinned.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "server/session/session.h"
#include "gen/context.h"
#include "gen/event.h"
#include "gen/memory.h"
#include "gen/stream.h"
#include "wire/id.h"

enum {
    SLAB = 64 << 10, /* small buffers are made many at a time: asking the driver takes long */
    WORD = 64,       /* of each buffer, behind all of them: a line of the cache */
};

/* What one context has, from its first buffer to its end. */
struct tows_out {
    uint32_t context;
    unsigned count; /* buffers that were taken and not given back */
    size_t bytes;   /* of the driver's memory, whatever became of it */
    struct tows_out *next;
};

void tows_pinned_init(struct tows_pinned *pinned, struct tows_session *session)
{
    *pinned = (struct tows_pinned){.session = session, .lock = TOW_MUTEX(SERVER_PINNED)};
}

void tows_pinned_fini(struct tows_pinned *pinned)
{
    for (unsigned i = 0; i < TOW_PINNED_ORDERS; i++) {
        while (pinned->idle[i] != NULL) {
            struct tows_pinned_buffer *next = pinned->idle[i]->next;
            free(pinned->idle[i]);
            pinned->idle[i] = next;
        }
    }
    while (pinned->outs != NULL) {
        struct tows_out *next = pinned->outs->next;
        free(pinned->outs);
        pinned->outs = next;
    }
    tow_mutex_fini(&pinned->lock);
}

/* With the lock held: where the context's is, or would be. */
static struct tows_out **out_of(struct tows_pinned *pinned, uint32_t context)
{
    struct tows_out **at = &pinned->outs;
    while (*at != NULL && (*at)->context != context) {
        at = &(*at)->next;
    }
    return at;
}

/* With the lock held: somebody is about to have a buffer. Whoever ends a context takes its number
 * first, and then waits for those that are counted here. */
static CUresult count_out(struct tows_pinned *pinned, struct tows_session *session,
                          uint32_t context)
{
    struct tows_out **at = out_of(pinned, context);
    if (tows_handles_at(&session->handles, TOW_H_CONTEXT, context) == NULL) {
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
static void count_back(struct tows_pinned *pinned, uint32_t context)
{
    (*out_of(pinned, context))->count--;
}

/* With the lock held. */
static void pinned_keep(struct tows_pinned *pinned, struct tows_pinned_buffer *buffer)
{
    buffer->next = pinned->idle[buffer->order];
    pinned->idle[buffer->order] = buffer;
}

/* With the lock held: one of the context's; NULL: none is kept. */
static struct tows_pinned_buffer *take_kept(struct tows_pinned *pinned, uint32_t context,
                                            unsigned order)
{
    struct tows_pinned_buffer **at = &pinned->idle[order];
    while (*at != NULL && (*at)->context != context) {
        at = &(*at)->next;
    }
    struct tows_pinned_buffer *buffer = *at;
    if (buffer != NULL) {
        *at = buffer->next;
        buffer->next = NULL;
    }
    return buffer;
}

static struct tows_pinned_buffer *make_buffer(uint32_t context, unsigned order, uint8_t *bytes,
                                              void *word)
{
    struct tows_pinned_buffer *buffer = malloc(sizeof *buffer);
    if (buffer != NULL) {
        *buffer = (struct tows_pinned_buffer){
            .bytes = bytes, .word = word, .context = context, .order = order};
        atomic_store(buffer->word, 0);
    }
    return buffer;
}

/* The primary context whose memory a green one uses: the driver's handle, and its number. NULL: the
 * context has its own. */
static CUcontext lender_of(struct tows_session *session, uint32_t context, uint32_t *ret_number)
{
    const struct tows_handle_entry *entry =
        tows_handles_at(&session->handles, TOW_H_CONTEXT, context);
    uint32_t owner = entry != NULL ? entry->context : 0;
    uint64_t id = owner != 0 ? atomic_load(&session->primaries[owner - 1]) : 0;
    const struct tows_handle_entry *lender =
        id != 0 ? tows_handles_find(&session->handles, id) : NULL;
    *ret_number = TOW_ID_INDEX(id);
    return lender != NULL && lender != entry ? lender->handle : NULL;
}

static CUresult pinned_allocate(struct tows_session *session, uint32_t context, size_t size,
                                void **ret_memory)
{
    const struct tow_driver *driver = session->driver;
    uint32_t number = 0;
    CUcontext lender = lender_of(session, context, &number), popped = NULL;
    CUresult status =
        lender != NULL ? tow_drive(driver, cuCtxPushCurrent_v2)(lender) : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = tow_drive(driver, cuMemHostAlloc)(
        ret_memory, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (lender != NULL) {
        tow_drive(driver, cuCtxPopCurrent_v2)(&popped);
    }
    return status;
}

/* With the lock held: one of the primary context's that it does not use, for a green one. Its bytes
 * stay counted there, as its memory does. */
static struct tows_pinned_buffer *pinned_borrow(struct tows_pinned *pinned,
                                                struct tows_session *session, uint32_t context,
                                                unsigned order)
{
    uint32_t lender = 0;
    if (lender_of(session, context, &lender) == NULL) {
        return NULL;
    }
    struct tows_pinned_buffer *buffer = take_kept(pinned, lender, order);
    if (buffer != NULL) {
        buffer->context = context;
    }
    return buffer;
}

/* Asks the driver for a new buffer, which somebody is counted to have; what else came with it is
 * kept. */
static CUresult pinned_make(struct tows_pinned *pinned, struct tows_session *session,
                            uint32_t context, unsigned order,
                            struct tows_pinned_buffer **ret_buffer)
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
    CUresult status = pinned_allocate(session, context, slab + slab / size * WORD, &memory);
    tow_mutex_lock(&pinned->lock);
    if (status == CUDA_SUCCESS) {
        (*out_of(pinned, context))->bytes += slab;
    } else {
        pinned->total -= slab;
    }
    for (size_t at = 0; status == CUDA_SUCCESS && at < slab; at += size) {
        uint8_t *bytes = memory, *word = bytes + slab + at / size * WORD;
        struct tows_pinned_buffer *buffer = make_buffer(context, order, bytes + at, word);
        if (buffer != NULL) {
            pinned_keep(pinned, buffer); /* without, its bytes stay unused */
        }
    }
    *ret_buffer = status == CUDA_SUCCESS ? take_kept(pinned, context, order) : NULL;
    tow_mutex_unlock(&pinned->lock);
    return status != CUDA_SUCCESS || *ret_buffer != NULL ? status : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult tows_pinned_take(struct tows_pinned *pinned, struct tows_session *session,
                          uint32_t context, size_t size, struct tows_pinned_buffer **ret_buffer)
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
    struct tows_pinned_buffer *buffer =
        status == CUDA_SUCCESS ? take_kept(pinned, context, order) : NULL;
    struct tows_pinned_buffer *borrowed = status == CUDA_SUCCESS && buffer == NULL
                                              ? pinned_borrow(pinned, session, context, order)
                                              : NULL;
    tow_mutex_unlock(&pinned->lock);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (borrowed != NULL) {
        buffer = borrowed;
        if (buffer->filled != NULL) { /* of the other context */
            tow_drive(session->driver, cuEventDestroy_v2)(buffer->filled);
            buffer->filled = NULL;
        }
    }
    if (buffer == NULL) {
        status = pinned_make(pinned, session, context, order, &buffer);
    }
    if (buffer != NULL && buffer->filled == NULL) {
        status =
            tow_drive(session->driver, cuEventCreate)(&buffer->filled, CU_EVENT_DISABLE_TIMING);
    }
    if (status == CUDA_SUCCESS) {
        *ret_buffer = buffer;
        return CUDA_SUCCESS;
    }
    tow_mutex_lock(&pinned->lock);
    count_back(pinned, context);
    if (buffer != NULL) {
        pinned_keep(pinned, buffer);
    }
    tow_mutex_unlock(&pinned->lock);
    tows_ending_tell(session);
    return status;
}

CUresult tows_pinned_mark(struct tows_pinned_buffer *buffer, const struct tow_driver *driver,
                          CUstream stream)
{
    CUresult status = tow_drive(driver, cuEventRecord)(buffer->filled, stream);
    buffer->value++;
    buffer->marked =
        status == CUDA_SUCCESS && tow_drive(driver, cuStreamWriteValue32_v2)(
                                      stream, (CUdeviceptr)(uintptr_t)buffer->word, buffer->value,
                                      CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
    return status;
}

bool tows_pinned_is_marked(const struct tows_pinned_buffer *buffer, const struct tow_driver *driver)
{
    return buffer->marked
               ? atomic_load_explicit(buffer->word, memory_order_acquire) == buffer->value
               : tow_drive(driver, cuEventQuery)(buffer->filled) != CUDA_ERROR_NOT_READY;
}

void tows_pinned_give(struct tows_pinned *pinned, struct tows_pinned_buffer *buffer)
{
    tow_mutex_lock(&pinned->lock);
    count_back(pinned, buffer->context);
    pinned_keep(pinned, buffer);
    tow_mutex_unlock(&pinned->lock);
    tows_ending_tell(pinned->session);
}

void tows_pinned_lose(struct tows_pinned *pinned, struct tows_pinned_buffer *buffer)
{
    tow_mutex_lock(&pinned->lock);
    count_back(pinned, buffer->context);
    tow_mutex_unlock(&pinned->lock);
    tows_ending_tell(pinned->session);
    free(buffer);
}

/* With the lock held: takes all out that are kept of a context. */
static struct tows_pinned_buffer *take_all(struct tows_pinned *pinned, uint32_t context)
{
    struct tows_pinned_buffer *all = NULL;
    for (unsigned i = 0; i < TOW_PINNED_ORDERS; i++) {
        for (struct tows_pinned_buffer *buffer; (buffer = take_kept(pinned, context, i)) != NULL;) {
            buffer->next = all;
            all = buffer;
        }
    }
    return all;
}

/* With the lock held: the bytes of a context that ends are its heir's; false if that ends, too. */
static bool pinned_inherit(struct tows_pinned *pinned, struct tows_session *session, uint32_t heir,
                           size_t bytes)
{
    if (heir == 0 || count_out(pinned, session, heir) != CUDA_SUCCESS) {
        return false;
    }
    count_back(pinned, heir);
    (*out_of(pinned, heir))->bytes += bytes;
    return true;
}

bool tows_pinned_drop_context(struct tows_pinned *pinned, struct tows_session *session,
                              uint32_t context, uint32_t heir)
{
    tow_mutex_lock(&pinned->lock);
    struct tows_out **at = out_of(pinned, context), *out = *at;
    bool all = out == NULL || out->count == 0;
    struct tows_pinned_buffer *buffers = all ? take_all(pinned, context) : NULL;
    tow_mutex_unlock(&pinned->lock);
    for (struct tows_pinned_buffer *buffer = buffers; heir != 0 && buffer != NULL;
         buffer = buffer->next) {
        if (buffer->filled != NULL) {
            tow_drive(session->driver, cuEventDestroy_v2)(buffer->filled);
            buffer->filled = NULL;
        }
        buffer->context = heir;
    }
    if (!all || out == NULL) {
        return all;
    }
    /* Nobody takes one any more: it is the same as before. */
    tow_mutex_lock(&pinned->lock);
    bool inherited = pinned_inherit(pinned, session, heir, out->bytes);
    pinned->total -= inherited ? 0 : out->bytes;
    at = out_of(pinned, context);
    *at = out->next;
    free(out);
    while (buffers != NULL) {
        struct tows_pinned_buffer *buffer = buffers;
        buffers = buffer->next;
        if (inherited) {
            pinned_keep(pinned, buffer);
        } else {
            free(buffer);
        }
    }
    tow_mutex_unlock(&pinned->lock);
    return true;
}
