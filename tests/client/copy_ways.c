/* SPDX-License-Identifier: Apache-2.0 */
/* Each way of a copy (client/copy/plan.h) is gone, not only planned: who carries a copy out and
 * what it sends is written down while the program's calls run against a real server, and so is what
 * arrives. tests/system/test_ways.py runs it.
 *
 *     copy_ways unix    ways for memory that the server does not have
 *     copy_ways shm     ways for memory that it has too
 *     copy_ways peer    between two servers
 *
 * The linker puts the functions here in the place of the executors (--wrap in meson.build).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/copy/look.h"
#include "client/link/call.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/core_client.h"
#include "gen/graph_client.h"
#include "gen/launch_client.h"
#include "gen/memory_client.h"
#include "gen/stream_client.h"

enum { SIZE = 1 << 20, PAGE = 4096, ROWS = 16, WIDTH = 100, PITCH = 256 };

static int failures;

static void must(CUresult status, const char *what)
{
    if (status != CUDA_SUCCESS) {
        printf("%s: error %d\n", what, (int)status);
        exit(1);
    }
}

/* ---- the gate: what keeps a stream busy ---- */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static bool gate_open;

static void set_gate(bool open)
{
    pthread_mutex_lock(&gate_lock);
    gate_open = open;
    pthread_cond_broadcast(&gate_opened);
    pthread_mutex_unlock(&gate_lock);
}

/* A host function: fills what it is given when the gate opens. */
static void fill_at_gate(void *memory)
{
    pthread_mutex_lock(&gate_lock);
    while (!gate_open) {
        pthread_cond_wait(&gate_opened, &gate_lock);
    }
    pthread_mutex_unlock(&gate_lock);
    memset(memory, 0x5a, SIZE);
}

/* ---- the account ---- */

static char ways[256], commands[256];
static bool open_for_settle; /* the gate opens when a source is waited for */

static void note_begin(const char *way)
{
    size_t at = strlen(ways);
    if (at > 0 && ways[at - 1] != ' ') {
        strncat(ways, " + ", sizeof ways - at - 1);
    }
    strncat(ways, way, sizeof ways - strlen(ways) - 1);
}

/* A step, or one that declined, leaves it to another. */
static bool note_end(bool done)
{
    if (!done) {
        strncat(ways, " > ", sizeof ways - strlen(ways) - 1);
    }
    return done;
}

