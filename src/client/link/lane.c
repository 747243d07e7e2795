/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a session's further connections when the first large copy comes. */
#include "client/link/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "client/link/lasting.h"
#include "transport/lanes.h"
#include "transport/transport.h"

enum {
    SPREAD_MIN = 4 << 20, /* smaller copies are done before the lanes' threads are awake */
    LINES = 4,            /* connections of a session, unless TOWLINE_LANES says otherwise */
};

#define OPEN_NS (2 * TOW_TIME_S)

unsigned towc_lane_wanted(const struct towc_link *link)
{
    const char *text = getenv("TOWLINE_LANES");
    /* A connection keeps a processor busy here and one there. */
    unsigned usual = tow_cpu_count() / 2 < LINES ? tow_cpu_count() / 2 : LINES;
    long number = text != NULL ? strtol(text, NULL, 10) : (long)usual;
    if (!tow_transport_spreads(link->address) || number <= 1) {
        return 0;
    }
    return number - 1 < (long)TOW_LANES_MAX ? (unsigned)number - 1 : TOW_LANES_MAX;
}

/* ---- opening ---- */

static int lane_take(void *user, struct tow_line *line, const struct tow_data *data)
{
    return towc_link_take_payload(user, line, data, true);
}

static void lane_ended(void *user, int error)
{
    (void)error;
    towc_link_lose(user, towc_lasting_closed(user));
}

/* The server takes the connection as one of ours. */
static int lane_hello(struct tow_line *line, const struct tow_lane *lane)
{
    int64_t deadline = tow_time_deadline(OPEN_NS);
    uint8_t *out = NULL;
    const uint8_t *at = NULL;
    size_t available = 0;
    uint32_t length = 0;
    struct tow_frame frame;
    struct tow_lane answer;
    int error = tow_line_reserve(line, 64, &out);
    if (error == 0) {
        error = tow_lane_encode(lane, out, 64, &length);
    }
    if (error == 0) {
        tow_line_commit_now(line, length);
        error = tow_line_peek(line, TOW_FRAME_HEADER, deadline, &at, &available);
    }
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    if (error == 0) {
        error = tow_line_peek(line, frame.length, deadline, &at, &available);
    }
    if (error == 0) {
        error = tow_lane_decode(at, &frame, &answer);
    }
    if (error == 0) {
        tow_line_consume(line, frame.length);
    }
    return error;
}

int towc_lane_connect(const struct towc_link *link, const char *address,
                      const struct tow_lane *lane, char *why, size_t why_size,
                      struct tow_line **ret_line)
{
    struct tow_line *line = NULL;
    int error = tow_transport_connect_beside(address, link->line->grant, tow_time_deadline(OPEN_NS),
                                             why, why_size, &line);
    if (error == 0) {
        error = lane_hello(line, lane);
    }
    if (error < 0) {
        tow_line_close(line);
        return error;
    }
    int64_t silence = atomic_load(&link->silence_ns);
    if (silence >= 0) {
        tow_line_set_silence(line, silence);
    }
    *ret_line = line;
    return 0;
}

/* With the lane lock held: as many as can be had; what cannot is done without. */
static void open_lanes(struct towc_link *link)
{
    const struct tow_lanes_user user = {lane_take, lane_ended, link};
    unsigned wanted = towc_lane_wanted(link);
    struct tow_lanes *lanes = wanted > 0 ? tow_lanes_create(&user) : NULL;
    int error = lanes == NULL ? -ENOMEM : 0;
    for (unsigned i = 1; i <= wanted && error == 0; i++) {
        char why[TOW_WHY_MAX];
        struct tow_line *line = NULL;
        struct tow_lane lane = {.session = link->welcome.session, .index = i};
        memcpy(lane.key, link->lane.key, sizeof lane.key);
        error = link->lasting != NULL
                    ? towc_lasting_further(link, i, &line)
                    : towc_lane_connect(link, link->address, &lane, why, sizeof why, &line);
        if (error == 0) {
            error = tow_lanes_add(lanes, line);
        }
    }
    link->lane.lanes = lanes;
    link->lane.count = tow_lanes_count(lanes);
    tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO, "%s: %u further connections for large copies%s%s",
            link->address, link->lane.count, error < 0 ? "; no more: " : "",
            error < 0 ? strerror(-error) : "");
}

unsigned towc_lane_use(struct towc_link *link, size_t size)
{
    if (size < SPREAD_MIN) {
        return 0;
    }
    tow_mutex_lock(&link->lane.lock);
    if (!link->lane.tried && link->lane.key_known) {
        link->lane.tried = true;
        open_lanes(link);
    }
    unsigned count = link->lane.count;
    tow_mutex_unlock(&link->lane.lock);
    return count;
}

/* ---- copies ---- */

static const uint8_t *lane_fetch(const void *user, uint64_t offset, size_t size)
{
    return towc_packer_bytes(user, offset, size);
}

CUresult towc_lane_upload(struct towc_link *link, uint32_t transfer,
                          const struct towc_packer *packer, unsigned lanes)
{
    struct tow_lane_job jobs[TOW_LANES_MAX];
    struct towc_packer theirs[TOW_LANES_MAX];
    size_t size = packer->size, each = packer->each;
    size_t share = (size / (lanes + 1) + each - 1) / each * each;
    size_t at = 0;
    unsigned used = 0;
    for (; used < lanes && at < size; used++) {
        size_t n = size - at < share ? size - at : share;
        theirs[used] = *packer;
        theirs[used].room = packer->room != NULL ? packer->room + (used + 1) * each : NULL;
        jobs[used] = (struct tow_lane_job){.fetch = lane_fetch,
                                           .user = &theirs[used],
                                           .each = each,
                                           .size = n,
                                           .offset = at,
                                           .transfer = transfer};
        tow_lanes_send(link->lane.lanes, used, &jobs[used]);
        atomic_fetch_add_explicit(&link->counters.lane_out, n, memory_order_relaxed);
        at += n;
    }
    /* What is left, and in any case the frame that closes the transfer: the server goes on behind
     * it when it has everything. */
    CUresult status = towc_link_upload_packed(link, transfer, packer, at);
    for (unsigned i = 0; i < used; i++) {
        if (tow_lanes_wait(link->lane.lanes, &jobs[i]) < 0 && status == CUDA_SUCCESS) {
            towc_link_lose(link, towc_lasting_closed(link));
            status = (CUresult)atomic_load(&link->lost);
        }
    }
    return status;
}
