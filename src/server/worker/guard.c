/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps driver functions whose arguments the driver would use unchecked. */
#include "server/worker/guard.h"
#include "base/mutex.h"
#include "gen/graph.h"
#include "gen/interop.h"
#include "gen/memory.h"
#include "gen/vmm.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 4096,
    NESTING_MAX = 32,    /* child graphs within child graphs; deeper ones are not looked into */
    NODES_MAX = 1 << 20, /* of a graph that becomes a child */
};

/* A generic allocation handle that the client may have. */
struct live {
    CUmemGenericAllocationHandle value;
    unsigned refs; /* how often it must be released; 0: it is being */
    unsigned uses; /* calls that name it just now */
    struct live *next;
};

static struct {
    struct tow_driver next;    /* the driver itself */
    struct tow_mutex lock;     /* guards all below; no driver is called with it held */
    pthread_cond_t unused;     /* a handle that is being released is not used any more */
    struct live *all[BUCKETS]; /* owned */
} guard = {.lock = TOW_MUTEX(SERVER_GUARD), .unused = PTHREAD_COND_INITIALIZER};

/* ---- generic allocation handles ---- */

/* With the lock held: where it is, or would be. */
static struct live **place_of(CUmemGenericAllocationHandle value)
{
    struct live **at = &guard.all[(value >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 52];
    while (*at != NULL && (*at)->value != value) {
        at = &(*at)->next;
    }
    return at;
}

/* After the driver gave it out. It may be one that the client has already. */
static CUresult guard_add(CUmemGenericAllocationHandle value)
{
    tow_mutex_lock(&guard.lock);
    struct live **at = place_of(value);
    if (*at == NULL) {
        *at = calloc(1, sizeof **at);
    }
    bool added = *at != NULL;
    if (added) {
        (*at)->value = value;
        (*at)->refs++;
    }
    tow_mutex_unlock(&guard.lock);
    if (!added) {
        tow_drive(&guard.next, cuMemRelease)(value);
    }
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult guard_use(CUmemGenericAllocationHandle value)
{
    tow_mutex_lock(&guard.lock);
    struct live *live = *place_of(value);
    bool there = live != NULL && live->refs > 0;
    if (there) {
        live->uses++;
    }
    tow_mutex_unlock(&guard.lock);
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult guard_used(CUmemGenericAllocationHandle value, CUresult result)
{
    tow_mutex_lock(&guard.lock);
    if (--(*place_of(value))->uses == 0) {
        pthread_cond_broadcast(&guard.unused);
    }
    tow_mutex_unlock(&guard.lock);
    return result;
}

static CUresult mem_create(CUmemGenericAllocationHandle *ret, size_t size,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = tow_drive(&guard.next, cuMemCreate)(ret, size, prop, flags);
    return result == CUDA_SUCCESS ? guard_add(*ret) : result;
}

static CUresult mem_import(CUmemGenericAllocationHandle *ret, void *os,
                           CUmemAllocationHandleType type)
{
    CUresult result = tow_drive(&guard.next, cuMemImportFromShareableHandle)(ret, os, type);
    return result == CUDA_SUCCESS ? guard_add(*ret) : result;
}

static CUresult mem_retain(CUmemGenericAllocationHandle *ret, void *address)
{
    CUresult result = tow_drive(&guard.next, cuMemRetainAllocationHandle)(ret, address);
    return result == CUDA_SUCCESS ? guard_add(*ret) : result;
}

static CUresult multicast_create(CUmemGenericAllocationHandle *ret,
                                 const CUmulticastObjectProp *prop)
{
    CUresult result = tow_drive(&guard.next, cuMulticastCreate)(ret, prop);
    return result == CUDA_SUCCESS ? guard_add(*ret) : result;
}

static CUresult mem_release(CUmemGenericAllocationHandle value)
{
    tow_mutex_lock(&guard.lock);
    struct live *live;
    /* The last reference is given up when nobody uses it. Another thread may do so meanwhile. */
    while ((live = *place_of(value)) != NULL && live->refs == 1 && live->uses > 0) {
        tow_mutex_wait(&guard.lock, &guard.unused);
    }
    if (live == NULL) {
        tow_mutex_unlock(&guard.lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--live->refs == 0) {
        /* Before the driver can give it out again. */
        struct live **at = place_of(value);
        *at = live->next;
        free(live);
    }
    tow_mutex_unlock(&guard.lock);
    return tow_drive(&guard.next, cuMemRelease)(value);
}

static CUresult mem_map(CUdeviceptr ptr, size_t size, size_t offset,
                        CUmemGenericAllocationHandle value, unsigned long long flags)
{
    CUresult result = guard_use(value);
    return result == CUDA_SUCCESS
               ? guard_used(value,
                            tow_drive(&guard.next, cuMemMap)(ptr, size, offset, value, flags))
               : result;
}

static CUresult mem_export(void *ret, CUmemGenericAllocationHandle value,
                           CUmemAllocationHandleType type, unsigned long long flags)
{
    CUresult result = guard_use(value);
    return result == CUDA_SUCCESS
               ? guard_used(value, tow_drive(&guard.next,
                                             cuMemExportToShareableHandle)(ret, value, type, flags))
               : result;
}

static CUresult mem_properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle value)
{
    CUresult result = guard_use(value);
    return result == CUDA_SUCCESS
               ? guard_used(value, tow_drive(&guard.next,
                                             cuMemGetAllocationPropertiesFromHandle)(ret, value))
               : result;
}

static CUresult multicast_add(CUmemGenericAllocationHandle value, CUdevice device)
{
    CUresult result = guard_use(value);
    return result == CUDA_SUCCESS
               ? guard_used(value, tow_drive(&guard.next, cuMulticastAddDevice)(value, device))
               : result;
}

static CUresult multicast_bind(CUmemGenericAllocationHandle value, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset,
                               size_t size, unsigned long long flags)
{
    CUresult result = guard_use(value);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = guard_use(memory);
    if (result == CUDA_SUCCESS) {
        result = guard_used(memory, tow_drive(&guard.next, cuMulticastBindMem)(
                                        value, offset, memory, memory_offset, size, flags));
    }
    return guard_used(value, result);
}

static CUresult multicast_bind_address(CUmemGenericAllocationHandle value, size_t offset,
                                       CUdeviceptr address, size_t size, unsigned long long flags)
{
    CUresult result = guard_use(value);
    return result == CUDA_SUCCESS ? guard_used(value, tow_drive(&guard.next, cuMulticastBindAddr)(
                                                          value, offset, address, size, flags))
                                  : result;
}

static CUresult multicast_unbind(CUmemGenericAllocationHandle value, CUdevice device, size_t offset,
                                 size_t size)
{
    CUresult result = guard_use(value);
    return result == CUDA_SUCCESS
               ? guard_used(value,
                            tow_drive(&guard.next, cuMulticastUnbind)(value, device, offset, size))
               : result;
}

/* Only what is mapped has memory: of the others the driver must not look at a handle. */
static bool guard_maps(const CUarrayMapInfo *info)
{
    return info->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
}

static CUresult map_arrays(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    unsigned taken = 0;
    while (taken < count && result == CUDA_SUCCESS) {
        CUarrayMapInfo *info = &list[taken];
        if (info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (guard_maps(info)) {
            result = guard_use(info->memHandle.memHandle);
        } else {
            info->memHandle.memHandle = 0;
        }
        taken += result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = tow_drive(&guard.next, cuMemMapArrayAsync)(list, count, stream);
    }
    for (unsigned i = 0; i < taken; i++) {
        if (guard_maps(&list[i])) {
            guard_used(list[i].memHandle.memHandle, result);
        }
    }
    return result;
}

/* ---- addresses that are not copied from or to ---- */

/* Or names nothing: the driver says what it thinks of that. */
static bool is_known(const void *address)
{
    unsigned type = 0;
    return address == NULL || tow_drive(&guard.next, cuPointerGetAttribute)(
                                  &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  (CUdeviceptr)(uintptr_t)address) == CUDA_SUCCESS;
}

static CUresult guard_decompress(CUmemDecompressParams *list, size_t count, unsigned flags,
                                 size_t *error_index, CUstream stream)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_known(list[i].src) || !is_known(list[i].dst) || !is_known(list[i].dstActBytes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return tow_drive(&guard.next, cuMemBatchDecompressAsync)(list, count, flags, error_index,
                                                             stream);
}

/* ---- graphs within themselves ---- */

/* The driver copies a child graph without end if it is, or holds, the one it is to be in. */
static bool guard_holds(CUgraph graph, CUgraph wanted, unsigned depth)
{
    size_t count = 0;
    if (graph == wanted) {
        return true;
    }
    if (depth == NESTING_MAX ||
        tow_drive(&guard.next, cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS ||
        count == 0 || count > NODES_MAX) {
        return depth == NESTING_MAX || count > NODES_MAX;
    }
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    bool found = nodes == NULL;
    if (!found && tow_drive(&guard.next, cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count && !found; i++) {
            CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
            CUgraph child = NULL;
            found = tow_drive(&guard.next, cuGraphNodeGetType)(nodes[i], &type) == CUDA_SUCCESS &&
                    type == CU_GRAPH_NODE_TYPE_GRAPH &&
                    tow_drive(&guard.next, cuGraphChildGraphNodeGetGraph)(nodes[i], &child) ==
                        CUDA_SUCCESS &&
                    guard_holds(child, wanted, depth + 1);
        }
    }
    free(nodes);
    return found;
}

static CUresult add_child(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count, CUgraph child)
{
    if (child != NULL && guard_holds(child, graph, 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return tow_drive(&guard.next, cuGraphAddChildGraphNode)(ret, graph, dependencies, count, child);
}

static CUresult add_node(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_GRAPH && params->graph.graph != NULL &&
        guard_holds(params->graph.graph, graph, 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return tow_drive(&guard.next, cuGraphAddNode_v2)(ret, graph, dependencies, edges, count,
                                                     params);
}

void tows_guard_install(struct tow_driver *driver)
{
    guard.next = *driver;
    tow_driver_set(driver, cuMemCreate, mem_create);
    tow_driver_set(driver, cuMemRelease, mem_release);
    tow_driver_set(driver, cuMemMap, mem_map);
    tow_driver_set(driver, cuMemExportToShareableHandle, mem_export);
    tow_driver_set(driver, cuMemImportFromShareableHandle, mem_import);
    tow_driver_set(driver, cuMemRetainAllocationHandle, mem_retain);
    tow_driver_set(driver, cuMemGetAllocationPropertiesFromHandle, mem_properties);
    tow_driver_set(driver, cuMemMapArrayAsync, map_arrays);
    tow_driver_set(driver, cuMulticastCreate, multicast_create);
    tow_driver_set(driver, cuMulticastAddDevice, multicast_add);
    tow_driver_set(driver, cuMulticastBindMem, multicast_bind);
    tow_driver_set(driver, cuMulticastBindAddr, multicast_bind_address);
    tow_driver_set(driver, cuMulticastUnbind, multicast_unbind);
    tow_driver_set(driver, cuMemBatchDecompressAsync, guard_decompress);
    tow_driver_set(driver, cuGraphAddChildGraphNode, add_child);
    tow_driver_set(driver, cuGraphAddNode_v2, add_node);
}
