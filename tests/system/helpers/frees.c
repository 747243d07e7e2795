/* SPDX-License-Identifier: Apache-2.0 */
/* Frees device memory N times, after something; see test_frees.py.
 *
 *     frees idle N       4 KiB is taken and freed
 *     frees WORK N       each behind: launch, fill, upload, download, record, value, graph,
 *                        function, module
 *     frees second N     behind a launch and a synchronisation, with two contexts
 *     frees capture N    while another thread's stream captures
 *     frees threads N    two threads take, use and free memory, and two ask about it
 *     frees mistakes N   what is no memory any more is refused
 *     frees seen N       like idle; after each NVML tells what is in use
 *     frees lost N       the server is killed between (its number is read from stdin)
 *     frees turns N      twice, when a line comes: 1 MiB is taken and freed N times; the second
 * time behind a launch and a synchronisation of its stream frees beside N     a thread frees memory
 * while a host function holds up a stream; another one takes and frees memory, and asks, meanwhile
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry bump(.param .u64 at)\n{\n"
                           ".reg .b64 %at;\n.reg .b32 %value;\n"
                           "ld.param.u64 %at, [at];\ncvta.to.global.u64 %at, %at;\n"
                           "ld.global.u32 %value, [%at];\nadd.u32 %value, %value, 1;\n"
                           "st.global.u32 [%at], %value;\nret;\n}\n";

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "frees: line %d: not so: %s\n", __LINE__, #condition);                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { SMALL = 4096, PIECE = 1 << 20, LARGE = 2 << 20 };

static CUcontext context;
static CUfunction bump;
static CUdeviceptr word;
static CUstream own; /* waits for the default stream */
static unsigned bumped;

static void launch(CUstream stream)
{
    void *args[] = {&word};
    CHECK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    bumped++;
}

static void fetch(void)
{
    unsigned value = 0;
    CHECK(cuMemcpyDtoH(&value, word, sizeof value));
    EXPECT(value == bumped);
}

static CUdeviceptr take(size_t size)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, size));
    return memory;
}

static void nothing(void *user)
{
    (void)user;
}

static void work(const char *what, unsigned n)
{
    CUevent event;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    unsigned *host;
    char *bytes = calloc(1, SMALL);
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocHost((void **)&host, SMALL));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < n; i++) {
        CUdeviceptr memory = take(SMALL);
        CHECK(cuCtxSynchronize());
        if (strcmp(what, "launch") == 0) {
            launch(own);
        } else if (strcmp(what, "fill") == 0) {
            CHECK(cuMemsetD32Async(memory, i, 4, own));
        } else if (strcmp(what, "upload") == 0) {
            CHECK(cuMemcpyHtoDAsync(memory, bytes, SMALL, own));
        } else if (strcmp(what, "download") == 0) {
            launch(own);
            CHECK(cuMemcpyDtoHAsync(host, word, 4, own));
        } else if (strcmp(what, "record") == 0) {
            CHECK(cuEventRecord(event, own));
        } else if (strcmp(what, "value") == 0) {
            CHECK(cuStreamWriteValue32(own, memory, i, 0));
        } else if (strcmp(what, "graph") == 0) {
            CHECK(cuGraphLaunch(exec, own));
        } else if (strcmp(what, "function") == 0) {
            CHECK(cuLaunchHostFunc(own, nothing, NULL));
        } else if (strcmp(what, "module") == 0) {
            CUmodule module;
            CHECK(cuModuleLoadData(&module, text));
        } else {
            exit(2);
        }
        CHECK(cuMemFree(memory));
        /* The free waited for the copy: the bytes are there without asking further. */
        EXPECT(strcmp(what, "download") != 0 || host[0] == bumped);
    }
}

/* ---- several threads ---- */

static atomic_uint taken;
static atomic_bool done;

