/* SPDX-License-Identifier: Apache-2.0 */
/* Page-locked memory that asynchronous copies read in their turn: behind host functions that write
 * it, in graphs that are launched later, and until the moment it is freed. */
#include "api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, MIB = 1 << 20 };

struct note {
    unsigned char *at;
    size_t size;
    int value;
    int milliseconds; /* until it is written */
};

/* A host function that takes its time: whoever does not wait for it is early. */
static void write_late(void *user)
{
    const struct note *note = user;
    nanosleep(&(struct timespec){0, note->milliseconds * 1000000L}, NULL);
    memset(note->at, note->value, note->size);
}

static void do_little(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){0, 2000000}, NULL);
}

static size_t other_than(const unsigned char *bytes, size_t size, int value)
{
    size_t other = 0;
    for (size_t i = 0; i < size; i++) {
        other += bytes[i] != value;
    }
    return other;
}

/* What a function of the same stream wrote is what the copy takes, and what another stream does
 * behind an event comes behind the copy. */
static void copies_take_what_functions_wrote(struct api *api)
{
    static const size_t sizes[] = {4, 8192, 65536, 65537, 300000, 5 * MIB};
    enum { SIZE = 5 * MIB };
    unsigned char *pinned, *back = malloc(SIZE);
    CUdeviceptr device, copy, second;
    CUstream stream, other;
    CUevent event;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemAlloc(&copy, SIZE));
    OK(cuMemAlloc(&second, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct note note = {pinned, sizes[i], 0x20 + (int)i, 30};
        memset(pinned, 0xee, SIZE);
        OK(cuLaunchHostFunc(stream, write_late, &note));
        OK(cuMemcpyHtoDAsync(device, pinned, sizes[i], stream));
        OK(cuEventRecord(event, stream));
        OK(cuStreamWaitEvent(other, event, 0));
        OK(cuMemcpyDtoDAsync(copy, device, sizes[i], other));
        /* The next write must not be seen by the first copy. */
        struct note next = {pinned, sizes[i], 0x60 + (int)i, i % 2 == 0 ? 30 : 160};
        OK(cuLaunchHostFunc(stream, write_late, &next));
        OK(cuMemcpyHtoDAsync(second, pinned, sizes[i], stream));
        OK(cuStreamSynchronize(other));
        OK(cuMemcpyDtoH(back, copy, sizes[i]));
        EQUAL(other_than(back, sizes[i], note.value), 0);
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, second, sizes[i]));
        EQUAL(other_than(back, sizes[i], next.value), 0);
    }
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(other));
    OK(cuMemFree(device));
    OK(cuMemFree(copy));
    OK(cuMemFree(second));
    OK(cuMemFreeHost(pinned));
    free(back);
}

/* Copies of all sizes from the start of one buffer while functions are outstanding, and then it is
 * freed: as JAX does with the memory that it stages copies in. */
