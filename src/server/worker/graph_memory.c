/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through graphs and remembers what their allocation nodes hold. */
#include "server/worker/graph_memory.h"
#include "base/mutex.h"
#include "gen/graph.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MAX = 32, NODES_MAX = 1 << 20 };

struct tows_graph_left {
    struct tows_graph_left *next;
    CUgraphExec exec; /* NULL: destroyed */
    CUdeviceptr address;
    uint64_t size, key;
    int device;
    bool freed;
};

/* What one executable graph has inside, on one GPU. */
struct inside {
    struct inside *next;
    CUgraphExec exec;
    uint64_t key;
};

static struct {
    const struct tow_driver *driver;
    const struct tows_graph_memory_ops *ops;
    struct tow_mutex
        lock; /* guards all below; neither the driver nor the account is called in it */
    struct tows_graph_left *left; /* owned */
    struct inside *inside;        /* owned */
    atomic_uint left_count;       /* looked at without the lock */
} memory = {.lock = TOW_MUTEX(SERVER_GRAPH_MEMORY)};

void tows_graph_memory_begin(const struct tow_driver *driver,
                             const struct tows_graph_memory_ops *ops)
{
    memory.driver = driver;
    memory.ops = ops;
}

/* ---- what there is in a graph ---- */

/* The nodes of one graph and of those within it. */
struct walk {
    struct tows_graph_left *allocations; /* owned */
    CUdeviceptr *frees;                  /* owned */
    size_t free_count, free_room;
    bool failed;
};

static void walk_add_free(struct walk *walk, CUdeviceptr address)
{
    if (walk->free_count == walk->free_room) {
        size_t room = walk->free_room == 0 ? 16 : 2 * walk->free_room;
        CUdeviceptr *frees = realloc(walk->frees, room * sizeof *frees);
        if (frees == NULL) {
            walk->failed = true;
            return;
        }
        walk->frees = frees;
        walk->free_room = room;
    }
    walk->frees[walk->free_count++] = address;
}

static void walk_add_allocation(struct walk *walk, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct tows_graph_left *one = calloc(1, sizeof *one);
    int device = params->poolProps.location.id;
    if (one == NULL) {
        walk->failed = true;
        return;
    }
    *one = (struct tows_graph_left){.next = walk->allocations,
                                    .address = params->dptr,
                                    .size = params->bytesize,
                                    .device = device >= 0 && device < TOW_GRAPH_MEMORY_GPUS
                                                  ? device
                                                  : TOW_GRAPH_MEMORY_GPUS - 1};
    walk->allocations = one;
}

static void walk_through(struct walk *walk, CUgraph graph, unsigned depth);

static void walk_look(struct walk *walk, CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUdeviceptr address = 0;
    CUgraph child = NULL;
    if (tow_drive(memory.driver, cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) {
        return;
    }
    memset(&params, 0, sizeof params);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        tow_drive(memory.driver, cuGraphMemAllocNodeGetParams)(node, &params) == CUDA_SUCCESS) {
        walk_add_allocation(walk, &params);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
               tow_drive(memory.driver, cuGraphMemFreeNodeGetParams)(node, &address) ==
                   CUDA_SUCCESS) {
        walk_add_free(walk, address);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
               tow_drive(memory.driver, cuGraphChildGraphNodeGetGraph)(node, &child) ==
                   CUDA_SUCCESS) {
        walk_through(walk, child, depth + 1);
    }
}

