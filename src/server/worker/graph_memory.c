/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through graphs and remembers what their allocation nodes hold. */
#include "server/worker/graph_memory.h"
#include "base/mutex.h"
#include "gen/graph.h"
#include "server/worker/ledger.h"

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
    bool launched; /* so the memory may be there, whatever becomes of the graph */
    bool freed;    /* since it was launched */
};

/* What an executable graph frees that others have left. */
struct tows_graph_frees {
    struct tows_graph_frees *next;
    CUgraphExec exec;
    size_t count;
    CUdeviceptr addresses[];
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
    struct tows_graph_left *left;   /* owned */
    struct inside *inside;          /* owned */
    struct tows_graph_frees *frees; /* owned */
    atomic_uint left_count;         /* looked at without the lock */
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
    CUresult result = tow_drive(memory.driver, cuGraphNodeGetType)(node, &type);
    memset(&params, 0, sizeof params);
    if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        result = tow_drive(memory.driver, cuGraphMemAllocNodeGetParams)(node, &params);
        if (result == CUDA_SUCCESS) {
            walk_add_allocation(walk, &params);
        }
    } else if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        result = tow_drive(memory.driver, cuGraphMemFreeNodeGetParams)(node, &address);
        if (result == CUDA_SUCCESS) {
            walk_add_free(walk, address);
        }
    } else if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH) {
        result = tow_drive(memory.driver, cuGraphChildGraphNodeGetGraph)(node, &child);
        if (result == CUDA_SUCCESS) {
            walk_through(walk, child, depth + 1);
        }
    }
    walk->failed |= result != CUDA_SUCCESS;
}

/* What is not looked through may hold anything: the graph is refused. What is no graph at all the
 * driver will refuse, and say why. */
