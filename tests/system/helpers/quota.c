/* SPDX-License-Identifier: Apache-2.0 */
/* A program that may have less than the GPU has; see test_quota.py. MIB is what it may have.
 *
 *     quota kinds MIB      fills it in every way there is, is refused beyond, frees it
 *     quota threads MIB    64 threads at the limit at once
 *     quota trim MIB       what pools keep is no reason to refuse
 *     quota total          says what the driver and NVML show, in MiB
 *     quota hold MIB       takes that much, says what NVML shows, and waits for the end of stdin
 *     quota over MIB       takes that much, which is too much; what it then prints is the error
 *     quota pools MIB      8 threads make, fill and destroy pools at the limit
 *     quota graphs MIB     what graphs allocate counts for as long as it lives
 *     quota share MIB      another process uses memory of this one by a handle of cuIpc
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

enum { PARTS = 16, THREADS = 64, ROUNDS = 30, POOLS = 6, ROUNDING = 32 << 20 };
enum { CHURNERS = 8, CHURNS = 60 };

static void expect(bool right, const char *what, unsigned long long got, unsigned long long wanted)
{
    if (!right) {
        fprintf(stderr, "FAILED: %s: %llu, not %llu\n", what, got, wanted);
        exit(1);
    }
}

static CUcontext begin(void)
{
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

static size_t left(void)
{
    size_t available, total;
    CHECK(cuMemGetInfo(&available, &total));
    return available;
}

/* ---- every way to allocate ---- */

struct part {
    CUdeviceptr at;
    size_t size;
    uint64_t other; /* a handle of another kind */
    uint64_t second;
};

static CUmemAllocationProp prop_of_device(void)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

static CUresult take_plain(struct part *part)
{
    return cuMemAlloc(&part->at, part->size);
}

static CUresult take_pitched(struct part *part)
{
    size_t pitch;
    return cuMemAllocPitch(&part->at, &pitch, 4096, part->size / 4096, 4);
}

static CUresult take_managed(struct part *part)
{
    return cuMemAllocManaged(&part->at, part->size, CU_MEM_ATTACH_GLOBAL);
}

static void give_plain(struct part *part)
{
    CHECK(cuMemFree(part->at));
}

static CUresult take_array(struct part *part)
{
    CUDA_ARRAY_DESCRIPTOR what = {.Width = 1024,
                                  .Height = part->size / 1024 / 16,
                                  .Format = CU_AD_FORMAT_FLOAT,
                                  .NumChannels = 4};
    return cuArrayCreate((CUarray *)&part->other, &what);
}

static CUresult take_array_3d(struct part *part)
{
    CUDA_ARRAY3D_DESCRIPTOR what = {.Width = 128,
                                    .Height = 128,
                                    .Depth = part->size / 128 / 128 / 2,
                                    .Format = CU_AD_FORMAT_HALF,
                                    .NumChannels = 1};
    return cuArray3DCreate((CUarray *)&part->other, &what);
}

static void give_array(struct part *part)
{
    CHECK(cuArrayDestroy((CUarray)part->other));
}

/* The second level has a quarter of the first. */
static CUresult take_mipmapped(struct part *part)
{
    CUDA_ARRAY3D_DESCRIPTOR what = {.Width = 512,
                                    .Height = part->size / 512 / 5,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                    .NumChannels = 1};
    return cuMipmappedArrayCreate((CUmipmappedArray *)&part->other, &what, 2);
}

static void give_mipmapped(struct part *part)
{
    CHECK(cuMipmappedArrayDestroy((CUmipmappedArray)part->other));
}

static CUresult take_created(struct part *part)
{
    CUmemAllocationProp prop = prop_of_device();
    return cuMemCreate((CUmemGenericAllocationHandle *)&part->other, part->size, &prop, 0);
}

static void give_created(struct part *part)
{
    CHECK(cuMemRelease(part->other));
}

