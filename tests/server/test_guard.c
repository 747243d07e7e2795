/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches the driver is what it gave out: a driver that says so stands for NVIDIA's, which
 * crashes.
 */
#include "cmocka_all.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/worker/guard.h"
#include "gen/graph.h"
#include "gen/interop.h"
#include "gen/memory.h"
#include "gen/vmm.h"

enum { MEMORIES = 8, GARBAGE = 6 };

static struct tow_driver driver;
static int refs[MEMORIES]; /* of the handles 16, 32, ... */
static int wrong;          /* calls that named another */
static atomic_bool held;   /* cuMemMap says when it has begun, and waits to go on */
static sem_t begun, go_on;

static void look_at(CUmemGenericAllocationHandle value)
{
    wrong += value % 16 != 0 || value == 0 || value / 16 > MEMORIES || refs[value / 16 - 1] == 0;
}

static CUresult fake_create(CUmemGenericAllocationHandle *ret, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)size, (void)prop, (void)flags;
    int i = 0;
    while (refs[i] > 0) {
        i++;
    }
    refs[i] = 1;
    *ret = 16 * (unsigned)(i + 1);
    return CUDA_SUCCESS;
}

static CUresult fake_retain(CUmemGenericAllocationHandle *ret, void *address)
{
    (void)address;
    refs[0]++;
    *ret = 16;
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle value)
{
    look_at(value);
    refs[value / 16 - 1]--;
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr at, size_t size, size_t offset,
                         CUmemGenericAllocationHandle value, unsigned long long flags)
{
    (void)at, (void)size, (void)offset, (void)flags;
    look_at(value);
    if (atomic_load(&held)) {
        sem_post(&begun);
        sem_wait(&go_on);
        look_at(value);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_import(CUmemGenericAllocationHandle *ret, void *os,
                            CUmemAllocationHandleType type)
{
    (void)os, (void)type;
    return fake_create(ret, 0, NULL, 0);
}

static CUresult fake_multicast(CUmemGenericAllocationHandle *ret, const CUmulticastObjectProp *prop)
{
    (void)prop;
    return fake_create(ret, 0, NULL, 0);
}

static CUresult fake_device(CUmemGenericAllocationHandle value, CUdevice device)
{
    (void)device;
    look_at(value);
    return CUDA_SUCCESS;
}

static CUresult fake_bind_address(CUmemGenericAllocationHandle value, size_t offset, CUdeviceptr at,
                                  size_t size, unsigned long long flags)
{
    (void)offset, (void)at, (void)size, (void)flags;
    look_at(value);
    return CUDA_SUCCESS;
}

static CUresult fake_unbind(CUmemGenericAllocationHandle value, CUdevice device, size_t offset,
                            size_t size)
{
    (void)device, (void)offset, (void)size;
    look_at(value);
    return CUDA_SUCCESS;
}

static CUresult fake_export(void *ret, CUmemGenericAllocationHandle value,
                            CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)ret, (void)type, (void)flags;
    look_at(value);
    return CUDA_SUCCESS;
}

static CUresult fake_properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle value)
{
    (void)ret;
    look_at(value);
    return CUDA_SUCCESS;
}

static CUresult fake_bind(CUmemGenericAllocationHandle value, size_t offset,
                          CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                          unsigned long long flags)
{
    (void)offset, (void)memory_offset, (void)size, (void)flags;
    look_at(value);
    look_at(memory);
    return CUDA_SUCCESS;
}

static CUresult fake_arrays(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    (void)stream;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].memHandle.memHandle != 0) {
            look_at(list[i].memHandle.memHandle);
        }
    }
    return CUDA_SUCCESS;
}

