/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: further connections of a session, for bulk data only.
 *
 * One connection is served by one thread on either side, and one thread copies only so fast. A
 * large transfer is spread over several: each lane has a thread that sends what is queued and one
 * that receives. Lanes carry DATA frames and nothing else; the frames of a transfer come in any
 * order, each says where its bytes go. Client and server use the same code.
 */
#ifndef TOW_TRANSPORT_LANES_H
#define TOW_TRANSPORT_LANES_H

#include "transport/line.h"
#include "wire/control.h"

#define TOW_LANES_MAX 15u /* besides the session's own line */

struct tow_lanes;

struct tow_lanes_user {
    /* A DATA frame has come on `line`: take exactly data->size bytes off it. On the lane's
     * receiving thread, several at a time. A negative error ends all lanes. */
    int (*take)(void *user, struct tow_line *line, const struct tow_data *data);
    /* The lanes have ended, by an error or by the peer; called once, on a lane's thread. */
    void (*ended)(void *user, int error);
    void *user;
};

/* Bytes to send; the caller's memory until the job is done. They are at `bytes`, or `fetch` says
 * where the `size` from `offset` of the transfer on are, until it is asked for the next: on the
 * lane's sending thread. */
struct tow_lane_job {
    const uint8_t *bytes; /* borrowed until done; of a lent one, until tow_lanes_wait */
    const uint8_t *(*fetch)(const void *user, uint64_t offset, size_t size);
    const void *user; /* for `fetch`; borrowed until done */
    size_t each;      /* bytes of a frame; 0: as many as one can have */
    size_t size;
    uint64_t offset;
    uint32_t transfer;
    bool lent; /* tow_lanes_wait, which has to come, takes the memory back: the later the better.
                  Else the lane does at once. */
    struct tow_line *line; /* the lane's: of a lent one that was sent; and the place behind it */
    uint64_t place;
    bool done;                 /* guarded by the lanes' lock */
    struct tow_lane_job *next; /* the lane's */
};

struct tow_lanes *tow_lanes_create(const struct tow_lanes_user *user);
/* Shuts all down, waits for their threads, frees. Not on a thread of theirs. NULL is fine. */
void tow_lanes_destroy(struct tow_lanes *lanes);
/* Makes every blocked call return; the rest is for tow_lanes_destroy. Any thread. */
void tow_lanes_shutdown(struct tow_lanes *lanes);
/* In a forked child, see tow_line_abandon. */
void tow_lanes_abandon(struct tow_lanes *lanes);

/* One more lane; owns the line in any case. -ENOSPC, -ESHUTDOWN, or why it has no threads. */
int tow_lanes_add(struct tow_lanes *lanes, struct tow_line *line);
/* How many there are; 0 once they have ended. */
unsigned tow_lanes_count(struct tow_lanes *lanes);

/* Queues a job on lane `index` (below the count). */
void tow_lanes_send(struct tow_lanes *lanes, unsigned index, struct tow_lane_job *job);
/* Until the job's bytes were sent (its memory may be used again): 0, or why they never will be. */
int tow_lanes_wait(struct tow_lanes *lanes, struct tow_lane_job *job);

#endif