/* Its handle is given up at once: the mapping alone keeps it. */
static CUresult take_mapped(struct part *part)
{
    CUresult result = take_created(part);
    if (result == CUDA_SUCCESS) {
        CHECK(cuMemAddressReserve(&part->at, part->size, 0, 0, 0));
        CHECK(cuMemMap(part->at, part->size, 0, part->other, 0));
        CHECK(cuMemRelease(part->other));
    }
    return result;
}

static void give_mapped(struct part *part)
{
    CHECK(cuMemUnmap(part->at, part->size));
    CHECK(cuMemAddressFree(part->at, part->size));
}

/* As before, and a handle was got back from the address. */
static CUresult take_retained(struct part *part)
{
    CUresult result = take_mapped(part);
    if (result == CUDA_SUCCESS) {
        CHECK(cuMemRetainAllocationHandle((CUmemGenericAllocationHandle *)&part->other,
                                          (void *)part->at));
        CHECK(cuMemUnmap(part->at, part->size));
    }
    return result;
}

static void give_retained(struct part *part)
{
    CHECK(cuMemRelease(part->other));
    CHECK(cuMemAddressFree(part->at, part->size));
}

static CUresult take_async(struct part *part)
{
    return cuMemAllocAsync(&part->at, part->size, NULL);
}

static void give_async(struct part *part)
{
    CHECK(cuMemFreeAsync(part->at, NULL));
    CHECK(cuStreamSynchronize(NULL));
}

static CUresult take_from_pool(struct part *part)
{
    CUmemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuMemPoolCreate((CUmemoryPool *)&part->other, &props));
    CUresult result =
        cuMemAllocFromPoolAsync(&part->at, part->size, (CUmemoryPool)part->other, NULL);
    if (result != CUDA_SUCCESS) {
        CHECK(cuMemPoolDestroy((CUmemoryPool)part->other));
    }
    return result;
}

static void give_to_pool(struct part *part)
{
    give_async(part);
    CHECK(cuMemPoolDestroy((CUmemoryPool)part->other));
}

/* A graph that allocates, and frees or leaves it. */
static CUresult take_graph(struct part *part, bool frees)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraph graph;
    CUgraphNode node, freeing;
    CUgraphExec exec = NULL;
    memset(&params, 0, sizeof params);
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = part->size;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    if (frees) {
        CHECK(cuGraphAddMemFreeNode(&freeing, graph, &node, 1, params.dptr));
    }
    CUresult result = cuGraphInstantiate(&exec, graph, 0);
    if (result == CUDA_SUCCESS) {
        CHECK(cuGraphLaunch(exec, NULL));
        CHECK(cuStreamSynchronize(NULL));
    }
    CHECK(cuGraphDestroy(graph));
    part->at = params.dptr;
    part->other = (uintptr_t)exec;
    return result;
}

static CUresult take_graph_inside(struct part *part)
{
    return take_graph(part, true);
}

static void give_graph(struct part *part)
{
    CHECK(cuGraphExecDestroy((CUgraphExec)part->other));
}

/* What it has allocated outlives it. */
static CUresult take_graph_left(struct part *part)
{
    CUresult result = take_graph(part, false);
    if (result == CUDA_SUCCESS) {
        CHECK(cuGraphExecDestroy((CUgraphExec)part->other));
    }
    return result;
}

