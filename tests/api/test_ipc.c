/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory and events of one program used by another: two processes, each a client of its own.
 */
#include "api.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000, ROUNDS = 200, LAUNCHES = 50, WHOLES = 10, DELAY = 400 };

struct message {
    CUresult result;
    CUipcMemHandle handle[2];
    CUipcEventHandle event;
};

static void give(int fd, const void *bytes, size_t size)
{
    EQUAL(write(fd, bytes, size), size);
}

static void take(int fd, void *bytes, size_t size)
{
    EQUAL(read(fd, bytes, size), size);
}

/* Opens what the other gave, adds to it, and closes it again. */
static int other(int from, int to)
{
    struct api api;
    struct message message;
    CUdeviceptr memory = 0, again = 0, large = 0;
    int value[N], done = 1;
    api_begin(&api);
    take(from, &message, sizeof message);
    if (message.result == CUDA_SUCCESS) {
        OK(cuIpcOpenMemHandle(&memory, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        OK(cuMemcpyDtoH(value, memory, sizeof value));
        EQUAL(value[0] + value[N - 1], 14);
        CUdeviceptr base = 0;
        size_t length = 0;
        OK(cuMemGetAddressRange(&base, &length, memory));
        EQUAL(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
        /* Its end is known here: no copy goes past it, and none that nobody waits for either. */
        EQUAL(cuMemcpyHtoDAsync(base + length - 4, value, sizeof value, NULL),
              CUDA_ERROR_INVALID_VALUE);
        OK(cuCtxSynchronize());
        OK(api_add(&api, memory, N, 5, NULL));
        OK(cuIpcOpenMemHandle(&large, message.handle[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        OK(cuMemsetD32(large, 77, N));
        OK(cuCtxSynchronize());
        OK(cuIpcCloseMemHandle(large));
        OK(cuIpcCloseMemHandle(memory));
        EQUAL(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
        memset(&message.handle[0], 1, sizeof message.handle[0]);
        TRUE(cuIpcOpenMemHandle(&again, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
             CUDA_SUCCESS);
    }
    give(to, &done, sizeof done);
    return api_end(&api);
}

static void tell(int fd)
{
    give(fd, "x", 1);
}

static void hear(int fd)
{
    char byte;
    take(fd, &byte, 1);
}

static CUresult api_copy(struct api *api, CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
    int count = N;
    void *params[] = {&to, &from, &count};
    return cuLaunchKernel(api->copy, (N + 63) / 64, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

/* What the kernel copied is all `wanted`. */
static void check_values(CUdeviceptr memory, int wanted)
{
    int value[N];
    OK(cuMemcpyDtoH(value, memory, sizeof value));
    EQUAL(value[0], wanted);
    EQUAL(value[N - 1], wanted);
}

/* A graph that adds 1 to the memory and records the event then, as a stream did. */
static CUgraphExec captured(struct api *api, CUdeviceptr memory, CUevent event, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(api_add(api, memory, N, 1, stream));
    OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    return exec;
}

/* The memory goes from one to the other and back as in other_events, but graphs record the event:
 * that a launch recorded it can be told by other means. */
static void other_launches(struct api *api, int from, int to, CUdeviceptr memory, CUdeviceptr copy,
                           CUevent event, CUstream stream)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec record = NULL;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    OK(cuGraphInstantiate(&record, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < LAUNCHES && api_failures == 0; i++) {
        hear(from);
        OK(cuStreamWaitEvent(stream, event, 0));
        OK(api_copy(api, copy, memory, stream));
        OK(cuGraphLaunch(record, stream));
        tell(to);
        OK(cuStreamSynchronize(stream));
        check_values(copy, 100 + ROUNDS + i);
    }
    OK(cuGraphExecDestroy(record));
}

static void launches(struct api *api, int to, int from, CUdeviceptr memory, CUevent event,
                     CUstream stream)
{
    CUgraphExec record = captured(api, memory, event, stream);
    for (int i = 0; i < LAUNCHES && api_failures == 0; i++) {
        OK(cuGraphLaunch(record, stream));
        tell(to);
        hear(from);
        OK(cuStreamWaitEvent(stream, event, 0));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(record));
}

/* ---- records and waits of a whole context, or of a green one ---- */

struct whole {
    CUcontext context;
    CUgreenCtx green; /* NULL: the context itself */
    CUstream stream;  /* of it */
};

static void whole_begin(struct whole *whole, struct api *api, bool green)
{
    *whole = (struct whole){.context = api->context};
    if (green) {
        CUdevResource all, some;
        CUdevResourceDesc description = NULL;
        unsigned groups = 1;
        OK(cuDeviceGetDevResource(api->device, &all, CU_DEV_RESOURCE_TYPE_SM));
        OK(cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, all.sm.smCount / 2));
        OK(cuDevResourceGenerateDesc(&description, &some, 1));
        OK(cuGreenCtxCreate(&whole->green, description, api->device, CU_GREEN_CTX_DEFAULT_STREAM));
        OK(cuGreenCtxStreamCreate(&whole->stream, whole->green, CU_STREAM_NON_BLOCKING, 0));
    } else {
        OK(cuStreamCreate(&whole->stream, CU_STREAM_NON_BLOCKING));
    }
}

static void whole_end(struct whole *whole)
{
    OK(cuStreamSynchronize(whole->stream));
    OK(cuStreamDestroy(whole->stream));
    if (whole->green != NULL) {
        OK(cuGreenCtxDestroy(whole->green));
    }
}

static CUresult whole_record(const struct whole *whole, CUevent event)
{
    return whole->green != NULL ? cuGreenCtxRecordEvent(whole->green, event)
                                : cuCtxRecordEvent(whole->context, event);
}

static CUresult whole_wait(const struct whole *whole, CUevent event)
{
    return whole->green != NULL ? cuGreenCtxWaitEvent(whole->green, event)
                                : cuCtxWaitEvent(whole->context, event);
}

/* Keeps whoever carries this program's commands out busy for a while: what follows would come late
 * if nobody waited for it. */
static void delay(const struct whole *whole, CUdeviceptr scratch)
{
    for (int i = 0; i < DELAY; i++) {
        OK(cuMemsetD32Async(scratch, 0, 1, whole->stream));
    }
}

static bool is_done_soon(CUstream stream)
{
    for (int i = 0; i < 15000 && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY; i++) {
        usleep(1000);
    }
    return cuStreamQuery(stream) == CUDA_SUCCESS;
}

/* The memory goes to and fro as in other_events. Then a wait is for the record that was the last
 * when it returned, not for one that follows. */
static void other_wholes(struct api *api, int from, int to, CUdeviceptr memory, CUdeviceptr copy,
                         CUevent event)
{
    for (int green = 0; green < 2; green++) {
        struct whole whole;
        whole_begin(&whole, api, green != 0);
        for (int i = 0; i < WHOLES && api_failures == 0; i++) {
            hear(from);
            OK(whole_wait(&whole, event));
            OK(cuMemcpyDtoDAsync(copy, memory, N * sizeof(int), whole.stream));
            OK(whole_record(&whole, event));
            tell(to);
            OK(cuStreamSynchronize(whole.stream));
            check_values(copy, 1000 + i);
        }
        for (int i = 0; i < WHOLES && api_failures == 0; i++) {
            hear(from);
            delay(&whole, copy);
            OK(whole_wait(&whole, event));
            tell(to);
            hear(from); /* the parent has recorded it again */
            TRUE(is_done_soon(whole.stream));
            tell(to);
        }
        /* All of the context waits, also where no stream has work. */
        for (int i = 0; i < 3 && green == 0 && api_is_soft() && api_failures == 0; i++) {
            hear(from);
            OK(whole_wait(&whole, event));
            tell(to);
            OK(cuCtxSynchronize());
            OK(cuEventQuery(event));
            tell(to);
        }
        whole_end(&whole);
    }
}

static void wholes(struct api *api, int to, int from, CUdeviceptr memory, CUevent event)
{
    CUdeviceptr scratch = 0;
    OK(cuMemAlloc(&scratch, sizeof(int)));
    for (int green = 0; green < 2; green++) {
        struct whole whole;
        whole_begin(&whole, api, green != 0);
        for (int i = 0; i < WHOLES && api_failures == 0; i++) {
            delay(&whole, scratch);
            OK(cuMemsetD32Async(memory, 1000 + (unsigned)i, N, whole.stream));
            OK(whole_record(&whole, event));
            tell(to);
            hear(from);
            OK(whole_wait(&whole, event));
        }
        OK(cuStreamSynchronize(whole.stream));
        for (int i = 0; i < WHOLES && api_failures == 0; i++) {
            OK(whole_record(&whole, event));
            OK(cuEventSynchronize(event));
            tell(to);
            hear(from);
            sem_init(&api_gate, 0, 0);
            OK(cuLaunchHostFunc(whole.stream, api_pass_gate, NULL));
            OK(whole_record(&whole, event));
            tell(to);
            hear(from);
            EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
            sem_post(&api_gate);
            OK(cuStreamSynchronize(whole.stream));
        }
        for (int i = 0; i < 3 && green == 0 && api_is_soft() && api_failures == 0; i++) {
            OK(cuLaunchHostFunc(whole.stream, api_pass_gate, NULL));
            OK(whole_record(&whole, event));
            tell(to);
            hear(from);
            usleep(20000);
            sem_post(&api_gate);
            OK(cuStreamSynchronize(whole.stream));
            hear(from);
        }
        whole_end(&whole);
    }
    OK(cuMemFree(scratch));
}

/* Waits for the parent's records, and has the parent wait for its own. */
static int other_events(int from, int to)
{
    struct api api;
    struct message message;
    CUdeviceptr memory = 0, copy = 0;
    CUstream stream;
    CUevent event = NULL, again = NULL, own = NULL;
    float time;
    api_begin(&api);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&copy, N * sizeof(int)));
    take(from, &message, sizeof message);
    if (message.result != CUDA_SUCCESS) {
        return api_end(&api);
    }
    OK(cuIpcOpenMemHandle(&memory, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenEventHandle(&event, message.event));
    EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(api_copy(&api, copy, memory, stream));
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    tell(to); /* the parent lets go */
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    OK(cuStreamSynchronize(stream));
    check_values(copy, 42);
    tell(to);
    for (int i = 0; i < ROUNDS && api_failures == 0; i++) {
        hear(from);
        OK(cuStreamWaitEvent(stream, event, 0));
        OK(api_copy(&api, copy, memory, stream));
        OK(cuEventRecord(event, stream));
        tell(to);
        OK(cuStreamSynchronize(stream));
        check_values(copy, 100 + i);
    }
    other_wholes(&api, from, to, memory, copy, event);
    other_launches(&api, from, to, memory, copy, event, stream);
    OK(cuEventCreate(&own, CU_EVENT_DEFAULT));
    TRUE(cuEventElapsedTime(&time, own, event) != CUDA_SUCCESS);
    OK(cuEventDestroy(own));
    memset(&message.event, 1, sizeof message.event);
    TRUE(cuIpcOpenEventHandle(&again, message.event) != CUDA_SUCCESS);
    if (api_is_remote()) {
        /* It dies with a record that was not reached. */
        sem_init(&api_gate, 0, 0);
        OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
        OK(cuEventRecord(event, stream));
        EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        tell(to);
        hear(from);
        puts(api_failures == 0 ? "OK" : "FAILED"); /* as api_end would */
        fflush(stdout);
        _exit(api_failures != 0);
    }
    OK(cuEventDestroy(event));
    OK(cuIpcCloseMemHandle(memory));
    OK(cuMemFree(copy));
    OK(cuStreamDestroy(stream));
    return api_end(&api);
}

static void events_are_shared(struct api *api, int to, int from)
{
    struct message message = {0};
    CUdeviceptr memory = 0;
    CUstream stream;
    CUevent event = NULL, plain = NULL;
    EQUAL(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    TRUE(cuIpcGetEventHandle(&message.event, plain) != CUDA_SUCCESS);
    OK(cuEventDestroy(plain));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, N * sizeof(int)));
    OK(cuMemsetD32(memory, 1, N));
    OK(cuCtxSynchronize());
    message.result = cuIpcGetMemHandle(&message.handle[0], memory);
    if (message.result == CUDA_SUCCESS) {
        message.result = cuIpcGetEventHandle(&message.event, event);
    }
    if (message.result == CUDA_ERROR_NOT_SUPPORTED) {
        printf("shared events are not supported by this device\n");
    } else {
        OK(message.result);
    }
    sem_init(&api_gate, 0, 0);
    if (message.result == CUDA_SUCCESS) {
        OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
        OK(cuMemsetD32Async(memory, 42, N, stream));
        OK(cuEventRecord(event, stream));
        EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    }
    give(to, &message, sizeof message);
    if (message.result == CUDA_SUCCESS) {
        hear(from);
        sem_post(&api_gate);
        hear(from); /* the child has its copy */
        for (int i = 0; i < ROUNDS && api_failures == 0; i++) {
            OK(cuMemsetD32Async(memory, 100 + (unsigned)i, N, stream));
            OK(cuEventRecord(event, stream));
            tell(to);
            hear(from);
            OK(cuStreamWaitEvent(stream, event, 0)); /* the child's record */
        }
        OK(cuStreamSynchronize(stream));
        OK(cuEventQuery(event));
        wholes(api, to, from, memory, event);
        OK(cuMemsetD32(memory, 100 + ROUNDS - 1, N));
        OK(cuCtxSynchronize());
        launches(api, to, from, memory, event, stream);
        if (api_is_remote()) {
            hear(from);
            EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
            OK(cuStreamWaitEvent(stream, event, 0));
            tell(to);
            OK(cuEventSynchronize(event));
            OK(cuStreamSynchronize(stream));
        }
    }
    OK(cuMemFree(memory));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
}

static void memory_is_shared(struct api *api, int to, int from)
{
    struct message message = {0};
    CUdeviceptr memory = 0, large = 0, opened = 0;
    int value[N], done = 0;
    OK(cuMemAlloc(&memory, sizeof value));
    OK(cuMemAlloc(&large, 8 << 20));
    OK(cuMemsetD32(memory, 7, N));
    OK(cuCtxSynchronize());
    message.result = cuIpcGetMemHandle(&message.handle[0], memory);
    if (message.result == CUDA_ERROR_NOT_SUPPORTED) {
        printf("shared memory is not supported by this device\n");
    } else {
        OK(message.result);
        OK(cuIpcGetMemHandle(&message.handle[1], large));
        TRUE(cuIpcOpenMemHandle(&opened, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
             CUDA_SUCCESS); /* not in the process that it comes from */
    }
    give(to, &message, sizeof message);
    take(from, &done, sizeof done);
    if (message.result == CUDA_SUCCESS) {
        OK(cuMemcpyDtoH(value, memory, sizeof value));
        EQUAL(value[0], 12);
        EQUAL(value[N - 1], 12);
        OK(cuMemcpyDtoH(value, large, sizeof value));
        EQUAL(value[N / 2], 77);
        OK(api_add(api, memory, N, 1, NULL)); /* still the program's own */
        OK(cuMemcpyDtoH(value, memory, sizeof value));
        EQUAL(value[1], 13);
    }
    OK(cuMemFree(large));
    OK(cuMemFree(memory));
}

struct child {
    pid_t pid;
    int to, from;
};

static void start(struct child *child, int (*run)(int from, int to))
{
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0) {
        exit(1);
    }
    child->pid = fork();
    if (child->pid == 0) {
        close(there[1]); /* if the parent fails, reading ends */
        exit(run(there[0], back[1]));
    }
    close(there[0]);
    close(back[1]);
    child->to = there[1];
    child->from = back[0];
}

static void finish(struct child *child)
{
    int status = -1;
    EQUAL(waitpid(child->pid, &status, 0), child->pid);
    EQUAL(status, 0);
}

int main(void)
{
    struct child memory, events;
    signal(SIGPIPE, SIG_IGN); /* a child that failed is told by its status */
    /* Before CUDA is touched: a forked child cannot use its parent's. */
    start(&memory, other);
    start(&events, other_events);
    struct api api;
    api_begin(&api);
    memory_is_shared(&api, memory.to, memory.from);
    finish(&memory);
    events_are_shared(&api, events.to, events.from);
    finish(&events);
    return api_end(&api);
}