static void walk_through(struct walk *walk, CUgraph graph, unsigned depth)
{
    size_t count = 0;
    if (tow_drive(memory.driver, cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS ||
        depth >= NESTING_MAX || count > NODES_MAX) {
        walk->failed |= depth > 0 || count > 0;
        return;
    }
    CUgraphNode *nodes = count > 0 ? calloc(count, sizeof *nodes) : NULL;
    walk->failed |= count > 0 && (nodes == NULL || tow_drive(memory.driver, cuGraphGetNodes)(
                                                       graph, nodes, &count) != CUDA_SUCCESS);
    for (size_t i = 0; i < count && !walk->failed; i++) {
        walk_look(walk, nodes[i], depth);
    }
    free(nodes);
}

static int compare_addresses(const void *one, const void *other)
{
    const CUdeviceptr *a = one, *b = other;
    return (*a > *b) - (*a < *b);
}

/* They are sorted. */
static bool walk_frees(const struct walk *walk, CUdeviceptr address)
{
    return walk->free_count > 0 && bsearch(&address, walk->frees, walk->free_count,
                                           sizeof *walk->frees, compare_addresses) != NULL;
}

/* ---- reserving ---- */

static void free_charge(struct tows_graph_charge *charge)
{
    while (charge->left != NULL) {
        struct tows_graph_left *one = charge->left;
        charge->left = one->next;
        free(one);
    }
    free(charge->frees);
    charge->frees = NULL;
}

/* Takes the walk's allocations. All of a GPU is reserved at once: who waited for another
 * reservation with one of its own would wait for itself. */
static bool reserve_all(struct walk *walk, struct tows_graph_charge *charge)
{
    bool fits = !walk->failed;
    uint64_t sums[TOW_GRAPH_MEMORY_GPUS] = {0};
    while (walk->allocations != NULL) {
        struct tows_graph_left *one = walk->allocations;
        walk->allocations = one->next;
        one->size = tows_ledger_charge(one->size); /* so that the parts make up the sum */
        fits = fits && !__builtin_add_overflow(sums[one->device], one->size, &sums[one->device]);
        if (walk_frees(walk, one->address)) {
            charge->inside[one->device] += one->size; /* no more than the sum */
            free(one);
        } else {
            one->next = charge->left;
            charge->left = one;
        }
    }
    int reserved = 0;
    while (fits && reserved < TOW_GRAPH_MEMORY_GPUS) {
        fits = sums[reserved] == 0 || memory.ops->reserve(reserved, sums[reserved]);
        reserved += fits;
    }
    for (int i = 0; i < reserved && !fits; i++) {
        if (sums[i] != 0) {
            memory.ops->give_back(i, sums[i]);
        }
    }
    return fits;
}

bool tows_graph_memory_reserve(CUgraph graph, struct tows_graph_charge *ret_charge)
{
    struct walk walk = {0};
    memset(ret_charge, 0, sizeof *ret_charge);
    walk_through(&walk, graph, 0);
    if (walk.free_count > 0) {
        size_t size = walk.free_count * sizeof *walk.frees;
        struct tows_graph_frees *frees = malloc(sizeof *frees + size);
        qsort(walk.frees, walk.free_count, sizeof *walk.frees, compare_addresses);
        walk.failed |= frees == NULL;
        if (frees != NULL) {
            *frees = (struct tows_graph_frees){.count = walk.free_count};
            memcpy(frees->addresses, walk.frees, size);
            ret_charge->frees = frees;
        }
    }
    bool fits = reserve_all(&walk, ret_charge);
    free(walk.frees);
    if (!fits) {
        free_charge(ret_charge);
    }
    return fits;
}

static void give_all_back(struct tows_graph_charge *charge)
{
    for (const struct tows_graph_left *one = charge->left; one != NULL; one = one->next) {
        charge->inside[one->device] += one->size;
    }
    for (int i = 0; i < TOW_GRAPH_MEMORY_GPUS; i++) {
        if (charge->inside[i] != 0) {
            memory.ops->give_back(i, charge->inside[i]);
        }
    }
    free_charge(charge);
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
    for (struct tows_graph_left *one = charge->left; one != NULL; one = one->next) {
        one->exec = exec;
        one->key = memory.ops->book(one->device, one->size);
    }
    tow_mutex_lock(&memory.lock);
    while (charge->left != NULL) {
        struct tows_graph_left *one = charge->left;
        charge->left = one->next;
        one->next = memory.left;
        memory.left = one;
        atomic_fetch_add(&memory.left_count, 1);
    }
    if (charge->frees != NULL) {
        charge->frees->exec = exec;
        charge->frees->next = memory.frees;
        memory.frees = charge->frees;
        charge->frees = NULL;
    }
    tow_mutex_unlock(&memory.lock);
}

/* ---- launching ---- */

bool tows_graph_memory_launch(CUgraphExec exec)
{
    bool first = false;
    if (atomic_load_explicit(&memory.left_count, memory_order_relaxed) == 0) {
        return false;
    }
    tow_mutex_lock(&memory.lock);
    for (struct tows_graph_left *one = memory.left; one != NULL; one = one->next) {
        if (one->exec == exec) {
            first |= !one->launched;
            one->launched = true;
            one->freed = false;
        }
    }
    tow_mutex_unlock(&memory.lock);
    return first;
}

/* With the lock held: takes those out that nobody has any more. */
static struct tows_graph_left *take_gone(void)
{
    struct tows_graph_left *gone = NULL, **at = &memory.left;
    while (*at != NULL) {
        struct tows_graph_left *one = *at;
        if (one->exec == NULL && (one->freed || !one->launched)) {
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

void tows_graph_memory_launched(CUgraphExec exec, bool first, bool well)
{
    if (atomic_load_explicit(&memory.left_count, memory_order_relaxed) == 0) {
        return;
    }
    tow_mutex_lock(&memory.lock);
    for (struct tows_graph_left *one = memory.left; one != NULL && !well && first;
         one = one->next) {
        one->launched &= one->exec != exec;
    }
    const struct tows_graph_frees *frees = well ? memory.frees : NULL;
    while (frees != NULL && frees->exec != exec) {
        frees = frees->next;
    }
    for (struct tows_graph_left *one = memory.left; frees != NULL && one != NULL; one = one->next) {
        one->freed |= one->exec != exec && bsearch(&one->address, frees->addresses, frees->count,
                                                   sizeof one->address, compare_addresses) != NULL;
    }
    struct tows_graph_left *gone = take_gone();
    tow_mutex_unlock(&memory.lock);
    drop_gone(gone);
}

/* ---- the end ---- */

void tows_graph_memory_rename(CUgraphExec from, CUgraphExec to)
{
    tow_mutex_lock(&memory.lock);
    for (struct inside *one = memory.inside; one != NULL; one = one->next) {
        one->exec = one->exec == from ? to : one->exec;
    }
    for (struct tows_graph_left *one = memory.left; one != NULL; one = one->next) {
        one->exec = one->exec == from ? to : one->exec;
    }
    for (struct tows_graph_frees *one = memory.frees; one != NULL; one = one->next) {
        one->exec = one->exec == from ? to : one->exec;
    }
    tow_mutex_unlock(&memory.lock);
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
    for (struct tows_graph_frees **at = &memory.frees; *at != NULL;) {
        struct tows_graph_frees *one = *at;
        if (one->exec == exec) {
            *at = one->next;
            free(one);
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
