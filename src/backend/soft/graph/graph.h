/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as their files see them: graph.c (structure), graph_nodes.c (what nodes do),
 * graph_condition.c (conditional nodes), graph_exec.c (instances and launches), graph_capture.c.
 * All of it is guarded by tow_soft.lock. */
#ifndef TOW_SOFT_GRAPH_H
#define TOW_SOFT_GRAPH_H

#include "backend/soft/engine/work.h"
#include "backend/soft/ground/handle.h"

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

/* What a conditional node asks. Kept by its graph and by the work of the node. */
struct tow_soft_condition {
    struct tow_soft_object object;
    unsigned refs;
    uint64_t ctx;                 /* handle: whose kernels may set it */
    struct tow_soft_graph *graph; /* borrowed: whose it is; NULL once that is gone */
    struct tow_soft_condition *next;
    bool taken;  /* a node has it */
    bool assign; /* each launch begins with `initial` */
    uint32_t initial;
    _Atomic uint32_t value; /* changed under the lock, read by the thread that runs the graph */
};

struct tow_soft_graph {
    struct tow_soft_object object;
    struct tow_soft_node **nodes; /* owned, in order of creation */
    size_t count, capacity;
    struct tow_soft_node *inside; /* borrowed: the child graph node or conditional node that owns
                                     this; NULL if a user does */
    bool anonymous;               /* of an instance: neither it nor its nodes have handles */
    struct {
        struct tow_soft_user_object *object;
        unsigned count;
    } * users; /* owned array, counted objects */
    size_t user_count;
    struct tow_soft_condition *conditions; /* counted */
    uint64_t only_exec; /* handle of the latest instance, if there may be one only */
    /* Of an instance, and of the bodies in it: the leaves as they run, child graphs taken apart. */
    struct tow_soft_node **order; /* owned array */
    size_t order_count;
    struct tow_soft_graph *prev, *next; /* all graphs */
};

/* A graph ready to run. Launches hold on to the plan they were made with; whoever changes an
 * instance whose plan is in use makes a new one first. */
struct tow_soft_plan {
    unsigned refs;
    struct tow_soft_graph *graph; /* owned: an anonymous copy */
    size_t mark_count;            /* events that it records */
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
/* Whether it has memory or conditional nodes: then there is at most one instance of it, no clone,
 * and it becomes no child graph. */
bool tow_soft_graph_is_unique(const struct tow_soft_graph *graph);
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
/* The same for a conditional node that will be in `graph`: its bodies are empty. */
CUresult tow_soft_branch_build(struct tow_soft_ctx *ctx, const struct tow_soft_graph *graph,
                               const CUDA_CONDITIONAL_NODE_PARAMS *params,
                               struct tow_soft_work *ret_work);
/* For an instance. */
CUresult tow_soft_branch_copy(const struct tow_soft_work *from, struct tow_soft_work *ret_work);
/* Gives an instance's node the condition of another one. */
void tow_soft_branch_adopt(struct tow_soft_work *work, const struct tow_soft_work *from);
/* Whether the graph, if it is in a body at any depth, may get such a node. */
CUresult tow_soft_body_takes(const struct tow_soft_graph *graph, CUgraphNodeType type,
                             const struct tow_soft_work *work);
void tow_soft_conditions_drop(struct tow_soft_graph *graph);
/* Makes sure that nothing but the instance uses its plan. */
CUresult tow_soft_exec_own(struct tow_soft_exec *exec);
/* cuGraphExecChildGraphNodeSetParams; takes the lock. */
CUresult tow_soft_exec_set_child(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph);
/* Puts new work into a node of the same kind. */
CUresult tow_soft_node_replace(struct tow_soft_node *node, struct tow_soft_work *work);
void tow_soft_user_object_put(struct tow_soft_user_object *object, unsigned count);

void tow_soft_graph_free(struct tow_soft_graph *graph);
void tow_soft_exec_end(struct tow_soft_object *object);
/* What a kernel of the context sets a condition to; -1 if it has none of that handle. Takes the
 * lock. */
int tow_soft_condition_set(const struct tow_soft_ctx *ctx, uint64_t handle, uint32_t value);
/* Graphs outlive contexts, but their nodes let go of what dies with this one. */
void tow_soft_graphs_forget(struct tow_soft_ctx *ctx);
void tow_soft_graphs_fini(void);
extern const struct tow_soft_work_ops tow_soft_plan_ops, tow_soft_child_ops, tow_soft_branch_ops;

#endif
