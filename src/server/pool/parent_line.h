/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's end of the line to its parent: asks, and keeps what the parent says meanwhile. The
 * parent answers at once: it waits for nobody. Only the listener's one thread uses this. */
#ifndef TOW_SERVER_PARENT_LINE_H
#define TOW_SERVER_PARENT_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/pool/parent_msg.h"

struct tows_parent_line {
    int fd;                         /* owned */
    uint32_t signals;               /* that the server was sent and nobody has taken yet, as bits */
    struct tows_parent_news *ended; /* owned: processes that have, the first of them first */
    unsigned count, room;
};

void tows_parent_line_init(struct tows_parent_line *line, int fd);
void tows_parent_line_fini(struct tows_parent_line *line);

/* Sends a question with descriptors, which stay the caller's, and waits for its answer; those that
 * come with it are the caller's, -1 where there are none. Returns the answer's `error`. Without a
 * parent the process ends. */
int tows_parent_line_ask(struct tows_parent_line *line, const struct tows_parent_msg *msg,
                         const int *fds, int count, struct tows_parent_news *ret_answer,
                         int ret_fds[TOW_PARENT_FDS_MAX]);

/* Reads what is there. */
void tows_parent_line_hear(struct tows_parent_line *line);
/* Whether something was heard that nobody has taken yet. */
bool tows_parent_line_has_news(const struct tows_parent_line *line);
/* A process that has ended: 1, or 0. */
int tows_parent_line_next(struct tows_parent_line *line, struct tows_parent_news *ret_ended);
/* The signals that came since the last call. */
uint32_t tows_parent_line_signals(struct tows_parent_line *line);

#endif
