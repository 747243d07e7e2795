/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that capture into graphs: what is known of them. */
#ifndef TOW_CLIENT_CAPTURE_H
#define TOW_CLIENT_CAPTURE_H

#include <stdbool.h>

#include "gen/cuda_types.h"

/* True if work on this stream is being captured (asks the server only while something captures). */
bool towc_capture_on(CUstream stream);
/* For calls that CUDA calls unsafe during a capture: CUDA_SUCCESS, or the error, after which the
 * capture is invalid. */
CUresult towc_capture_unsafe(void);
/* For a launch that the client refuses: its stream's capture, if there is one, is invalid then.
 * Returns `status`. */
CUresult towc_capture_refused(CUstream stream, CUresult status);
/* A stream was told to wait for an event: that may have drawn it into a capture. */
void towc_capture_waited(CUstream stream);
/* A stream begins its life, perhaps in the place of another. */
struct towc_stream;
void towc_capture_reset(struct towc_stream *stream);
/* A stream has ended, and its capture with it. `thread`: whose, for CU_STREAM_PER_THREAD. */
void towc_capture_drop(CUstream stream, unsigned thread);
/* A context ends, and the captures of its streams. Called while the streams can still be found. */
struct towc_context;
void towc_capture_drop_context(struct towc_context *context);

/* A call failed: a capture may be invalid now. */
void towc_capture_doubt(void);

/* ---- for client/graph/capture_end.c ---- */

/* What is known of the capture that the calling thread would end; false: there is none. */
struct towc_capture_facts {
    bool wrong_thread; /* only the thread that began it may end it, and this is another */
    bool to_graph;     /* into a graph that was there before */
};
bool towc_capture_find(CUstream stream, struct towc_capture_facts *ret_facts);

#endif
