/* SPDX-License-Identifier: Apache-2.0 */
/* What generated and by-hand client code is made of: one call is begun, filled, sent, waited for,
 * ended.
 *
 *     struct towc_call call;
 *     CUresult status = towc_call_begin(&call, TOW_FN_cuX, bytes, TOW_CALL_REPLY);
 *     if (status != CUDA_SUCCESS) {
 *         return status;
 *     }
 *     tow_enc_u64(&call.enc, ...);
 *     status = towc_call_wait(&call);
 *     if (status == CUDA_SUCCESS) {
 *         *out = tow_dec_u64(&call.dec);
 *     }
 *     return towc_call_end(&call, status);
 *
 * Between begin and send/wait the call holds the link's send lock: do nothing there but encode.
 * Order on the line is the order of begin: what a program does first reaches the server first.
 */
#ifndef TOW_CLIENT_CALL_H
#define TOW_CLIENT_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/session/handle.h"
#include "client/session/modes.h"
#include "gen/cuda_types.h"
#include "gen/functions.h"
#include "wire/cursor.h"

#define TOW_PUBLIC __attribute__((visibility("default")))

struct towc_link;

enum {
    TOW_CALL_REPLY = 1,    /* the caller waits; else nobody does */
    TOW_CALL_CONTEXT = 2,  /* CUDA_ERROR_INVALID_CONTEXT if the thread has no current context */
    TOW_CALL_CAPTURED = 4, /* work of a capture that is in order: no reason to wait for a reply */
};

enum towc_wait_state {
    TOW_WAIT_PENDING, /* another thread reads */
    TOW_WAIT_LEAD,    /* this thread is to read */
    TOW_WAIT_DONE,
};

/* One thread that waits for a reply. Lives on its stack. */
struct towc_waiter {
    uint32_t seq;
    uint32_t state; /* enum towc_wait_state; a futex word, atomic */
    CUresult status;
    uint8_t *body; /* the reply's body: `small`, or owned heap memory */
    size_t size;
    struct towc_waiter *next; /* guarded by the link's wait lock */
    uint64_t small[32];
};

struct towc_call {
    struct tow_enc enc; /* body of the command */
    struct tow_dec dec; /* body of the reply, after towc_call_wait succeeded */
    struct towc_link *link;
    uint8_t *frame;
    uint16_t fn;
    uint32_t context;
    struct towc_waiter waiter;
    bool waits;
};

/* TOW_CALL_CAPTURED if the stream is known to capture, and nothing else makes calls wait. Asks the
 * server where that is not known yet. */
unsigned towc_capture_known(CUstream stream);
/* For a call that goes into the stream: the same, and nothing is asked while nothing captures. */
static inline unsigned towc_capture_flag(CUstream stream)
{
    return __builtin_expect(atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0, 1)
               ? 0
               : towc_capture_known(stream);
}

/* Begins a call on the current context's server (without a context: the first server). Answers
 * without sending: NOT_INITIALIZED before cuInit and in a forked child, DEINITIALIZED after the
 * end, INVALID_CONTEXT, the context's sticky error, or that the server is lost. `bytes` is the most
 * the body will take. */
CUresult towc_call_begin(struct towc_call *call, unsigned fn, size_t bytes, unsigned flags);
/* The same on a given server and for a given context number (0: none), for by-hand code. */
CUresult towc_call_begin_on(struct towc_call *call, struct towc_link *link, uint32_t context,
                            unsigned fn, size_t bytes, unsigned flags);

/* Begins a call on the server of a device that the call names: `link` (NULL: as towc_call_begin).
 * On another server than the current context's it goes without a context, if it needs none; else
 * CUDA_ERROR_INVALID_DEVICE. */
CUresult towc_call_begin_for(struct towc_call *call, struct towc_link *link, unsigned fn,
                             size_t bytes, unsigned flags);

/* Sends a call that nobody waits for. */
CUresult towc_call_send(struct towc_call *call);
/* Sends and waits; the reply's body is in call->dec if the status is CUDA_SUCCESS. */
CUresult towc_call_wait(struct towc_call *call);
/* Frees the reply; CUDA_ERROR_UNKNOWN instead of success if the reply was too short. */
CUresult towc_call_end(struct towc_call *call, CUresult status);
/* Gives up between begin and send (nothing reaches the line). */
void towc_call_cancel(struct towc_call *call);

/* Copies `size` bytes of the reply, then skips to a multiple of 8. A NULL `into` only skips. */
void towc_call_get_bytes(struct towc_call *call, void *into, size_t size);
/* Copies a u64 count and as many elements. More than the caller's room is a broken reply: nothing
 * is copied. */
void towc_call_get_array(struct towc_call *call, void *into, size_t element, size_t room);

/* The server that has a visible device; the first server for -1. NULL if there is none. */
struct towc_link *towc_client_link(CUdevice device);
/* The server's ordinal of a visible device, -1 if there is no such device; and back. */
int towc_device_to_server(CUdevice device);
CUdevice towc_device_from_server(int ordinal);
/* The visible device of a server's ordinal; CU_DEVICE_INVALID if the program may not see it. */
CUdevice towc_device_on(const struct towc_link *link, int ordinal);
/* The server of a visible device: for a call that names the device. Two devices of one call must be
 * on one server. */
CUresult towc_device_route(CUdevice device, struct towc_link **link);

/* Events are also recorded by graphs or launches from now on, this one among them: what was seen of
 * records here says nothing any more. */
void towc_event_elsewhere(CUevent event);
/* Graphs record the event, or wait for it. If other processes know it, then a launch returns when
 * the server has done it. */
void towc_event_in_graph(CUevent event);
bool towc_event_graphs_wait(void);

/* Answers CUDA_ERROR_NOT_SUPPORTED, counts, and names the function once in the log. */
CUresult towc_refuse(unsigned fn);

/* Between these two, stream 0 of this thread's calls is its per-thread stream (the _ptds entries).
 */
void towc_per_thread_enter(void);
void towc_per_thread_leave(void);
/* What stream 0 means in the call under way: CU_STREAM_PER_THREAD or NULL. */
CUstream towc_default_stream(void);

#endif
