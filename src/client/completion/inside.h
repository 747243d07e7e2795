/* SPDX-License-Identifier: Apache-2.0 */
/* What a link keeps for completions. For this room alone: the others include completion.h. */
#ifndef TOW_CLIENT_COMPLETION_INSIDE_H
#define TOW_CLIENT_COMPLETION_INSIDE_H

#include "client/completion/completion.h"

enum { TOW_WAIT_SLOTS = 64 }; /* threads that wait at once; the others ask in the ordinary way */

/* Who writes words for events and streams. Everything is called without a lock. */
struct towc_completion_source {
    /* A word that nobody else has, for the life of the link; NULL: there is none to be had. */
    const struct tow_fence_word *(*word)(struct towc_link *link);
    /* Adds word and value to the body of a command. */
    void (*put)(struct towc_call *call, const struct towc_completion_mark *mark);
    /* `heard`: what towc_completion_hear had counted when the server was asked. */
    enum towc_completion_outcome (*look)(struct towc_link *link,
                                         const struct towc_completion_mark *mark, uint64_t heard,
                                         bool wait);
    int64_t silence_ns; /* what is pending for so long is asked for */
    bool asks;          /* a command with a mark is a question, and counts as one */
};
extern const struct towc_completion_source towc_completion_by_gpu, towc_completion_by_server;

struct towc_watches;

struct towc_completions {
    _Atomic uint64_t heard; /* raised by towc_completion_hear */

    /* fence_word.c's, where memory is shared. */
    struct towc_share_area slot_area, event_area;
    atomic_uint event_words; /* given out */
    struct towc_wait_slot slots[TOW_WAIT_SLOTS];
    _Atomic uint64_t owed; /* towc_completion_owe; a bit stands for all streams of the same hash */

    /* watch.c's: what DONE frames write; owned; set once, when first needed. */
    struct towc_watches *_Atomic watches;
};

#endif