/* Stream capture: the same by other calls. */
static CUresult take_captured(struct part *part)
{
    CUgraph graph;
    CUstream stream;
    CUgraphExec exec = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&part->at, part->size, stream));
    CHECK(cuMemFreeAsync(part->at, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CUresult result = cuGraphInstantiate(&exec, graph, 0);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    part->other = (uintptr_t)exec;
    return result;
}

static void variables(char *text, size_t size, size_t bytes)
{
    snprintf(text, size,
             ".version 7.0\n.target sm_70\n.address_size 64\n"
             "/* .global .u32 none[1000]; */ .extern .global .u32 elsewhere;\n"
             ".visible .global .align 4 .u32 big[%zu], small = 3;\n"
             ".visible .entry f()\n{\n.reg .u32 %%a;\nld.global.u32 %%a, [small];\nret;\n}\n",
             bytes / 4 - 1);
}

static CUresult take_module(struct part *part)
{
    char text[512];
    variables(text, sizeof text, part->size);
    char *extern_at = strstr(text, ".extern .global .u32 elsewhere;");
    memset(extern_at, ' ', strlen(".extern .global .u32 elsewhere;"));
    return cuModuleLoadData((CUmodule *)&part->other, text);
}

static void give_module(struct part *part)
{
    CHECK(cuModuleUnload((CUmodule)part->other));
}

static CUresult take_library(struct part *part)
{
    char text[512];
    variables(text, sizeof text, part->size);
    char *extern_at = strstr(text, ".extern .global .u32 elsewhere;");
    memset(extern_at, ' ', strlen(".extern .global .u32 elsewhere;"));
    return cuLibraryLoadData((CUlibrary *)&part->other, text, NULL, NULL, 0, NULL, NULL, 0);
}

static void give_library(struct part *part)
{
    CHECK(cuLibraryUnload((CUlibrary)part->other));
}

static const struct kind {
    const char *name;
    CUresult (*take)(struct part *part);
    void (*give)(struct part *part);
} kinds[] = {
    {"plain", take_plain, give_plain},
    {"pitched", take_pitched, give_plain},
    {"managed", take_managed, give_plain},
    {"array", take_array, give_array},
    {"array of three dimensions", take_array_3d, give_array},
    {"mipmapped array", take_mipmapped, give_mipmapped},
    {"created", take_created, give_created},
    {"mapped", take_mapped, give_mapped},
    {"retained", take_retained, give_retained},
    {"stream-ordered", take_async, give_async},
    {"from a pool", take_from_pool, give_to_pool},
    {"graph that frees", take_graph_inside, give_graph},
    {"graph that does not", take_graph_left, give_plain},
    {"captured", take_captured, give_graph},
    {"module", take_module, give_module},
    {"library", take_library, give_library},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void fill(const struct kind *kind, size_t quota)
{
    struct part parts[PARTS + 1];
    size_t each = quota / PARTS, count = 0;
    for (; count <= PARTS; count++) {
        parts[count] = (struct part){.size = each};
        CUresult result = kind->take(&parts[count]);
        if (result != CUDA_SUCCESS) {
            expect(result == CUDA_ERROR_OUT_OF_MEMORY, kind->name, result,
                   CUDA_ERROR_OUT_OF_MEMORY);
            break;
        }
        expect(left() == quota - (count + 1) * each, kind->name, left(),
               quota - (count + 1) * each);
    }
    expect(count == PARTS, kind->name, count, PARTS);
    /* Others are refused as well, down to the last bytes. */
    for (size_t other = 0; other < KINDS; other++) {
        struct part more = {.size = each};
        CUresult result = kinds[other].take(&more);
        expect(result == CUDA_ERROR_OUT_OF_MEMORY, kinds[other].name, result,
               CUDA_ERROR_OUT_OF_MEMORY);
    }
    while (count > 0) {
        kind->give(&parts[--count]);
    }
    expect(left() == quota, kind->name, left(), quota);
}

static void fill_all(size_t quota)
{
    begin();
    size_t total, available;
    CHECK(cuDeviceTotalMem(&total, 0));
    expect(total == quota, "cuDeviceTotalMem", total, quota);
    CHECK(cuMemGetInfo(&available, &total));
    expect(total == quota, "total of cuMemGetInfo", total, quota);
    expect(available == quota, "free of cuMemGetInfo", available, quota);
    for (size_t i = 0; i < KINDS; i++) {
        fill(&kinds[i], quota);
    }
    /* The heap of malloc in kernels, too. */
    size_t heap;
    CHECK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
    CUresult result = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + quota + MIB);
    expect(result == CUDA_ERROR_OUT_OF_MEMORY, "a heap that is too large", result,
           CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + quota / 2));
    expect(left() == quota - quota / 2, "left beside a heap", left(), quota / 2);
    /* It counts for the most that it was, and not for each rise. */
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap));
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + quota / 4));
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + quota / 2));
    expect(left() == quota - quota / 2, "left beside a heap that rose again", left(), quota / 2);
    size_t buffer;
    CHECK(cuCtxGetLimit(&buffer, CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, buffer + quota / 4));
    expect(left() == quota / 4, "left beside a buffer for printf", left(), quota / 4);
    /* All that is in a context goes with it. */
    CHECK(cuDevicePrimaryCtxReset(0));
    begin();
    expect(left() == quota, "left after the context", left(), quota);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + quota / 2));
    expect(left() == quota - quota / 2, "left beside a new context's heap", left(), quota / 2);
    CHECK(cuDevicePrimaryCtxReset(0));
    begin();
}

