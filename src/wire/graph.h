/* SPDX-License-Identifier: Apache-2.0 */
/* Graph nodes as they travel.
 *
 * Add node:  tow_node_head, dependencies (u64 ids), edge data (8 bytes each, if flagged), then the
 * parameters. Set:       tow_node_set_head, then the parameters. Parameters by type: KERNEL
 * tow_launch_head and its packed arguments; MEMCPY tow_copy_3d (a host operand with its address:
 * the worker has the same); HOST u64 id of the function; MEM_ALLOC the record and its access
 * descriptions; BATCH_MEM_OP the record and its operations; all others the record of the driver API
 * with ids for handles.
 */
#ifndef TOW_WIRE_GRAPH_H
#define TOW_WIRE_GRAPH_H

#include <stdint.h>

enum {
    TOW_NODE_EDGES = 1, /* edge data follows the dependencies */
    TOW_NODE_DEPENDENCIES_MAX = 1 << 16,
    TOW_NODE_ACCESS_MAX = 1024,
    TOW_NODE_MEMOPS_MAX = 4096,
    TOW_NODE_GRAPHS_MAX = 1024, /* bodies of a conditional node */
};

struct tow_node_head {
    uint64_t id; /* minted by the client */
    uint64_t graph;
    uint64_t context; /* id, 0: the current one */
    uint32_t dependencies;
    uint32_t flags;
    uint32_t type; /* CUgraphNodeType */
    uint32_t reserved;
};

struct tow_node_set_head {
    uint64_t exec; /* id, 0: the graph's own node */
    uint64_t node;
    uint64_t context;
    uint32_t type;
    uint32_t reserved;
};

#endif
