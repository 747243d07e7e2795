/* SPDX-License-Identifier: Apache-2.0 */
/* Large asynchronous copies into page-locked memory: nobody waits for them, and their bytes are
 * there when the program may look. */
#include "api.h"

#include <pthread.h>
#include <time.h>

enum { MIB = 1 << 20, LARGE = 21 * MIB + 4093 };

static CUdeviceptr source; /* LARGE + 256 bytes: from an offset, other bytes than from another */
static unsigned char *pattern; /* what is there */
static CUstream stream;
static CUevent event;

static unsigned char byte_at(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

/* Against what a copy from `source` + `offset` brings. */
static bool wrong_bytes(const unsigned char *bytes, size_t size, size_t offset)
{
    return memcmp(bytes, pattern + offset, size) != 0;
}

static bool is_filled(const unsigned char *bytes, size_t size, unsigned char value)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static unsigned char *page_locked(size_t size)
{
    void *bytes = NULL;
    OK(cuMemAllocHost(&bytes, size));
    memset(bytes, 0xaa, size);
    return bytes;
}

struct look {
    const unsigned char *at;
    size_t offset, wrong;
};

static void look(void *user)
{
    struct look *l = user;
    l->wrong = wrong_bytes(l->at, LARGE, l->offset);
}

static void poll_event(void)
{
    CUresult state;
    while ((state = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    OK(state);
}

static void poll_stream(void)
{
    CUresult state;
    while ((state = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    OK(state);
}

/* Each way to learn that a copy is over. */
static void bytes_are_there_when_the_copy_is_over(struct api *api)
{
    enum { WAYS = 7 };
    unsigned char *pinned = page_locked(LARGE), word[4];
    (void)api;
    for (size_t way = 0; way < WAYS; way++) {
        struct look l = {pinned, way, 1};
        memset(pinned, 0xaa, LARGE);
        OK(cuMemcpyDtoHAsync(pinned, source + way, LARGE, stream));
        OK(cuEventRecord(event, stream));
        switch (way) {
        case 0:
            OK(cuStreamSynchronize(stream));
            break;
        case 1:
            OK(cuEventSynchronize(event));
            break;
        case 2:
            poll_event();
            break;
        case 3:
            poll_stream();
            break;
        case 4:
            OK(cuCtxSynchronize());
            break;
        case 5: /* in the same stream, and waited for */
            OK(cuMemcpyDtoHAsync(word, source, sizeof word, stream));
            OK(cuStreamSynchronize(stream));
            break;
        default:
            OK(cuLaunchHostFunc(stream, look, &l));
            OK(cuStreamSynchronize(stream));
            EQUAL(l.wrong, 0);
            break;
        }
        EQUAL(wrong_bytes(pinned, LARGE, way), 0);
    }
    OK(cuMemFreeHost(pinned));
}

/* The copies are behind a host function that waits for this thread. */
static void nobody_waits_for_a_stream_that_stands_still(struct api *api)
{
    unsigned char *first = page_locked(LARGE), *second = page_locked(LARGE);
    CUstream moving;
    (void)api;
    OK(cuStreamCreate(&moving, CU_STREAM_NON_BLOCKING));
    OK(sem_init(&api_gate, 0, 0));
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
    OK(cuMemcpyDtoHAsync(first, source + 1, LARGE, stream));
    OK(cuMemcpyDtoHAsync(second, source + 2, LARGE, moving));
    OK(cuStreamSynchronize(moving));
    EQUAL(wrong_bytes(second, LARGE, 2), 0);
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EQUAL(first[0], 0xaa);
    OK(sem_post(&api_gate));
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_bytes(first, LARGE, 1), 0);
    OK(cuStreamDestroy(moving));
    OK(cuMemFreeHost(first));
    OK(cuMemFreeHost(second));
}

/* Copies into the same memory, large and small, take effect one after the other. */
static void the_last_of_several_counts(bool registered)
{
    static const struct {
        size_t at, size;
    } copies[] = {{0, LARGE},         {MIB, 4 * MIB},
                  {2 * MIB, 9 * MIB}, {3 * MIB - 5, 300000},
                  {3 * MIB, 5000},    {3 * MIB + 100, 12 * MIB},
                  {5 * MIB, 100}};
    enum { COUNT = sizeof copies / sizeof copies[0] };
    unsigned char *pinned = registered ? malloc(LARGE) : page_locked(LARGE),
                  *wanted = malloc(LARGE);
    if (registered) {
        OK(cuMemHostRegister(pinned, LARGE, 0));
    }
    for (int waited = 0; waited < 5; waited++) { /* a last one that is waited for, or none */
        static const size_t sizes[] = {0, 40000, 2 * MIB, 6 * MIB, LARGE - 7};
        memset(pinned, 0xaa, LARGE);
        for (size_t i = 0; i < COUNT; i++) {
            OK(cuMemcpyDtoHAsync(pinned + copies[i].at, source + copies[i].at + i, copies[i].size,
                                 CU_STREAM_LEGACY));
            memcpy(wanted + copies[i].at, pattern + copies[i].at + i, copies[i].size);
        }
        if (sizes[waited] > 0) {
            OK(cuMemcpyDtoH(pinned + 3, source + 90, sizes[waited]));
            memcpy(wanted + 3, pattern + 90, sizes[waited]);
        }
        OK(cuCtxSynchronize());
        EQUAL(memcmp(pinned, wanted, LARGE), 0);
    }
    if (registered) {
        OK(cuMemHostUnregister(pinned));
        free(pinned);
    } else {
        OK(cuMemFreeHost(pinned));
    }
    free(wanted);
}

/* The copy back to the device takes what the copy from it brings. */
static void memory_is_read_when_it_has_come(struct api *api)
{
    unsigned char *pinned = page_locked(LARGE), *back = malloc(LARGE);
    CUdeviceptr second;
    (void)api;
    OK(cuMemAlloc(&second, LARGE));
    for (size_t i = 0; i < 2; i++) {
        memset(pinned, 0xaa, LARGE);
        OK(cuMemcpyDtoHAsync(pinned, source + i, LARGE, stream));
        OK(cuMemcpyHtoDAsync(second, pinned + 5, LARGE - 5, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, second, LARGE - 5));
        EQUAL(wrong_bytes(back, LARGE - 5, i + 5), 0);
    }
    OK(cuMemFree(second));
    OK(cuMemFreeHost(pinned));
    free(back);
}

/* Memory goes, a context goes, a stream goes: nothing is written where something else is now. */
static void what_goes_away_is_not_written_to(struct api *api)
{
    for (int i = 0; i < 3; i++) {
        unsigned char *pinned = page_locked(LARGE);
        OK(cuMemcpyDtoHAsync(pinned, source, LARGE, stream));
        OK(cuMemFreeHost(pinned));
        unsigned char *next = page_locked(LARGE);
        OK(cuCtxSynchronize());
        TRUE(is_filled(next, LARGE, 0xaa));
        OK(cuMemFreeHost(next));
    }
    unsigned char *pinned = page_locked(LARGE);
    CUstream brief;
    OK(cuStreamCreate(&brief, CU_STREAM_NON_BLOCKING));
    OK(cuMemcpyDtoHAsync(pinned, source + 4, LARGE, brief));
    OK(cuStreamDestroy(brief));
    OK(cuCtxSynchronize());
    EQUAL(wrong_bytes(pinned, LARGE, 4), 0);
    for (int round = 0; round < 2; round++) {
        CUcontext context;
        CUdeviceptr device;
        OK(cuCtxCreate(&context, NULL, 0, api->device));
        OK(cuMemAlloc(&device, LARGE));
        OK(cuMemsetD8(device, (unsigned char)(0x40 + round), LARGE));
        OK(cuMemcpyDtoHAsync(pinned, device, LARGE, NULL));
        if (round == 1) {
            OK(cuCtxSynchronize());
            EQUAL(pinned[LARGE - 1], 0x41);
        }
        OK(cuCtxDestroy(context));
        OK(cuCtxSetCurrent(api->context));
    }
    OK(cuMemFreeHost(pinned));
}

/* More at once than the server keeps. */
static void very_many_arrive_all(struct api *api)
{
    enum { COUNT = 30, SIZE = 15 * MIB };
    unsigned char *pinned = page_locked((size_t)COUNT * SIZE);
    size_t wrong = 0;
    (void)api;
    for (size_t i = 0; i < COUNT; i++) {
        OK(cuMemcpyDtoHAsync(pinned + i * SIZE, source + i, SIZE, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < COUNT; i++) {
        wrong += wrong_bytes(pinned + i * SIZE, SIZE, i);
    }
    EQUAL(wrong, 0);
    /* One that is larger than all that the server keeps. */
    CUdeviceptr device;
    OK(cuMemAlloc(&device, (size_t)COUNT * SIZE));
    OK(cuMemsetD8Async(device, 0x17, (size_t)COUNT * SIZE, stream));
    OK(cuMemcpyDtoHAsync(pinned, device, (size_t)COUNT * SIZE, stream));
    OK(cuStreamSynchronize(stream));
    TRUE(is_filled(pinned, (size_t)COUNT * SIZE, 0x17));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(pinned));
}

struct worker {
    struct api *api;
    size_t seed, wrong;
};

static void *copy_and_look(void *user)
{
    enum { ROUNDS = 4 };
    struct worker *w = user;
    size_t size = 5 * MIB + 1000 * w->seed;
    CUstream own;
    OK(cuCtxSetCurrent(w->api->context));
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    unsigned char *pinned = page_locked(3 * size);
    for (size_t i = 0; i < ROUNDS; i++) {
        for (size_t j = 0; j < 3; j++) {
            OK(cuMemcpyDtoHAsync(pinned + j * size, source + w->seed + i + j, size, own));
        }
        OK(i % 2 == 0 ? cuStreamSynchronize(own) : cuCtxSynchronize());
        for (size_t j = 0; j < 3; j++) {
            w->wrong += wrong_bytes(pinned + j * size, size, w->seed + i + j);
        }
    }
    OK(cuMemFreeHost(pinned));
    OK(cuStreamDestroy(own));
    return NULL;
}

static void threads_get_their_own(struct api *api)
{
    enum { THREADS = 4 };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){api, 13 * i, 0};
        EQUAL(pthread_create(&threads[i], NULL, copy_and_look, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EQUAL(workers[i].wrong, 0);
    }
}

/* A copy that the driver refuses says so at the latest at the next synchronisation, which brings
 * the others. */
static void a_refused_one_is_told_and_the_others_come(struct api *api)
{
    unsigned char *pinned = page_locked(LARGE), *other = page_locked(LARGE);
    CUdeviceptr variable;
    size_t size;
    OK(cuModuleGetGlobal(&variable, &size, api->module, "counter"));
    OK(cuMemcpyDtoHAsync(pinned, source + 1, LARGE, stream));
    CUresult made = cuMemcpyDtoHAsync(other, variable, LARGE, stream);
    OK(cuMemcpyDtoHAsync(other, source + 2, LARGE, stream));
    CUresult told = cuStreamSynchronize(stream);
    TRUE(made != CUDA_SUCCESS || told != CUDA_SUCCESS);
    EQUAL(wrong_bytes(pinned, LARGE, 1), 0);
    EQUAL(wrong_bytes(other, LARGE, 2), 0);
    OK(cuStreamSynchronize(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost(other));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    pattern = malloc(LARGE + 256);
    for (size_t i = 0; i < LARGE + 256; i++) {
        pattern[i] = byte_at(i);
    }
    OK(cuMemAlloc(&source, LARGE + 256));
    OK(cuMemcpyHtoD(source, pattern, LARGE + 256));
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    bytes_are_there_when_the_copy_is_over(&api);
    nobody_waits_for_a_stream_that_stands_still(&api);
    the_last_of_several_counts(false);
    the_last_of_several_counts(true);
    memory_is_read_when_it_has_come(&api);
    what_goes_away_is_not_written_to(&api);
    very_many_arrive_all(&api);
    threads_get_their_own(&api);
    a_refused_one_is_told_and_the_others_come(&api);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(source));
    free(pattern);
    return api_end(&api);
}
