/* SPDX-License-Identifier: Apache-2.0 */
/* How it is known that something is done, without asking. There are two sources: a word that the
 * GPU writes in shared memory (client/link/share.h), and a word that the reader of a DONE frame
 * writes. Both are read in the same way.
 *
 * What is known here is never early, and not later than anything else that the program can see.
 * Everything here may answer "not this way" (REFUSED, NULL, false): the caller then asks the
 * server, as it does for what is not watched.
 */
#ifndef TOW_CLIENT_COMPLETION_H
#define TOW_CLIENT_COMPLETION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/link/link.h"
#include "client/link/share.h"
#include "wire/control.h"
#include "wire/share.h"

/* What a link keeps for it; NULL: there is no memory, and everything is asked for. */
struct tow_completions;
struct tow_completions *tow_completions_make(void);
void tow_completions_destroy(struct tow_completions *completions);

enum tow_completion_outcome {
    TOW_COMPLETION_DONE,
    TOW_COMPLETION_REFUSED, /* it must be asked for */
    TOW_COMPLETION_PENDING,
};

/* What a synchronisation brings besides the news that it is over (memory that is mirrored or still
 * to be filled): then it must be asked for. */
bool tow_completion_brings_more(struct tow_link *link);

/* The program may know what the GPU has done without a reply: a host function's turn has come, or a
 * word that the GPU wrote was seen. What the server was to tell of is asked for again. */
void tow_completion_hear(struct tow_link *link);

/* For the reader of the line: a DONE frame. */
int tow_completion_take(struct tow_link *link, const struct tow_done *done);

/* ---- words that the GPU writes, in the caller's own shared memory ---- */

/* What a word says of a value; and after looking for as long as a synchronisation does; and for
 * longer, by what the stream is known to need. */
enum tow_completion_outcome tow_fence_word_query(const struct tow_share_note *word, uint32_t value);
enum tow_completion_outcome tow_fence_word_wait(const struct tow_share_note *word, uint32_t value);
enum tow_completion_outcome tow_fence_word_wait_long(const struct tow_share_note *word,
                                                     uint32_t value, int64_t more_ns);

/* Where a thread waits: a word, and room for a small copy beside it. */
enum { TOW_WAIT_SLOT_ROOM = (8 << 10) - (int)sizeof(struct tow_share_note) };
struct tow_wait_slot {
    atomic_bool taken;
    struct tow_share_note *note; /* shared memory of the link, as is `room` */
    uint8_t *room;
    uint32_t value; /* of the newest command; whoever took the slot */
};
/* NULL if there is none to be had. */
struct tow_wait_slot *tow_wait_slot_take(struct tow_link *link);
void tow_wait_slot_leave(struct tow_wait_slot *slot);

/* ---- streams and contexts ---- */

/* cuStreamSynchronize: by a word of the GPU's where that is possible, else by asking, which also
 * tells what went wrong. */
CUresult tow_completion_sync_stream(struct tow_link *link, CUstream stream);
/* cuCtxSynchronize of the current context, by a word: if one stream can tell, and nothing has to be
 * fetched. False: it must be asked for. */
bool tow_completion_sync_context(struct tow_link *link, CUresult *ret_status);
/* Synchronises by asking, and sleeps until the answer comes. */
CUresult tow_completion_ask_stream(struct tow_link *link, CUstream stream);
/* Command `number` was the last one of a stream, which is through with it. */
void tow_completion_set_quiet(struct tow_link *link, CUstream stream, uint64_t number);
/* True if the stream was seen empty, and nothing was sent since. */
bool tow_completion_is_quiet(struct tow_link *link, CUstream stream);
/* Memory was freed in the stream's order. It goes back to its pool, and from there to the system,
 * in the driver's own synchronisation: the stream's next one is asked for. */
void tow_completion_owe(struct tow_link *link, CUstream stream);

/* ---- events and streams that are looked at again and again ---- */

/* Of one event or stream; guarded by its owner's lock. */
struct tow_completion {
    const struct tow_share_note *note; /* shared; of the link below */
    const struct tow_link *link;
    uint32_t given;   /* the newest value that was given out */
    uint32_t awaited; /* what the note says when it is done; 0: it says nothing */
    int64_t asked_ns; /* when the server was asked last */
    uint64_t heard;   /* see tow_completion_hear, by then */
    bool asking;      /* a thread asks and will await the newest value; others just ask */
};

/* A word that the GPU writes, for an event, for the life of the link; NULL if there is none to be
 * had. */
const struct tow_share_note *tow_share_slip(struct tow_link *link);
/* Whether the word says so; `wait`: looks at it for as long as a synchronisation does. REFUSED also
 * where a reply brings more than the news. */
enum tow_completion_outcome tow_share_look(struct tow_link *link, const struct tow_share_note *note,
                                           uint32_t value, bool wait);

/* False where a reply brings more than the news, or none may be had: the server is asked each time.
 */
bool tow_completion_possible(void);
/* A word of the program's own for the life of the link, whose number on the wire is its slip; NULL
 * if there is none to be had. */
const struct tow_share_note *tow_watch_note(struct tow_link *link);
/* Puts both into a command on that link. */
void tow_watch_put(struct tow_call *call, const struct tow_share_note *note, uint32_t value);
/* A value that was never given out for this watch. */
uint32_t tow_watch_next(struct tow_completion *watch);
/* Now is when the server is asked. */
void tow_watch_asked(struct tow_completion *watch, const struct tow_link *link);
/* cuEventQuery or cuStreamQuery of that id, and the server tells if that was not ready and changes.
 * `ret_number`, which may be NULL, gets the command's number. */
CUresult tow_watch_ask(struct tow_link *link, unsigned fn, uint64_t id,
                       const struct tow_share_note *note, uint32_t value, uint64_t *ret_number);
/* Takes what the server has sent and nobody has read, and looks at the word. REFUSED: it must be
 * asked for, also if that was long ago. */
enum tow_completion_outcome tow_watch_look(struct tow_link *link,
                                           const struct tow_completion *watch);

#endif