/* ---- threads ---- */

static struct {
    CUcontext context;
    size_t quota;
    pthread_barrier_t barrier;
    atomic_size_t held;
} shared;

/* Each takes its part at once with the others, in turns by all ways: all fit exactly. Then all ask
 * for more than there is, and nobody ever has more than the quota. */
static void *run_thread(void *user)
{
    size_t number = (size_t)(uintptr_t)user;
    CHECK(cuCtxSetCurrent(shared.context));
    static const size_t quick[] = {0, 1, 3, 6, 9, 10};
    for (size_t round = 0; round < ROUNDS; round++) {
        const struct kind *kind = &kinds[quick[(round + number) % (sizeof quick / sizeof *quick)]];
        struct part part = {.size = shared.quota / THREADS};
        pthread_barrier_wait(&shared.barrier);
        CHECK(kind->take(&part));
        pthread_barrier_wait(&shared.barrier);
        struct part more = {.size = shared.quota / THREADS};
        CUresult result = take_plain(&more);
        expect(result == CUDA_ERROR_OUT_OF_MEMORY, "more than the quota", result,
               CUDA_ERROR_OUT_OF_MEMORY);
        pthread_barrier_wait(&shared.barrier);
        kind->give(&part);
        pthread_barrier_wait(&shared.barrier);
        part = (struct part){.size = shared.quota / THREADS * (1 + (round + number) % 5)};
        if (kind->take(&part) == CUDA_SUCCESS) {
            size_t held = atomic_fetch_add(&shared.held, part.size) + part.size;
            expect(held <= shared.quota, "what all threads hold", held, shared.quota);
            atomic_fetch_sub(&shared.held, part.size);
            kind->give(&part);
        }
    }
    return NULL;
}

static void run_threads(size_t quota)
{
    pthread_t threads[THREADS];
    shared.context = begin();
    shared.quota = quota;
    pthread_barrier_init(&shared.barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, run_thread, (void *)(uintptr_t)i);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    expect(left() == quota, "left after the threads", left(), quota);
}

/* ---- pools ---- */

