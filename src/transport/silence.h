/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the peer's machine is gone, seen from what the kernel knows of a TCP connection. */
#ifndef TOW_TRANSPORT_SILENCE_H
#define TOW_TRANSPORT_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

/* What counts of TCP_INFO. */
struct tow_silence_seen {
    uint32_t unacked;      /* segments that were sent and not acknowledged */
    uint32_t retransmits;  /* times that the oldest of them was sent again */
    uint32_t probes;       /* of a closed window, sent since the last answer */
    uint32_t last_ack_ms;  /* since the last acknowledgement */
    uint32_t last_data_ms; /* since the last data */
};

/* One wait for a peer that brings, or takes, nothing. Zero when it begins. */
struct tow_silence {
    int64_t looked_ns; /* when the last look was taken that counts; 0: none yet */
    unsigned silent;   /* such looks in a row that have found the peer silent */
};

/* How often a wait is broken off for a look, of the time that a peer may be silent. */
#define TOW_SILENCE_LOOKS 4

/* Whether the peer is gone: its kernel has answered nothing at three looks in a row, which are a
 * quarter of `limit_ns` apart, and owed us an answer to more than one packet. A peer that lives and
 * takes nothing answers each probe; the kernel sends them further and further apart. A clock that
 * jumps is one look, like any other. */
bool tow_silence_step(struct tow_silence *silence, const struct tow_silence_seen *seen,
                      int64_t limit_ns, int64_t now_ns);

/* A wait on `fd` was broken off, by a signal (`early`) or after a quarter of `limit_ns` (0: never
 * gone): whether the peer is gone. False for what is no TCP connection. */
bool tow_silence_look(struct tow_silence *silence, int fd, int64_t limit_ns, bool early);

#endif
