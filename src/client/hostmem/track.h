/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of managed memory the program has written, for who may not watch it
 * (client/hostmem/fault.h): the kernel remembers them (userfaultfd's asynchronous write protection,
 * Linux 6.7), and anybody may ask about his own memory. Reading what the GPU wrote is no part of
 * this.
 */
#ifndef TOW_CLIENT_TRACK_H
#define TOW_CLIENT_TRACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct towc_track_run {
    uint64_t low, high; /* whole pages */
};

/* Remembers writes to [low, high) from now on: whole pages of fresh anonymous memory. False: this
 * kernel does not, or would not once; then nobody is tracked from then on. */
bool towc_track_begin(uint64_t low, uint64_t high);
/* Of [*at, high), what was written since it was asked for last, or began: at most `room` runs. *at
 * moves on, to `high` when there is no more. -1: it cannot be told. One caller at a time. */
int towc_track_next(uint64_t *at, uint64_t high, struct towc_track_run *runs, int room);

#endif
