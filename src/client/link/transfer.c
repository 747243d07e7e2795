/* SPDX-License-Identifier: Apache-2.0 */
/* What the server is to fill of the program's memory, and the bytes as they come. */
#include "base/mutex.h"
#include "client/link/link.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "client/session/thread.h"
#include "gen/stream.h"

/* The least that a transfer costs the worker, for towc_link_outstanding. */
enum { TRANSFER_MIN = 4096 };

/* Of a row, the bytes that are worth a call of their own to receive them. */
enum { ROW_LONG = 16 << 10 };

/* With the wait lock held. The bytes of the oldest come first. */
static struct towc_transfer *transfer_find(const struct towc_link *link, uint32_t number)
{
    struct towc_transfer *t = link->wait.oldest;
    while (t != NULL && t->number != number) {
        t = t->next;
    }
    return t;
}

/* With the wait lock held: takes it out of the list. */
static void take_out(struct towc_link *link, struct towc_transfer *t)
{
    *(t->prev != NULL ? &t->prev->next : &link->wait.oldest) = t->next;
    *(t->next != NULL ? &t->next->prev : &link->wait.newest) = t->prev;
    link->wait.outstanding -= t->size + TRANSFER_MIN;
}

int towc_link_expect(struct towc_link *link, const struct towc_host_rect *into, uint32_t context,
                     CUstream stream, enum towc_transfer_form form, uint32_t copy,
                     uint32_t *ret_number)
{
    struct towc_transfer *transfer = malloc(sizeof *transfer);
    if (transfer == NULL) {
        return -ENOMEM;
    }
    *transfer = (struct towc_transfer){.number = link->send.next_transfer++,
                                       .into = *into,
                                       .size = towc_host_rect_size(into),
                                       .context = context,
                                       .stream = stream,
                                       .form = form};
    transfer->copy = copy != 0 ? copy : transfer->number;
    *ret_number = transfer->number;
    tow_mutex_lock(&link->wait.lock);
    transfer->prev = link->wait.newest;
    *(link->wait.newest != NULL ? &link->wait.newest->next : &link->wait.oldest) = transfer;
    link->wait.newest = transfer;
    link->wait.outstanding += transfer->size + TRANSFER_MIN;
    tow_mutex_unlock(&link->wait.lock);
    return 0;
}

/* With the wait lock held, a frame of its bytes taken: whether that was the last of it. */
static bool is_over(const struct towc_transfer *t, const struct tow_data *data)
{
    switch (t->form) {
    case TOW_TRANSFER_ORDERED:
        return t->got >= t->size || (data->flags & (TOW_DATA_LAST | TOW_DATA_FAILED));
    case TOW_TRANSFER_SPREAD:
        return t->got >= t->size && t->receiving == 0;
    default:
        return false; /* see close_transfer */
    }
}

/* With the wait lock held, on the reader of the own line: what follows on that says that these
 * bytes have come. Of a failed one no more do. */
static int close_transfer(struct towc_link *link, struct towc_transfer *t, bool failed)
{
    t->closing = true; /* it stays meanwhile */
    while ((t->receiving > 0 || (t->got < t->size && !failed)) && atomic_load(&link->lost) == 0) {
        tow_mutex_wait(&link->wait.lock, &link->wait.transfer_done);
    }
    t->closing = false;
    return t->receiving > 0 || (t->got < t->size && !failed) ? -EPIPE : 0;
}

/* Receives `size` packed bytes from `offset` on. Into rows that are not long they go through the
 * line's buffer, so that not each is a system call. */
static int transfer_receive(struct tow_line *line, const struct towc_host_rect *into,
                            uint64_t offset, size_t size)
{
    int error = 0;
    while (error == 0 && size > 0) {
        size_t n = 0, held = 0;
        const uint8_t *bytes = NULL;
        uint8_t *at = towc_host_rect_at(into, offset, &n);
        if (n >= ROW_LONG || n >= size) {
            n = n < size ? n : size;
            error = tow_line_recv_into(line, at, n);
        } else {
            error = tow_line_peek(line, 1, TOW_TIME_FOREVER, &bytes, &held);
            n = error < 0 ? 0 : held < size ? held : size;
            towc_host_rect_scatter(into, offset, bytes, n);
            tow_line_consume(line, n);
        }
        offset += n;
        size -= n;
    }
    return error;
}