static uint64_t reserved(CUmemoryPool pool)
{
    cuuint64_t bytes;
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

static void trim(size_t quota)
{
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    struct part part = {.size = quota};
    begin();
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    CHECK(take_async(&part));
    give_async(&part);
    expect(reserved(pool) >= quota, "kept by the pool", reserved(pool), quota);
    CHECK(take_async(&part)); /* what it has kept is no reason to trim it */
    give_async(&part);
    expect(reserved(pool) >= quota, "kept by the pool still", reserved(pool), quota);
    CHECK(take_plain(&part));
    expect(reserved(pool) == 0, "kept by a pool that was trimmed", reserved(pool), 0);
    give_plain(&part);
    CHECK(take_from_pool(&part));
    give_to_pool(&part);
    /* Many pools that keep all hold no more than one would. */
    struct part parts[POOLS];
    uint64_t sum = 0;
    for (size_t i = 0; i < POOLS; i++) {
        parts[i] = (struct part){.size = quota / 2};
        CHECK(take_from_pool(&parts[i]));
        CHECK(cuMemPoolSetAttribute((CUmemoryPool)parts[i].other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                    &all));
        give_async(&parts[i]);
    }
    for (size_t i = 0; i < POOLS; i++) {
        sum += reserved((CUmemoryPool)parts[i].other);
    }
    expect(sum <= quota + ROUNDING, "kept by many pools", sum, quota);
    for (size_t i = 0; i < POOLS; i++) {
        CHECK(cuMemPoolDestroy((CUmemoryPool)parts[i].other));
    }
    /* A row's padding counts, too: the width alone says nothing. */
    size_t pitch = 0;
    CUresult result = cuMemAllocPitch(&part.at, &pitch, 1, quota / 256, 4);
    expect(pitch <= 256 || result == CUDA_ERROR_OUT_OF_MEMORY, "rows that are padded", result, 2);
    if (result == CUDA_SUCCESS) {
        expect(left() == quota - pitch * (quota / 256), "left beside rows", left(), 0);
        CHECK(cuMemFree(part.at));
    }
    result = cuMemAllocPitch(&part.at, &pitch, 1, quota / 2, 4);
    expect(result == CUDA_ERROR_OUT_OF_MEMORY, "too many rows", result, 2);
    expect(left() == quota, "left after rows", left(), quota);
}

/* While one thread is near the quota and has all pools asked and trimmed, others destroy them. */
static void *churn_thread(void *user)
{
    CHECK(cuCtxSetCurrent(shared.context));
    cuuint64_t all = UINT64_MAX;
    for (unsigned i = 0; i < CHURNS; i++) {
        struct part part = {.size = shared.quota / 3}, plain = {.size = shared.quota / 2};
        CUresult result = take_from_pool(&part);
        if (result == CUDA_SUCCESS) {
            CHECK(cuMemPoolSetAttribute((CUmemoryPool)part.other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                        &all));
            give_async(&part);
        }
        if (take_plain(&plain) == CUDA_SUCCESS) {
            give_plain(&plain);
        }
        if (result == CUDA_SUCCESS) {
            CHECK(cuMemPoolDestroy((CUmemoryPool)part.other));
        }
    }
    return user;
}

static void churn_pools(size_t quota)
{
    pthread_t threads[CHURNERS];
    shared.context = begin();
    shared.quota = quota;
    for (size_t i = 0; i < CHURNERS; i++) {
        pthread_create(&threads[i], NULL, churn_thread, NULL);
    }
    for (size_t i = 0; i < CHURNERS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct part part = {.size = quota};
    CHECK(take_plain(&part));
    give_plain(&part);
    expect(left() == quota, "left after the pools", left(), quota);
}

/* ---- graphs ---- */

static CUgraph allocating(size_t size, unsigned count, CUdeviceptr *ret)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraph graph;
    CUgraphNode node;
    memset(&params, 0, sizeof params);
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = size;
    CHECK(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < count; i++) {
        CHECK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
        *ret = params.dptr;
    }
    return graph;
}

static void launch(CUgraphExec exec)
{
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuStreamSynchronize(NULL));
}

static void run_graphs(size_t quota)
{
    CUgraphExec exec, freeing;
    CUgraphNode node;
    CUdeviceptr at;
    begin();
    /* Two that do not fit together: the first must not wait for itself. */
    CUgraph graph = allocating(quota / 4 * 3, 2, &at);
    CUresult result = cuGraphInstantiate(&exec, graph, 0);
    expect(result == CUDA_ERROR_OUT_OF_MEMORY, "two of three quarters", result,
           CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuGraphDestroy(graph));
    expect(left() == quota, "left after a refusal", left(), quota);
    /* What was never launched is not there. */
    graph = allocating(quota / 4, 2, &at);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    expect(left() == quota / 2, "left beside a graph", left(), quota / 2);
    CHECK(cuGraphExecDestroy(exec));
    expect(left() == quota, "left after one that was not launched", left(), quota);
    /* A graph that would free it does not until it is launched. */
    graph = allocating(quota, 1, &at);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    launch(exec);
    CUgraph other;
    CHECK(cuGraphCreate(&other, 0));
    CHECK(cuGraphAddMemFreeNode(&node, other, NULL, 0, at));
    CHECK(cuGraphInstantiate(&freeing, other, 0));
    /* Freed, and allocated once more. */
    launch(freeing);
    launch(exec);
    CHECK(cuGraphExecDestroy(exec));
    expect(left() == 0, "left beside what a graph has left", left(), 0);
    launch(freeing);
    expect(left() == quota, "left after another graph has freed it", left(), quota);
    CHECK(cuGraphExecDestroy(freeing));
    CHECK(cuGraphDestroy(other));
    CHECK(cuGraphDestroy(graph));
    expect(left() == quota, "left after the graphs", left(), quota);
}

