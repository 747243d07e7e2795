/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the side line and sends on it what a stream of the device may wait for. */
#include "client/link/side.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "client/link/call.h"
#include "client/link/lane.h"
#include "client/link/lasting.h"
#include "client/session/thread.h"
#include "transport/transport.h"
#include "wire/control.h"

/* How long the server may take to tell the key. */
#define KEY_NS (2 * TOW_TIME_S)

enum { DIRECT = 64 << 10 }; /* so many bytes are not copied to the line's ring first */

static int ask_key(struct towc_link *link, uint64_t ret_key[2])
{
    struct towc_call call;
    if (towc_call_begin_on(&call, link, 0, TOW_CONTROL_SIDE, 0, 0) != CUDA_SUCCESS ||
        towc_call_send(&call) != CUDA_SUCCESS) {
        return -EPIPE;
    }
    int64_t until = tow_time_deadline(KEY_NS);
    int error = 0;
    tow_mutex_lock(&link->side_send.lock);
    while (!link->side_send.key_known && error == 0) {
        error = atomic_load(&link->lost) != 0
                    ? -EPIPE
                    : tow_mutex_wait_until(&link->side_send.lock, &link->side_send.told, until);
    }
    if (link->side_send.key_known) {
        memcpy(ret_key, link->side_send.key, sizeof link->side_send.key);
        error = ret_key[0] == 0 && ret_key[1] == 0 ? -ECONNREFUSED : 0;
    }
    tow_mutex_unlock(&link->side_send.lock);
    return error;
}

static int connect_side(struct towc_link *link, struct tow_line **ret_line)
{
    char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX];
    struct tow_lane lane = {.session = link->welcome.session, .index = TOW_LANE_SIDE};
    int error = tow_transport_further(link->address, address);
    if (error == 0) {
        error = ask_key(link, lane.key);
    }
    if (error == 0 && link->lasting != NULL) {
        return towc_lasting_further(link, TOW_LANE_SIDE, ret_line);
    }
    return error < 0 ? error : towc_lane_connect(link, address, &lane, why, sizeof why, ret_line);
}

void towc_side_open(struct towc_link *link)
{
    if (atomic_load_explicit(&link->side_tried, memory_order_acquire)) {
        return;
    }
    /* No changes of mirrored memory go out meanwhile: those on the one line must not meet those on
     * the other. What went out before was taken before the server told the key. */
    towc_link_handler->hold_changes();
    if (!atomic_load(&link->side_tried)) {
        struct tow_line *line = NULL;
        int error = connect_side(link, &line);
        if (error < 0 && error != -ENOTSUP) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                    "%s: no second connection for host functions: %s", link->address,
                    strerror(-error));
        }
        if (error == 0) {
            atomic_store_explicit(&link->side, line, memory_order_release);
        }
        atomic_store_explicit(&link->side_tried, true, memory_order_release);
    }
    towc_link_handler->release_changes();
}

static CUresult send_on_line(struct towc_link *link, uint32_t context, unsigned kind,
                             const void *head, size_t head_size, const void *bytes, size_t size)
{
    struct towc_call call;
    CUresult status = towc_call_begin_on(&call, link, context, kind, head_size + size, 0);
    if (status == CUDA_SUCCESS) {
        tow_enc_bytes(&call.enc, head, head_size);
        tow_enc_bytes(&call.enc, bytes, size);
        status = towc_call_send(&call);
    }
    return status;
}

/* With the lock held: without copying the bytes. */
static int send_direct(struct tow_line *side, uint32_t context, unsigned kind, const void *head,
                       size_t head_size, const void *bytes, size_t size)
{
    static const uint8_t zeros[TOW_FRAME_ALIGN];
    struct tow_frame frame = {
        .length = tow_frame_length(head_size + size), .kind = (uint16_t)kind, .context = context};
    struct iovec parts[] = {
        {&frame, sizeof frame},
        {(void *)(uintptr_t)head, head_size},
        {(void *)(uintptr_t)bytes, size},
        {(void *)(uintptr_t)zeros, frame.length - sizeof frame - head_size - size},
    };
    return frame.length <= TOW_FRAME_MAX ? tow_line_send_direct(side, parts, 4) : -EMSGSIZE;
}

static CUresult side_sent(struct towc_link *link, int error)
{
    if (error < 0) {
        towc_link_lose(link, towc_lasting_closed(link));
        return (CUresult)atomic_load(&link->lost);
    }
    return CUDA_SUCCESS;
}

