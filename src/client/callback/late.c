/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a function in front of an upload that host functions may still write to, and sends the
 * bytes from it. */
#include "client/callback/late.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/callback/hostfn.h"
#include "client/hostmem/memory.h"
#include "client/link/greet.h"
#include "client/link/side.h"
#include "client/stream/stream.h"
#include "gen/copy.h"
#include "wire/control.h"
#include "wire/copy.h"

struct late {
    struct late *next;
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
    struct late *list;
    uint64_t last_number;
} lates = {.lock = TOW_MUTEX(CLIENT_LATE)};

/* True while some of [address, address + size) waits to be read. */
static bool is_read_later(const void *address, size_t size)
{
    uintptr_t low = (uintptr_t)address;
    bool found = false;
    tow_mutex_lock(&lates.lock);
    for (const struct late *l = lates.list; l != NULL && !found; l = l->next) {
        uintptr_t from = (uintptr_t)l->from;
        found = low < from + l->size && (from < low || from - low < size);
    }
    tow_mutex_unlock(&lates.lock);
    return found;
}

/* Takes room for `size` bytes. */
static bool take_room(struct towc_link *link, size_t size)
{
    tow_mutex_lock(&lates.lock);
    bool room = size <= TOTAL_MAX - link->late_bytes;
    link->late_bytes += room ? size : 0;
    tow_mutex_unlock(&lates.lock);
    return room;
}

static void give_room(struct towc_link *link, size_t size)
{
    tow_mutex_lock(&lates.lock);
    link->late_bytes -= size;
    tow_mutex_unlock(&lates.lock);
}

static void late_enlist(struct late *late)
{
    static const struct towc_memory_ops reader = {.is_read_later = is_read_later};
    towc_memory_register(&reader);
    tow_mutex_lock(&lates.lock);
    late->number = ++lates.last_number;
    late->next = lates.list;
    lates.list = late;
    tow_mutex_unlock(&lates.lock);
}

/* Its turn is over, or never comes. */
static void drop_late(void *user)
{
    struct late *late = user;
    tow_mutex_lock(&lates.lock);
    struct late **at = &lates.list;
    while (*at != late) {
        at = &(*at)->next;
    }
    *at = late->next;
    late->link->late_bytes -= late->size;
    tow_mutex_unlock(&lates.lock);
    free(late);
}

/* In the stream, in front of the copy. If the link is lost, so is the copy. */
static void take_turn(void *user)
{
    struct late *late = user;
    CUresult status = CUDA_SUCCESS;
    for (size_t at = 0; at < late->size && status == CUDA_SUCCESS;) {
        size_t n = late->size - at < CHUNK ? late->size - at : CHUNK;
        uint8_t head[TOW_CALLBACK_BYTES_HEAD];
        tow_callback_bytes_head(
            &(struct tow_callback_bytes){.number = late->number, .offset = at, .size = n}, head);
        status = towc_side_send(late->link, TOW_CONTROL_CALLBACK_BYTES, head, sizeof head,
                                late->from + at, n);
        at += n;
    }
    drop_late(late);
}

/* One piece of at most TOW_COPY_LATE_MAX bytes, for which there is room. */
static CUresult late_put(struct towc_link *link, CUdeviceptr to, const void *from, size_t size,
                         CUstream stream)
{
    struct late *late = malloc(sizeof *late);
    if (late == NULL) {
        give_room(link, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *late = (struct late){.link = link, .from = from, .size = size};
    late_enlist(late);
    struct towc_hostfn function = {.run = take_turn, .user = late, .own = true, .drop = drop_late};
    struct towc_hostfn_upload upload = {.to = to, .size = size, .number = late->number};
    return towc_hostfn_put_upload(stream, &function, &upload);
}

bool towc_late_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                      CUresult *ret_status)
{
    struct towc_context *context;
    *ret_status = towc_stream_context(stream, &context);
    if (*ret_status != CUDA_SUCCESS) {
        return true;
    }
    if (!towc_greet_may_call(context->link, TOW_FN_cuMemcpyHtoDAsync_v2) ||
        !take_room(context->link, size)) {
        return false;
    }
    for (size_t at = 0; at < size && *ret_status == CUDA_SUCCESS;) {
        size_t n = size - at < TOW_COPY_LATE_MAX ? size - at : TOW_COPY_LATE_MAX;
        *ret_status = late_put(context->link, to + at, (const uint8_t *)from + at, n, stream);
        at += n;
        if (*ret_status != CUDA_SUCCESS) {
            give_room(context->link, size - at);
        }
    }
    return true;
}
