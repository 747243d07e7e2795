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

#include "base/mutex.h"
#include "client/link/link.h"
#include "client/link/share.h"
#include "wire/control.h"
#include "wire/share.h"

/* What a link keeps for it; NULL: there is no memory, and everything is asked for. */
struct towc_completions;
struct towc_completions *towc_completions_make(void);
void towc_completions_destroy(struct towc_completions *completions);

enum towc_completion_outcome {
    TOW_COMPLETION_DONE,
    TOW_COMPLETION_REFUSED, /* it must be asked for */
    TOW_COMPLETION_PENDING,
};

/* What a synchronisation brings besides the news that it is over (memory that is mirrored or still
 * to be filled): then it must be asked for. */
bool towc_completion_brings_more(struct towc_link *link);

/* The program may know what the GPU has done without a reply: a host function's turn has come, or a
 * word that the GPU wrote was seen. What the server was to tell of is asked for again. */
void towc_completion_hear(struct towc_link *link);

/* For the reader of the line: a DONE frame. */
int towc_completion_take(struct towc_link *link, const struct tow_done *done);

/* ---- words that the GPU writes, in the caller's own shared memory ---- */

/* What a word says of a value; and after looking for as long as a synchronisation does; and for
 * longer, by what the stream is known to need. */
enum towc_completion_outcome towc_fence_word_query(const struct tow_fence_word *word,
                                                   uint32_t value);
/* Of a copy that is done: whether a reply would have brought more. */
bool towc_fence_word_owes(const struct tow_fence_word *word, uint32_t value);
enum towc_completion_outcome towc_fence_word_wait(const struct tow_fence_word *word,
                                                  uint32_t value);
enum towc_completion_outcome towc_fence_word_wait_long(const struct tow_fence_word *word,
                                                       uint32_t value, int64_t more_ns);

/* Where a thread waits: a word, and room for a small copy beside it. */
enum { TOW_WAIT_SLOT_ROOM = (8 << 10) - (int)sizeof(struct tow_fence_word) };
struct towc_wait_slot {
    atomic_bool taken;
    struct tow_fence_word *word; /* shared memory of the link, as is `room` */
    uint8_t *room;
    uint32_t value; /* of the newest command; whoever took the slot */
};

/* A command whose end a word of the GPU's tells, in the calling thread's wait slot. */
struct towc_awaited {
    struct towc_link *link; /* borrowed */
    /* Sends it with the slot's word and value. */
    CUresult (*send)(struct towc_awaited *awaited, const struct towc_wait_slot *slot);
    /* Synchronises by asking, if looking takes too long; NULL: the caller does. */
    CUresult (*ask)(struct towc_awaited *awaited);
    /* Its work is done: takes what is in the slot's room; may be NULL. */
    void (*take)(struct towc_awaited *awaited, const struct towc_wait_slot *slot);
    int64_t more_ns; /* see towc_fence_word_wait_long */
    bool sent;       /* false: there was no slot, or a reply would bring more */
    bool answered;   /* set by `send`, which has got a reply: there is nothing to look for */
    bool owing;      /* a reply would have brought more: its stream must still be asked for */
};
/* Sends, looks, asks. REFUSED: it must be asked for, or done in another way, unless `ret_status`
 * is an error: that is told once. PENDING: only without `ask`. */
enum towc_completion_outcome towc_completion_run(struct towc_awaited *awaited,
                                                 CUresult *ret_status);

/* ---- streams and contexts ---- */

/* cuStreamSynchronize: by a word of the GPU's where that is possible, else by asking, which also
 * tells what went wrong. `idle`: the stream is known to be empty, and only a reply could bring
 * more. */
CUresult towc_completion_sync_stream(struct towc_link *link, CUstream stream, bool idle);
/* cuCtxSynchronize of the current context, by a word: if one stream can tell, and nothing has to be
 * fetched. False: it must be asked for. */
bool towc_completion_sync_context(struct towc_link *link, CUresult *ret_status);
/* Memory was freed in the stream's order. It goes back to its pool, and from there to the system,
 * in the driver's own synchronisation: the stream's next one is asked for. */
void towc_completion_owe(struct towc_link *link, CUstream stream);

/* ---- events and streams that are looked at again and again ---- */

/* Where the server tells of something, a reply must bring nothing else, and nothing may capture:
 * false, and it is asked each time. */
bool towc_completion_possible(void);

/* A word, and what it says when a command's work is done. */
struct towc_completion_source; /* who writes it */
struct towc_completion_mark {
    const struct towc_completion_source *source;
    const struct tow_fence_word *word; /* shared; lives as long as the link */
    uint32_t value;                    /* 0: nobody tells */
};

/* Whether one thing is done: an event's last record, or all of a stream. Zeros but for the lock are
 * one of which nothing is known. */
struct towc_completion {
    struct tow_mutex lock; /* guards the rest, and what its owner says */
    bool polled; /* fixed: a stream; no command of its own could leave a word of the GPU's */
    bool asking; /* a thread asks and will await the newest value; others just ask */
    const struct towc_link *link;     /* the one that the mark's word is of */
    struct towc_completion_mark mark; /* what is awaited */
    uint32_t given;                   /* the newest value that was given out */
    int64_t asked_ns;                 /* when the server was asked last */
    uint64_t heard;                   /* see towc_completion_hear, by then */
    uint64_t number;                  /* of the command that asked */
};

/* Whether words of this link tell who waits as well, and not only who asks again and again. */
static inline bool towc_completion_tells_waiters(const struct towc_link *link)
{
    return link->share != NULL;
}

/* Whether it is done; and after looking for as long as a synchronisation does. PENDING: it was not
 * a moment ago. REFUSED also where a reply brings more than the news, or the server was asked too
 * long ago. `ret_number`, which may be NULL, gets the number of the command that asked. */
enum towc_completion_outcome towc_completion_query(struct towc_completion *completion,
                                                   struct towc_link *link, uint64_t *ret_number);
enum towc_completion_outcome towc_completion_wait(struct towc_completion *completion,
                                                  struct towc_link *link);
/* cuEventQuery or cuStreamQuery of that id. If that is not ready and the server can tell of it, it
 * does when that changes. */
CUresult towc_completion_ask(struct towc_completion *completion, struct towc_link *link,
                             unsigned fn, uint64_t id);

/* Of a command whose end is to be told: its mark, which towc_completion_put adds to its body.
 * False: nobody can tell. */
bool towc_completion_follow(struct towc_completion *completion, struct towc_link *link,
                            struct towc_completion_mark *ret_mark);
void towc_completion_put(struct towc_call *call, const struct towc_completion_mark *mark);
/* With the lock held, when the command has gone out: the value of its mark is awaited, unless
 * another one was given out since. 0: what was given out before counts no more. */
void towc_completion_await(struct towc_completion *completion, uint32_t value);
/* The same with 0, without the lock. */
void towc_completion_void(struct towc_completion *completion);

#endif
