/* SPDX-License-Identifier: Apache-2.0 */
/* What the client keeps for each thread of the program. */
#ifndef TOW_CLIENT_THREAD_H
#define TOW_CLIENT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct towc_context;
struct towc_ring;

enum { TOW_CONTEXT_STACK_MAX = 64 };

struct towc_thread {
    uint16_t number;     /* on the wire; never 0, reused after the thread's end */
    uint16_t depth;      /* of the context stack */
    uint16_t per_thread; /* inside a _ptds entry */
    bool in_hostfn;      /* runs a host function: few calls that reach a server are permitted */
    uint64_t unique;     /* never used again: part of its per-thread streams' ids */
    CUstreamCaptureMode capture_mode;
    uint64_t command;       /* the last that it sent: see towc_link_command */
    uint64_t sent, waited;  /* commands this thread sent, replies it waited for: for observe.c */
    struct towc_ring *ring; /* of client/timeline/record.c; NULL: none */
    struct towc_context *stack[TOW_CONTEXT_STACK_MAX]; /* borrowed; the last is current */
};

/* The calling thread's state once it has one. Small and initial-exec: reading it is one
 * instruction, and it fits the spare room for libraries that are loaded late. */
extern __thread struct towc_thread *towc_thread_here __attribute__((tls_model("initial-exec")));

struct towc_thread *towc_thread_make(void);

/* What is to be done when a thread ends that has sent something: on that thread, while its number
 * is still its own. client/edge/core.c sets it. */
typedef void towc_thread_end(unsigned number);
void towc_thread_at_end(towc_thread_end *hook);

/* The calling thread's state, made on first use; NULL only when memory or numbers are used up. A
 * thread-exit hook tells the servers that the thread is gone (its per-thread streams end) and frees
 * the number. */
static inline struct towc_thread *towc_thread_self(void)
{
    struct towc_thread *self = towc_thread_here;
    return __builtin_expect(self != NULL, 1) ? self : towc_thread_make();
}

static inline bool towc_thread_in_hostfn(void)
{
    return towc_thread_here != NULL && towc_thread_here->in_hostfn;
}

#endif
