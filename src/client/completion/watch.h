/* SPDX-License-Identifier: Apache-2.0 */
/* Events and streams whose completion the server tells of unasked (DONE frames): a program that
 * looks at one again and again asks once, and then looks at a word that the frame's reader writes.
 *
 * What is known here is never early, and not later than what any reply lets the program know. What
 * else does that (tow_watch_hear) makes it be asked for again.
 */
#ifndef TOW_CLIENT_WATCH_H
#define TOW_CLIENT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/link/link.h"
#include "client/completion/note.h"
#include "wire/control.h"

/* Of one event or stream; guarded by its owner's lock. */
struct tow_watch {
    const struct tow_share_note *note; /* shared; of the link below */
    const struct tow_link *link;
    uint32_t given;   /* the newest value that was given out */
    uint32_t awaited; /* what the note says when it is done; 0: it says nothing */
    int64_t asked_ns; /* when the server was asked last */
    uint64_t heard;   /* see tow_watch_hear, by then */
    bool asking;      /* a thread asks and will await the newest value; others just ask */
};

/* False where a reply brings more than the news, or none may be had: the server is asked each time.
 */
bool tow_watch_possible(void);
/* A note of the program's own for the life of the link, whose number on the wire is its slip; NULL
 * if there is none to be had. */
const struct tow_share_note *tow_watch_note(struct tow_link *link);
/* Puts both into a command on that link. */
void tow_watch_put(struct tow_call *call, const struct tow_share_note *note, uint32_t value);
/* A value that was never given out for this watch. */
uint32_t tow_watch_next(struct tow_watch *watch);
/* Now is when the server is asked. */
void tow_watch_asked(struct tow_watch *watch, const struct tow_link *link);
/* cuEventQuery or cuStreamQuery of that id, and the server tells if that was not ready and changes.
 * `ret_number`, which may be NULL, gets the command's number. */
CUresult tow_watch_ask(struct tow_link *link, unsigned fn, uint64_t id,
                       const struct tow_share_note *note, uint32_t value, uint64_t *ret_number);

/* Takes what the server has sent and nobody has read, and looks at the note. REFUSED: it must be
 * asked for, also if that was long ago. */
enum tow_share_outcome tow_watch_look(struct tow_link *link, const struct tow_watch *watch);

/* The program may know what the GPU has done without a reply: a host function's turn has come, or a
 * note that the GPU wrote was seen. */
void tow_watch_hear(struct tow_link *link);

/* For the reader of the line: a DONE frame. */
int tow_watch_take(struct tow_link *link, const struct tow_done *done);

#endif
