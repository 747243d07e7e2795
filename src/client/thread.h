/* What the client keeps for each thread of the program. */
#ifndef TOW_CLIENT_THREAD_H
#define TOW_CLIENT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_abi.h"

struct tow_context;

enum { TOW_CONTEXT_STACK_MAX = 64 };

struct tow_thread {
    uint16_t number;     /* on the wire; never 0, reused after the thread's end */
    uint16_t depth;      /* of the context stack */
    uint16_t per_thread; /* inside a _ptds entry */
    CUstreamCaptureMode capture_mode;
    struct tow_context *stack[TOW_CONTEXT_STACK_MAX]; /* borrowed; the last is current */
};

/* The calling thread's state, made on first use; NULL only when memory is used up. A thread-exit
 * hook tells the servers that the thread is gone (its per-thread streams end) and frees the number.
 */
struct tow_thread *tow_thread_self(void);

#endif
