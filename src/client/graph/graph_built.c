/* SPDX-License-Identifier: Apache-2.0 */
/* Remembers the nodes of graphs that were built by hand, to answer without asking. */
#include "client/graph/graph_built.h"

#include <stdlib.h>

#include "base/mutex.h"
#include "client/session/handle.h"

/* The objects of their handles. */
struct graph {
    const struct towc_link *link; /* borrowed for ever; NULL: not known any more */
    struct node *nodes;           /* owned */
};

struct node {
    uint64_t id, graph;
    uint64_t serial; /* grows from one made to the next */
    uint64_t mark;   /* of the list in which it was seen last */
    struct towc_built_kernel kernel;
    struct node *next, **at; /* in the graph's list */
};

struct exec {
    uint64_t graph;  /* 0: not known any more */
    uint64_t serial; /* of the last node before it */
};

/* Process-wide: graphs belong to no context; numbers are never reused. */
static struct {
    struct tow_mutex lock; /* guards all of them, and the numbers here */
    uint64_t serials, marks;
} built = {.lock = TOW_MUTEX(CLIENT_GRAPH_BUILT)};

static struct graph *graph_of(uint64_t id)
{
    return towc_handle_object(TOW_H_GRAPH, id);
}

static struct node *node_of(uint64_t id)
{
    return towc_handle_object(TOW_H_GRAPHNODE, id);
}

CUresult towc_built_graph(const struct towc_link *link, uint64_t *ret_id)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph->link = link;
    CUresult status = towc_handle_mint_object(TOW_H_GRAPH, graph, ret_id);
    if (status != CUDA_SUCCESS) {
        free(graph);
    }
    return status;
}

CUresult towc_built_node(uint64_t graph, uint64_t *ret_id)
{
    tow_mutex_lock(&built.lock);
    struct graph *in = graph_of(graph);
    struct node *node = in != NULL ? calloc(1, sizeof *node) : NULL;
    CUresult status = towc_handle_mint_object(TOW_H_GRAPHNODE, node, ret_id);
    if (status != CUDA_SUCCESS) {
        free(node);
    } else if (node != NULL) {
        *node = (struct node){.id = *ret_id,
                              .graph = graph,
                              .serial = ++built.serials,
                              .next = in->nodes,
                              .at = &in->nodes};
        if (node->next != NULL) {
            node->next->at = &node->next;
        }
        in->nodes = node;
    }
    tow_mutex_unlock(&built.lock);
    return status;
}

CUresult towc_built_exec(uint64_t graph, uint64_t *ret_id)
{
    tow_mutex_lock(&built.lock);
    struct exec *exec = graph_of(graph) != NULL ? malloc(sizeof *exec) : NULL;
    if (exec != NULL) {
        *exec = (struct exec){.graph = graph, .serial = built.serials};
    }
    CUresult status = towc_handle_mint_object(TOW_H_GRAPHEXEC, exec, ret_id);
    if (status != CUDA_SUCCESS) {
        free(exec);
    }
    tow_mutex_unlock(&built.lock);
    return status;
}

bool towc_built_takes(uint64_t graph, const struct towc_link *link, const CUgraphNode *nodes,
                      size_t count)
{
    tow_mutex_lock(&built.lock);
    const struct graph *in = graph_of(graph);
    bool takes = in != NULL && in->link == link && (count == 0 || nodes != NULL);
    built.marks++;
    for (size_t i = 0; takes && i < count; i++) {
        struct node *node = node_of((uint64_t)(uintptr_t)nodes[i]);
        takes = node != NULL && node->graph == graph && node->mark != built.marks;
        if (takes) {
            node->mark = built.marks;
        }
    }
    tow_mutex_unlock(&built.lock);
    return takes;
}

void towc_built_runs(uint64_t node, struct towc_built_kernel kernel)
{
    tow_mutex_lock(&built.lock);
    struct node *found = node_of(node);
    if (found != NULL) {
        found->kernel = kernel;
    }
    tow_mutex_unlock(&built.lock);
}

bool towc_built_ran(uint64_t exec, const struct towc_link *link, uint64_t node,
                    struct towc_built_kernel kernel)
{
    tow_mutex_lock(&built.lock);
    const struct exec *in = towc_handle_object(TOW_H_GRAPHEXEC, exec);
    const struct graph *graph = in != NULL ? graph_of(in->graph) : NULL;
    const struct node *found = graph != NULL && graph->link == link ? node_of(node) : NULL;
    bool ran = found != NULL && found->graph == in->graph && found->serial <= in->serial &&
               kernel.function != 0 && found->kernel.function == kernel.function &&
               found->kernel.place == kernel.place;
    tow_mutex_unlock(&built.lock);
    return ran;
}

void towc_built_node_changes(uint64_t node, struct towc_built_kernel kernel)
{
    tow_mutex_lock(&built.lock);
    struct node *found = node_of(node);
    if (found != NULL &&
        (found->kernel.function != kernel.function || found->kernel.place != kernel.place)) {
        found->kernel.function = 0; /* an executable graph may have either */
    }
    tow_mutex_unlock(&built.lock);
}

void towc_built_exec_changes(uint64_t exec)
{
    tow_mutex_lock(&built.lock);
    struct exec *found = towc_handle_object(TOW_H_GRAPHEXEC, exec);
    if (found != NULL) {
        found->graph = 0;
    }
    tow_mutex_unlock(&built.lock);
}

void towc_built_graph_moves(uint64_t graph)
{
    tow_mutex_lock(&built.lock);
    struct graph *found = graph_of(graph);
    if (found != NULL) {
        found->link = NULL;
    }
    tow_mutex_unlock(&built.lock);
}

static void end_node(struct node *node)
{
    towc_handle_retire(node->id);
    *node->at = node->next;
    if (node->next != NULL) {
        node->next->at = node->at;
    }
    free(node);
}

void towc_built_end(uint64_t id)
{
    tow_mutex_lock(&built.lock);
    struct node *node = node_of(id);
    if (node != NULL) {
        end_node(node);
    } else {
        struct graph *graph = graph_of(id);
        while (graph != NULL && graph->nodes != NULL) {
            end_node(graph->nodes);
        }
        free(towc_handle_retire(id)); /* the graph, the executable one, or nothing */
    }
    tow_mutex_unlock(&built.lock);
}
