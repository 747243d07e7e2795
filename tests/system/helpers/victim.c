/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose server is hostile: says how often its functions ran, and how its calls ended. */
#include "check.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FUNCTIONS = 3, LAUNCHES = 4, SECONDS = 30 };

static atomic_int ran[FUNCTIONS];

static void count(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Until the server is lost; false: that does not come. */
static int lose(void)
{
    time_t end = time(NULL) + SECONDS;
    CUresult status = CUDA_SUCCESS;
    while (status == CUDA_SUCCESS && time(NULL) < end) {
        usleep(10000);
        status = cuCtxSynchronize();
    }
    return status == CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static int tell(int lost)
{
    usleep(100000); /* for functions that are about to run */
    printf("ran");
    for (int i = 0; i < FUNCTIONS; i++) {
        printf(" %d", atomic_load(&ran[i]));
    }
    printf("; %s\n", lost ? "lost" : "not lost");
    return 0;
}

static int functions(void)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        cuLaunchHostFunc(NULL, count, &ran[i]); /* the server may be lost already */
    }
    return tell(lose());
}

/* A function waits in a stream of the first server for a turn that never comes. */
static int other_link(void)
{
    CUcontext second;
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuLaunchHostFunc(NULL, count, &ran[0]));
    CHECK(cuCtxSetCurrent(second));
    int lost = lose();
    tell(lost);
    fflush(stdout);
    _exit(0); /* the first server would be waited for */
}

static void add_function(CUgraph graph, atomic_int *counter)
{
    CUgraphNode node;
    CUDA_HOST_NODE_PARAMS params = {.fn = count, .userData = counter};
    CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
}

static int graphs(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuGraphCreate(&graph, 0));
    add_function(graph, &ran[0]);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        cuGraphLaunch(exec, NULL);
    }
    return tell(lose());
}

/* Graphs in graphs: each launch runs a function often. */
static int nested(void)
{
    CUstream stream;
    CUgraph inner, middle, outer;
    CUgraphExec exec;
    CUgraphNode node;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuLaunchHostFunc(stream, count, &ran[0]));
    CHECK(cuStreamEndCapture(stream, &inner));
    CHECK(cuGraphCreate(&middle, 0));
    add_function(middle, &ran[1]);
    for (int i = 0; i < 3; i++) {
        CHECK(cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
    }
    CHECK(cuGraphClone(&outer, middle));
    CHECK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, middle));
    CHECK(cuGraphInstantiate(&exec, outer, 0));
    for (int i = 0; i < 10; i++) {
        CHECK(cuGraphLaunch(exec, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    return tell(cuCtxSynchronize() != CUDA_SUCCESS);
}

/* ---- downloads ---- */

enum { DOWNLOAD = 1 << 20, PAGE = 4096, PAGES = 8, MANAGED = PAGES * PAGE };

static int holds(const uint8_t *bytes, size_t size, uint8_t value)
{
    size_t n = 0;
    while (n < size && bytes[n] == value) {
        n++;
    }
    return n == size;
}

/* Bytes of a copy come when the copy is done and the memory is something else. */
static int download(int rows, int registered)
{
    CUdeviceptr device;
    uint8_t *host =
        mmap(NULL, DOWNLOAD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .srcPitch = 1024,
                          .dstPitch = 1024,
                          .WidthInBytes = 1000,
                          .Height = DOWNLOAD / 1024};
    CHECK(cuMemAlloc(&device, DOWNLOAD));
    CHECK(cuMemsetD8(device, 0x77, DOWNLOAD));
    copy.srcDevice = device;
    CUresult status;
    if (registered) {
        CHECK(cuMemHostRegister(host, DOWNLOAD, 0));
        CHECK(cuMemcpyDtoHAsync(host, device, DOWNLOAD, NULL));
        status = cuMemHostUnregister(host);
    } else {
        status = rows ? cuMemcpy2D(&copy) : cuMemcpyDtoH(host, device, DOWNLOAD);
    }
    memset(host, 0x11, DOWNLOAD);
    int lost = lose();
    printf("%s; %s; %s\n", status == CUDA_SUCCESS ? "done" : "failed",
           holds(host, DOWNLOAD, 0x11) ? "intact" : "changed", lost ? "lost" : "not lost");
    return 0;
}

static int download_flat(void)
{
    return download(0, 0);
}

static int download_rows(void)
{
    return download(1, 0);
}

static int download_registered(void)
{
    return download(0, 1);
}

/* ---- whatever the server says ---- */

enum { GUARD = 4096, ROUNDS = 3, GIVEN_MAX = 64 };

/* Memory that is CUDA's while a copy is under way, between pages that never are. */
struct given {
    uint8_t *bytes;
    size_t size;
};
static struct given given[GIVEN_MAX];
static unsigned given_count;
static volatile int looked_at; /* whatever was there */
static atomic_int turns[ROUNDS * FUNCTIONS];

static uint8_t *give(size_t size)
{
    uint8_t *at =
        mmap(NULL, size + 2 * GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 0x33, size + 2 * GUARD);
    given[given_count++] = (struct given){at + GUARD, size};
    return at + GUARD;
}

/* The call that it was given to has returned. */
static void take_back(uint8_t *bytes, size_t size)
{
    memset(bytes, 0x11, size);
}

static int all_intact(void)
{
    int intact = 1;
    for (unsigned i = 0; i < given_count; i++) {
        const struct given *g = &given[i];
        intact &= holds(g->bytes - GUARD, GUARD, 0x33) && holds(g->bytes, g->size, 0x11) &&
                  holds(g->bytes + g->size, GUARD, 0x33);
    }
    return intact;
}

static void copies(CUdeviceptr device)
{
    const size_t sizes[] = {100, 60000, DOWNLOAD};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *host = give(sizes[i]);
        cuMemcpyDtoH(host, device, sizes[i]);
        take_back(host, sizes[i]);
    }
    uint8_t *rows = give(DOWNLOAD);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .srcDevice = device,
                          .dstHost = rows,
                          .srcPitch = 1024,
                          .dstPitch = 1024,
                          .WidthInBytes = 1000,
                          .Height = DOWNLOAD / 1024};
    cuMemcpy2D(&copy);
    take_back(rows, DOWNLOAD);
    uint8_t *locked = give(DOWNLOAD);
    cuMemHostRegister(locked, DOWNLOAD, 0);
    cuMemcpyDtoHAsync(locked, device, DOWNLOAD, NULL);
    cuMemcpyDtoHAsync(locked, device, DOWNLOAD / 2, NULL);
    cuStreamSynchronize(NULL);
    cuMemHostUnregister(locked);
    take_back(locked, DOWNLOAD);
}

