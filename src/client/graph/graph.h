/* Graphs: what graph.c, graph_node.c and capture.c share. */
#ifndef TOW_CLIENT_GRAPH_H
#define TOW_CLIENT_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "client/link/link.h"
#include "gen/cuda_types.h"

/* Memory handed to the program that lives as long as a graph, a node or a capture: keyed by its id.
 * Replaces what the key had. NULL if memory is used up. */
void *tow_graph_keep(uint64_t key, size_t size);
void tow_graph_forget(uint64_t key);

/* User objects that go with a graph or an executable graph. */
void tow_graph_share_objects(uint64_t from, uint64_t to);
void tow_graph_drop_objects(uint64_t key);

/* True if work on this stream is being captured (asks the server only while something captures). */
bool tow_capture_on(CUstream stream);
/* For calls that CUDA calls unsafe during a capture: CUDA_SUCCESS, or the error, after which the
 * capture is invalid. */
CUresult tow_capture_unsafe(void);
/* For a launch that the client refuses: its stream's capture, if there is one, is invalid then.
 * Returns `status`. */
CUresult tow_capture_refused(CUstream stream, CUresult status);
/* tow_mirror_check_device for work on `stream`. A capture takes any address (libraries capture work
 * on addresses that are none, to learn its shape): only the graph's launch needs the memory. */
CUresult tow_capture_check_device(CUstream stream, uint64_t address, uint64_t size);
/* A stream was told to wait for an event: that may have drawn it into a capture. */
void tow_capture_waited(CUstream stream);
/* A stream begins its life, perhaps in the place of another. */
struct tow_stream;
void tow_capture_reset(struct tow_stream *stream);
/* A stream has ended, and its capture with it. `thread`: whose, for CU_STREAM_PER_THREAD. */
void tow_capture_drop(CUstream stream, unsigned thread);
/* A context ends, and the captures of its streams. Called while the streams can still be found. */
struct tow_context;
void tow_capture_drop_context(const struct tow_context *context);

#endif
