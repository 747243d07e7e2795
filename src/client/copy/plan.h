/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a copy goes, by what is known of it: a pure function, and its rules as a table.
 *
 * client/copy/look.c finds the facts; client/copy/copy.c asks for the way, has it gone, and asks
 * again where that was only a step, or was not this copy's way after all.
 */
#ifndef TOW_CLIENT_PLAN_H
#define TOW_CLIENT_PLAN_H

#include <stdbool.h>
#include <stddef.h>

/* What was looked up of a copy, once. "The host memory" is that of a copy with one host operand. */
enum towc_copy_fact {
    TOW_FACT_UP = 1 << 0,        /* the source is host memory */
    TOW_FACT_DOWN = 1 << 1,      /* the target is; both: host to host; none: on the device */
    TOW_FACT_WAIT = 1 << 2,      /* the program's call is synchronous */
    TOW_FACT_FLAT = 1 << 3,      /* of one dimension; else rows, planes or an array */
    TOW_FACT_ELSEWHERE = 1 << 4, /* an operand is another server's */
    TOW_FACT_CAPTURES = 1 << 5,  /* asynchronous, with a host operand, and the stream captures */
    TOW_FACT_BAD = 1 << 6, /* the device's operand is no memory: a capture takes it all the same */
    TOW_FACT_SHARED = 1 << 7,     /* the worker has all of the host memory: it is the same memory */
    TOW_FACT_PARTLY = 1 << 8,     /* it has whole pages of it, not its ends */
    TOW_FACT_PINNED = 1 << 9,     /* the host memory is page-locked */
    TOW_FACT_MIRRORED = 1 << 10,  /* the worker has a copy of it, which kernels may use */
    TOW_FACT_SEEN = 1 << 11,      /* the host sees the device's operand, too */
    TOW_FACT_MIRRORS = 1 << 12,   /* some memory is mirrored */
    TOW_FACT_EXPECTED = 1 << 13,  /* an earlier download is still to fill the source */
    TOW_FACT_FUNCTIONS = 1 << 14, /* up: host functions that may write are under way; down: any */
    TOW_FACT_ROOM = 1 << 15,      /* the download may come later: the worker keeps as much */
    TOW_FACT_LARGE = 1 << 16,     /* what is left is more than one asynchronous download may have */
    TOW_FACT_STAGING = 1 << 17,   /* the line has a staging area */
    TOW_FACT_SMALL = 1 << 18,     /* up: not worth staging; down: fits beside a fence word */
    TOW_FACT_LONG = 1 << 19,      /* it is large, and the device has much to do before it */
    TOW_FACT_END = 1 << 20,
};

/* Where a copy can go. Steps come before another way; what declines is not asked twice. */
enum towc_copy_way {
    TOW_WAY_PEER,        /* down and up again, through this process */
    TOW_WAY_MEMMOVE,     /* host to host, behind the stream */
    TOW_WAY_PUSH,        /* step: what the program changed of mirrored memory goes first */
    TOW_WAY_CAPTURED,    /* into a graph, which uses the memory at every launch */
    TOW_WAY_SPLIT,       /* in two, each part its own way */
    TOW_WAY_DEVICE,      /* on the device */
    TOW_WAY_SHARED,      /* the command names the address: it is the same memory */
    TOW_WAY_WAIT_SOURCE, /* step: the source is waited for */
    TOW_WAY_NAMED,       /* the command names the address: the worker's copy takes part */
    TOW_WAY_WAIT_TURN,   /* step: the stream is waited for, and so are functions before the copy */
    TOW_WAY_DEFERRED,    /* a function of ours sends the bytes in their turn; may decline */
    TOW_WAY_ASYNC,       /* the bytes come with the next synchronisation; may leave some */
    TOW_WAY_TURN,        /* step: host functions get a moment, or the memory is mirrored */
    TOW_WAY_FETCHED,     /* beside the fence word by which the thread waits; may decline */
    TOW_WAY_STAGED,      /* through the staging area; may decline */
    TOW_WAY_LINE,        /* inside the command or the reply, or as DATA frames */
    TOW_WAY_COUNT,
};

struct towc_copy_rule {
    enum towc_copy_way way;
    unsigned all, none; /* facts that hold, and that do not */
};
extern const struct towc_copy_rule towc_copy_rules[];
extern const size_t towc_copy_rule_count;

/* The way of the first rule that fits, but for those that were `tried` (bits 1 << way). */
enum towc_copy_way towc_copy_plan(unsigned facts, unsigned tried);

/* Whether a synchronous copy that went this way is waited for: until its stream has done it. */
bool towc_copy_awaits(unsigned facts, enum towc_copy_way way);

#endif
