/* SPDX-License-Identifier: Apache-2.0 */
/* Large copies to and from the device, whatever the streams are doing meanwhile. */
#include "api.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MIB = 1 << 20 };

static unsigned char byte_at(size_t at, int seed)
{
    return (unsigned char)(at * 7 + at / 251 + (size_t)seed);
}

static void write_bytes(unsigned char *bytes, size_t size, int seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = byte_at(i, seed);
    }
}

static size_t wrong_bytes(const unsigned char *bytes, size_t size, int seed)
{
    size_t wrong = 0;
    for (size_t i = 0; i < size; i++) {
        wrong += bytes[i] != byte_at(i, seed);
    }
    return wrong;
}

/* Sizes around what travels inside a command, in one frame, in one piece. */
static void every_size_arrives_whole(struct api *api)
{
    static const size_t sizes[] = {65535,   65536,   65537,       MIB - 1,     MIB,
                                   MIB + 1, 3 * MIB, 4 * MIB + 5, 9 * MIB - 3, 20 * MIB};
    unsigned char *from = malloc(20 * MIB), *to = malloc(20 * MIB);
    CUdeviceptr device;
    (void)api;
    OK(cuMemAlloc(&device, 20 * MIB));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        write_bytes(from, sizes[i], (int)i);
        memset(to, 0, sizes[i]);
        OK(cuMemcpyHtoD(device, from, sizes[i]));
        /* The source has been read, whatever happens to it now. */
        memset(from, 0, sizes[i]);
        OK(cuMemcpyDtoH(to, device, sizes[i]));
        EQUAL(wrong_bytes(to, sizes[i], (int)i), 0);
    }
    OK(cuMemFree(device));
    free(from);
    free(to);
}

/* The copies wait behind a host function that waits for this thread: no call may wait for them, and
 * the function's end must get through. */
static void uploads_to_a_stream_that_stands_still_do_not_wait(struct api *api)
{
    enum { SIZE = 40 * MIB };
    unsigned char *pinned, *other = malloc(SIZE), *back = calloc(1, SIZE);
    CUdeviceptr device, second;
    CUstream still, moving;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemAlloc(&second, SIZE));
    OK(cuStreamCreate(&still, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&moving, CU_STREAM_NON_BLOCKING));
    write_bytes(pinned, SIZE, 1);
    write_bytes(other, SIZE, 2);
    OK(sem_init(&api_gate, 0, 0));
    OK(cuLaunchHostFunc(still, api_pass_gate, NULL));
    OK(cuMemcpyHtoDAsync(device, pinned, SIZE, still));
    EQUAL(cuStreamQuery(still), CUDA_ERROR_NOT_READY);
    /* Another stream's copies go on all the while. */
    OK(cuMemcpyHtoDAsync(second, other, SIZE, moving));
    OK(cuStreamSynchronize(moving));
    OK(cuMemcpyDtoHAsync(back, second, SIZE, moving));
    OK(cuStreamSynchronize(moving));
    EQUAL(wrong_bytes(back, SIZE, 2), 0);
    EQUAL(cuStreamQuery(still), CUDA_ERROR_NOT_READY);
    OK(sem_post(&api_gate));
    OK(cuStreamSynchronize(still));
    OK(cuMemcpyDtoH(back, device, SIZE));
    EQUAL(wrong_bytes(back, SIZE, 1), 0);
    OK(cuStreamDestroy(still));
    OK(cuStreamDestroy(moving));
    OK(cuMemFree(device));
    OK(cuMemFree(second));
    OK(cuMemFreeHost(pinned));
    free(other);
    free(back);
}

/* A host function writes `bytes`, which are uploaded behind it. */
struct late {
    unsigned char *bytes, *back;
    size_t size;
    int seed;
    atomic_int written; /* looked at without order, as nobody need to look at all */
    CUdeviceptr device;
    CUstream stream;
};
/* Inside a command, in one frame, in several. */
static const size_t late_sizes[] = {4096, 65536, 4 * MIB};
enum { LATE_SIZES = sizeof late_sizes / sizeof *late_sizes };

