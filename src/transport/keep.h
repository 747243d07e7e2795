/* SPDX-License-Identifier: Apache-2.0 */
/* A line that outlives its connection. It stands before another line, which carries its bytes in
 * records; each end keeps what the other has not acknowledged. When the line behind it ends
 * without a word, callers wait, and the stream goes on over a new one at the byte where it broke
 * (docs/inside/lasting.md). Both ends must do it, from the same byte on.
 */
#ifndef TOW_TRANSPORT_KEEP_H
#define TOW_TRANSPORT_KEEP_H

#include "transport/line.h"

/* What the end does that connects. */
struct tow_keep_setup {
    /* Makes a new line to the peer, which waits for it in tow_keep_mend: 0. -ESTALE: the peer knows
     * nothing of this line any more, so it ends. After other errors it is tried again. Called by a
     * thread of the line's own, which tow_line_close waits for: it looks at the deadline. NULL: the
     * other end connects, and somebody here calls tow_keep_mend. */
    int (*redial)(void *arg, int64_t deadline_ns, struct tow_line **ret_line);
    /* The line goes on over what redial made: called by the same thread. NULL: nobody asks. */
    void (*mended)(void *arg);
    void *arg; /* borrowed for the line's life */
    /* How long a cut may last, by the clock that runs while the machine sleeps. Then the line ends
     * as others do. */
    int64_t limit_ns;
    /* Nothing was carried yet: first both ends say so, as on each later line, within this time. It
     * fails with -ESTALE if the peer takes no such line. 0: both have agreed otherwise. */
    int64_t hello_ns;
    /* How many bytes are received before they are acknowledged without being asked; 0: as many as
     * is good. Tests have small ones. */
    uint64_t ack_every;
};

/* Puts one before `inner`, which it owns in any case; nothing of `inner` is in use by others. The
 * setup is copied. The kind's name stays that of `inner`. */
int tow_keep_line(struct tow_line *inner, const struct tow_keep_setup *setup,
                  struct tow_line **ret_line);

/* Goes on over `fresh`, which it owns in any case, whether the end of the old one was noticed or
 * not. The peer does the same, or redials. Any thread, while the line lives. After a failure the
 * line waits for another one: -EPROTO if the peer said what cannot be. */
int tow_keep_mend(struct tow_line *line, struct tow_line *fresh, int64_t deadline_ns);

/* Tells the peer on a new connection, which it owns, that no line goes on over it. */
void tow_keep_refuse(struct tow_line *fresh);

/* Ends it as if a cut had lasted too long: nobody will come. Any thread. */
void tow_keep_give_up(struct tow_line *line);

/* Tells the peer what was taken, without being asked: it may be about to end. By who consumes. */
void tow_keep_acknowledge(struct tow_line *line);

/* How often it went on over a new line, and whether it waits for one now. */
unsigned tow_keep_mends(const struct tow_line *line, bool *ret_cut);

#endif