#define EXECUTOR(name, way)                                                                        \
    towc_copy_executor __real_##name, __wrap_##name;                                               \
    bool __wrap_##name(struct towc_copy *copy, CUresult *ret_status)                               \
    {                                                                                              \
        note_begin(way);                                                                           \
        return note_end(__real_##name(copy, ret_status));                                          \
    }

EXECUTOR(towc_peer_go, "peer")
EXECUTOR(towc_named_push, "push")
EXECUTOR(towc_named_captured, "captured")
EXECUTOR(towc_named_device, "device")
EXECUTOR(towc_shared_copy, "shared")
EXECUTOR(towc_named_copy, "named")
EXECUTOR(towc_upload_deferred, "deferred")
EXECUTOR(towc_download_async, "later")
EXECUTOR(towc_named_turn, "turn")
EXECUTOR(towc_download_fetched, "fetched")
EXECUTOR(towc_download_staged, "staged down")
EXECUTOR(towc_upload_staged, "staged up")
EXECUTOR(towc_download_line, "line down")
EXECUTOR(towc_upload_line, "line up")

towc_copy_executor __real_towc_upload_wait_source, __wrap_towc_upload_wait_source;
bool __wrap_towc_upload_wait_source(struct towc_copy *copy, CUresult *ret_status)
{
    note_begin("settle");
    if (open_for_settle) {
        set_gate(true);
    }
    return note_end(__real_towc_upload_wait_source(copy, ret_status));
}

static void note_command(unsigned fn)
{
    const char *name = fn == TOW_FN_cuMemcpyHtoDAsync_v2   ? "HtoD "
                       : fn == TOW_FN_cuMemcpyDtoHAsync_v2 ? "DtoH "
                       : fn == TOW_FN_cuMemcpyDtoDAsync_v2 ? "DtoD "
                       : fn == TOW_FN_cuMemcpyAsync        ? "Async "
                       : fn == TOW_FN_cuMemcpy3DAsync_v2   ? "3D "
                                                           : "";
    strncat(commands, name, sizeof commands - strlen(commands) - 1);
}

CUresult __real_towc_call_begin(struct towc_call *call, unsigned fn, size_t bytes, unsigned flags);
CUresult __wrap_towc_call_begin(struct towc_call *call, unsigned fn, size_t bytes, unsigned flags);
CUresult __wrap_towc_call_begin(struct towc_call *call, unsigned fn, size_t bytes, unsigned flags)
{
    note_command(fn);
    return __real_towc_call_begin(call, fn, bytes, flags);
}

/* What the call before this one did. */
static void expect(CUresult status, const char *what, const char *wanted, const char *sent)
{
    must(status, what);
    if (strcmp(ways, wanted) != 0 || strcmp(commands, sent) != 0) {
        printf("%s went \"%s\" by commands \"%s\", not \"%s\" by \"%s\"\n", what, ways, commands,
               wanted, sent);
        failures++;
    }
    ways[0] = commands[0] = 0;
}

/* ---- memory ---- */

static uint8_t plain[SIZE], back[SIZE];
static CUdeviceptr device, other;
static CUstream stream;

static void fill(uint8_t *memory, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        memory[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
    }
}

static void expect_bytes(const void *got, const void *wanted, size_t size, const char *what)
{
    if (memcmp(got, wanted, size) != 0) {
        printf("%s: other bytes\n", what);
        failures++;
    }
}

/* What the device has, fetched in a way that is not looked at. */
static void expect_on_device(CUdeviceptr at, const void *wanted, size_t size, const char *what)
{
    must(towc_cuMemcpyDtoH_v2(back, at, size), what);
    expect_bytes(back, wanted, size, what);
    ways[0] = commands[0] = 0;
}

static void begin(int devices)
{
    CUcontext context;
    for (int i = devices - 1; i >= 0; i--) {
        must(towc_cuDevicePrimaryCtxRetain(&context, i), "a context");
        must(towc_cuCtxSetCurrent(context), "a context");
        must(towc_cuMemAlloc_v2(i == 0 ? &device : &other, SIZE), "memory");
    }
    if (devices == 1) {
        must(towc_cuMemAlloc_v2(&other, SIZE), "memory");
    }
    must(towc_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    fill(plain, SIZE, 1);
    ways[0] = commands[0] = 0;
}

static CUDA_MEMCPY2D rows_up(const void *from)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = from,
                           .srcPitch = WIDTH,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = device,
                           .dstPitch = PITCH,
                           .WidthInBytes = WIDTH,
                           .Height = ROWS};
}

/* ---- memory that the server does not have ---- */

static void over_the_line(void)
{
    expect(towc_cuMemcpyHtoD_v2(device, plain, SIZE), "an upload", "line up", "HtoD ");
    memset(back, 0, SIZE);
    expect(towc_cuMemcpyDtoH_v2(back, device, SIZE), "a download", "line down", "DtoH ");
    expect_bytes(back, plain, SIZE, "a download");
    expect(towc_cuMemcpyDtoD_v2(other, device, SIZE), "on the device", "device", "DtoD ");
    expect_on_device(other, plain, SIZE, "on the device");
}

/* Addresses tell which side is whose. */
static void unified(void)
{
    fill(plain, SIZE, 2);
    expect(towc_cuMemcpy(device, (CUdeviceptr)(uintptr_t)plain, SIZE), "a unified upload",
           "line up", "HtoD ");
    expect(towc_cuMemcpy(other, device, SIZE), "a unified one", "device", "DtoD ");
    expect(towc_cuMemcpy((CUdeviceptr)(uintptr_t)back, other, SIZE), "a unified download",
           "line down", "DtoH ");
    expect_bytes(back, plain, SIZE, "unified copies");
    memset(back, 0, SIZE);
    expect(towc_cuMemcpy((CUdeviceptr)(uintptr_t)back, (CUdeviceptr)(uintptr_t)plain, SIZE),
           "host to host", "", "");
    expect_bytes(back, plain, SIZE, "host to host");
    CUDA_MEMCPY2D rows = rows_up(NULL);
    rows.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    rows.srcDevice = (CUdeviceptr)(uintptr_t)plain;
    expect(towc_cuMemcpy2D_v2(&rows), "unified rows", "line up", "3D ");
    expect_on_device(device + PITCH, plain + WIDTH, WIDTH, "unified rows");
    if (towc_cuMemcpy(0, device, 1) != CUDA_ERROR_INVALID_VALUE ||
        towc_cuMemcpy(device, 0, 1) != CUDA_ERROR_INVALID_VALUE) {
        printf("no address is one\n");
        failures++;
    }
    ways[0] = commands[0] = 0;
}

