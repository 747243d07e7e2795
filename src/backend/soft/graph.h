/* Graphs as their files see them: graph.c (structure), graph_nodes.c (what nodes do), graph_exec.c
 * (instances and launches), capture.c. All of it is guarded by tow_soft.lock. */
#ifndef TOW_SOFT_GRAPH_H
#define TOW_SOFT_GRAPH_H

#include "backend/soft/soft.h"

#define TOW_SOFT_NODES_MAX (1u << 20)

struct tow_soft_node;

struct tow_soft_edge {
    struct tow_soft_node *from; /* borrowed: a node of the same graph */
    CUgraphEdgeData data;
};

struct tow_soft_node {
    struct tow_soft_object object; /* no handle in a graph that belongs to an instance */
    struct tow_soft_graph *graph;  /* borrowed: it owns us */
    CUgraphNodeType type;
    struct tow_soft_work work;   /* EMPTY once the context it needed is gone */
    struct tow_soft_edge *edges; /* owned: what must be done before */
    size_t edge_count, edge_capacity;
    uint64_t origin;       /* handle of the node that this is a copy of; 0 if none */
    void **param_pointers; /* owned: what a kernel node's query handed out */
    size_t index;          /* in graph->nodes; scratch for sorting */
    size_t pending;        /* scratch for sorting */
    size_t mark;           /* of an event record: which of the launch's marks */
    bool disabled;
};

struct tow_soft_graph {
    struct tow_soft_object object;
    struct tow_soft_node **nodes; /* owned, in order of creation */
    size_t count, capacity;
    struct tow_soft_node
        *inside;    /* borrowed: the child graph node that owns this; NULL if a user does */
    bool anonymous; /* of an instance: neither it nor its nodes have handles */
    struct {
        struct tow_soft_user_object *object;
        unsigned count;
    } * users; /* owned array, counted objects */
    size_t user_count;
    uint64_t memory_exec;               /* handle of the latest instance, if it has memory nodes */
    struct tow_soft_graph *prev, *next; /* all graphs */
};

/* A graph ready to run. Launches hold on to the plan they were made with; whoever changes an
 * instance whose plan is in use makes a new one first. */
struct tow_soft_plan {
    unsigned refs;
    struct tow_soft_graph *graph; /* owned: an anonymous copy */
    struct tow_soft_node **order; /* owned array: leaves only, child graphs are taken apart */
    size_t count;
    size_t mark_count; /* events that it records */
    bool auto_free;
};

struct tow_soft_exec {
    struct tow_soft_object object;
    struct tow_soft_plan *plan; /* counted */
    unsigned long long flags;
    struct tow_soft_mark *last; /* counted: the end of its latest launch; NULL before the first */
};

extern struct tow_soft_graph *tow_soft_graphs;

struct tow_soft_graph *tow_soft_graph_create(bool anonymous);
struct tow_soft_graph *tow_soft_graph_copy(const struct tow_soft_graph *graph, bool anonymous);
/* Whether it allocates or frees: then it has at most one instance and no clone. */
bool tow_soft_graph_has_memory(const struct tow_soft_graph *graph);
/* Adds a node and takes the work over, also on failure. Edges are given as handles, or as none. */
CUresult tow_soft_graph_add(struct tow_soft_graph *graph, const CUgraphNode *from,
                            const CUgraphEdgeData *data, size_t count, CUgraphNodeType type,
                            struct tow_soft_work *work, struct tow_soft_node **ret_node);
void tow_soft_node_free(struct tow_soft_node *node);
/* Sorts the nodes so that each follows what it needs; *ret_order is the caller's. -ELOOP for a
 * cycle. */
int tow_soft_graph_order(struct tow_soft_graph *graph, struct tow_soft_node ***ret_order);
CUgraphNodeType tow_soft_node_type_of(const struct tow_soft_work *work);
struct tow_soft_graph *tow_soft_graph_lookup(CUgraph handle);
struct tow_soft_node *tow_soft_node_lookup(CUgraphNode handle);
/* The node of an instance that stands for a node of the graph it was made of. */
struct tow_soft_node *tow_soft_exec_node(struct tow_soft_exec *exec, CUgraphNode handle);
/* Builds the work that a node's parameters describe. */
CUresult tow_soft_node_build(struct tow_soft_ctx *ctx, const CUgraphNodeParams *params,
                             struct tow_soft_work *ret_work);
/* Makes sure that nothing but the instance uses its plan. */
CUresult tow_soft_exec_own(struct tow_soft_exec *exec);
/* cuGraphExecChildGraphNodeSetParams; takes the lock. */
CUresult tow_soft_exec_set_child(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph);
/* Puts new work into a node of the same kind. */
CUresult tow_soft_node_replace(struct tow_soft_node *node, struct tow_soft_work *work);
void tow_soft_user_object_put(struct tow_soft_user_object *object, unsigned count);

#endif