static void one_buffer_serves_copies_of_all_sizes(struct api *api)
{
    enum { ROUNDS = 40, SIZE = 2 * MIB };
    static const size_t sizes[] = {4, 2 * PAGE, 12, 5 * PAGE + 40, 70000, 3 * PAGE};
    unsigned char *pinned, *back = malloc(SIZE);
    CUdeviceptr device;
    CUstream stream, busy;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    size_t wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = sizes[i % (int)(sizeof sizes / sizeof sizes[0])];
        OK(cuLaunchHostFunc(busy, do_little, NULL));
        memset(pinned, i + 1, size);
        OK(cuMemcpyHtoDAsync(device, pinned, size, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoHAsync(back, device, size, stream));
        OK(cuStreamSynchronize(stream));
        wrong += other_than(back, size, i + 1);
    }
    EQUAL(wrong, 0);
    OK(cuMemFreeHost(pinned));
    /* Whatever looks at host memory does not look there any more. */
    OK(cuLaunchHostFunc(busy, do_little, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemAllocHost((void **)&pinned, PAGE));
    OK(cuMemcpyHtoDAsync(device, pinned, PAGE, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(busy));
    OK(cuMemFree(device));
    free(back);
}

/* Freeing waits for copies that are still to read. */
static void memory_is_read_before_it_goes(struct api *api)
{
    enum { SIZE = MIB };
    unsigned char *pinned, *back = malloc(SIZE);
    CUdeviceptr device;
    CUstream stream;
    (void)api;
    OK(cuMemAlloc(&device, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        size_t size = i % 2 == 0 ? 100 : SIZE;
        bool own = i >= 2;
        if (own) {
            pinned = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            OK(cuMemHostRegister(pinned, SIZE, 0));
        } else {
            OK(cuMemAllocHost((void **)&pinned, SIZE));
        }
        struct note note = {pinned, size, 0x40 + i, 30};
        OK(cuLaunchHostFunc(stream, write_late, &note));
        OK(cuMemcpyHtoDAsync(device, pinned, size, stream));
        if (own) {
            OK(cuMemHostUnregister(pinned));
            munmap(pinned, SIZE);
        } else {
            OK(cuMemFreeHost(pinned));
        }
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, device, size));
        EQUAL(other_than(back, size, note.value), 0);
    }
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    free(back);
}

/* Copies in graphs read at every launch; they may overlap, and cross what others begin in. */
static void graphs_read_one_buffer_in_several_places(struct api *api)
{
    enum { SIZE = 8 * PAGE };
    unsigned char *pinned, *back = malloc(SIZE);
    CUdeviceptr device;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAlloc(&device, 2 * SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyHtoDAsync(device + SIZE, pinned + PAGE, 4, stream));
    OK(cuMemcpyHtoDAsync(device, pinned, SIZE, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 1; i <= 3; i++) {
        memset(pinned, i, SIZE);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, device, SIZE));
        EQUAL(other_than(back, SIZE, i), 0);
        OK(cuMemcpyDtoH(back, device + SIZE, 4));
        EQUAL(other_than(back, 4, i), 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
    OK(cuMemsetD8Async(device, 0, SIZE, stream));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    free(back);
}

struct feeder {
    struct api *api;
    int seed;
    size_t wrong;
};

static void release(void *user)
{
    atomic_int *busy = user;
    atomic_store(busy, 0);
}

/* Stages copies in page-locked memory, and takes it again when a function of the stream says so. */
static void *feed(void *user)
{
    enum { SIZE = 64 << 10, ROUNDS = 60 };
    struct feeder *feeder = user;
    unsigned char *pinned, *back;
    CUdeviceptr device;
    CUstream up, down;
    CUevent event;
    atomic_int busy = 0;
    OK(cuCtxSetCurrent(feeder->api->context));
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAllocHost((void **)&back, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuStreamCreate(&up, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&down, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = (size_t)(i * 977 % SIZE) + 1;
        while (atomic_load(&busy) != 0) {
            nanosleep(&(struct timespec){0, 20000}, NULL);
        }
        memset(pinned, feeder->seed + i, size);
        atomic_store(&busy, 1);
        OK(cuMemcpyHtoDAsync(device, pinned, size, up));
        OK(cuEventRecord(event, up));
        OK(cuLaunchHostFunc(up, release, &busy));
        OK(cuStreamWaitEvent(down, event, 0));
        OK(cuMemcpyDtoHAsync(back, device, size, down));
        OK(cuEventRecord(event, down));
        CUresult state;
        while ((state = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
            nanosleep(&(struct timespec){0, 20000}, NULL);
        }
        OK(state);
        feeder->wrong += other_than(back, size, (unsigned char)(feeder->seed + i));
    }
    OK(cuStreamSynchronize(up));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(up));
    OK(cuStreamDestroy(down));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost(back));
    return NULL;
}

static void threads_stage_their_copies(struct api *api)
{
    enum { THREADS = 3 };
    struct feeder feeders[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        feeders[i] = (struct feeder){api, 70 * i, 0};
        EQUAL(pthread_create(&threads[i], NULL, feed, &feeders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EQUAL(feeders[i].wrong, 0);
    }
}

struct look {
    const unsigned char *at;
    size_t size;
    int value;
    size_t wrong;
};

static void look_late(void *user)
{
    struct look *look = user;
    nanosleep(&(struct timespec){0, 60000000}, NULL);
    look->wrong = other_than(look->at, look->size, look->value);
}

struct waiter {
    struct api *api;
    int kind;
    CUdeviceptr device;
    void *host;
};

/* Calls in which a driver waits until the device has nothing to do. */
static void *wait_in_a_call(void *user)
{
    struct waiter *waiter = user;
    OK(cuCtxSetCurrent(waiter->api->context));
    switch (waiter->kind) {
    case 0:
        OK(cuMemFree(waiter->device));
        break;
    case 1:
        OK(cuMemFreeHost(waiter->host));
        break;
    case 2:
        OK(cuMemHostUnregister(waiter->host));
        break;
    default:
        OK(cuCtxSynchronize());
        break;
    }
    return NULL;
}

/* One thread stands in the driver until a host function has ended, others want to go on: what the
 * function looks at, its end, and what copies behind it read get through all the same. */
static void functions_end_while_calls_wait_for_them(struct api *api)
{
    enum { SIZE = 2 * PAGE, KINDS = 4, CALLS = 50 };
    static unsigned char small[100], back[SIZE];
    unsigned char *down, *up,
        *own = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device, other;
    CUstream stream, moving;
    OK(cuMemAllocHost((void **)&down, SIZE));
    OK(cuMemAllocHost((void **)&up, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemAlloc(&other, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&moving, CU_STREAM_NON_BLOCKING));
    for (int kind = 0; kind < KINDS; kind++) {
        struct waiter waiter = {.api = api, .kind = kind, .host = own};
        OK(cuMemAlloc(&waiter.device, SIZE));
        if (kind == 1) {
            OK(cuMemAllocHost(&waiter.host, SIZE));
        } else if (kind == 2) {
            OK(cuMemHostRegister(own, SIZE, 0));
        }
        struct look look = {.at = down, .size = SIZE, .value = 0x30 + kind, .wrong = 1};
        OK(cuMemsetD8Async(device, (unsigned char)look.value, SIZE, stream));
        OK(cuMemcpyDtoHAsync(down, device, SIZE, stream));
        OK(cuLaunchHostFunc(stream, look_late, &look));
        pthread_t thread;
        EQUAL(pthread_create(&thread, NULL, wait_in_a_call, &waiter), 0);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        for (int i = 0; i < CALLS; i++) {
            memset(small, i, sizeof small);
            OK(cuMemcpyHtoDAsync(other, small, sizeof small, moving));
        }
        struct note note = {up, SIZE, 0x70 + kind, 1};
        OK(cuLaunchHostFunc(stream, write_late, &note));
        OK(cuMemcpyHtoDAsync(device, up, SIZE, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuStreamSynchronize(moving));
        pthread_join(thread, NULL);
        EQUAL(look.wrong, 0);
        OK(cuMemcpyDtoH(back, device, SIZE));
        EQUAL(other_than(back, SIZE, note.value), 0);
        OK(cuMemcpyDtoH(back, other, sizeof small));
        EQUAL(other_than(back, sizeof small, CALLS - 1), 0);
        if (kind != 0) {
            OK(cuMemFree(waiter.device));
        }
    }
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(moving));
    OK(cuMemFree(device));
    OK(cuMemFree(other));
    OK(cuMemFreeHost(down));
    OK(cuMemFreeHost(up));
    munmap(own, SIZE);
}

/* Copies of rows, and to and from arrays, have their turn as well. */
static void shapes_take_what_functions_wrote(struct api *api)
{
    enum { WIDTH = 64, ROWS = 32, SIZE = 2 * WIDTH * ROWS };
    unsigned char *pinned, back[WIDTH * ROWS];
    CUDA_ARRAY_DESCRIPTOR desc = {WIDTH, ROWS, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUdeviceptr device;
    CUarray array, line;
    CUstream stream;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuArrayCreate(&array, &desc));
    desc.Height = 0;
    OK(cuArrayCreate(&line, &desc));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .srcPitch = 2 * WIDTH,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = device,
                          .dstPitch = WIDTH,
                          .WidthInBytes = WIDTH,
                          .Height = ROWS};
    CUDA_MEMCPY2D picture = rows;
    picture.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    picture.dstArray = array;
    CUDA_MEMCPY2D seen = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = WIDTH,
                          .WidthInBytes = WIDTH,
                          .Height = ROWS};
    for (int i = 0; i < 2; i++) {
        struct note note = {pinned, SIZE, 0x31 + i, i == 0 ? 10 : 150};
        memset(pinned, 0xee, SIZE);
        OK(cuLaunchHostFunc(stream, write_late, &note));
        OK(cuMemcpy2DAsync(&rows, stream));
        OK(cuMemcpy2DAsync(&picture, stream));
        OK(cuMemcpyHtoAAsync(line, 0, pinned, WIDTH, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, device, sizeof back));
        EQUAL(other_than(back, sizeof back, note.value), 0);
        OK(cuMemcpy2D(&seen));
        EQUAL(other_than(back, sizeof back, note.value), 0);
        OK(cuMemcpyAtoH(back, line, 0, WIDTH));
        EQUAL(other_than(back, WIDTH, note.value), 0);
    }
    OK(cuStreamDestroy(stream));
    OK(cuArrayDestroy(line));
    OK(cuArrayDestroy(array));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(pinned));
}

/* Nobody waits in an asynchronous copy for a function that only the caller can let go. */
static void downloads_do_not_wait_for_functions(struct api *api)
{
    enum { PITCH = 128, WIDTH = 64, ROWS = 32 };
#ifdef __SANITIZE_THREAD__
    /* The worker cannot have as much at the same address: all mappings crowd into the same few
     * places. Then it would be waited for. */
    enum { LARGE = MIB };
#else
    enum { LARGE = 5 * MIB };
#endif
    unsigned char *pinned, *large;
    CUDA_ARRAY_DESCRIPTOR desc = {WIDTH, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUdeviceptr device;
    CUarray line;
    CUstream stream;
    (void)api;
    OK(cuMemAllocHost((void **)&pinned, PITCH * ROWS + WIDTH));
    OK(cuMemAllocHost((void **)&large, LARGE));
    OK(cuMemAlloc(&device, LARGE));
    OK(cuArrayCreate(&line, &desc));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD8(device, 0x47, LARGE));
    memset(pinned, 0xee, PITCH * ROWS + WIDTH);
    memset(large, 0xee, LARGE);
    OK(cuMemcpyHtoA(line, 0, memset(pinned + PITCH * ROWS, 0x48, WIDTH), WIDTH));
    memset(pinned + PITCH * ROWS, 0xee, WIDTH);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = device,
                          .srcPitch = WIDTH,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = pinned,
                          .dstPitch = PITCH,
                          .WidthInBytes = WIDTH,
                          .Height = ROWS};
    sem_init(&api_gate, 0, 0);
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
    OK(cuMemcpy2DAsync(&rows, stream));
    OK(cuMemcpyAtoHAsync(pinned + PITCH * ROWS, line, 0, WIDTH, stream));
    OK(cuMemcpyDtoHAsync(large, device, LARGE, stream));
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    sem_post(&api_gate);
    OK(cuStreamSynchronize(stream));
    for (int row = 0; row < ROWS; row++) {
        EQUAL(other_than(pinned + row * PITCH, WIDTH, 0x47), 0);
        EQUAL(other_than(pinned + row * PITCH + WIDTH, PITCH - WIDTH, 0xee), 0);
    }
    EQUAL(other_than(pinned + PITCH * ROWS, WIDTH, 0x48), 0);
    EQUAL(other_than(large, LARGE, 0x47), 0);
    sem_destroy(&api_gate);
    OK(cuStreamDestroy(stream));
    OK(cuArrayDestroy(line));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(large));
    OK(cuMemFreeHost(pinned));
}