static void page_locked(uint8_t *pinned)
{
    fill(plain, SIZE, 3);
    must(towc_cuMemcpyHtoD_v2(device, plain, SIZE), "what is to come");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyDtoHAsync_v2(pinned, device, PAGE, stream), "an asynchronous download",
           "later", "DtoH ");
    must(towc_cuStreamSynchronize(stream), "a synchronisation");
    expect_bytes(pinned, plain, PAGE, "an asynchronous download");

    /* It comes when the gate opens; whoever reads there waits. */
    set_gate(false);
    must(towc_cuLaunchHostFunc(stream, fill_at_gate, back), "a host function");
    memset(pinned, 0, SIZE);
    expect(towc_cuMemcpyDtoHAsync_v2(pinned, device, PAGE, stream), "one behind a host function",
           "later", "DtoH ");
    open_for_settle = true;
    expect(towc_cuMemcpyHtoD_v2(other, pinned, PAGE), "an upload of what is to come",
           "settle > line up", "HtoD ");
    open_for_settle = false;
    expect_on_device(other, plain, PAGE, "an upload of what is to come");
    must(towc_cuStreamSynchronize(stream), "a synchronisation");
}

/* The function fills the source when the copy was called long ago. */
static void behind_host_functions(uint8_t *pinned)
{
    uint8_t *filled = malloc(SIZE);
    memset(filled, 0x5a, SIZE);
    memset(pinned, 0, SIZE);
    set_gate(false);
    must(towc_cuLaunchHostFunc(stream, fill_at_gate, pinned), "a host function");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyHtoDAsync_v2(device, pinned, PAGE, stream), "an upload behind a function",
           "deferred", "HtoD ");
    set_gate(true);
    must(towc_cuStreamSynchronize(stream), "a synchronisation");
    expect_on_device(device, filled, PAGE, "an upload behind a function");

    memset(pinned, 0, SIZE);
    set_gate(false);
    must(towc_cuLaunchHostFunc(stream, fill_at_gate, pinned), "a host function");
    ways[0] = commands[0] = 0;
    CUDA_MEMCPY2D rows = rows_up(pinned);
    expect(towc_cuMemcpy2DAsync_v2(&rows, stream), "rows behind a function", "turn > named", "3D ");
    set_gate(true);
    must(towc_cuStreamSynchronize(stream), "a synchronisation");
    expect_on_device(device, filled, WIDTH, "rows behind a function");
    expect_on_device(device + PITCH * (ROWS - 1), filled, WIDTH, "rows behind a function");
    free(filled);
}

/* From now on the server has a copy of the page-locked memory, which is written and read as the
 * device's, too. */
static void mirrored(uint8_t *pinned)
{
    CUDA_MEMCPY2D rows = rows_up(plain);
    fill(plain, SIZE, 4);
    fill(pinned, SIZE, 5);
    expect(towc_cuMemcpy2D_v2(&rows), "rows beside mirrored memory", "push > line up", "3D ");
    expect_on_device(device + PITCH, plain + WIDTH, WIDTH, "rows beside mirrored memory");
    expect(towc_cuMemcpyDtoD_v2(other, (CUdeviceptr)(uintptr_t)pinned, PAGE), "from a mirror",
           "push > device", "DtoD ");
    expect_on_device(other, pinned, PAGE, "from a mirror");
    expect(towc_cuMemcpyHtoD_v2(device, pinned, PAGE), "an upload of it", "named", "Async ");
    expect_on_device(device, pinned, PAGE, "an upload of it");
}

static void captured(uint8_t *pinned)
{
    CUgraph graph;
    CUgraphExec exec;
    must(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "a capture");
    expect(towc_cuMemcpyHtoDAsync_v2(device, pinned, PAGE, stream), "a captured upload", "captured",
           "Async ");
    must(towc_cuStreamEndCapture(stream, &graph), "its end");
    must(towc_cuGraphInstantiateWithFlags(&exec, graph, 0), "an executable graph");
    fill(pinned, PAGE, 6);
    must(towc_cuGraphLaunch(exec, stream), "its launch");
    must(towc_cuStreamSynchronize(stream), "a synchronisation");
    expect_on_device(device, pinned, PAGE, "a captured upload");
}