/* ---- what is shown ---- */

struct nvml_memory {
    unsigned long long total, free, used;
};

static struct nvml_memory ask_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    struct nvml_memory memory = {0, 0, 0};
    void *device;
    if (library == NULL) {
        fprintf(stderr, "FAILED: %s\n", dlerror());
        exit(1);
    }
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*handle)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*info)(void *, struct nvml_memory *) =
        (int (*)(void *, struct nvml_memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (init() != 0 || handle(0, &device) != 0 || info(device, &memory) != 0) {
        fprintf(stderr, "FAILED: NVML does not answer\n");
        exit(1);
    }
    return memory;
}

static void show(void)
{
    size_t total;
    struct nvml_memory memory = ask_nvml();
    CHECK(cuDeviceTotalMem(&total, 0));
    printf("%zu %zu %zu %llu %llu %llu\n", total / MIB, left() / MIB, left() % MIB,
           memory.total / MIB, memory.used / MIB, memory.free / MIB);
    fflush(stdout);
}

/* Who uses another's memory is not charged for it. */
static void share(size_t quota)
{
    int down[2], up[2];
    CUipcMemHandle handle;
    char byte = 0;
    if (pipe(down) != 0 || pipe(up) != 0) {
        exit(1);
    }
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr theirs;
        if (read(down[0], &handle, sizeof handle) != (ssize_t)sizeof handle) {
            exit(1);
        }
        begin();
        CHECK(cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        struct part own = {.size = quota};
        CHECK(take_plain(&own));
        CHECK(cuMemsetD8(theirs, 7, quota));
        CHECK(cuCtxSynchronize());
        CHECK(cuIpcCloseMemHandle(theirs));
        expect(left() == 0, "left beside another's", left(), 0);
        exit(write(up[1], &byte, 1) == 1 ? 0 : 1);
    }
    close(up[1]); /* so that its end is seen */
    begin();
    struct part part = {.size = quota};
    CHECK(take_plain(&part));
    CHECK(cuIpcGetMemHandle(&handle, part.at));
    int status = 1;
    if (write(down[1], &handle, sizeof handle) != (ssize_t)sizeof handle ||
        read(up[0], &byte, 1) != 1) {
        exit(1);
    }
    waitpid(child, &status, 0);
    expect(status == 0, "the other", (unsigned)status, 0);
    expect(left() == 0, "left of the maker's", left(), 0);
    give_plain(&part);
    expect(left() == quota, "left at the end", left(), quota);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t size = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) * MIB : 0;
    if (strcmp(what, "kinds") == 0) {
        fill_all(size);
    } else if (strcmp(what, "threads") == 0) {
        run_threads(size);
    } else if (strcmp(what, "trim") == 0) {
        trim(size);
    } else if (strcmp(what, "pools") == 0) {
        churn_pools(size);
    } else if (strcmp(what, "graphs") == 0) {
        run_graphs(size);
    } else if (strcmp(what, "share") == 0) {
        share(size);
    } else if (strcmp(what, "total") == 0) {
        begin();
        show();
    } else if (strcmp(what, "hold") == 0) {
        struct part part = {.size = size};
        begin();
        CHECK(take_plain(&part));
        show();
        while (getchar() != EOF) {
        }
    } else if (strcmp(what, "over") == 0) {
        struct part part = {.size = size};
        begin();
        CUresult first = take_plain(&part);
        printf("%d %d\n", (int)first, (int)take_plain(&part));
    } else {
        fprintf(stderr, "FAILED: no such test: %s\n", what);
        return 1;
    }
    return 0;
}