static CUresult send_in(struct towc_link *link, uint32_t context, unsigned kind, const void *head,
                        size_t head_size, const void *bytes, size_t size)
{
    struct tow_line *side = atomic_load_explicit(&link->side, memory_order_acquire);
    if (side == NULL) {
        return send_on_line(link, context, kind, head, head_size, bytes, size);
    }
    size_t room = tow_frame_length(head_size + size);
    uint8_t *at = NULL;
    uint32_t length = 0;
    tow_mutex_lock(&link->side_send.lock);
    int error = 0;
    if (size >= DIRECT) {
        length = (uint32_t)room;
        error = send_direct(side, context, kind, head, head_size, bytes, size);
    } else {
        error = tow_line_reserve(side, room, &at);
    }
    if (error == 0 && at != NULL) {
        struct tow_enc enc = tow_frame_begin(at, room);
        tow_enc_bytes(&enc, head, head_size);
        tow_enc_bytes(&enc, bytes, size);
        error = tow_frame_end(
            &enc, at, (struct tow_frame){.kind = (uint16_t)kind, .context = context}, &length);
    }
    if (error == 0 && at != NULL) {
        tow_line_commit_now(side, length);
        error = atomic_load(&side->error); /* who waits for what went may wait forever */
    }
    if (error == 0) {
        atomic_fetch_add_explicit(&link->counters.side_out, length, memory_order_relaxed);
    }
    tow_mutex_unlock(&link->side_send.lock);
    return side_sent(link, error);
}

CUresult towc_side_send(struct towc_link *link, unsigned kind, const void *head, size_t head_size,
                        const void *bytes, size_t size)
{
    return send_in(link, 0, kind, head, head_size, bytes, size);
}

/* Counts a MIRROR frame before it goes out. Only then may it be said that the device is idle: who
 * gives it work counts that first and looks at these frames then, so that one of both sees the
 * other. */
static uint32_t count_change(struct towc_link *link, const struct towc_idle *idle)
{
    atomic_fetch_add(&link->side_mirrors, 1);
    return towc_link_still_idle(link, idle) ? idle->context : 0;
}

CUresult towc_side_send_changes(struct towc_link *link, const struct towc_idle *idle,
                                const uint8_t *bytes, size_t size)
{
    uint32_t context = towc_side_is_open(link) ? count_change(link, idle) : 0;
    return send_in(link, context, TOW_CONTROL_MIRROR, NULL, 0, bytes, size);
}

/* FETCH, and a MIRROR frame without changes: it was taken when the copy is done. Both at once: the
 * answer may fill the line before anybody takes it, and then a frame of another thread's between
 * the two would hold up the second. */
static int send_fetch(struct towc_link *link, struct tow_line *side, uint32_t context,
                      const uint8_t head[TOW_FETCH_HEAD])
{
    size_t room = tow_frame_length(TOW_FETCH_HEAD), more = tow_frame_length(0);
    uint8_t *at = NULL;
    uint32_t length = 0, added = 0;
    tow_mutex_lock(&link->side_send.lock);
    int error = tow_line_reserve(side, room + more, &at);
    if (error == 0) {
        struct tow_enc enc = tow_frame_begin(at, room);
        tow_enc_bytes(&enc, head, TOW_FETCH_HEAD);
        error = tow_frame_end(
            &enc, at, (struct tow_frame){.kind = TOW_CONTROL_FETCH, .context = context}, &length);
    }
    if (error == 0) {
        struct tow_enc enc = tow_frame_begin(at + length, more);
        error = tow_frame_end(&enc, at + length, (struct tow_frame){.kind = TOW_CONTROL_MIRROR},
                              &added);
    }
    if (error == 0) {
        tow_line_commit_now(side, length + added);
        atomic_fetch_add_explicit(&link->counters.side_out, length + added, memory_order_relaxed);
    }
    tow_mutex_unlock(&link->side_send.lock);
    return error;
}

CUresult towc_side_ask(struct towc_link *link, const struct tow_fetch *fetch)
{
    uint8_t head[TOW_FETCH_HEAD];
    struct towc_idle idle = towc_link_idle(link);
    struct tow_line *side = atomic_load_explicit(&link->side, memory_order_acquire);
    tow_fetch_head(fetch, head);
    if (idle.context == 0 || side == NULL) {
        return send_in(link, 0, TOW_CONTROL_FETCH, head, sizeof head, NULL, 0);
    }
    return side_sent(link, send_fetch(link, side, count_change(link, &idle), head));
}

CUresult towc_side_fence(struct towc_link *link)
{
    uint64_t number = atomic_load(&link->side_mirrors);
    if (number <= atomic_load(&link->side_fenced)) {
        return CUDA_SUCCESS;
    }
    struct towc_call call;
    uint8_t head[TOW_FENCE_HEAD];
    tow_fence_head(&(struct tow_fence){number}, head);
    CUresult status = towc_call_begin_on(&call, link, 0, TOW_CONTROL_FENCE, sizeof head, 0);
    if (status == CUDA_SUCCESS) {
        tow_enc_bytes(&call.enc, head, sizeof head);
        status = towc_call_send(&call);
    }
    if (status == CUDA_SUCCESS) {
        towc_link_raise(&link->side_fenced, number); /* only now: others may rely on it */
    }
    return status;
}