static void unix_ways(void)
{
    void *pinned = NULL;
    begin(1);
    over_the_line();
    unified();
    must(towc_cuMemHostAlloc(&pinned, SIZE, 0), "page-locked memory");
    page_locked(pinned);
    behind_host_functions(pinned);
    mirrored(pinned);
    captured(pinned);
}

/* ---- memory that it has, too ---- */

static void staged(void)
{
    expect(towc_cuMemcpyHtoD_v2(device, plain, SIZE), "an upload", "staged up", "HtoD HtoD ");
    memset(back, 0, SIZE);
    towc_cuMemcpyDtoH_v2(back, device, SIZE);
    if (strcmp(ways, "staged down") != 0) {
        printf("a download went %s\n", ways);
        failures++;
    }
    expect_bytes(back, plain, SIZE, "a download");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyDtoH_v2(back, device, 64), "a small download", "fetched", "DtoH ");
    expect_bytes(back, plain, 64, "a small download");
    expect(towc_cuMemcpyHtoD_v2(device, plain + 1, 64), "a small upload", "line up", "HtoD ");
    expect_on_device(device, plain + 1, 64, "a small upload");
}

static void shared(void)
{
    void *memory = NULL;
    must(towc_cuMemHostAlloc(&memory, SIZE, 0), "page-locked memory");
    fill(memory, SIZE, 7);
    expect(towc_cuMemcpyHtoD_v2(device, memory, SIZE), "an upload of it", "shared", "HtoD ");
    expect_on_device(device, memory, SIZE, "an upload of it");
    fill(plain, SIZE, 8);
    must(towc_cuMemcpyHtoD_v2(device, plain, SIZE), "what comes back");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyDtoH_v2(memory, device, SIZE), "a download to it", "shared", "DtoH ");
    expect_bytes(memory, plain, SIZE, "a download to it");
}

/* A shared mapping that is registered, but for its first bytes: those are in no whole page. */
static void split(void)
{
    int fd = memfd_create("program", MFD_CLOEXEC);
    uint8_t *memory = fd < 0 || ftruncate(fd, 4 * PAGE) != 0
                          ? MAP_FAILED
                          : mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    size_t first = PAGE - 100, size = PAGE + 100;
    if (memory == MAP_FAILED) {
        printf("no mapping\n");
        failures++;
        return;
    }
    fill(memory, (size_t)4 * PAGE, 9);
    must(towc_cuMemHostRegister_v2(memory + first, size, 0), "registering");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyHtoD_v2(device, memory + first, size), "an upload in two",
           "line up + shared", "HtoD HtoD ");
    expect_on_device(device, memory + first, size, "an upload in two");
    fill(plain, SIZE, 10);
    must(towc_cuMemcpyHtoD_v2(device, plain, SIZE), "what comes back");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyDtoH_v2(memory + first, device, size), "a download in two",
           "shared + fetched", "DtoH DtoH ");
    expect_bytes(memory + first, plain, size, "a download in two");
}

static void shm_ways(void)
{
    begin(1);
    staged();
    shared();
    split();
}

/* ---- two servers ---- */

static void peer_ways(void)
{
    begin(2);
    must(towc_cuMemcpyHtoD_v2(device, plain, PAGE), "what is copied");
    ways[0] = commands[0] = 0;
    expect(towc_cuMemcpyDtoD_v2(other, device, PAGE), "between servers",
           "peer + line down + line up", "DtoH HtoD ");
    memset(back, 0, PAGE);
    expect(towc_cuMemcpyDtoH_v2(back, other, PAGE), "from the other one", "peer + line down",
           "DtoH ");
    expect_bytes(back, plain, PAGE, "between servers");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    must(towc_cuInit(0), "cuInit");
    if (strcmp(what, "unix") == 0) {
        unix_ways();
    } else if (strcmp(what, "shm") == 0) {
        shm_ways();
    } else if (strcmp(what, "peer") == 0) {
        peer_ways();
    } else {
        return 2;
    }
    puts(failures == 0 ? "OK" : "FAILED");
    fflush(stdout);
    return failures != 0;
}