static void *use(void *arg)
{
    unsigned n = *(unsigned *)arg, tag = atomic_fetch_add(&taken, 1) << 24;
    CHECK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < n; i++) {
        unsigned seen = 0;
        CUdeviceptr a = take(SMALL), b = take(i % 3 == 0 ? SMALL : 64 << 10);
        EXPECT(a != b);
        CHECK(cuMemsetD32(a, tag + i, 4));
        CHECK(cuMemsetD32(b, tag + i + 1, 4));
        CHECK(cuMemcpyDtoH(&seen, a, sizeof seen));
        EXPECT(seen == tag + i);
        CHECK(cuMemFree(a));
        CHECK(cuMemcpyDtoH(&seen, b, sizeof seen));
        EXPECT(seen == tag + i + 1);
        CHECK(cuMemFree(b));
        if (i % 8 == 0) {
            CHECK(cuCtxSynchronize());
        }
    }
    return NULL;
}

static void *ask(void *arg)
{
    (void)arg;
    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&done)) {
        size_t left, all;
        CHECK(cuMemGetInfo(&left, &all));
        EXPECT(left <= all);
        CHECK(cuCtxSynchronize());
    }
    return NULL;
}

static void threads(unsigned n)
{
    size_t before, after, all;
    pthread_t users[2], others[2];
    CHECK(cuMemGetInfo(&before, &all));
    for (int i = 0; i < 2; i++) {
        EXPECT(pthread_create(&users[i], NULL, use, &n) == 0);
        EXPECT(pthread_create(&others[i], NULL, ask, NULL) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(users[i], NULL);
    }
    atomic_store(&done, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(others[i], NULL);
    }
    CHECK(cuMemGetInfo(&after, &all));
    EXPECT(after == before);
}

static void *capture(void *arg)
{
    CUstream stream = arg;
    CUgraph graph;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    atomic_store(&taken, 1);
    while (!atomic_load(&done)) {
        usleep(1000);
    }
    CHECK(cuStreamEndCapture(stream, &graph));
    return NULL;
}

/* ---- */

static void mistakes(unsigned n)
{
    size_t before, after, all;
    CUdeviceptr base = 0;
    CHECK(cuMemGetInfo(&before, &all));
    for (unsigned i = 0; i < n; i++) {
        CUdeviceptr memory = take(SMALL), again;
        EXPECT(cuMemFree(memory + 256) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemFree(memory));
        EXPECT(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
        EXPECT(cuMemGetAddressRange(&base, NULL, memory) != CUDA_SUCCESS);
        unsigned char host[4];
        EXPECT(cuMemcpyDtoH(host, memory, sizeof host) == CUDA_ERROR_INVALID_VALUE);
        EXPECT(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory) ==
               CUDA_ERROR_INVALID_VALUE);
        again = take(SMALL);
        CHECK(cuMemGetAddressRange(&base, NULL, again + 8));
        EXPECT(base == again);
        CHECK(cuMemsetD32(again, i, 4));
        CHECK(cuMemFree(again));
    }
    CHECK(cuMemFree(0));
    CHECK(cuMemGetInfo(&after, &all));
    EXPECT(after == before);
    CHECK(cuCtxSynchronize());
}

struct nvml_memory {
    unsigned long long total, free, used;
};

static void seen(unsigned n)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    EXPECT(nvml != NULL);
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*find)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*ask_memory)(void *, struct nvml_memory *) =
        (int (*)(void *, struct nvml_memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    void *device;
    struct nvml_memory before, with, after;
    EXPECT(init() == 0 && find(0, &device) == 0 && ask_memory(device, &before) == 0);
    for (unsigned i = 0; i < n; i++) {
        CUdeviceptr memory = take(LARGE - 1); /* a whole block of the driver's, all the same */
        EXPECT(ask_memory(device, &with) == 0 && with.used == before.used + LARGE);
        CHECK(cuMemFree(memory));
        EXPECT(ask_memory(device, &after) == 0);
        if (after.used != before.used) {
            fprintf(stderr, "frees: %llu bytes are in use, not %llu\n", after.used, before.used);
            exit(1);
        }
    }
}

static void lost(unsigned n)
{
    CUdeviceptr memory[64];
    long pid = 0;
    for (unsigned i = 0; i < 64; i++) {
        memory[i] = take(SMALL);
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory[0]));
    printf("ready\n");
    fflush(stdout);
    EXPECT(scanf("%ld", &pid) == 1 && kill((pid_t)pid, SIGKILL) == 0);
    /* Some may still go out to nobody; before long each answers that the server is lost. */
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 1; i < 64; i++) {
        result = cuMemFree(memory[i]);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_DEVICE_UNAVAILABLE);
        usleep(1000);
    }
    EXPECT(result == CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT(cuCtxSynchronize() == CUDA_ERROR_DEVICE_UNAVAILABLE);
    (void)n;
}