static void managed_and_names(CUdeviceptr device)
{
    CUdeviceptr memory = 0;
    if (cuMemAllocManaged(&memory, MANAGED + 100, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS) {
        memset((void *)memory, 0x22, MANAGED + 100);
        cuMemsetD8(memory, 0x44, MANAGED);
        cuCtxSynchronize();
        looked_at = holds((const uint8_t *)memory, MANAGED, 0x44); /* it is fetched */
        cuMemFree(memory);
    }
    uint8_t *name = give(64), *words = give(64);
    cuDeviceGetName((char *)name, 64, 0);
    cuPointerGetAttribute(words, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, device);
    cuMemGetInfo((size_t *)words, (size_t *)(words + 8));
    take_back(name, 64);
    take_back(words, 64);
}

/* Each has one turn; that of a graph one for each launch. */
static void put_functions(atomic_int *at)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_HOST_NODE_PARAMS params = {.fn = count, .userData = &at[2]};
    cuLaunchHostFunc(NULL, count, &at[0]);
    cuLaunchHostFunc(NULL, count, &at[1]);
    if (cuGraphCreate(&graph, 0) == CUDA_SUCCESS &&
        cuGraphAddHostNode(&node, graph, NULL, 0, &params) == CUDA_SUCCESS &&
        cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS) {
        cuGraphLaunch(exec, NULL);
    }
    cuCtxSynchronize();
}

static int anything(void)
{
    CUdeviceptr device = 0;
    for (int i = 0; i < ROUNDS; i++) {
        cuMemAlloc(&device, DOWNLOAD);
        cuMemsetD8(device, 0x77, DOWNLOAD);
        copies(device);
        managed_and_names(device);
        put_functions(&turns[i * FUNCTIONS]);
    }
    for (int i = 0; i < 3; i++) {
        cuCtxSynchronize();
        usleep(10000);
    }
    int often = 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < FUNCTIONS; j++) {
            /* A graph's function may have the turns of later graphs. */
            often |= atomic_load(&turns[i * FUNCTIONS + j]) > (j < 2 ? 1 : ROUNDS - i);
        }
    }
    printf("%s; %s\n", all_intact() ? "intact" : "changed", often ? "too often" : "not too often");
    fflush(stdout);
    _exit(0); /* the end of a program may wait for what a server says */
}

/* ---- code ---- */

enum { LOG_ROOM = 256, OPTIONS = 6 };

static const char empty_ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry nothing() { ret; }\n";

