/* SPDX-License-Identifier: Apache-2.0 */
/* Words that the GPU writes, in memory that is shared (client/link/share.h): by them a thread sees
 * that something is done without asking. Everything here may answer "not this way"; the caller then
 * asks the server, as over a network.
 */
#ifndef TOW_CLIENT_NOTE_H
#define TOW_CLIENT_NOTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/link/link.h"
#include "client/link/share.h"
#include "wire/share.h"

struct tow_notes;

/* Of a link that was just opened; NULL if its line cannot pass memory. */
struct tow_notes *tow_notes_make(const struct tow_link *link);
void tow_notes_destroy(struct tow_notes *notes);

/* cuStreamSynchronize: by a note of the GPU's where that is possible, else by asking, which also
 * tells what went wrong. */
CUresult tow_share_synchronize(struct tow_link *link, CUstream stream);
/* cuCtxSynchronize of the current context, by a note: if one stream can tell, and nothing has to be
 * fetched. False: it must be asked for. */
bool tow_share_synchronize_context(struct tow_link *link, CUresult *ret_status);
/* True if the stream was seen empty, and nothing was sent since. */
bool tow_share_is_quiet(struct tow_link *link, CUstream stream);
/* A note of the program's own, for an event; NULL if there is none to be had. For the life of the
 * link. */
const struct tow_share_note *tow_share_slip(struct tow_link *link);
enum tow_share_outcome {
    TOW_SHARE_DONE,
    TOW_SHARE_REFUSED, /* it must be asked for */
    TOW_SHARE_LATE,
};
/* Whether the note says so; `wait`: looks at it for as long as a synchronisation does. REFUSED also
 * where a reply brings more than the news. */
enum tow_share_outcome tow_share_look(struct tow_link *link, const struct tow_share_note *note,
                                      uint32_t value, bool wait);

/* Memory was freed in the stream's order. It goes back to its pool, and from there to the system,
 * in the driver's own synchronisation: the stream's next one is asked for. */
void tow_share_owe(struct tow_link *link, CUstream stream);

/* ---- for copies ---- */

/* What a note says of a value; and after looking for as long as a synchronisation does. */
enum tow_share_outcome tow_share_seen(const struct tow_share_note *note, uint32_t value);
enum tow_share_outcome tow_share_await(const struct tow_share_note *note, uint32_t value);
/* The same, and longer by what the stream is known to need. */
enum tow_share_outcome tow_share_await_long(const struct tow_share_note *note, uint32_t value,
                                            int64_t more_ns);
/* What a synchronisation brings besides the news that it is over (memory that is mirrored or still
 * to be filled): then it must be asked for. */
bool tow_share_brings_more(struct tow_link *link);
/* Synchronises by asking, and sleeps until the answer comes. */
CUresult tow_share_ask(struct tow_link *link, CUstream stream);
/* Command `number` was the last one of a stream, which is through with it. */
void tow_share_note_quiet(struct tow_link *link, CUstream stream, uint64_t number);

/* Where a thread waits: a note, and room for a small copy beside it. */
enum { TOW_DESK_ROOM = (8 << 10) - (int)sizeof(struct tow_share_note) };
struct tow_desk {
    atomic_bool taken;
    struct tow_share_note *note; /* shared memory of the link, as is `room` */
    uint8_t *room;
    uint32_t value; /* of the newest note; whoever took the desk */
};
/* NULL if there is none to be had. */
struct tow_desk *tow_desk_take(struct tow_link *link);
void tow_desk_leave(struct tow_desk *desk);

#endif