static CUresult fake_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr at)
{
    (void)ret, (void)attribute;
    return at >= 4096 && at < 8192 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_decompress(CUmemDecompressParams *list, size_t count, unsigned flags,
                                size_t *ret_error, CUstream stream)
{
    (void)list, (void)count, (void)flags, (void)ret_error, (void)stream;
    return CUDA_SUCCESS;
}

/* Graphs: 2 has a node in which graph 1 is, 4 a kernel before that; 5 has a kernel alone. MANY and
 * one more have so many kernels. From DEEPER on each has the next one in it, up to LAST. A node's
 * number is its graph's, times 16, and its place. */
enum { MANY = 6, TOO_MANY = 7, DEEPER = 100, DEEP, LAST = DEEPER + 32, NODES = 1 << 20 };

static CUresult fake_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    uintptr_t number = (uintptr_t)graph;
    bool linked = number >= DEEPER && number < LAST;
    *count = number == MANY       ? NODES
             : number == TOO_MANY ? NODES + 1
             : number == 4        ? 2
                                  : number == 2 || number == 5 || linked;
    for (size_t i = 0; nodes != NULL && i < *count; i++) {
        nodes[i] = (CUgraphNode)(number * 16 + (i < 15 ? i : 15));
    }
    return CUDA_SUCCESS;
}

static CUgraphNodeType type_of(CUgraphNode node)
{
    uintptr_t number = (uintptr_t)node / 16, at = (uintptr_t)node % 16;
    bool child = number == 2 || (number == 4 && at == 1) || number >= DEEPER;
    return child ? CU_GRAPH_NODE_TYPE_GRAPH : CU_GRAPH_NODE_TYPE_KERNEL;
}

static CUresult fake_type(CUgraphNode node, CUgraphNodeType *ret)
{
    *ret = type_of(node);
    return CUDA_SUCCESS;
}

static CUresult fake_child(CUgraphNode node, CUgraph *ret)
{
    uintptr_t number = (uintptr_t)node / 16;
    wrong += type_of(node) != CU_GRAPH_NODE_TYPE_GRAPH;
    *ret = (CUgraph)(number >= DEEPER ? number + 1 : 1);
    return CUDA_SUCCESS;
}

static CUresult fake_add_child(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraph child)
{
    (void)ret, (void)dependencies, (void)count;
    wrong += graph == child || (graph == (CUgraph)1 && child == (CUgraph)2);
    return CUDA_SUCCESS;
}

static CUresult fake_add_node(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return fake_add_child(ret, graph, dependencies, count, params->graph.graph);
}

static int begin(void **state)
{
    (void)state;
    tow_driver_set(&driver, cuMemCreate, fake_create);
    tow_driver_set(&driver, cuMemRetainAllocationHandle, fake_retain);
    tow_driver_set(&driver, cuMemRelease, fake_release);
    tow_driver_set(&driver, cuMemMap, fake_map);
    tow_driver_set(&driver, cuMemExportToShareableHandle, fake_export);
    tow_driver_set(&driver, cuMemGetAllocationPropertiesFromHandle, fake_properties);
    tow_driver_set(&driver, cuMemMapArrayAsync, fake_arrays);
    tow_driver_set(&driver, cuMulticastBindMem, fake_bind);
    tow_driver_set(&driver, cuMemImportFromShareableHandle, fake_import);
    tow_driver_set(&driver, cuMulticastCreate, fake_multicast);
    tow_driver_set(&driver, cuMulticastAddDevice, fake_device);
    tow_driver_set(&driver, cuMulticastBindAddr, fake_bind_address);
    tow_driver_set(&driver, cuMulticastUnbind, fake_unbind);
    tow_driver_set(&driver, cuPointerGetAttribute, fake_attribute);
    tow_driver_set(&driver, cuMemBatchDecompressAsync, fake_decompress);
    tow_driver_set(&driver, cuGraphGetNodes, fake_nodes);
    tow_driver_set(&driver, cuGraphNodeGetType, fake_type);
    tow_driver_set(&driver, cuGraphChildGraphNodeGetGraph, fake_child);
    tow_driver_set(&driver, cuGraphAddChildGraphNode, fake_add_child);
    tow_driver_set(&driver, cuGraphAddNode_v2, fake_add_node);
    tows_guard_install(&driver);
    return 0;
}

