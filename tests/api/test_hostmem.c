/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that kernels reach: page-locked, registered, mapped, managed. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

enum { N = 3000 };

static void mapped_memory_is_equal_at_synchronisation(struct api *api)
{
    int *host;
    CUdeviceptr device;
    OK(cuMemHostAlloc((void **)&host, N * sizeof(int), CU_MEMHOSTALLOC_DEVICEMAP));
    for (int i = 0; i < N; i++) {
        host[i] = i;
    }
    OK(cuMemHostGetDevicePointer(&device, host, 0));
    for (int round = 1; round <= 3; round++) {
        OK(api_add(api, device, N, 10, NULL));
        OK(cuCtxSynchronize());
        int wrong = 0;
        for (int i = 0; i < N; i++) {
            wrong += host[i] != i + 10 * round + (round > 1) + (round > 2);
            host[i] += 1; /* the host writes between launches */
        }
        EQUAL(wrong, 0);
    }
    OK(cuMemFreeHost(host));
}

static void page_locked_memory_in_arguments_is_found(struct api *api)
{
    int *host, *own = malloc(1 << 20); /* from mmap, as large memory is */
    OK(cuMemAllocHost((void **)&host, N * sizeof(int)));
    OK(cuMemHostRegister(own, N * sizeof(int), 0));
    for (int i = 0; i < N; i++) {
        host[i] = 2 * i;
        own[i] = -1;
    }
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)own, from = (CUdeviceptr)(uintptr_t)host;
    int count = N;
    void *params[] = {&to, &from, &count};
    OK(cuLaunchKernel(api->copy, (N + 63) / 64, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    OK(cuStreamSynchronize(NULL));
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += own[i] != 2 * i;
    }
    EQUAL(wrong, 0);
    OK(cuMemHostUnregister(own));
    EQUAL(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemFreeHost(host));
    free(own);
}