static void late_begin(struct late *late)
{
    late->back = malloc(4 * MIB);
    OK(cuMemHostAlloc((void **)&late->bytes, 4 * MIB, 0));
    OK(cuMemAlloc(&late->device, 4 * MIB));
    OK(cuStreamCreate(&late->stream, CU_STREAM_NON_BLOCKING));
}

static void late_end(struct late *late)
{
    OK(cuStreamDestroy(late->stream));
    OK(cuMemFree(late->device));
    OK(cuMemFreeHost(late->bytes));
    free(late->back);
}

static void write_late(void *user)
{
    struct late *late = user;
    write_bytes(late->bytes, late->size, late->seed);
    atomic_store_explicit(&late->written, 1, memory_order_relaxed);
}

/* Nobody has waited for the function: the stream says that it comes first. */
static void an_upload_has_what_a_host_function_wrote_before(struct api *api)
{
    struct late late = {0};
    (void)api;
    late_begin(&late);
    for (int i = 0; i < LATE_SIZES; i++) {
        late.size = late_sizes[i];
        late.seed = i;
        atomic_store(&late.written, 0);
        OK(cuLaunchHostFunc(late.stream, write_late, &late));
        while (atomic_load_explicit(&late.written, memory_order_relaxed) == 0) {
            usleep(1000);
        }
        usleep(50000); /* its end is known, too */
        OK(cuMemcpyHtoDAsync(late.device, late.bytes, late.size, late.stream));
        OK(cuMemcpyDtoHAsync(late.back, late.device, late.size, late.stream));
        OK(cuStreamSynchronize(late.stream));
        EQUAL(wrong_bytes(late.back, late.size, i), 0);
    }
    late_end(&late);
}

static void write_behind_gate(void *user)
{
    sem_wait(&api_gate);
    write_late(user);
}

static CUgraphExec graph_of(void (*function)(void *), void *user)
{
    CUDA_HOST_NODE_PARAMS what = {.fn = function, .userData = user};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &what));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    return exec;
}

/* The function is of a stream or of a graph, and has not begun when the copy is asked for. */
static void an_upload_waits_its_turn_behind_a_host_function(struct api *api)
{
    struct late late = {0};
    (void)api;
    late_begin(&late);
    OK(sem_init(&api_gate, 0, 0));
    CUgraphExec exec = graph_of(write_behind_gate, &late);
    for (int i = 0; i < 4 * LATE_SIZES; i++) {
        bool graph = i & 1, synchronous = i & 2;
        CUstream stream = synchronous ? NULL : late.stream;
        pthread_t opener;
        late.size = late_sizes[i / 4];
        late.seed = i;
        memset(late.bytes, 0xee, late.size);
        if (graph) {
            OK(cuGraphLaunch(exec, stream));
        } else {
            OK(cuLaunchHostFunc(stream, write_behind_gate, &late));
        }
        OK(pthread_create(&opener, NULL, api_open_gate, NULL)); /* soon: this one waits in a copy */
        if (synchronous) {
            OK(cuMemcpyHtoD(late.device, late.bytes, late.size));
        } else {
            OK(cuMemcpyHtoDAsync(late.device, late.bytes, late.size, stream));
        }
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(late.back, late.device, late.size));
        EQUAL(wrong_bytes(late.back, late.size, i), 0);
        OK(pthread_join(opener, NULL));
    }
    OK(cuGraphExecDestroy(exec));
    late_end(&late);
}