/* Calls everything that takes a handle; the first result that is not `wanted`, or it. */
static CUresult try_all(CUmemGenericAllocationHandle value, CUmemGenericAllocationHandle other)
{
    CUmemAllocationProp properties;
    CUarrayMapInfo info;
    int fd;
    memset(&info, 0, sizeof info);
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = value;
    CUresult results[] = {
        tow_drive(&driver, cuMemMap)(0, 0, 0, value, 0),
        tow_drive(&driver, cuMemExportToShareableHandle)(&fd, value, 1, 0),
        tow_drive(&driver, cuMemGetAllocationPropertiesFromHandle)(&properties, value),
        tow_drive(&driver, cuMemMapArrayAsync)(&info, 1, NULL),
        tow_drive(&driver, cuMulticastBindMem)(value, 0, other, 0, 0, 0),
        tow_drive(&driver, cuMulticastBindMem)(other, 0, value, 0, 0, 0),
        tow_drive(&driver, cuMulticastAddDevice)(value, 0),
        tow_drive(&driver, cuMulticastBindAddr)(value, 0, 4096, 0, 0),
        tow_drive(&driver, cuMulticastUnbind)(value, 0, 0, 0),
    };
    for (unsigned i = 1; i < sizeof results / sizeof results[0]; i++) {
        assert_int_equal(results[i], results[0]);
    }
    return results[0];
}

static void only_live_handles_reach_the_driver(void **state)
{
    (void)state;
    const CUmemGenericAllocationHandle garbage[GARBAGE] = {0, 1, 48, 0x7f1234567000, 17, ~0ull};
    CUmemGenericAllocationHandle first, second, again;
    assert_int_equal(tow_drive(&driver, cuMemCreate)(&first, 4096, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemCreate)(&second, 4096, NULL, 0), CUDA_SUCCESS);
    for (unsigned i = 0; i < GARBAGE; i++) {
        assert_int_equal(try_all(garbage[i], second), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(tow_drive(&driver, cuMemRelease)(garbage[i]), CUDA_ERROR_INVALID_VALUE);
    }
    assert_int_equal(try_all(first, second), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRetainAllocationHandle)(&again, NULL), CUDA_SUCCESS);
    assert_int_equal(again, first);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(first), CUDA_SUCCESS);
    assert_int_equal(try_all(first, second), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(first), CUDA_SUCCESS);
    assert_int_equal(try_all(first, second), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(first), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(tow_drive(&driver, cuMemCreate)(&again, 4096, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(again, first);
    assert_int_equal(try_all(first, second), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(first), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemImportFromShareableHandle)(&first, NULL, 1),
                     CUDA_SUCCESS);
    assert_int_equal(try_all(first, second), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(first), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMulticastCreate)(&first, NULL), CUDA_SUCCESS);
    assert_int_equal(try_all(first, second), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(first), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(second), CUDA_SUCCESS);
    assert_int_equal(wrong, 0);
}

struct caller {
    pthread_t thread;
    CUmemGenericAllocationHandle value;
    bool maps; /* it releases */
    CUresult result;
    _Atomic pid_t id;
};

static void *call_driver(void *user)
{
    struct caller *caller = user;
    atomic_store(&caller->id, gettid());
    caller->result = caller->maps ? tow_drive(&driver, cuMemMap)(0, 0, 0, caller->value, 0)
                                  : tow_drive(&driver, cuMemRelease)(caller->value);
    return NULL;
}

static void start(struct caller *caller, CUmemGenericAllocationHandle value, bool maps)
{
    caller->value = value;
    caller->maps = maps;
    atomic_store(&caller->id, 0);
    assert_int_equal(pthread_create(&caller->thread, NULL, call_driver, caller), 0);
}

/* Until it waits for something, or has ended. */
static void await_sleep(const struct caller *caller)
{
    char path[64], state = 'R';
    while (state == 'R') {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)atomic_load(&caller->id));
        FILE *file = atomic_load(&caller->id) != 0 ? fopen(path, "r") : NULL;
        if (file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
            state = 'X';
        }
        if (file != NULL) {
            fclose(file);
        } else if (atomic_load(&caller->id) != 0) {
            state = 'X';
        }
    }
}