static void registered_memory_does_not_overlap(struct api *api)
{
    uint8_t *own = malloc(1 << 20);
    unsigned flags = 0;
    (void)api;
    OK(cuMemHostRegister(own + 65536, 4096, 0));
    EQUAL(cuMemHostRegister(own, 1 << 20, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EQUAL(cuMemHostRegister(own + 65536 + 4095, 4096, 0),
          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EQUAL(cuMemHostRegister(own + 65535, 2, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EQUAL(cuMemHostRegister(own, SIZE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister(own, 65536, 0));
    OK(cuMemHostGetFlags(&flags, own));
    OK(cuMemHostUnregister(own));
    OK(cuMemHostUnregister(own + 65536));
    free(own);
}

/* Freed without a current context while a copy is still to fill it: the copy ends first. */
static void memory_is_freed_after_what_fills_it(struct api *api)
{
    enum { SIZE = 1 << 20 };
    CUdeviceptr device;
    CUstream stream;
    CUcontext popped;
    pthread_t thread;
    void *host;
    (void)api;
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemHostAlloc(&host, SIZE, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    sem_init(&api_gate, 0, 0);
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
    OK(cuMemcpyDtoHAsync(host, device, SIZE, stream));
    OK(cuCtxPopCurrent(&popped));
    pthread_create(&thread, NULL, api_open_gate, NULL);
    OK(cuMemFreeHost(host));
    pthread_join(thread, NULL);
    OK(cuCtxPushCurrent(popped));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
}

/* Parts of page-locked memory that overlap go up behind a host function, which could still write
 * them; the memory is freed, and other memory comes to lie there. */
static void parts_of_freed_memory_are_not_looked_at(struct api *api)
{
    enum { SIZE = 1 << 20, PART = SIZE / 4 };
    CUdeviceptr device;
    CUstream stream;
    pthread_t thread;
    unsigned char *back = malloc(SIZE);
    OK(cuMemAlloc(&device, SIZE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 1; round <= 3; round++) {
        unsigned char *host;
        OK(cuMemHostAlloc((void **)&host, SIZE, 0));
        memset(host, round, SIZE);
        sem_init(&api_gate, 0, 0);
        OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
        for (int at = 0; at + PART <= SIZE; at += PART / 2) {
            OK(cuMemcpyHtoDAsync(device + at, host + at, PART, stream));
        }
        pthread_create(&thread, NULL, api_open_gate, NULL);
        OK(cuStreamSynchronize(stream));
        pthread_join(thread, NULL);
        OK(cuMemFreeHost(host));
        OK(cuCtxSynchronize());
        OK(cuMemcpyDtoH(back, device, SIZE));
        int wrong = 0;
        for (int i = 0; i < SIZE; i++) {
            wrong += back[i] != round;
        }
        EQUAL(wrong, 0);
    }
    OK(api_add(api, device, 16, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    free(back);
}

static void managed_memory_is_one_memory(struct api *api)
{
    CUdeviceptr managed, plain;
    int *host;
    OK(cuMemAllocManaged(&managed, N * sizeof(int), CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAlloc(&plain, N * sizeof(int)));
    host = (int *)(uintptr_t)managed;
    for (int i = 0; i < N; i++) {
        host[i] = i;
    }
    OK(api_add(api, managed, N, 1, NULL));
    OK(api_add(api, managed, N, 1, NULL));
    OK(cuCtxSynchronize());
    EQUAL(host[0], 2);
    EQUAL(host[N - 1], N + 1);
    host[5] = 500;
    OK(cuMemcpyDtoD(plain, managed, N * sizeof(int)));
    OK(api_add(api, plain, N, 1000, NULL));
    OK(cuMemcpyDtoD(managed, plain, N * sizeof(int)));
    EQUAL(host[5], 1500);
    EQUAL(host[6], 1008);
    OK(cuMemsetD32(managed, 77, N));
    EQUAL(host[N / 2], 77);
    int given[4] = {1, 2, 3, 4}, got[4] = {0};
    OK(cuMemcpyHtoD(managed, given, sizeof given));
    EQUAL(host[3], 4);
    host[2] = 33;
    OK(cuMemcpyDtoH(got, managed, sizeof got));
    EQUAL(got[2], 33);
    unsigned is_managed = 0;
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    EQUAL(is_managed, 1);
    OK(cuMemFree(managed));
    OK(cuMemFree(plain));
}

static void copies_by_address_find_their_way(struct api *api)
{
    enum { BYTES = 300000 };
    unsigned char *a = malloc(BYTES), *b = calloc(1, BYTES), *pinned;
    CUdeviceptr device;
    (void)api;
    OK(cuMemAlloc(&device, BYTES));
    OK(cuMemAllocHost((void **)&pinned, BYTES));
    for (int i = 0; i < BYTES; i++) {
        a[i] = (unsigned char)(i * 7 + i / 255);
    }
    OK(cuMemcpy(device, (CUdeviceptr)(uintptr_t)a, BYTES));
    OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)pinned, device, BYTES, NULL));
    OK(cuStreamSynchronize(NULL));
    EQUAL(memcmp(a, pinned, BYTES), 0);
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)b, (CUdeviceptr)(uintptr_t)pinned, BYTES));
    EQUAL(memcmp(a, b, BYTES), 0);
    /* A download into page-locked memory and an upload from it, with nothing in between. */
    memset(pinned, 0, BYTES);
    CUdeviceptr second;
    OK(cuMemAlloc(&second, BYTES));
    OK(cuMemcpyDtoHAsync(pinned, device, BYTES, NULL));
    OK(cuMemcpyHtoDAsync(second, pinned, BYTES, NULL));
    memset(b, 0, BYTES);
    OK(cuMemcpyDtoH(b, second, BYTES));
    EQUAL(memcmp(a, b, BYTES), 0);
    OK(cuMemFree(second));
    OK(cuMemFree(device));
    OK(cuMemFreeHost(pinned));
    free(a);
    free(b);
}

static void host_functions_see_what_came_before(void *user)
{
    int *p = user;
    p[1] = p[0] + 1;
}

static void host_functions_run_in_order(struct api *api)
{
    int *pinned;
    CUdeviceptr data;
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, 64));
    OK(cuMemAllocHost((void **)&pinned, 64));
    OK(cuMemsetD32Async(data, 41, 16, stream));
    OK(cuMemcpyDtoHAsync(pinned, data, 4, stream));
    OK(cuLaunchHostFunc(stream, host_functions_see_what_came_before, pinned));
    OK(api_add(api, data, 1, 1, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pinned[1], 42);
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(data));
    OK(cuStreamDestroy(stream));
}

static void take_a_while(void *user)
{
    usleep(300000);
    ++*(int *)user;
}

/* A driver makes its caller wait when it has about a thousand launches in a stream; the function's
 * end must get through to it all the same. */
static void many_launches_wait_behind_a_host_function(struct api *api)
{
    enum { LAUNCHES = 3000 };
    static int turns;
    CUstream stream;
    CUdeviceptr data;
    int value = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, 4));
    OK(cuMemsetD32(data, 0, 1));
    for (int round = 1; round <= 2; round++) {
        OK(cuLaunchHostFunc(stream, take_a_while, &turns));
        for (int i = 0; i < LAUNCHES; i++) {
            OK(api_add(api, data, 1, 1, stream));
        }
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(&value, data, 4));
        EQUAL(value, LAUNCHES * round);
        EQUAL(turns, round);
    }
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(data));
}