/* A host function that says that it has begun, and writes when the gate is open. */
static sem_t begun;
static void write_behind_gate(void *user)
{
    const struct note *note = user;
    sem_post(&begun);
    sem_wait(&api_gate);
    memset(note->at, note->value, note->size);
}

static void *destroy_context(void *user)
{
    OK(cuCtxDestroy(*(CUcontext *)user));
    return NULL;
}

/* The end of one context does not forget another one's functions: a copy behind one takes what it
 * writes. NVIDIA's driver waits for the function before it ends the context. */
static void functions_outlive_other_contexts(struct api *api)
{
    static const size_t sizes[] = {4, 300000};
    enum { SIZE = 300000 };
    unsigned char *pinned, *back = malloc(SIZE);
    CUdeviceptr device;
    CUstream stream;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    OK(cuMemAlloc(&device, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        struct note note = {pinned, sizes[i], 0x50 + i, 0};
        CUcontext other;
        unsigned version;
        pthread_t thread;
        sem_init(&api_gate, 0, 0);
        sem_init(&begun, 0, 0);
        memset(pinned, 0xee, SIZE);
        OK(cuCtxCreate(&other, NULL, 0, api->device));
        OK(cuCtxSetCurrent(api->context));
        OK(cuLaunchHostFunc(stream, write_behind_gate, &note));
        sem_wait(&begun);
        EQUAL(pthread_create(&thread, NULL, destroy_context, &other), 0);
        /* Until it has ended for the program. */
        while (api_is_remote() && cuCtxGetApiVersion(other, &version) == CUDA_SUCCESS) {
            nanosleep(&(struct timespec){0, 200000}, NULL);
        }
        OK(cuMemcpyHtoDAsync(device, pinned, sizes[i], stream));
        sem_post(&api_gate);
        pthread_join(thread, NULL);
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, device, sizes[i]));
        EQUAL(other_than(back, sizes[i], note.value), 0);
        sem_destroy(&begun);
        sem_destroy(&api_gate);
    }
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(pinned));
    free(back);
}

int main(void)
{
    struct api api;
    api_begin(&api);
    copies_take_what_functions_wrote(&api);
    shapes_take_what_functions_wrote(&api);
    downloads_do_not_wait_for_functions(&api);
    one_buffer_serves_copies_of_all_sizes(&api);
    memory_is_read_before_it_goes(&api);
    graphs_read_one_buffer_in_several_places(&api);
    threads_stage_their_copies(&api);
    functions_outlive_other_contexts(&api);
    functions_end_while_calls_wait_for_them(&api);
    return api_end(&api);
}
