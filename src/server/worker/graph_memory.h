/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of graphs' allocation nodes, for the session's account. An executable graph may be
 * launched at any moment, and nothing is refused then: all that its nodes allocate counts from when
 * it is made until it is destroyed. What it does not free itself counts longer if it was launched:
 * until a call or another graph that is launched frees it. */
#ifndef TOW_SERVER_GRAPH_MEMORY_H
#define TOW_SERVER_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/driver.h"

enum { TOW_GRAPH_MEMORY_GPUS = 16 };

struct tows_graph_memory_ops {
    bool (*reserve)(int device, uint64_t size);
    void (*give_back)(int device, uint64_t size);
    uint64_t (*book)(int device, uint64_t size); /* what was reserved: its key */
    void (*drop)(uint64_t key);
};

struct tows_graph_left;  /* an allocation that the graph does not free */
struct tows_graph_frees; /* what it frees */

/* What is reserved for a graph. */
struct tows_graph_charge {
    uint64_t inside[TOW_GRAPH_MEMORY_GPUS]; /* of what it frees itself */
    struct tows_graph_left *left;           /* owned */
    struct tows_graph_frees *frees;         /* owned */
};

/* Both are borrowed for the process's life. */
void tows_graph_memory_begin(const struct tow_driver *driver,
                             const struct tows_graph_memory_ops *ops);

/* Before a graph becomes executable. False: there is no room for its memory, or it cannot be told.
 */
bool tows_graph_memory_reserve(CUgraph graph, struct tows_graph_charge *ret_charge);
/* Afterwards: what it has become, or NULL. */
void tows_graph_memory_confirm(struct tows_graph_charge *charge, CUgraphExec exec);

/* Before the driver launches one, and afterwards: with what the first of them said, and whether it
 * went well. */
bool tows_graph_memory_launch(CUgraphExec exec);
void tows_graph_memory_launched(CUgraphExec exec, bool first, bool well);

/* It is destroyed. The driver may give out its handle again at once: before it is asked to, the
 * graph gets a name that no driver gives out. */
void tows_graph_memory_rename(CUgraphExec from, CUgraphExec to);
void tows_graph_memory_end(CUgraphExec exec);
/* An address was freed otherwise. */
void tows_graph_memory_freed(CUdeviceptr address);

#endif