static void walk_through(struct walk *walk, CUgraph graph, unsigned depth)
{
    size_t count = 0;
    if (depth >= NESTING_MAX ||
        tow_drive(memory.driver, cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS ||
        count == 0 || count > NODES_MAX) {
        return;
    }
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    walk->failed |= nodes == NULL;
    if (nodes != NULL &&
        tow_drive(memory.driver, cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count && !walk->failed; i++) {
            walk_look(walk, nodes[i], depth);
        }
    }
    free(nodes);
}

static bool walk_frees(const struct walk *walk, CUdeviceptr address)
{
    for (size_t i = 0; i < walk->free_count; i++) {
        if (walk->frees[i] == address) {
            return true;
        }
    }
    return false;
}

/* ---- reserving ---- */

static void give_all_back(struct tows_graph_charge *charge)
{
    for (int i = 0; i < TOW_GRAPH_MEMORY_GPUS; i++) {
        if (charge->inside[i] != 0) {
            memory.ops->give_back(i, charge->inside[i]);
        }
    }
    while (charge->left != NULL) {
        struct tows_graph_left *one = charge->left;
        charge->left = one->next;
        memory.ops->give_back(one->device, one->size);
        free(one);
    }
}

/* Takes the walk's allocations. */
static bool reserve_all(struct walk *walk, struct tows_graph_charge *charge)
{
    uint64_t inside[TOW_GRAPH_MEMORY_GPUS] = {0};
    bool fits = !walk->failed;
    while (walk->allocations != NULL) {
        struct tows_graph_left *one = walk->allocations;
        walk->allocations = one->next;
        uint64_t *sum = &inside[one->device];
        if (fits && walk_frees(walk, one->address)) {
            fits = !__builtin_add_overflow(*sum, one->size, sum);
        } else if (fits && memory.ops->reserve(one->device, one->size)) {
            one->next = charge->left;
            charge->left = one;
            continue;
        } else {
            fits = false;
        }
        free(one);
    }
    for (int i = 0; i < TOW_GRAPH_MEMORY_GPUS && fits; i++) {
        fits = inside[i] == 0 || memory.ops->reserve(i, inside[i]);
        charge->inside[i] = fits ? inside[i] : 0;
    }
    return fits;
}

bool tows_graph_memory_reserve(CUgraph graph, struct tows_graph_charge *ret_charge)
{
    struct walk walk = {0};
    memset(ret_charge, 0, sizeof *ret_charge);
    walk_through(&walk, graph, 0);
    /* What other graphs have left, this one will free. */
    for (size_t i = 0; i < walk.free_count; i++) {
        tows_graph_memory_freed(walk.frees[i]);
    }
    bool fits = reserve_all(&walk, ret_charge);
    free(walk.frees);
    if (!fits) {
        give_all_back(ret_charge);
    }
    return fits;
}

void tows_graph_memory_confirm(struct tows_graph_charge *charge, CUgraphExec exec)
{
    if (exec == NULL) {
        give_all_back(charge);
        return;
    }
    for (int i = 0; i < TOW_GRAPH_MEMORY_GPUS; i++) {
        struct inside *inside = charge->inside[i] != 0 ? calloc(1, sizeof *inside) : NULL;
        uint64_t key = charge->inside[i] != 0 ? memory.ops->book(i, charge->inside[i]) : 0;
        if (inside != NULL) { /* else it counts to the session's end */
            *inside = (struct inside){.exec = exec, .key = key};
            tow_mutex_lock(&memory.lock);
            inside->next = memory.inside;
            memory.inside = inside;
            tow_mutex_unlock(&memory.lock);
        }
    }
    while (charge->left != NULL) {
        struct tows_graph_left *one = charge->left;
        charge->left = one->next;
        one->exec = exec;
        one->key = memory.ops->book(one->device, one->size);
        tow_mutex_lock(&memory.lock);
        one->next = memory.left;
        memory.left = one;
        atomic_fetch_add(&memory.left_count, 1);
        tow_mutex_unlock(&memory.lock);
    }
}

/* ---- the end ---- */

/* With the lock held: takes those out that nobody has any more. */
static struct tows_graph_left *take_gone(void)
{
    struct tows_graph_left *gone = NULL, **at = &memory.left;
    while (*at != NULL) {
        struct tows_graph_left *one = *at;
        if (one->exec == NULL && one->freed) {
            *at = one->next;
            one->next = gone;
            gone = one;
            atomic_fetch_sub(&memory.left_count, 1);
        } else {
            at = &one->next;
        }
    }
    return gone;
}

static void drop_gone(struct tows_graph_left *gone)
{
    while (gone != NULL) {
        struct tows_graph_left *one = gone;
        gone = one->next;
        memory.ops->drop(one->key);
        free(one);
    }
}

void tows_graph_memory_end(CUgraphExec exec)
{
    struct inside *ended = NULL;
    tow_mutex_lock(&memory.lock);
    for (struct inside **at = &memory.inside; *at != NULL;) {
        struct inside *one = *at;
        if (one->exec == exec) {
            *at = one->next;
            one->next = ended;
            ended = one;
        } else {
            at = &one->next;
        }
    }
    for (struct tows_graph_left *one = memory.left; one != NULL; one = one->next) {
        one->exec = one->exec == exec ? NULL : one->exec;
    }
    struct tows_graph_left *gone = take_gone();
    tow_mutex_unlock(&memory.lock);
    while (ended != NULL) {
        struct inside *one = ended;
        ended = one->next;
        memory.ops->drop(one->key);
        free(one);
    }
    drop_gone(gone);
}

void tows_graph_memory_freed(CUdeviceptr address)
{
    if (atomic_load_explicit(&memory.left_count, memory_order_relaxed) == 0) {
        return;
    }
    tow_mutex_lock(&memory.lock);
    for (struct tows_graph_left *one = memory.left; one != NULL; one = one->next) {
        one->freed |= one->address == address;
    }
    struct tows_graph_left *gone = take_gone();
    tow_mutex_unlock(&memory.lock);
    drop_gone(gone);
}