static void the_last_reference_is_given_up_once_and_when_nobody_uses_it(void **state)
{
    (void)state;
    struct caller user, releases[2];
    CUmemGenericAllocationHandle value;
    sem_init(&begun, 0, 0);
    sem_init(&go_on, 0, 0);
    assert_int_equal(tow_drive(&driver, cuMemCreate)(&value, 4096, NULL, 0), CUDA_SUCCESS);
    atomic_store(&held, true);
    start(&user, value, true);
    sem_wait(&begun);
    for (int i = 0; i < 2; i++) {
        start(&releases[i], value, false);
        await_sleep(&releases[i]);
    }
    assert_int_equal(refs[value / 16 - 1], 1);
    sem_post(&go_on);
    atomic_store(&held, false);
    pthread_join(user.thread, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(releases[i].thread, NULL);
    }
    assert_int_equal(user.result, CUDA_SUCCESS);
    assert_int_equal(releases[0].result + releases[1].result,
                     CUDA_SUCCESS + CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(refs[value / 16 - 1], 0);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(value), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(wrong, 0);
}

static void what_is_retained_while_a_release_waits_stays(void **state)
{
    (void)state;
    struct caller user, release;
    CUmemGenericAllocationHandle value, again;
    assert_int_equal(tow_drive(&driver, cuMemCreate)(&value, 4096, NULL, 0), CUDA_SUCCESS);
    atomic_store(&held, true);
    start(&user, value, true);
    sem_wait(&begun);
    start(&release, value, false);
    await_sleep(&release);
    assert_int_equal(tow_drive(&driver, cuMemRetainAllocationHandle)(&again, NULL), CUDA_SUCCESS);
    assert_int_equal(again, value);
    sem_post(&go_on);
    atomic_store(&held, false);
    pthread_join(user.thread, NULL);
    pthread_join(release.thread, NULL);
    assert_int_equal(release.result, CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemMap)(0, 0, 0, value, 0), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(value), CUDA_SUCCESS);
    assert_int_equal(tow_drive(&driver, cuMemRelease)(value), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(wrong, 0);
}

static void what_is_unmapped_has_no_handle(void **state)
{
    (void)state;
    CUarrayMapInfo info;
    memset(&info, 0, sizeof info);
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = 0x1234;
    assert_int_equal(tow_drive(&driver, cuMemMapArrayAsync)(&info, 1, NULL), CUDA_SUCCESS);
    info.memHandleType = (CUmemHandleType)7;
    assert_int_equal(tow_drive(&driver, cuMemMapArrayAsync)(&info, 1, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(wrong, 0);
}

static void addresses_that_the_driver_does_not_know_are_not_decompressed(void **state)
{
    (void)state;
    void *there = (void *)4096, *nowhere = (void *)8192;
    for (unsigned i = 0; i < 4; i++) {
        CUmemDecompressParams p;
        memset(&p, 0, sizeof p);
        p.src = i == 0 ? nowhere : there;
        p.dst = i == 1 ? nowhere : there;
        p.dstActBytes = i == 2 ? nowhere : NULL;
        assert_int_equal(tow_drive(&driver, cuMemBatchDecompressAsync)(&p, 1, 0, NULL, NULL),
                         i == 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    }
}

static void no_graph_comes_into_itself(void **state)
{
    (void)state;
    CUgraphNode node;
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    const struct {
        uintptr_t child;
        CUresult wanted;
    } cases[] = {
        {1, CUDA_ERROR_INVALID_VALUE},
        {2, CUDA_ERROR_INVALID_VALUE},
        {3, CUDA_SUCCESS},
        {4, CUDA_ERROR_INVALID_VALUE},
        {5, CUDA_SUCCESS},
        {MANY, CUDA_SUCCESS},
        {TOO_MANY, CUDA_ERROR_INVALID_VALUE},
        {DEEP, CUDA_SUCCESS},
        {DEEPER, CUDA_ERROR_INVALID_VALUE},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CUgraph child = (CUgraph)cases[i].child;
        params.graph.graph = child;
        assert_int_equal(
            tow_drive(&driver, cuGraphAddChildGraphNode)(&node, (CUgraph)1, NULL, 0, child),
            cases[i].wanted);
        assert_int_equal(
            tow_drive(&driver, cuGraphAddNode_v2)(&node, (CUgraph)1, NULL, NULL, 0, &params),
            cases[i].wanted);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_live_handles_reach_the_driver),
        cmocka_unit_test(the_last_reference_is_given_up_once_and_when_nobody_uses_it),
        cmocka_unit_test(what_is_retained_while_a_release_waits_stays),
        cmocka_unit_test(what_is_unmapped_has_no_handle),
        cmocka_unit_test(addresses_that_the_driver_does_not_know_are_not_decompressed),
        cmocka_unit_test(no_graph_comes_into_itself),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
