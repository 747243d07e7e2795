/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that this process builds by hand: which nodes it put into them, and of which graph an
 * executable one is. Where that tells the answer of a call, nobody waits for it.
 *
 * Of all others (captured, cloned, bodies of conditions, nodes of such) nothing is known, and every
 * call waits. */
#ifndef TOW_CLIENT_GRAPH_BUILT_H
#define TOW_CLIENT_GRAPH_BUILT_H

#include "client/link/link.h"
#include "gen/cuda_types.h"

/* What a kernel node runs. */
struct towc_built_kernel {
    uint64_t function; /* id; 0: no kernel, or not known */
    uint64_t place;    /* the context, until it is reset */
};

/* Makes the ids. Nothing is known of a node in a graph of which nothing is, or of its executable
 * form. */
CUresult towc_built_graph(const struct towc_link *link, uint64_t *ret_id);
CUresult towc_built_node(uint64_t graph, uint64_t *ret_id);
CUresult towc_built_exec(uint64_t graph, uint64_t *ret_id);

/* True if these are nodes of the graph, each there once, and all are of that server. */
bool towc_built_takes(uint64_t graph, const struct towc_link *link, const CUgraphNode *nodes,
                      size_t count);
/* The node was made with that kernel. */
void towc_built_runs(uint64_t node, struct towc_built_kernel kernel);
/* True if the node has been in the executable graph since its beginning, and there never was
 * another kernel in it. */
bool towc_built_ran(uint64_t exec, const struct towc_link *link, uint64_t node,
                    struct towc_built_kernel kernel);

/* The graph's node gets other parameters or attributes. */
void towc_built_node_changes(uint64_t node, struct towc_built_kernel kernel);
/* More than the parameters of one node changes in it. */
void towc_built_exec_changes(uint64_t exec);
/* The graph becomes part of another one, and ends with that. */
void towc_built_graph_moves(uint64_t graph);

/* Ends the id; a graph's nodes end with it. Also for ids of which nothing is known. */
void towc_built_end(uint64_t id);

#endif
