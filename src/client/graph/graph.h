/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: what graph.c, graph_node.c and capture.c share. */
#ifndef TOW_CLIENT_GRAPH_H
#define TOW_CLIENT_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "client/link/link.h"
#include "client/session/keep.h"
#include "client/stream/capture.h"
#include "gen/cuda_types.h"

/* User objects that go with a graph or an executable graph. */
void towc_graph_share_objects(uint64_t from, uint64_t to);
void towc_graph_drop_objects(uint64_t key);

#endif
