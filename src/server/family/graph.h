/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, for generated code. */
#ifndef TOW_SERVER_GRAPH_H
#define TOW_SERVER_GRAPH_H

#include "gen/cuda_types.h"

struct tow_session;

/* A node is about to be destroyed: ids of graphs within it mean nothing any more. */
void tow_graph_drop_within(struct tow_session *session, CUgraphNode node);

#endif