/* spin(int *word): waits until word[0] is not 0, but not for ever, then word[1] = word[0]. */
static const char spin_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 p0)\n{\n"
    ".reg .u64 %a, %begin, %now; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [p0]; mov.u64 %begin, %globaltimer;\n"
    "again: ld.volatile.global.u32 %v, [%a]; setp.ne.u32 %p, %v, 0; @%p bra done;\n"
    "mov.u64 %now, %globaltimer; sub.u64 %now, %now, %begin;\n"
    "setp.lt.u64 %p, %now, 10000000000; @%p bra again;\n"
    "done: st.volatile.global.u32 [%a+4], %v; ret;\n}\n";

/* What JAX's timers do: a kernel holds the stream until the host writes to page-locked memory. */
static void a_kernel_sees_what_was_written_before_waiting_for_it(struct api *api)
{
    CUmodule module;
    CUfunction spin;
    CUstream stream;
    CUevent event;
    volatile int *word;
    (void)api;
    OK(cuModuleLoadData(&module, spin_ptx));
    OK(cuModuleGetFunction(&spin, module, "spin"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    for (int i = 1; i <= 2; i++) {
        OK(cuMemHostAlloc((void **)&word, 2 * sizeof *word, 0));
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
        void *params[] = {&at};
        word[0] = word[1] = 0;
        OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
        OK(cuEventRecord(event, stream));
        word[0] = 10 + i;
        OK(i == 1 ? cuStreamSynchronize(stream) : cuEventSynchronize(event));
        EQUAL(word[1], 10 + i);
        OK(cuMemFreeHost((void *)word));
    }
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuModuleUnload(module));
}

/* Page-locked memory may stand wherever a call wants device memory. */
static void page_locked_memory_is_device_memory(struct api *api)
{
    int *pinned, *other, plain[16];
    CUdeviceptr device;
    OK(cuMemAlloc(&device, N * sizeof(int)));
    OK(cuMemAllocHost((void **)&pinned, N * sizeof(int)));
    OK(cuMemAllocHost((void **)&other, N * sizeof(int)));
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)pinned, there = (CUdeviceptr)(uintptr_t)other;
    memset(pinned, 0, N * sizeof(int));
    memset(other, 0, N * sizeof(int));
    pinned[N - 1] = 5;
    OK(cuMemsetD32Async(at, 7, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    EQUAL(pinned[0], 7);
    EQUAL(pinned[15], 7);
    EQUAL(pinned[16], 0);
    EQUAL(pinned[N - 1], 5);
    OK(cuMemsetD32(at + 4, 8, 2)); /* without a stream: done when it returns */
    EQUAL(pinned[1], 8);
    EQUAL(pinned[3], 7);
    OK(cuMemsetD2D8(at, 64, 1, 4, 3));
    EQUAL(pinned[32], 0x01010101);
    for (int i = 0; i < 16; i++) {
        plain[i] = 100 + i;
    }
    OK(cuMemcpyHtoD(at, plain, sizeof plain));
    EQUAL(pinned[15], 115);
    pinned[15] = 215;
    memset(plain, 0, sizeof plain);
    OK(cuMemcpyDtoH(plain, at, sizeof plain));
    EQUAL(plain[15], 215);
    OK(cuMemcpyDtoD(device, at, N * sizeof(int)));
    OK(api_add(api, device, N, 1, NULL));
    OK(cuMemcpyDtoDAsync(there, device, N * sizeof(int), NULL));
    OK(cuCtxSynchronize());
    EQUAL(other[15], 216);
    EQUAL(other[N - 1], 6);
    other[0] = -1;
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = there,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = at,
                          .dstPitch = 8,
                          .WidthInBytes = 8,
                          .Height = 4};
    OK(cuMemcpy2D(&flat));
    EQUAL(pinned[0], -1);
    EQUAL(pinned[2], other[4]);
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost(other));
    OK(cuMemFree(device));
}

enum { FILLERS = 4, FILLS = 20 };

struct filler {
    struct api *api;
    pthread_t thread;
    unsigned *common; /* page-locked, one word for each thread */
    int number, wrong;
};

/* What JAX's autotuner does: counters in page-locked memory, cleared and counted up in streams. */
static void *fill_and_count(void *user)
{
    struct filler *filler = user;
    CUstream stream;
    CUdeviceptr mine = (CUdeviceptr)(uintptr_t)&filler->common[filler->number];
    OK(cuCtxSetCurrent(filler->api->context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < FILLS; i++) {
        unsigned *word;
        OK(cuMemHostAlloc((void **)&word, sizeof *word, 0));
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
        *word = 99;
        OK(cuMemsetD32Async(at, 0, 1, stream));
        OK(cuMemsetD32Async(mine, (unsigned)i, 1, stream));
        OK(api_add(filler->api, at, 1, i, stream));
        OK(api_add(filler->api, mine, 1, 1, stream));
        OK(cuStreamSynchronize(stream));
        filler->wrong += *word != (unsigned)i;
        filler->wrong += filler->common[filler->number] != (unsigned)i + 1;
        OK(cuMemFreeHost(word));
    }
    OK(cuStreamDestroy(stream));
    return NULL;
}

static void threads_fill_page_locked_memory(struct api *api)
{
    struct filler fillers[FILLERS];
    unsigned *common;
    OK(cuMemHostAlloc((void **)&common, FILLERS * sizeof *common, 0));
    for (int i = 0; i < FILLERS; i++) {
        fillers[i] = (struct filler){.api = api, .common = common, .number = i};
        EQUAL(pthread_create(&fillers[i].thread, NULL, fill_and_count, &fillers[i]), 0);
    }
    for (int i = 0; i < FILLERS; i++) {
        EQUAL(pthread_join(fillers[i].thread, NULL), 0);
        EQUAL(fillers[i].wrong, 0);
    }
    OK(cuMemFreeHost(common));
}

struct guess {
    struct api *api;
    pthread_t thread;
    _Atomic(unsigned *) word; /* page-locked by another thread, or was */
    atomic_bool over;
    int failures;
};

/* Arguments may hold addresses by chance: these kernels look at none of them. */
static void *launch_with_any_address(void *user)
{
    struct guess *guess = user;
    int launches = 0;
    OK(cuCtxSetCurrent(guess->api->context));
    while (!atomic_load(&guess->over)) {
        CUdeviceptr address = (CUdeviceptr)(uintptr_t)atomic_load(&guess->word);
        int none = 0;
        void *params[] = {&address, &none, &none};
        guess->failures += cuLaunchKernel(guess->api->add, 1, 1, 1, 1, 1, 1, 0, NULL, params,
                                          NULL) != CUDA_SUCCESS;
        if (++launches % 4 == 0) {
            OK(cuStreamSynchronize(NULL)); /* few at a time: the others wait for them, too */
        }
    }
    return NULL;
}

static void memory_is_freed_while_others_see_its_address(struct api *api)
{
    enum { ROUNDS = 100 };
    struct guess guess = {.api = api};
    EQUAL(pthread_create(&guess.thread, NULL, launch_with_any_address, &guess), 0);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned *word;
        OK(cuMemHostAlloc((void **)&word, sizeof *word, 0));
        atomic_store(&guess.word, word);
        OK(cuMemsetD32((CUdeviceptr)(uintptr_t)word, (unsigned)i, 1));
        EQUAL(*word, i);
        OK(cuMemFreeHost(word));
    }
    atomic_store(&guess.over, true);
    EQUAL(pthread_join(guess.thread, NULL), 0);
    EQUAL(guess.failures, 0);
}

/* Three pieces of one memory, of which the middle one has a page in common with each other. */
static void pages_in_common_end_with_their_last_piece(struct api *api)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUdeviceptr plain;
    OK(cuMemAlloc(&plain, 4));
    OK(cuMemsetD32(plain, 0, 1));
    for (int order = 0; order < 3; order++) {
        char *memory =
            mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *pieces[] = {memory, memory + 2 * page + page / 2, memory + page / 2};
        size_t sizes[] = {page / 2, page / 2, 2 * page};
        for (int i = 0; i < 3; i++) {
            OK(cuMemHostRegister(pieces[i], sizes[i], 0));
            OK(api_add(api, (CUdeviceptr)(uintptr_t)pieces[i], 1, 1 + i, NULL));
        }
        OK(cuCtxSynchronize());
        for (int i = 0; i < 3; i++) {
            EQUAL(*(int *)(void *)pieces[i], 1 + i);
        }
        for (int i = 0; i < 3; i++) {
            OK(cuMemHostUnregister(pieces[(i + order) % 3]));
        }
        munmap(memory, 3 * page);
        OK(api_add(api, plain, 1, 1, NULL)); /* nobody looks at it any more */
        OK(cuCtxSynchronize());
    }
    OK(cuMemFree(plain));
}

