/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a function in front of an upload that host functions may still write to, and sends the
 * bytes from it. */
#include "client/callback/deferred_upload.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/callback/hostfn.h"
#include "client/hostmem/memory.h"
#include "client/link/hello.h"
#include "client/link/side.h"
#include "client/stream/stream.h"
#include "gen/copy.h"
#include "wire/control.h"
#include "wire/copy.h"

struct deferred_upload {
    struct deferred_upload *next;
    struct towc_link *link; /* borrowed */
    const uint8_t *from;    /* borrowed: page-locked memory, which stays while we are listed */
    size_t size;
    uint64_t number;
};

enum {
    TOTAL_MAX = 128 << 20, /* bytes of a link: its worker keeps as much page-locked memory */
    CHUNK = 256 << 10,     /* sent in one frame */
};

/* Process-wide: addresses are the process's: freeing memory asks for all. Each names its link. */
static struct {
    struct tow_mutex lock; /* guards all here, and links' bytes */
    struct deferred_upload *list;
    uint64_t last_number;
} uploads = {.lock = TOW_MUTEX(CLIENT_DEFERRED_UPLOADS)};

/* True while some of [address, address + size) waits to be read. */
static bool is_still_to_read(const void *address, size_t size)
{
    uintptr_t low = (uintptr_t)address;
    bool found = false;
    tow_mutex_lock(&uploads.lock);
    for (const struct deferred_upload *l = uploads.list; l != NULL && !found; l = l->next) {
        uintptr_t from = (uintptr_t)l->from;
        found = low < from + l->size && (from < low || from - low < size);
    }
    tow_mutex_unlock(&uploads.lock);
    return found;
}

/* Takes room for `size` bytes. */
static bool take_room(struct towc_link *link, size_t size)
{
    tow_mutex_lock(&uploads.lock);
    bool room = size <= TOTAL_MAX - link->deferred_bytes;
    link->deferred_bytes += room ? size : 0;
    tow_mutex_unlock(&uploads.lock);
    return room;
}

static void give_room(struct towc_link *link, size_t size)
{
    tow_mutex_lock(&uploads.lock);
    link->deferred_bytes -= size;
    tow_mutex_unlock(&uploads.lock);
}

static void deferred_enlist(struct deferred_upload *deferred)
{
    static const struct towc_memory_ops reader = {.is_still_to_read = is_still_to_read};
    towc_memory_register(&reader);
    tow_mutex_lock(&uploads.lock);
    deferred->number = ++uploads.last_number;
    deferred->next = uploads.list;
    uploads.list = deferred;
    tow_mutex_unlock(&uploads.lock);
}

/* Its turn is over, or never comes. */
static void drop_upload(void *user)
{
    struct deferred_upload *deferred = user;
    tow_mutex_lock(&uploads.lock);
    struct deferred_upload **at = &uploads.list;
    while (*at != deferred) {
        at = &(*at)->next;
    }
    *at = deferred->next;
    deferred->link->deferred_bytes -= deferred->size;
    tow_mutex_unlock(&uploads.lock);
    free(deferred);
}

/* In the stream, in front of the copy. If the link is lost, so is the copy. */
static void take_turn(void *user)
{
    struct deferred_upload *deferred = user;
    CUresult status = CUDA_SUCCESS;
    for (size_t at = 0; at < deferred->size && status == CUDA_SUCCESS;) {
        size_t n = deferred->size - at < CHUNK ? deferred->size - at : CHUNK;
        uint8_t head[TOW_CALLBACK_BYTES_HEAD];
        tow_callback_bytes_head(
            &(struct tow_callback_bytes){.number = deferred->number, .offset = at, .size = n},
            head);
        status = towc_side_send(deferred->link, TOW_CONTROL_CALLBACK_BYTES, head, sizeof head,
                                deferred->from + at, n);
        at += n;
    }
    drop_upload(deferred);
}

/* One piece of at most TOW_COPY_DEFERRED_MAX bytes, for which there is room. */
static CUresult deferred_put(struct towc_link *link, CUdeviceptr to, const void *from, size_t size,
                             CUstream stream)
{
    struct deferred_upload *deferred = malloc(sizeof *deferred);
    if (deferred == NULL) {
        give_room(link, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *deferred = (struct deferred_upload){.link = link, .from = from, .size = size};
    deferred_enlist(deferred);
    struct towc_hostfn function = {
        .run = take_turn, .user = deferred, .own = true, .drop = drop_upload};
    struct towc_hostfn_upload upload = {.to = to, .size = size, .number = deferred->number};
    return towc_hostfn_put_upload(stream, &function, &upload);
}

bool towc_deferred_upload_put(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                              CUresult *ret_status)
{
    struct towc_context *context;
    *ret_status = towc_stream_context(stream, &context);
    if (*ret_status != CUDA_SUCCESS) {
        return true;
    }
    if (!towc_hello_may_call(context->link, TOW_FN_cuMemcpyHtoDAsync_v2) ||
        !take_room(context->link, size)) {
        return false;
    }
    for (size_t at = 0; at < size && *ret_status == CUDA_SUCCESS;) {
        size_t n = size - at < TOW_COPY_DEFERRED_MAX ? size - at : TOW_COPY_DEFERRED_MAX;
        *ret_status = deferred_put(context->link, to + at, (const uint8_t *)from + at, n, stream);
        at += n;
        if (*ret_status != CUDA_SUCCESS) {
            give_room(context->link, size - at);
        }
    }
    return true;
}