/* A context ends with copies under way, and the next one starts afresh. */
static void contexts_come_and_go_with_their_copies(struct api *api)
{
    enum { SIZE = 10 * MIB };
    unsigned char *from = malloc(SIZE), *to = malloc(SIZE);
    for (int round = 0; round < 3; round++) {
        CUcontext context;
        CUdeviceptr device;
        OK(cuCtxCreate(&context, NULL, 0, api->device));
        OK(cuMemAlloc(&device, SIZE));
        write_bytes(from, SIZE, round);
        OK(cuMemcpyHtoD(device, from, SIZE));
        OK(cuMemcpyDtoH(to, device, SIZE));
        EQUAL(wrong_bytes(to, SIZE, round), 0);
        OK(cuMemcpyHtoDAsync(device, from, SIZE, NULL));
        OK(cuCtxDestroy(context));
        OK(cuCtxSetCurrent(api->context));
    }
    free(from);
    free(to);
}

struct traffic {
    struct api *api;
    int seed;
    size_t wrong;
};

static void *copy_to_and_fro(void *user)
{
    enum { SIZE = 3 * MIB + 77, ROUNDS = 6 };
    struct traffic *traffic = user;
    unsigned char *from = malloc(SIZE), *to = malloc(SIZE);
    CUdeviceptr device;
    CUstream stream;
    OK(cuCtxSetCurrent(traffic->api->context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&device, SIZE));
    for (int i = 0; i < ROUNDS; i++) {
        write_bytes(from, SIZE, traffic->seed + i);
        OK(cuMemcpyHtoDAsync(device, from, SIZE, stream));
        OK(cuMemcpyDtoHAsync(to, device, SIZE, stream));
        OK(cuStreamSynchronize(stream));
        traffic->wrong += wrong_bytes(to, SIZE, traffic->seed + i);
    }
    OK(cuMemFree(device));
    OK(cuStreamDestroy(stream));
    free(from);
    free(to);
    return NULL;
}

static void threads_do_not_mix_their_bytes(struct api *api)
{
    enum { THREADS = 4 };
    struct traffic traffic[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        traffic[i] = (struct traffic){api, 31 * i, 0};
        EQUAL(pthread_create(&threads[i], NULL, copy_to_and_fro, &traffic[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EQUAL(traffic[i].wrong, 0);
    }
}

/* More asynchronous downloads than the server keeps for later: all arrive all the same. */
static void downloads_without_end_are_bounded(struct api *api)
{
    enum { SIZE = 4 * MIB, COUNT = 110 };
    unsigned char *from = malloc(SIZE), *pinned;
    CUdeviceptr device;
    CUstream stream;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, 2 * SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    write_bytes(from, SIZE, 5);
    OK(cuMemcpyHtoD(device, from, SIZE));
    OK(cuCtxSynchronize());
    for (int i = 0; i < COUNT; i++) {
        OK(cuMemcpyDtoHAsync(pinned + (i % 2) * SIZE, device, SIZE, stream));
    }
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_bytes(pinned, SIZE, 5), 0);
    EQUAL(wrong_bytes(pinned + SIZE, SIZE, 5), 0);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(pinned));
    free(from);
}

/* What an upload fails with comes with the next synchronisation, once, and its bytes do no harm. */
static void uploads_that_fail_say_so_later(struct api *api)
{
    unsigned char *from = calloc(1, 2 * MIB), word[4] = {0};
    CUdeviceptr device;
    CUstream stream;
    (void)api;
    OK(cuMemAlloc(&device, 2 * MIB));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EQUAL(cuMemcpyHtoD(device + MIB, from, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8(device, 9, 2 * MIB));
    OK(cuMemcpyDtoH(word, device + 2 * MIB - 4, 4));
    EQUAL(word[3], 9);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    free(from);
}

int main(void)
{
    struct api api;
    api_begin(&api);
    every_size_arrives_whole(&api);
    uploads_to_a_stream_that_stands_still_do_not_wait(&api);
    an_upload_has_what_a_host_function_wrote_before(&api);
    an_upload_waits_its_turn_behind_a_host_function(&api);
    contexts_come_and_go_with_their_copies(&api);
    threads_do_not_mix_their_bytes(&api);
    uploads_that_fail_say_so_later(&api);
    downloads_without_end_are_bounded(&api);
    return api_end(&api);
}
