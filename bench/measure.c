/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline bench` runs: an ordinary program of the driver API that times it and prints one
 * JSON object a line. It opens libcuda.so.1 by name, so the same file measures NVIDIA's driver and
 * Towline's, whichever the loader finds first.
 *
 *     towline-measure [--began NS] [--quick] [--max-bytes N] [--launches N] PART ...
 *
 * Parts: startup latency launches bandwidth rows trial memory clients. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gen/context.h"
#include "gen/copy.h"
#include "gen/core.h"
#include "gen/cuda_types.h"
#include "gen/device.h"
#include "gen/event.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/stream.h"

#define SETTLE_US 700000

#define FUNCTIONS(X)                                                                               \
    X(CUresult, cuInit, (unsigned))                                                                \
    X(CUresult, cuDeviceGet, (CUdevice *, int))                                                    \
    X(CUresult, cuDeviceGetName, (char *, int, CUdevice))                                          \
    X(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                 \
    X(CUresult, cuCtxSetCurrent, (CUcontext))                                                      \
    X(CUresult, cuCtxSynchronize, (void))                                                          \
    X(CUresult, cuModuleLoadData, (CUmodule *, const void *))                                      \
    X(CUresult, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                       \
    X(CUresult, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                            \
    X(CUresult, cuMemFree_v2, (CUdeviceptr))                                                       \
    X(CUresult, cuMemAllocHost_v2, (void **, size_t))                                              \
    X(CUresult, cuMemFreeHost, (void *))                                                           \
    X(CUresult, cuMemHostRegister_v2, (void *, size_t, unsigned))                                  \
    X(CUresult, cuMemHostUnregister, (void *))                                                     \
    X(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                              \
    X(CUresult, cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                    \
    X(CUresult, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *))                                            \
    X(CUresult, cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                       \
    X(CUresult, cuStreamCreate, (CUstream *, unsigned))                                            \
    X(CUresult, cuStreamSynchronize, (CUstream))                                                   \
    X(CUresult, cuEventCreate, (CUevent *, unsigned))                                              \
    X(CUresult, cuEventRecord, (CUevent, CUstream))                                                \
    X(CUresult, cuGetErrorName, (CUresult, const char **))                                         \
    X(CUresult, cuLaunchKernel,                                                                    \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))

#define DECLARE(type, name, args) static type(*p_##name) args;
FUNCTIONS(DECLARE)

static const char text[] = ".version 7.0\n"
                           ".target sm_70\n"
                           ".address_size 64\n"
                           ".visible .entry bump(.param .u64 at, .param .u32 by)\n"
                           "{\n"
                           "    .reg .b64 %at;\n"
                           "    .reg .b32 %by, %value;\n"
                           "    ld.param.u64 %at, [at];\n"
                           "    ld.param.u32 %by, [by];\n"
                           "    cvta.to.global.u64 %at, %at;\n"
                           "    ld.global.u32 %value, [%at];\n"
                           "    add.u32 %value, %value, %by;\n"
                           "    st.global.u32 [%at], %value;\n"
                           "    ret;\n"
                           "}\n";

enum { LATENCY_MAX = 4000, BURST = 200, LAUNCH_RUNS = 5 };

static struct {
    bool quick;
    size_t max_bytes;
    unsigned launches;
    int64_t began_ns; /* CLOCK_MONOTONIC when whoever started us did; 0: not told */
    CUfunction bump;
    CUdeviceptr word;
    CUstream stream;
    CUevent event;
    unsigned bumped; /* what the word must be */
} m = {.max_bytes = 256u << 20, .launches = 20000};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        const char *name = "an unknown error";
        if (p_cuGetErrorName != NULL) {
            p_cuGetErrorName(result, &name);
        }
        fprintf(stderr, "towline-measure: %s: %s\n", what, name);
        exit(1);
    }
}
#define MUST(name, ...) must(p_##name(__VA_ARGS__), #name)

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "towline-measure: there is no driver library: %s\n", dlerror());
        exit(3);
    }
#define FIND(type, name, args)                                                                     \
    {                                                                                              \
        void *found = dlsym(library, #name);                                                       \
        memcpy(&p_##name, &found, sizeof found);                                                   \
        if (found == NULL) {                                                                       \
            fprintf(stderr, "towline-measure: libcuda.so.1 has no %s\n", #name);                   \
            exit(3);                                                                               \
        }                                                                                          \
    }
    FUNCTIONS(FIND)
}

static void launch(void)
{
    unsigned by = 1;
    void *args[] = {&m.word, &by};
    MUST(cuLaunchKernel, m.bump, 1, 1, 1, 1, 1, 1, 0, m.stream, args, NULL);
    m.bumped++;
}

static void check_word(void)
{
    unsigned value = 0;
    MUST(cuMemcpyDtoH_v2, &value, m.word, sizeof value);
    if (value != m.bumped) {
        fprintf(stderr, "towline-measure: a kernel ran %u times, not %u\n", value, m.bumped);
        exit(1);
    }
}

/* ---- start-up ---- */

static double private_mib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    double total = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long kib = 0;
        if (sscanf(line, "Private_Clean: %lu", &kib) == 1 ||
            sscanf(line, "Private_Dirty: %lu", &kib) == 1) {
            total += (double)kib / 1024;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return total;
}

static void say(const char *name, const char *unit, double value, double p99, size_t count)
{
    printf("{\"name\":\"%s\",\"unit\":\"%s\",\"value\":%.6g", name, unit, value);
    if (p99 > 0) {
        printf(",\"p99\":%.6g", p99);
    }
    printf(",\"count\":%zu}\n", count);
    fflush(stdout);
}

static void start(bool report)
{
    int64_t begin = now_ns();
    CUdevice device;
    CUcontext context;
    CUmodule module;
    char name[128] = "";
    open_driver();
    MUST(cuInit, 0);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    int64_t ready = now_ns();
    MUST(cuCtxSetCurrent, context);
    MUST(cuModuleLoadData, &module, text);
    MUST(cuModuleGetFunction, &m.bump, module, "bump");
    MUST(cuMemAlloc_v2, &m.word, 4096);
    MUST(cuMemsetD32Async, m.word, 0, 1024, NULL);
    launch();
    check_word();
    int64_t first = now_ns();
    MUST(cuStreamCreate, &m.stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &m.event, CU_EVENT_DISABLE_TIMING);
    MUST(cuDeviceGetName, name, sizeof name, device);
    printf("{\"device\":\"%s\"}\n", name);
    if (report) {
        say("startup_context", "ms", (double)(ready - begin) / 1e6, 0, 1);
        say("startup_first_result", "ms",
            (double)(first - (m.began_ns > 0 ? m.began_ns : begin)) / 1e6, 0, 1);
    }
}

/* ---- latency ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say_samples(const char *name, double *us, size_t count)
{
    qsort(us, count, sizeof *us, compare);
    say(name, "us", us[count / 2], us[count * 99 / 100], count);
}

static void step_launch(void)
{
    launch();
}
static void step_launch_sync(void)
{
    launch();
    MUST(cuStreamSynchronize, m.stream);
}
static void step_memset_sync(void)
{
    MUST(cuMemsetD32Async, m.word + 64, 7, 16, m.stream);
    MUST(cuStreamSynchronize, m.stream);
}
static void step_event(void)
{
    MUST(cuEventRecord, m.event, m.stream);
}
static void alloc_and_free(size_t size)
{
    CUdeviceptr at;
    MUST(cuMemAlloc_v2, &at, size);
    MUST(cuMemFree_v2, at);
}
static void step_alloc(void)
{
    alloc_and_free(1 << 20);
}
/* NVIDIA's driver has blocks of this size, and takes and gives back one each time. */
static void step_alloc_block(void)
{
    alloc_and_free(2 << 20);
}
static void step_d2h(void)
{
    unsigned value;
    MUST(cuMemcpyDtoH_v2, &value, m.word + 128, sizeof value);
}
static void step_h2d(void)
{
    unsigned value = 1;
    MUST(cuMemcpyHtoD_v2, m.word + 128, &value, sizeof value);
}

static void latency(void)
{
    static const struct {
        const char *name;
        void (*step)(void);
        size_t count;
    } steps[] = {
        {"launch_enqueue", step_launch, 4000},   {"launch_sync", step_launch_sync, 2000},
        {"memset_sync", step_memset_sync, 2000}, {"event_record", step_event, 4000},
        {"alloc_free_1mib", step_alloc, 200},    {"alloc_free_2mib", step_alloc_block, 200},
        {"copy_4b_d2h", step_d2h, 2000},         {"copy_4b_h2d", step_h2d, 2000},
    };
    static double us[LATENCY_MAX];
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        size_t count = m.quick ? steps[i].count / 10 : steps[i].count;
        for (size_t n = 0; n < 20; n++) {
            steps[i].step();
        }
        MUST(cuCtxSynchronize, );
        for (size_t n = 0; n < count; n++) {
            int64_t begin = now_ns();
            steps[i].step();
            us[n] = (double)(now_ns() - begin) / 1e3;
            /* What nobody waits for must not be measured against a full queue. */
            if (n % BURST == BURST - 1) {
                MUST(cuStreamSynchronize, m.stream);
            }
        }
        MUST(cuCtxSynchronize, );
        say_samples(steps[i].name, us, count);
    }
    check_word();
}

static void launches(void)
{
    unsigned count = m.quick ? m.launches / 10 : m.launches;
    double times[LAUNCH_RUNS];
    launch();
    MUST(cuStreamSynchronize, m.stream);
    for (int run = 0; run < LAUNCH_RUNS; run++) {
        int64_t begin = now_ns();
        for (unsigned i = 0; i < count; i++) {
            launch();
        }
        MUST(cuStreamSynchronize, m.stream);
        times[run] = (double)(now_ns() - begin) / 1e9;
    }
    qsort(times, LAUNCH_RUNS, sizeof *times, compare);
    double seconds = times[LAUNCH_RUNS / 2];
    say("launches_drained", "us", seconds * 1e6 / count, 0, count);
    say("launches_per_second", "1/s", count / seconds, 0, count);
    check_word();
}

/* ---- bandwidth ---- */

#define US_PER_NS_MIB (1048576.0 / 1e3) /* times ns of bytes: us of a MiB */

enum kind { PAGEABLE, PINNED, REGISTERED, ROWS, KINDS };

enum { ROW = 4096, GAP = 64 }; /* of ROWS, in pageable memory; as lines of a picture */

/* Rows that lie `gap` bytes apart in the host's memory. Returns when the bytes have arrived. */
static void copy_rows(bool up, CUdeviceptr device, void *host, size_t row, size_t gap, size_t bytes)
{
    CUDA_MEMCPY2D rows = {.srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                          .srcHost = host,
                          .srcDevice = device,
                          .srcPitch = up ? row + gap : row,
                          .dstMemoryType = up ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .dstDevice = device,
                          .dstPitch = up ? row : row + gap,
                          .WidthInBytes = row,
                          .Height = bytes / row};
    MUST(cuMemcpy2D_v2, &rows);
    if (up) {
        MUST(cuCtxSynchronize, );
    }
}

static void copy(enum kind kind, bool up, CUdeviceptr device, void *host, size_t bytes)
{
    if (kind == ROWS) {
        copy_rows(up, device, host, ROW, GAP, bytes);
    } else if (up) {
        MUST(cuMemcpyHtoD_v2, device, host, bytes);
        if (kind == PAGEABLE) { /* it may return before the data has arrived */
            MUST(cuCtxSynchronize, );
        }
    } else {
        MUST(cuMemcpyDtoH_v2, host, device, bytes);
    }
}

enum { WALK_MAX = 256 << 10 };

static void one_size(enum kind kind, void *host, CUdeviceptr device, size_t bytes)
{
    static const char *const names[KINDS] = {"pageable", "pinned", "registered", "rows"};
    static double us[LATENCY_MAX];
    for (int up = 1; up >= 0; up--) {
        size_t wanted = ((size_t)(m.quick ? 16 : 256) << 20) / bytes;
        size_t count = wanted < 3 ? 3 : wanted > 400 ? 400 : wanted;
        /* Small pieces of a large array, one after the other: they are in no cache. */
        size_t places = kind == PAGEABLE && bytes <= WALK_MAX ? m.max_bytes / bytes : 1;
        for (size_t n = 0; n <= count; n++) {
            int64_t begin = now_ns();
            copy(kind, up != 0, device, (char *)host + n % places * bytes, bytes);
            if (n > 0) { /* the first one warms up */
                us[n - 1] = (double)(now_ns() - begin) / 1e3;
            }
        }
        qsort(us, count, sizeof *us, compare);
        printf("{\"name\":\"copy\",\"memory\":\"%s\",\"direction\":\"%s\",\"bytes\":%zu,"
               "\"unit\":\"GB/s\",\"value\":%.6g,\"us\":%.6g,\"count\":%zu}\n",
               names[kind], up ? "h2d" : "d2h", bytes, (double)bytes / us[count / 2] / 1e3,
               us[count / 2], count);
        fflush(stdout);
    }
}

static void *make_host(enum kind kind)
{
    void *host = NULL;
    size_t room = kind == ROWS ? m.max_bytes / ROW * (ROW + GAP) : m.max_bytes;
    if (kind == PINNED) {
        MUST(cuMemAllocHost_v2, &host, room);
    } else {
        host = malloc(room);
        must(host == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, "malloc");
    }
    memset(host, 1, room);
    if (kind == REGISTERED) {
        int64_t begin = now_ns();
        MUST(cuMemHostRegister_v2, host, m.max_bytes, 0);
        say("register", "us/MiB", (double)(now_ns() - begin) * US_PER_NS_MIB / (double)m.max_bytes,
            0, 1);
    }
    return host;
}

static void drop_host(enum kind kind, void *host)
{
    if (kind == REGISTERED) {
        int64_t begin = now_ns();
        MUST(cuMemHostUnregister, host);
        say("unregister", "us/MiB",
            (double)(now_ns() - begin) * US_PER_NS_MIB / (double)m.max_bytes, 0, 1);
    }
    if (kind == PINNED) {
        MUST(cuMemFreeHost, host);
    } else {
        free(host);
    }
}

static void bandwidth(void)
{
    CUdeviceptr device;
    MUST(cuMemAlloc_v2, &device, m.max_bytes);
    for (enum kind kind = PAGEABLE; kind < KINDS; kind++) {
        void *host = make_host(kind);
        for (size_t bytes = 4; bytes <= m.max_bytes; bytes *= bytes < 16384 ? 16 : 4) {
            if (kind != ROWS || bytes >= ROW) {
                one_size(kind, host, device, bytes);
            }
        }
        drop_host(kind, host);
    }
    MUST(cuMemFree_v2, device);
}

/* Pageable memory in rows of several widths, 64 MiB of it or less. */
static void rows(void)
{
    static const size_t widths[] = {64, 1 << 10, 16 << 10, 1 << 20};
    enum { NARROW_GAP = 16, COUNT = 9 };
    size_t bytes = m.max_bytes < 64u << 20 ? m.max_bytes : 64u << 20;
    char *host = calloc(bytes / 64, 64 + NARROW_GAP);
    CUdeviceptr device;
    must(host == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, "calloc");
    MUST(cuMemAlloc_v2, &device, bytes);
    for (size_t i = 0; i < sizeof widths / sizeof *widths && widths[i] <= bytes; i++) {
        for (int up = 1; up >= 0; up--) {
            double us[COUNT];
            for (int n = 0; n < COUNT; n++) {
                int64_t begin = now_ns();
                copy_rows(up != 0, device, host, widths[i], NARROW_GAP, bytes);
                us[n] = (double)(now_ns() - begin) / 1e3;
            }
            qsort(us, COUNT, sizeof *us, compare);
            printf("{\"name\":\"rows\",\"direction\":\"%s\",\"width\":%zu,\"bytes\":%zu,"
                   "\"unit\":\"us\",\"value\":%.6g,\"best\":%.6g}\n",
                   up ? "h2d" : "d2h", widths[i], bytes, us[COUNT / 2], us[0]);
            fflush(stdout);
        }
    }
    MUST(cuMemFree_v2, device);
    free(host);
}

/* ---- for `towline doctor` ---- */

/* A few steps, and none for long: the server may be far. What is copied must come back. */
static void trial(void)
{
    enum { LAUNCHES = 200, COPIES = 3 };
    const int64_t enough_ns = 1000000000;
    double us[LAUNCHES], up = 0, down = 0;
    size_t count = 0, bytes = m.max_bytes;
    step_launch_sync();
    for (int64_t began = now_ns(); count < LAUNCHES && now_ns() - began < enough_ns; count++) {
        int64_t begin = now_ns();
        step_launch_sync();
        us[count] = (double)(now_ns() - begin) / 1e3;
    }
    say_samples("trial_launch", us, count);
    unsigned char *sent = malloc(bytes), *got = calloc(bytes, 1);
    CUdeviceptr device;
    must(sent == NULL || got == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, "malloc");
    MUST(cuMemAlloc_v2, &device, bytes);
    for (size_t i = 0; i < bytes; i++) {
        sent[i] = (unsigned char)(i * 31 + (i >> 8));
    }
    int64_t began = now_ns();
    for (int n = 0; n < COPIES && (n == 0 || now_ns() - began < 2 * enough_ns); n++) {
        int64_t begin = now_ns();
        MUST(cuMemcpyHtoD_v2, device, sent, bytes);
        MUST(cuCtxSynchronize, );
        double rate = (double)bytes / (double)(now_ns() - begin);
        up = rate > up ? rate : up;
        begin = now_ns();
        MUST(cuMemcpyDtoH_v2, got, device, bytes);
        rate = (double)bytes / (double)(now_ns() - begin);
        down = rate > down ? rate : down;
    }
    if (memcmp(sent, got, bytes) != 0) {
        fprintf(stderr, "towline-measure: a copy of %zu bytes came back with others\n", bytes);
        exit(1);
    }
    say("trial_up", "GB/s", up, 0, COPIES);
    say("trial_down", "GB/s", down, 0, COPIES);
    check_word();
    MUST(cuMemFree_v2, device);
    free(sent);
    free(got);
}

/* ---- for tests/gpu/bench ---- */

static void memory(double before)
{
    for (unsigned i = 0; i < m.launches; i++) {
        launch();
    }
    MUST(cuStreamSynchronize, m.stream);
    say("private_memory", "MiB", private_mib() - before, 0, m.launches);
    check_word();
}

/* One of several clients: says that it is ready, begins when a line comes. */
static void clients(void)
{
    char line[16];
    launch();
    MUST(cuStreamSynchronize, m.stream);
    printf("{\"ready\":true}\n");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) {
        exit(1);
    }
    int64_t begin = now_ns();
    for (unsigned i = 0; i < m.launches; i++) {
        launch();
    }
    MUST(cuStreamSynchronize, m.stream);
    printf("{\"name\":\"client\",\"began_ns\":%lld,\"ended_ns\":%lld,\"launches\":%u}\n",
           (long long)begin, (long long)now_ns(), m.launches);
    fflush(stdout);
    check_word();
}

int main(int argc, char **argv)
{
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--quick") == 0) {
            m.quick = true;
        } else if (strcmp(argv[at], "--began") == 0 && at + 1 < argc) {
            m.began_ns = strtoll(argv[++at], NULL, 10);
        } else if (strcmp(argv[at], "--max-bytes") == 0 && at + 1 < argc) {
            m.max_bytes = strtoull(argv[++at], NULL, 10);
        } else if (strcmp(argv[at], "--launches") == 0 && at + 1 < argc) {
            m.launches = (unsigned)strtoul(argv[++at], NULL, 10);
        } else {
            fprintf(stderr, "towline-measure: %s is not understood\n", argv[at]);
            return 2;
        }
    }
    if (m.max_bytes < 4 || m.launches == 0) {
        fprintf(stderr, "towline-measure: there is nothing to measure\n");
        return 2;
    }
    bool startup = false, more = false;
    for (int i = at; i < argc; i++) {
        startup |= strcmp(argv[i], "startup") == 0;
        more |= strcmp(argv[i], "startup") != 0;
    }
    double before = private_mib();
    start(startup);
    if (more && !m.quick) {
        /* A server that has given a worker away makes the next one ready, with a context of its
         * own, which the GPU and its driver are busy with: that is not what the rest measures. */
        usleep(SETTLE_US);
    }
    for (; at < argc; at++) {
        if (strcmp(argv[at], "latency") == 0) {
            latency();
        } else if (strcmp(argv[at], "launches") == 0) {
            launches();
        } else if (strcmp(argv[at], "bandwidth") == 0) {
            bandwidth();
        } else if (strcmp(argv[at], "rows") == 0) {
            rows();
        } else if (strcmp(argv[at], "trial") == 0) {
            trial();
        } else if (strcmp(argv[at], "memory") == 0) {
            memory(before);
        } else if (strcmp(argv[at], "clients") == 0) {
            clients();
        } else if (strcmp(argv[at], "startup") != 0) {
            fprintf(stderr, "towline-measure: there is no part %s\n", argv[at]);
            return 2;
        }
    }
    return 0;
}