/* What kernels wrote is there when memory has been unregistered, as unregistering waits for them.
 */
static void unregistered_memory_has_what_kernels_wrote(struct api *api)
{
    int *own = calloc(N, sizeof(int));
    OK(cuMemHostRegister(own, N * sizeof(int), 0));
    OK(api_add(api, (CUdeviceptr)(uintptr_t)own, N, 5, NULL));
    OK(cuMemHostUnregister(own));
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += own[i] != 5;
    }
    EQUAL(wrong, 0);
    free(own);
}

struct freed {
    struct api *api;
    void *word;
};

static void *free_word(void *user)
{
    struct freed *freed = user;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuCtxSetCurrent(freed->api->context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuMemFreeHost(freed->word));
    return NULL;
}

/* A thread frees memory that kernels have used, while another one captures. */
static void captures_outlive_freed_memory(struct api *api)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr plain;
    pthread_t thread;
    struct freed freed = {.api = api};
    OK(cuMemAlloc(&plain, 4));
    OK(cuMemHostAlloc(&freed.word, sizeof(int), 0));
    OK(api_add(api, (CUdeviceptr)(uintptr_t)freed.word, 1, 1, NULL));
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(api_add(api, plain, 1, 1, stream));
    EQUAL(pthread_create(&thread, NULL, free_word, &freed), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    OK(api_add(api, plain, 1, 1, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(plain));
}

static int wrong_words(const int *words, int expected)
{
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += words[i] != expected;
    }
    return wrong;
}

