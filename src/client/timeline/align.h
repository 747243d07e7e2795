/* SPDX-License-Identifier: Apache-2.0 */
/* A server's clock, held against ours: what it says is put on one axis with what happens here. */
#ifndef TOW_CLIENT_ALIGN_H
#define TOW_CLIENT_ALIGN_H

#include <stdbool.h>
#include <stdint.h>

struct towc_align {
    bool known;
    /* Between two moments of the server's clock what it is ahead of ours goes from `before` to
     * `ahead`; outside of them it stays. */
    int64_t before_ns, from_ns, ahead_ns, until_ns;
    /* What the first round trips said, and the last ones: between these. */
    int64_t first_low, first_high, low, high;
    int64_t first_ns, last_ns; /* of our clock, when they were */
};

/* Round trips follow that belong together. */
void towc_align_begin(struct towc_align *align);
/* The server read `theirs` between two moments of our clock. */
void towc_align_take(struct towc_align *align, int64_t asked_ns, int64_t theirs_ns,
                     int64_t answered_ns);
/* The round trips are done: so it is used from now on. */
void towc_align_end(struct towc_align *align);
/* A moment of ours, of one of theirs. */
int64_t towc_align_ours(const struct towc_align *align, int64_t theirs_ns);
/* At most that wrong; ppb that their clock is faster, and how wrong that may be. */
int64_t towc_align_error(const struct towc_align *align);
int64_t towc_align_drift(const struct towc_align *align, int64_t *ret_error);

#endif