int towc_link_take_payload(struct towc_link *link, struct tow_line *line,
                           const struct tow_data *data, bool on_lane)
{
    tow_mutex_lock(&link->wait.lock);
    struct towc_transfer *transfer = transfer_find(link, data->transfer);
    bool fits = transfer != NULL && data->offset <= transfer->size &&
                data->size <= transfer->size - data->offset &&
                (!on_lane || transfer->form != TOW_TRANSFER_ORDERED);
    bool abandoned = fits && transfer->abandoned;
    if (fits) {
        transfer->receiving++; /* it stays until its bytes have come */
    }
    tow_mutex_unlock(&link->wait.lock);
    if (!fits) {
        return on_lane && transfer == NULL ? tow_line_discard(line, data->size) : -EPROTO;
    }
    int error = abandoned ? tow_line_discard(line, data->size)
                          : transfer_receive(line, &transfer->into, data->offset, data->size);
    if (on_lane) {
        atomic_fetch_add_explicit(&link->counters.lane_in, data->size, memory_order_relaxed);
    }
    tow_mutex_lock(&link->wait.lock);
    transfer->receiving--;
    transfer->got += error == 0 ? data->size : 0;
    bool over = error == 0 && is_over(transfer, data);
    if (error == 0 && !on_lane && transfer->form == TOW_TRANSFER_CLOSED &&
        (data->flags & (TOW_DATA_LAST | TOW_DATA_FAILED)) != 0) {
        error = close_transfer(link, transfer, (data->flags & TOW_DATA_FAILED) != 0);
        over = error == 0;
    }
    if (over) {
        take_out(link, transfer);
        free(transfer);
    }
    pthread_cond_broadcast(&link->wait.transfer_done);
    tow_mutex_unlock(&link->wait.lock);
    return error;
}

void towc_link_forget(struct towc_link *link, uint32_t number)
{
    tow_mutex_lock(&link->wait.lock);
    struct towc_transfer *found = transfer_find(link, number);
    while (found != NULL && (found->receiving > 0 || found->closing)) {
        /* A line is filling it: the memory is not the program's before that is over. */
        tow_mutex_wait(&link->wait.lock, &link->wait.transfer_done);
        found = transfer_find(link, number);
    }
    if (found != NULL) {
        take_out(link, found);
    }
    tow_mutex_unlock(&link->wait.lock);
    free(found);
}

CUresult towc_link_await(struct towc_link *link, uint32_t number)
{
    int64_t began_ns = towc_wait_begins();
    tow_mutex_lock(&link->wait.lock);
    bool there = transfer_find(link, number) != NULL;
    while (there && atomic_load(&link->lost) == 0) {
        tow_mutex_wait(&link->wait.lock, &link->wait.transfer_done);
        there = transfer_find(link, number) != NULL;
    }
    tow_mutex_unlock(&link->wait.lock);
    towc_wait_ends(began_ns);
    return there ? (CUresult)atomic_load(&link->lost) : CUDA_SUCCESS;
}

size_t towc_link_outstanding(struct towc_link *link)
{
    tow_mutex_lock(&link->wait.lock);
    size_t bytes = link->wait.outstanding;
    tow_mutex_unlock(&link->wait.lock);
    return bytes;
}

bool towc_link_expects(struct towc_link *link)
{
    tow_mutex_lock(&link->wait.lock);
    bool any = link->wait.oldest != NULL;
    tow_mutex_unlock(&link->wait.lock);
    return any;
}

static bool is_into(const struct towc_transfer *t, const void *address, size_t size)
{
    uintptr_t low = (uintptr_t)address, into = (uintptr_t)t->into.first;
    return !t->abandoned && low < into + towc_host_rect_span(&t->into) &&
           (into < low || into - low < size);
}