/* Copies name it as host memory, and kernels before and behind them use it. */
static void copies_take_their_turn(struct api *api, CUdeviceptr both, int value)
{
    int *host = (int *)(uintptr_t)both, *back = malloc(N * sizeof(int));
    const CUstream none = NULL;
    size_t size = N * sizeof(int);
    CUdeviceptr device;
    CUstream stream;
    OK(cuMemAlloc(&device, size));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < N; i++) {
        host[i] = value;
    }
    OK(api_add(api, both, N, 1, stream));
    OK(cuMemcpyHtoDAsync(device, host, size, stream));
    OK(cuMemcpyDtoHAsync(back, device, size, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_words(back, value + 1), 0);
    EQUAL(wrong_words(host, value + 1), 0);
    OK(api_add(api, both, N, 1, none));
    OK(cuMemcpyHtoD(device, host, size)); /* in the order of the default stream */
    OK(cuMemcpyDtoH(back, device, size));
    EQUAL(wrong_words(back, value + 2), 0);

    OK(cuMemsetD32Async(device, 100, N, stream));
    OK(api_add(api, both, N, 1000, stream));
    OK(cuMemcpyDtoHAsync(host, device, size, stream));
    OK(api_add(api, both, N, 1, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_words(host, 101), 0);
    OK(api_add(api, both, N, 1000, none));
    OK(cuMemsetD32(device, 101, N)); /* what the program had seen last */
    OK(cuMemcpyDtoH(host, device, size));
    EQUAL(wrong_words(host, 101), 0);
    OK(api_add(api, both, N, 1, none));
    OK(cuCtxSynchronize());
    EQUAL(wrong_words(host, 102), 0);

    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 300,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = device,
                          .dstPitch = 300,
                          .WidthInBytes = 300,
                          .Height = size / 300};
    OK(api_add(api, both, N, 1, stream));
    OK(cuMemcpy2DAsync(&flat, stream));
    OK(cuMemcpyDtoHAsync(back, device, size, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_words(back, 103), 0);
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = device,
                          .srcPitch = 300,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .dstPitch = 300,
                          .WidthInBytes = 300,
                          .Height = size / 300};
    OK(api_add(api, both, N, 1000, none));
    OK(cuMemcpy2D(&down));
    EQUAL(wrong_words(host, 103), 0);
    OK(api_add(api, both, N, 1, none));
    OK(cuCtxSynchronize());
    EQUAL(wrong_words(host, 104), 0);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    free(back);
}