static void turns(unsigned n)
{
    char line[16];
    CHECK(cuCtxSynchronize());
    for (int round = 0; round < 2; round++) {
        printf("ready\n");
        fflush(stdout);
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
        if (round == 1) {
            launch(own);
            CHECK(cuStreamSynchronize(own));
        }
        for (unsigned i = 0; i < n; i++) {
            CHECK(cuMemFree(take(PIECE)));
        }
    }
    printf("ready\n");
    fflush(stdout);
    EXPECT(fgets(line, sizeof line, stdin) != NULL);
}

static atomic_bool opened, freeing;

static void hold(void *user)
{
    (void)user;
    while (!atomic_load(&opened)) {
        usleep(100);
    }
}

static void *free_it(void *arg)
{
    CHECK(cuCtxSetCurrent(context));
    atomic_store(&freeing, true);
    CHECK(cuMemFree(*(CUdeviceptr *)arg));
    EXPECT(atomic_load(&opened)); /* it waited */
    return NULL;
}

static void beside(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        size_t left, all;
        pthread_t other;
        CUdeviceptr memory = take(SMALL);
        atomic_store(&opened, false);
        atomic_store(&freeing, false);
        CHECK(cuLaunchHostFunc(own, hold, NULL));
        EXPECT(pthread_create(&other, NULL, free_it, &memory) == 0);
        while (!atomic_load(&freeing)) {
            usleep(100);
        }
        usleep(2000); /* most likely it stands in the free */
        CHECK(cuMemGetInfo(&left, &all));
        take(SMALL);
        launch(NULL);
        EXPECT(cuStreamQuery(own) == CUDA_ERROR_NOT_READY);
        atomic_store(&opened, true);
        pthread_join(other, NULL);
    }
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUmodule module;
    if (argc != 3) {
        return 2;
    }
    const char *what = argv[1];
    unsigned n = (unsigned)strtoul(argv[2], NULL, 10);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&bump, module, "bump"));
    CHECK(cuMemAlloc(&word, 4096));
    CHECK(cuMemsetD32(word, 0, 1024));
    CHECK(cuStreamCreate(&own, CU_STREAM_DEFAULT));
    launch(NULL);
    if (strcmp(what, "turns") == 0) {
        turns(n);
    } else if (strcmp(what, "beside") == 0) {
        beside(n);
    } else if (strcmp(what, "threads") == 0) {
        threads(n);
    } else if (strcmp(what, "mistakes") == 0) {
        mistakes(n);
    } else if (strcmp(what, "seen") == 0) {
        seen(n);
    } else if (strcmp(what, "lost") == 0) {
        lost(n);
        return 0;
    } else if (strcmp(what, "idle") == 0) {
        CHECK(cuCtxSynchronize());
        for (unsigned i = 0; i < n; i++) {
            CHECK(cuMemFree(take(SMALL)));
        }
    } else if (strcmp(what, "capture") == 0) {
        pthread_t other;
        EXPECT(pthread_create(&other, NULL, capture, own) == 0);
        while (!atomic_load(&taken)) {
            usleep(1000);
        }
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CHECK(cuThreadExchangeStreamCaptureMode(&mode));
        for (unsigned i = 0; i < n; i++) {
            CHECK(cuMemFree(take(SMALL)));
        }
        atomic_store(&done, true);
        pthread_join(other, NULL);
    } else if (strcmp(what, "second") == 0) {
        CUcontext second;
        CHECK(cuCtxCreate(&second, NULL, 0, device));
        CHECK(cuCtxSetCurrent(context));
        for (unsigned i = 0; i < n; i++) {
            CUdeviceptr memory = take(SMALL);
            launch(own);
            CHECK(cuCtxSynchronize());
            CHECK(cuMemFree(memory));
        }
    } else {
        work(what, n);
    }
    CHECK(cuCtxSynchronize());
    fetch();
    return 0;
}