/* The same options twice: what the first answer wrote into them must do no harm. */
static int options(void)
{
    const char *names[] = {"a", "b"};
    void *addresses[] = {NULL, NULL};
    CUjit_option option[OPTIONS] = {CU_JIT_INFO_LOG_BUFFER,     CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                    CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES,
                                    CU_JIT_GLOBAL_SYMBOL_COUNT, CU_JIT_WALL_TIME};
    char *log = (char *)give(LOG_ROOM);
    void *value[OPTIONS] = {log, (void *)LOG_ROOM, names, addresses, (void *)2, NULL};
    CUmodule module;
    for (int i = 0; i < 2; i++) {
        cuModuleLoadDataEx(&module, empty_ptx, OPTIONS, option, value);
    }
    take_back((uint8_t *)log, LOG_ROOM);
    printf("%s; %s\n", all_intact() ? "intact" : "changed",
           value[0] == log && value[2] == names && value[3] == addresses && value[4] == (void *)2
               ? "pointers stay"
               : "other pointers");
    return 0;
}

static size_t no_shared_memory(int block)
{
    (void)block;
    return 0;
}

/* Figures of the device, and of a kernel, as no device has them. */
static int occupancy(void)
{
    CUmodule module;
    CUfunction function;
    int grid = 0, block = 0;
    CHECK(cuModuleLoadData(&module, empty_ptx));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
    cuOccupancyMaxPotentialBlockSize(&grid, &block, function, no_shared_memory, 0, 0);
    puts("answered");
    return 0;
}

/* ---- managed memory ---- */

static const char *wish; /* the file that says where the server is to name memory next */

static void wish_for(uint64_t address)
{
    FILE *file = fopen(wish, "w");
    fprintf(file, "%llu", (unsigned long long)address);
    fclose(file);
}

/* Where the addresses end that are reserved around `at`. */
static uint64_t reserved_end(uint64_t at)
{
    unsigned long long low, high, end = 0;
    char line[512], access[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%llx-%llx %7s", &low, &high, access) == 3 && high > at &&
            (end == 0 || low == end)) {
            end = high;
        }
    }
    fclose(maps);
    return end;
}

/* The server names memory that is not free: what is there stays. */
static int managed(const char *where)
{
    CUdeviceptr first = 0, second = 0;
    size_t size = MANAGED;
    CHECK(cuMemAllocManaged(&first, MANAGED, CU_MEM_ATTACH_GLOBAL));
    memset((void *)first, 0x5a, MANAGED);
    uint64_t end = reserved_end(first);
    uint8_t *behind = mmap((void *)end, MANAGED, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if ((uint64_t)behind != end) {
        puts("something is behind the reserved addresses");
        return 0;
    }
    memset(behind, 0xa5, MANAGED);
    if (strcmp(where, "end") == 0) {
        wish_for(end - 2 * PAGE);
    } else if (strcmp(where, "wraps") == 0) {
        wish_for(UINT64_MAX - PAGE);
    } else if (strcmp(where, "over") == 0) {
        wish_for(first + PAGE);
    } else if (strcmp(where, "within") == 0) {
        wish_for(first + 100);
        size = 50;
    } else if (strcmp(where, "behind") == 0) {
        wish_for(end);
    } else if (strcmp(where, "other-link") == 0) {
        CUcontext context;
        CHECK(cuDevicePrimaryCtxRetain(&context, 1));
        CHECK(cuCtxSetCurrent(context));
        wish_for(first + 16 * MANAGED);
    }
    CUresult status = cuMemAllocManaged(&second, size, CU_MEM_ATTACH_GLOBAL);
    printf("%s; %s\n", status == CUDA_SUCCESS ? "taken" : "refused",
           holds((const uint8_t *)first, MANAGED, 0x5a) && holds(behind, MANAGED, 0xa5)
               ? "intact"
               : "changed");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {
        {"functions", functions},
        {"other-link", other_link},
        {"graphs", graphs},
        {"nested", nested},
        {"flat", download_flat},
        {"rows", download_rows},
        {"registered", download_registered},
        {"options", options},
        {"occupancy", occupancy},
    };
    CUcontext context;
    if (argc > 1 && strcmp(argv[1], "anything") == 0) {
        if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) {
            puts("no context");
            return 0;
        }
        cuCtxSetCurrent(context);
        return anything();
    }
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    if (argc > 3 && strcmp(argv[1], "managed") == 0) {
        wish = argv[3];
        return managed(argv[2]);
    }
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof ways[0]; i++) {
        if (strcmp(argv[1], ways[i].name) == 0) {
            return ways[i].run();
        }
    }
    fprintf(stderr, "FAILED: no such way\n");
    return 1;
}