static void copies_of_memory_that_kernels_use(struct api *api)
{
    CUdeviceptr managed;
    int *pinned, *own = malloc(N * sizeof(int));
    OK(cuMemAllocManaged(&managed, N * sizeof(int), CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc((void **)&pinned, N * sizeof(int), 0));
    OK(cuMemHostRegister(own, N * sizeof(int), 0));
    copies_take_their_turn(api, managed, 7);
    copies_take_their_turn(api, (CUdeviceptr)(uintptr_t)pinned, 8);
    copies_take_their_turn(api, (CUdeviceptr)(uintptr_t)own, 9);
    OK(cuMemHostUnregister(own));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(managed));
    free(own);
}

struct release {
    struct api *api;
    CUdeviceptr word;
};

static void *release_stream(void *user)
{
    struct release *release = user;
    CUstream stream;
    OK(cuCtxSetCurrent(release->api->context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    usleep(100000);
    OK(cuMemsetD32Async(release->word, 1, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    return NULL;
}

/* The source of a copy into managed memory is filled by an earlier one, which is late. */
static void managed_memory_gets_what_is_in_turn(struct api *api)
{
    CUdeviceptr managed, device;
    CUstream stream;
    pthread_t thread;
    int *pinned;
    size_t size = N * sizeof(int);
    struct release release = {.api = api};
    OK(cuMemAllocManaged(&managed, size, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAlloc(&device, size));
    OK(cuMemAlloc(&release.word, 4));
    OK(cuMemHostAlloc((void **)&pinned, size, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memset(pinned, 0, size);
    OK(cuMemsetD32(release.word, 0, 1));
    OK(cuMemsetD32(device, 55, N));
    OK(cuCtxSynchronize());
    EQUAL(pthread_create(&thread, NULL, release_stream, &release), 0);
    OK(cuStreamWaitValue32(stream, release.word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoHAsync(pinned, device, size, stream));
    OK(cuMemcpyHtoDAsync(managed, pinned, size, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(wrong_words((int *)(uintptr_t)managed, 55), 0);
    OK(cuStreamDestroy(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(release.word));
    OK(cuMemFree(device));
    OK(cuMemFree(managed));
}

struct thread_copy {
    struct release *release;
    CUdeviceptr from;
    int *to;
    CUevent copied;
};

/* In a stream that only this thread has a name for. */
static void *download_behind_word(void *user)
{
    const struct thread_copy *copy = user;
    OK(cuCtxSetCurrent(copy->release->api->context));
    OK(cuStreamWaitValue32(CU_STREAM_PER_THREAD, copy->release->word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoHAsync(copy->to, copy->from, N * sizeof(int), CU_STREAM_PER_THREAD));
    OK(cuEventRecord(copy->copied, CU_STREAM_PER_THREAD));
    return NULL;
}

/* A copy behind one that is still to fill its source, in a stream that cannot be named: it was
 * destroyed, or is another thread's. */
static void uploads_wait_for_streams_without_a_name(struct api *api)
{
    CUdeviceptr from, to;
    CUstream brief, other;
    CUevent copied;
    int *pinned, back[N];
    size_t size = N * sizeof(int);
    struct release release = {.api = api};
    OK(cuMemAlloc(&from, size));
    OK(cuMemAlloc(&to, size));
    OK(cuMemAlloc(&release.word, 4));
    OK(cuMemHostAlloc((void **)&pinned, size, 0));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        pthread_t opener, copier;
        struct thread_copy copy = {&release, from, pinned, copied};
        memset(pinned, 0, size);
        OK(cuMemsetD32(release.word, 0, 1));
        OK(cuMemsetD32(from, 66 + (unsigned)i, N));
        OK(cuCtxSynchronize());
        if (i == 0) {
            OK(cuStreamCreate(&brief, CU_STREAM_NON_BLOCKING));
            OK(cuStreamWaitValue32(brief, release.word, 1, CU_STREAM_WAIT_VALUE_EQ));
            OK(cuMemcpyDtoHAsync(pinned, from, size, brief));
            OK(cuEventRecord(copied, brief));
            OK(cuStreamDestroy(brief));
        } else {
            EQUAL(pthread_create(&copier, NULL, download_behind_word, &copy), 0);
            EQUAL(pthread_join(copier, NULL), 0);
        }
        EQUAL(pthread_create(&opener, NULL, release_stream, &release), 0);
        OK(cuStreamWaitEvent(other, copied, 0));
        OK(cuMemcpyHtoDAsync(to, pinned, size, other));
        OK(cuStreamSynchronize(other));
        EQUAL(pthread_join(opener, NULL), 0);
        OK(cuMemcpyDtoH(back, to, size));
        EQUAL(wrong_words(back, 66 + i), 0);
    }
    OK(cuEventDestroy(copied));
    OK(cuStreamDestroy(other));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(release.word));
    OK(cuMemFree(to));
    OK(cuMemFree(from));
}

/* A download that is refused at once, which is how it is while something captures, is over. */
static void nothing_is_expected_of_a_refused_download(struct api *api)
{
    enum { SIZE = 1 << 16 };
    CUstream stream, captures;
    CUdeviceptr variable;
    CUgraph graph;
    size_t size;
    void *pinned;
    OK(cuModuleGetGlobal(&variable, &size, api->module, "counter"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&captures, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc(&pinned, SIZE, 0));
    OK(cuStreamBeginCapture(captures, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRUE(cuMemcpyDtoHAsync(pinned, variable, SIZE, stream) != CUDA_SUCCESS);
    OK(cuStreamEndCapture(captures, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
    if (api_is_remote()) { /* it does not linger for what might come; NVIDIA's may keep its pages */
        EQUAL(msync(pinned, SIZE, MS_ASYNC), -1);
    }
    OK(cuStreamDestroy(captures));
    OK(cuStreamDestroy(stream));
}

/* A synchronisation that tells of an earlier mistake has waited, and brought everything. */
static void mistakes_do_not_delay_downloads(struct api *api)
{
    CUdeviceptr device, variable;
    CUstream stream;
    size_t size;
    int *pinned;
    OK(cuModuleGetGlobal(&variable, &size, api->module, "counter"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&device, N * sizeof(int)));
    OK(cuMemHostAlloc((void **)&pinned, N * sizeof(int), 0));
    memset(pinned, 0, N * sizeof(int));
    OK(cuMemsetD32Async(device, 66, N, stream));
    OK(cuMemcpyDtoHAsync(pinned, device, N * sizeof(int), stream));
    CUresult made = cuMemsetD32Async(variable, 1, 1 << 16, stream);
    CUresult told = cuStreamSynchronize(stream);
    TRUE(made != CUDA_SUCCESS || told != CUDA_SUCCESS);
    EQUAL(wrong_words(pinned, 66), 0);
    OK(cuStreamSynchronize(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(device));
    OK(cuStreamDestroy(stream));
}

static void copies_between_contexts_know_managed_memory(struct api *api)
{
    CUdeviceptr managed, device;
    size_t size = N * sizeof(int);
    OK(cuMemAllocManaged(&managed, size, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAlloc(&device, size));
    int *host = (int *)(uintptr_t)managed, *back = malloc(size);
    for (int i = 0; i < N; i++) {
        host[i] = 31;
    }
    OK(cuMemcpyPeer(device, api->context, managed, api->context, size));
    OK(cuMemcpyDtoH(back, device, size));
    EQUAL(wrong_words(back, 31), 0);
    OK(cuMemsetD32(device, 32, N));
    OK(cuMemcpyPeer(managed, api->context, device, api->context, size));
    EQUAL(wrong_words(host, 32), 0);
    OK(cuMemFree(device));
    OK(cuMemFree(managed));
    free(back);
}

/* An upload of what a download brings waits for that one alone, and so does freeing the memory. */
static void captures_outlive_copies_in_other_streams(struct api *api)
{
    CUdeviceptr device, second;
    CUstream stream, captures;
    CUgraph graph;
    size_t size = N * sizeof(int);
    int *pinned, *other, *back = malloc(size);
    OK(cuMemAlloc(&device, size));
    OK(cuMemAlloc(&second, size));
    OK(cuMemHostAlloc((void **)&pinned, size, 0));
    OK(cuMemHostAlloc((void **)&other, size, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&captures, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32Async(device, 12, N, stream));
    OK(cuMemcpyDtoHAsync(pinned, device, size, stream));
    OK(cuMemcpyDtoHAsync(other, device, size, stream));
    OK(cuStreamBeginCapture(captures, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(api_add(api, second, N, 1, captures));
    OK(cuMemcpyHtoDAsync(second, pinned, size, stream));
    OK(cuMemFreeHost(other));
    OK(cuStreamEndCapture(captures, &graph));
    OK(cuMemcpyDtoHAsync(back, second, size, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_words(back, 12), 0);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(captures));
    OK(cuStreamDestroy(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(second));
    OK(cuMemFree(device));
    free(back);
}

struct check {
    const unsigned char *bytes;
    size_t size;
    int expected, wrong, *turns;
};

static void every_byte_is_there(void *user)
{
    struct check *check = user;
    for (size_t i = 0; i < check->size; i++) {
        check->wrong += check->bytes[i] != check->expected;
    }
    ++*check->turns;
}

/* Downloads of many sizes, each looked at by a host function while others are under way: nothing
 * that brings them over may wait for the streams, which wait for the functions. */
static void downloads_arrive_before_host_functions(struct api *api)
{
    enum { ROUNDS = 40, LARGEST = 1 << 20 };
    static struct check checks[ROUNDS];
    unsigned char *pinned[ROUNDS];
    CUdeviceptr data;
    CUstream streams[2];
    int turns = 0;
    (void)api;
    OK(cuMemAlloc(&data, 2 * LARGEST));
    for (int i = 0; i < 2; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = (size_t)1 << (i % 21);
        CUstream stream = streams[i % 2];
        CUdeviceptr from = data + (CUdeviceptr)(i % 2) * LARGEST;
        OK(cuMemAllocHost((void **)&pinned[i], LARGEST));
        checks[i] = (struct check){pinned[i], size, i + 1, 0, &turns};
        OK(cuMemsetD8Async(from, (unsigned char)(i + 1), size, stream));
        OK(cuMemcpyDtoHAsync(pinned[i], from, size, stream));
        OK(cuLaunchHostFunc(stream, every_byte_is_there, &checks[i]));
    }
    OK(cuCtxSynchronize());
    EQUAL(turns, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        EQUAL(checks[i].wrong, 0);
        OK(cuMemFreeHost(pinned[i]));
    }
    OK(cuStreamDestroy(streams[0]));
    OK(cuStreamDestroy(streams[1]));
    OK(cuMemFree(data));
}

/* What the host wrote before is there before a stream's memory operation, and not behind it. */
static void memory_operations_come_behind_the_hosts_writes(struct api *api)
{
    (void)api;
    int *data;
    OK(cuMemHostAlloc((void **)&data, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)data;
    CUstreamBatchMemOpParams op = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = at}};
    for (int round = 0; round < 4; round++) { /* the first: nothing of it has gone out yet */
        op.writeValue.value = 5 + (unsigned)round;
        data[0] = 1;
        data[1] = round;
        OK(round % 2 ? cuStreamBatchMemOp(NULL, 1, &op, 0)
                     : cuStreamWriteValue32(NULL, at, op.writeValue.value, 0));
        OK(cuStreamWaitValue32(NULL, at + 4, (unsigned)round, CU_STREAM_WAIT_VALUE_EQ));
        OK(cuStreamSynchronize(NULL));
        EQUAL(data[0], 5 + round);
        EQUAL(data[1], round);
    }
    OK(cuMemFreeHost(data));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    mapped_memory_is_equal_at_synchronisation(&api);
    page_locked_memory_in_arguments_is_found(&api);
    registered_memory_does_not_overlap(&api);
    memory_is_freed_after_what_fills_it(&api);
    parts_of_freed_memory_are_not_looked_at(&api);
    managed_memory_is_one_memory(&api);
    copies_by_address_find_their_way(&api);
    host_functions_run_in_order(&api);
    downloads_arrive_before_host_functions(&api);
    many_launches_wait_behind_a_host_function(&api);
    a_kernel_sees_what_was_written_before_waiting_for_it(&api);
    page_locked_memory_is_device_memory(&api);
    threads_fill_page_locked_memory(&api);
    memory_is_freed_while_others_see_its_address(&api);
    pages_in_common_end_with_their_last_piece(&api);
    unregistered_memory_has_what_kernels_wrote(&api);
    captures_outlive_freed_memory(&api);
    copies_of_memory_that_kernels_use(&api);
    managed_memory_gets_what_is_in_turn(&api);
    uploads_wait_for_streams_without_a_name(&api);
    nothing_is_expected_of_a_refused_download(&api);
    mistakes_do_not_delay_downloads(&api);
    copies_between_contexts_know_managed_memory(&api);
    captures_outlive_copies_in_other_streams(&api);
    memory_operations_come_behind_the_hosts_writes(&api);
    return api_end(&api);
}