/* With the wait lock held: the newest transfer into some of [address, address + size). */
static struct towc_transfer *find_into(const struct towc_link *link, const void *address,
                                       size_t size)
{
    struct towc_transfer *t = link->wait.newest;
    while (t != NULL && !is_into(t, address, size)) {
        t = t->prev;
    }
    return t;
}

bool towc_link_expecting(struct towc_link *link, const void *address, size_t size)
{
    tow_mutex_lock(&link->wait.lock);
    bool found = find_into(link, address, size) != NULL;
    tow_mutex_unlock(&link->wait.lock);
    return found;
}

/* With the wait lock held: the newest transfer of a copy whose bytes are wanted. */
static struct towc_transfer *find_copy(const struct towc_link *link, uint32_t copy)
{
    struct towc_transfer *t = link->wait.newest;
    while (t != NULL && (t->copy != copy || t->abandoned)) {
        t = t->prev;
    }
    return t;
}

CUresult towc_link_check_whole(struct towc_link *link, uint32_t copy)
{
    tow_mutex_lock(&link->wait.lock);
    bool whole = find_copy(link, copy) == NULL;
    tow_mutex_unlock(&link->wait.lock);
    if (whole) {
        return CUDA_SUCCESS;
    }
    towc_link_lose(link, "it broke the protocol: it ended a copy without sending all its bytes");
    towc_link_abandon_copy(link, copy);
    return (CUresult)atomic_load(&link->lost);
}

/* With the wait lock held, which is released meanwhile: nobody fills it when this returns, and
 * nobody will. It stays listed until it is over: its bytes are no mistake of the server's. */
static void transfer_abandon(struct towc_link *link, struct towc_transfer *t)
{
    uint32_t number = t->number;
    while (t != NULL && t->receiving > 0) {
        tow_mutex_wait(&link->wait.lock, &link->wait.transfer_done);
        t = transfer_find(link, number);
    }
    if (t != NULL) {
        t->abandoned = true;
    }
}

void towc_link_abandon_copy(struct towc_link *link, uint32_t copy)
{
    tow_mutex_lock(&link->wait.lock);
    for (struct towc_transfer *t; (t = find_copy(link, copy)) != NULL;) {
        transfer_abandon(link, t);
    }
    tow_mutex_unlock(&link->wait.lock);
}

void towc_link_abandon(struct towc_link *link, const void *address, size_t size)
{
    tow_mutex_lock(&link->wait.lock);
    for (struct towc_transfer *t; (t = find_into(link, address, size)) != NULL;) {
        transfer_abandon(link, t);
    }
    tow_mutex_unlock(&link->wait.lock);
}

/* The stream was synchronised: true if the copy's bytes must have come, and have not. Another
 * thread's own stream was not the one that was. */
static bool is_missing(struct towc_link *link, const struct towc_transfer *found)
{
    tow_mutex_lock(&link->wait.lock);
    const struct towc_transfer *t = transfer_find(link, found->number);
    bool missing = t != NULL && !t->abandoned && found->stream != CU_STREAM_PER_THREAD;
    tow_mutex_unlock(&link->wait.lock);
    return missing;
}

CUresult towc_link_wait_download(struct towc_link *link, const void *address, size_t size)
{
    struct towc_transfer found = {0};
    tow_mutex_lock(&link->wait.lock);
    const struct towc_transfer *t = find_into(link, address, size);
    if (t != NULL) {
        found = *t;
    }
    tow_mutex_unlock(&link->wait.lock);
    if (t == NULL || towc_thread_in_hostfn()) {
        return t == NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
    }
    struct towc_call call;
    CUresult status = towc_call_begin_on(&call, link, found.context, TOW_FN_cuStreamSynchronize, 8,
                                         TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)found.stream);
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    if (status == CUDA_SUCCESS && is_missing(link, &found)) {
        status = towc_link_check_whole(link, found.copy);
    }
    if (atomic_load(&link->lost) != 0) {
        towc_link_abandon(link, address, size);
    }
    return status;
}
