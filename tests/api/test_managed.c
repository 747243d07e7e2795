/* SPDX-License-Identifier: Apache-2.0 */
/* Large managed memory, which the client watches instead of comparing it where the system lets it.
 * With an argument it is for tests/system/test_managed.py. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api.h"

enum { MUCH = 256 << 20, LARGE = 8 << 20, BLOCK = 16 << 10, VARIABLE = 6 << 20 };

static int *alloc(size_t size)
{
    CUdeviceptr address = 0;
    OK(cuMemAllocManaged(&address, size, CU_MEM_ATTACH_GLOBAL));
    if (address == 0) {
        exit(1);
    }
    return (int *)(uintptr_t)address;
}

static CUdeviceptr of(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

/* Host and kernel write bytes of the same pages in turns, at numbers that are far apart. */
static void take_turns(struct api *api, int *data, const size_t *far, size_t count)
{
    int wrong = 0;
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < count; i++) {
            data[far[i]] += 1;                                     /* the host's */
            OK(api_add(api, of(data + (far[i] ^ 1)), 1, 2, NULL)); /* the kernel's, beside it */
            OK(api_add(api, of(data + far[i]), 1, 100, NULL));
            OK(i % 2 ? cuCtxSynchronize() : cuStreamSynchronize(NULL));
            wrong += data[far[i]] != (round + 1) * 101;
            wrong += data[far[i] ^ 1] != (round + 1) * 2;
        }
    }
    EQUAL(wrong, 0);
    EQUAL(data[100], 0);
}

static void host_and_kernel_take_turns(struct api *api)
{
    int *data = alloc(LARGE);
    const size_t far[] = {0, 5, 1023, 1024, BLOCK / 4 - 1, BLOCK / 4, LARGE / 8, LARGE / 4 - 2};
    take_turns(api, data, far, sizeof far / sizeof far[0]);
    OK(cuMemFree(of(data)));
}

/* ---- __managed__ variables: the same, but other memory may be on the pages at their ends ---- */

enum { FILLED = BLOCK / 4 + 1000 }; /* numbers that begin as 7: more than a block of them */

static CUlibrary variables(void)
{
    char *ptx = malloc(512 + 2 * FILLED);
    int n = sprintf(ptx,
                    ".version 7.0\n.target sm_70\n.address_size 64\n"
                    ".visible .global .attribute(.managed) .align 4 .b32 large[%d];\n"
                    ".visible .global .attribute(.managed) .align 4 .b32 small = 5;\n"
                    ".visible .global .attribute(.managed) .align 4 .b32 filled[%d] = {7",
                    VARIABLE / 4 + 8, LARGE / 4);
    for (int i = 1; i < FILLED; i++) {
        n += sprintf(ptx + n, ",7");
    }
    strcpy(ptx + n, "};\n");
    CUlibrary library = NULL;
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    if (library == NULL) {
        exit(1);
    }
    free(ptx);
    return library;
}

static int *variable(CUlibrary library, const char *name, size_t wanted)
{
    CUdeviceptr address = 0;
    size_t size = 0;
    OK(cuLibraryGetManaged(&address, &size, library, name));
    EQUAL(size, wanted);
    if (address == 0) {
        exit(1);
    }
    return (int *)(uintptr_t)address;
}

/* It ended with its module or library, here too: nothing is sent of it any more. (A server within
 * the program keeps its memory.) */
static void ended(const int *variable)
{
    if (api_is_remote() && strncmp(getenv("TOWLINE_SERVER"), "self:", 5) != 0) {
        int pair[2];
        EQUAL(pipe(pair), 0);
        EQUAL(write(pair[1], variable, sizeof *variable), -1);
        close(pair[0]);
        close(pair[1]);
    }
}

static void variables_are_seen(struct api *api)
{
    CUlibrary library = variables();
    enum { N = VARIABLE / 4 + 8 };
    int *large = variable(library, "large", N * sizeof(int));
    int *small = variable(library, "small", sizeof(int));
    int *filled = variable(library, "filled", LARGE), wrong = 0;
    EQUAL(filled[FILLED - 1] == 7 && filled[0] == 7 && filled[FILLED] == 0, 1);
    /* Both ends, the first block's and the last block's boundaries as well. */
    size_t first = (BLOCK - of(large) % BLOCK) / sizeof(int);
    size_t last = N - of(large + N) % BLOCK / sizeof(int);
    const size_t far[] = {0, first - 1, first, N / 2, last - 1, last, N - 1};
    if (api_is_soft()) {
        TRUE(first < BLOCK / 4 && last < N);
    }
    take_turns(api, large, far, sizeof far / sizeof far[0]);
    *small += 1;
    OK(api_add(api, of(small), 1, 10, NULL));
    filled[FILLED] += 1;
    OK(api_add(api, of(filled), FILLED + 1, 10, NULL));
    OK(cuCtxSynchronize());
    EQUAL(*small, 16);
    EQUAL(filled[0] == 17 && filled[FILLED - 1] == 17 && filled[FILLED] == 11, 1);

    /* Copies that take all of it, out of the program's memory and back. */
    int *own = malloc(N * sizeof(int));
    for (int i = 0; i < N; i++) {
        own[i] = i * 3;
    }
    OK(cuMemcpyHtoD(of(large), own, N * sizeof(int)));
    EQUAL(memcmp(large, own, N * sizeof(int)), 0);
    for (int i = 0; i < N; i += 1000) {
        large[i] = i;
    }
    large[N - 1] = 1;
    OK(cuMemcpyDtoH(own, of(large), N * sizeof(int)));
    for (int i = 0; i < N; i++) {
        wrong += own[i] != (i == N - 1 ? 1 : i % 1000 == 0 ? i : i * 3);
    }
    EQUAL(wrong, 0);
    free(own);
    OK(cuLibraryUnload(library));
    ended(small);
    ended(large + N / 2);
    ended(filled);
}

/* ---- the same as a driver-API program finds them, in a module ---- */

/* bump(by): word += by; large[0] += by. */
static const char module_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .b32 word = 5;\n"
    ".visible .global .align 4 .b32 plain = 3;\n"
    ".visible .global .attribute(.managed) .align 4 .b32 large[1572872];\n"
    ".visible .entry bump(.param .u32 p0)\n{\n.reg .u32 %b, %v;\n"
    "ld.param.u32 %b, [p0];\n"
    "ld.global.u32 %v, [word]; add.u32 %v, %v, %b; st.global.u32 [word], %v;\n"
    "ld.global.u32 %v, [large]; add.u32 %v, %v, %b; st.global.u32 [large], %v;\n"
    "ret;\n}\n";

static int *global(CUmodule module, const char *name, size_t wanted, unsigned managed)
{
    CUdeviceptr address = 0;
    size_t size = 0;
    unsigned is_managed = 2;
    OK(cuModuleGetGlobal(&address, &size, module, name));
    EQUAL(size, wanted);
    if (address == 0) {
        exit(1);
    }
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    EQUAL(is_managed, managed);
    return (int *)(uintptr_t)address;
}

static void bump(CUmodule module, int by)
{
    CUfunction function = NULL;
    void *params[] = {&by};
    OK(cuModuleGetFunction(&function, module, "bump"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

/* Host and the module's own kernel change its variables. */
static void use_variables(CUmodule module, int *word, int *large)
{
    EQUAL(*word == 5 && large[0] == 0 && large[VARIABLE / 4 + 7] == 0, 1);
    for (int round = 1; round <= 3; round++) {
        *word += 100;
        large[0] += 1;
        bump(module, 10);
        OK(round % 2 ? cuCtxSynchronize() : cuStreamSynchronize(NULL));
        EQUAL(*word, 5 + round * 110);
        EQUAL(large[0], round * 11);
    }
}

static void a_modules_variables_are_seen(struct api *api)
{
    enum { N = VARIABLE / 4 + 8 };
    for (int round = 0; round < 2; round++) { /* the second finds what it says itself */
        CUmodule module = NULL;
        int back = 0;
        OK(cuModuleLoadData(&module, module_ptx));
        int *plain = global(module, "plain", sizeof(int), 0);
        int *word = global(module, "word", sizeof(int), 1);
        int *large = global(module, "large", N * sizeof(int), 1);
        EQUAL(global(module, "word", sizeof(int), 1) == word, 1);
        use_variables(module, word, large);
        const size_t far[] = {2, BLOCK / 4 - 1, BLOCK / 4, N / 2, N - 1};
        take_turns(api, large, far, sizeof far / sizeof far[0]);
        OK(cuMemcpyDtoH(&back, of(plain), sizeof back));
        EQUAL(back, 3);
        if (api_is_remote()) {
            EQUAL(cuMemFree(of(word)), CUDA_ERROR_INVALID_VALUE);
        }
        EQUAL(*word, 335);
        OK(cuModuleUnload(module));
        ended(word);
        ended(large + N / 2);
    }
}

/* One variable, whatever it is asked of; it is the library's. */
static void a_librarys_module_has_its_variables(struct api *api)
{
    CUlibrary library = NULL;
    CUmodule module = NULL;
    CUdeviceptr other = 0;
    (void)api;
    OK(cuLibraryLoadData(&library, module_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetModule(&module, library));
    int *word = global(module, "word", sizeof(int), 1);
    CUresult found = cuLibraryGetGlobal(&other, NULL, library, "word");
    if (api_is_soft()) {
        OK(found); /* what a GPU's driver says of it is its own affair */
    }
    EQUAL(found != CUDA_SUCCESS || other == of(word), 1);
    OK(cuLibraryGetManaged(&other, NULL, library, "large"));
    int *large = (int *)(uintptr_t)other;
    EQUAL(global(module, "large", VARIABLE + 32, 1) == large, 1);
    use_variables(module, word, large);
    OK(cuLibraryUnload(library));
    ended(word);
    ended(large + VARIABLE / 8);
}

static void a_modules_variables_end_with_its_context(struct api *api)
{
    CUcontext context = NULL;
    CUlibrary library = NULL;
    CUmodule module = NULL;
    OK(cuLibraryLoadData(&library, module_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuCtxCreate_v2(&context, 0, api->device));
    OK(cuModuleLoadData(&module, module_ptx));
    if (api_is_soft()) {
        OK(cuCtxSetCurrent(api->context)); /* it is of its own context, whoever asks */
    }
    int *large = global(module, "large", VARIABLE + 32, 1);
    OK(cuCtxSetCurrent(context));
    use_variables(module, global(module, "word", sizeof(int), 1), large);
    OK(cuLibraryGetModule(&module, library));
    int *kept = global(module, "word", sizeof(int), 1);
    *kept = 77;
    OK(cuCtxDestroy(context));
    OK(cuCtxSetCurrent(api->context));
    ended(large + VARIABLE / 8);
    if (api_is_remote()) {
        EQUAL(*kept, 77); /* a library's does not */
    }
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(library));
    ended(kept);
}

/* All of it, in both directions. */
static void all_of_it_is_seen(struct api *api)
{
    enum { N = LARGE / 4 };
    int *data = alloc(LARGE), *back = malloc(LARGE);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        data[i] = i;
    }
    OK(api_add(api, of(data + N / 2 - 1000), 2000, 7, NULL));
    OK(cuMemcpyDtoH(back, of(data), LARGE));
    for (int i = 0; i < N; i++) {
        int wanted = i + (i >= N / 2 - 1000 && i < N / 2 + 1000 ? 7 : 0);
        wrong += back[i] != wanted;
        wrong += data[i] != wanted;
    }
    EQUAL(wrong, 0);
    OK(cuMemsetD32Async(of(data), 0x1234567, N, NULL));
    OK(cuCtxSynchronize());
    for (int i = N - 1; i >= 0; i--) {
        wrong += data[i] != 0x1234567;
    }
    EQUAL(wrong, 0);
    /* Without a word between launches the program's writes still reach each of them. */
    for (int round = 1; round <= 4; round++) {
        data[9] = round;
        OK(api_add(api, of(data + 8), 1, 1, NULL));
        OK(cuMemcpyDtoH(back, of(data + 9), 4));
        wrong += back[0] != round;
    }
    EQUAL(data[8], 0x1234567 + 4);
    EQUAL(wrong, 0);
    OK(cuMemFree(of(data)));
    free(back);
}

/* System calls read and write it, wherever its bytes are. */
static void system_calls_reach_it(struct api *api)
{
    int *data = alloc(LARGE);
    int file = memfd_create("managed", MFD_CLOEXEC), back[4] = {0};
    enum { FAR = LARGE / 16 };
    OK(api_add(api, of(data + FAR), 4, 5, NULL));
    OK(cuCtxSynchronize());
    EQUAL(write(file, data + FAR, 16), 16); /* not here yet */
    EQUAL(pread(file, back, 16, 0), 16);
    EQUAL(back[0] == 5 && back[3] == 5, 1);
    EQUAL(pread(file, data + 2 * FAR - 2, 16, 0), 16); /* across two blocks, neither of them here */
    OK(api_add(api, of(data + 2 * FAR - 2), 4, 1, NULL));
    OK(cuCtxSynchronize());
    EQUAL(pwrite(file, data + 2 * FAR - 2, 16, 0), 16);
    EQUAL(pread(file, back, 16, 0), 16);
    EQUAL(back[0] == 6 && back[3] == 6, 1);
    close(file);
    OK(cuMemFree(of(data)));
}

enum { THREADS = 3, SLOTS = 64 };
static atomic_bool over;
static atomic_int lost;
struct writer {
    volatile int *data; /* every THREADS + 1 numbers one is ours */
    int count;
};

/* Adds to its numbers all the time, and finds there what it wrote. */
static void *write_on(void *user)
{
    struct writer *w = user;
    for (; !atomic_load(&over); w->count++) {
        for (int i = 0; i < SLOTS; i++) {
            volatile int *slot = &w->data[(size_t)i * (BLOCK / 16) + (size_t)i * 4];
            if (*slot != w->count) {
                atomic_fetch_add(&lost, 1);
            }
            *slot = w->count + 1;
        }
    }
    return NULL;
}

static void no_write_is_lost(struct api *api)
{
    int *data = alloc(LARGE);
    struct writer writers[THREADS];
    pthread_t threads[THREADS];
    struct timespec begun, now;
    int rounds = 0, wrong = 0;
    atomic_store(&over, false);
    for (int t = 0; t < THREADS; t++) {
        writers[t] = (struct writer){data + 1 + t, 0};
        pthread_create(&threads[t], NULL, write_on, &writers[t]);
    }
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        rounds++;
        OK(api_add(api, of(data), 1, 1, NULL));
        OK(cuCtxSynchronize());
        wrong += data[0] != rounds;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begun.tv_sec < 3 && api_failures == 0);
    atomic_store(&over, true);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
    }
    EQUAL(wrong, 0);
    EQUAL(atomic_load(&lost), 0);
    OK(cuCtxSynchronize());
    for (int t = 0; t < THREADS; t++) {
        TRUE(writers[t].count > 0);
        for (int i = 0; i < SLOTS; i++) {
            wrong += writers[t].data[(size_t)i * (BLOCK / 16) + (size_t)i * 4] != writers[t].count;
        }
    }
    EQUAL(wrong, 0);
    OK(cuMemFree(of(data)));
}

static void fresh_memory_is_fresh(struct api *api)
{
    for (int round = 0; round < 4; round++) {
        size_t size = (size_t)LARGE + (size_t)round * 4097;
        int *data = alloc(size);
        size_t last = size / 4 - 1;
        EQUAL(data[0] == 0 && data[last] == 0, 1);
        data[last] = 5;
        OK(api_add(api, of(data + last), 1, 6, NULL));
        OK(cuCtxSynchronize());
        EQUAL(data[last], 11);
        data[0] = 1; /* and nobody asks for it any more */
        OK(cuMemFree(of(data)));
    }
}

static sem_t far_added;
static void add_far(void *user)
{
    int *data = user;
    data[0] = data[LARGE / 8] + 1;
    sem_post(&far_added);
}

/* A host function sees what came before it, and what it writes is seen behind it. While it runs,
 * and another thread of the program waits for it, the memory can be had. */
static void *synchronise(void *user)
{
    OK(cuCtxSetCurrent(((struct api *)user)->context));
    OK(cuCtxSynchronize());
    return NULL;
}

static void host_functions_see_it(struct api *api)
{
    int *data = alloc(LARGE);
    CUstream stream;
    pthread_t waiting, opening;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EQUAL(data[LARGE / 8], 0); /* here, and old soon */
    OK(api_add(api, of(data + LARGE / 8), 1, 41, stream));
    sem_init(&far_added, 0, 0);
    OK(cuLaunchHostFunc(stream, add_far, data));
    sem_wait(&far_added); /* no call of ours brings it meanwhile */
    EQUAL(data[0], 42);
    OK(api_add(api, of(data), 1, 100, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(data[0], 142);

    sem_init(&api_gate, 0, 0);
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
    pthread_create(&waiting, NULL, synchronise, api);
    usleep(50000);
    EQUAL(data[LARGE / 16], 0); /* nobody else could help to fetch it */
    data[LARGE / 16] = 3;
    pthread_create(&opening, NULL, api_open_gate, NULL);
    pthread_join(waiting, NULL);
    pthread_join(opening, NULL);
    OK(api_add(api, of(data + LARGE / 16), 1, 1, NULL));
    OK(cuCtxSynchronize());
    EQUAL(data[LARGE / 16], 4);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(of(data)));
}

static void copies_name_it(struct api *api)
{
    enum { SIZE = 1 << 20 };
    int *data = alloc(LARGE), *own = malloc(SIZE);
    CUdeviceptr device;
    (void)api;
    OK(cuMemAlloc(&device, SIZE));
    for (int i = 0; i < SIZE / 4; i++) {
        own[i] = i * 3;
    }
    OK(cuMemcpyHtoD(of(data), own, SIZE));
    EQUAL(memcmp(data, own, SIZE), 0);
    memset(data + SIZE, 7, SIZE);
    OK(cuMemcpyHtoD(device, data + SIZE, SIZE));
    OK(cuMemcpyDtoH(own, device, SIZE));
    EQUAL(memcmp(data + SIZE, own, SIZE), 0);
    OK(cuMemsetD8(device, 9, SIZE));
    OK(cuMemcpyDtoH(data + SIZE, device, SIZE));
    EQUAL(((char *)(data + SIZE))[SIZE - 1], 9);
    OK(cuMemcpy(of(data), of(data + SIZE), SIZE));
    EQUAL(((char *)data)[SIZE - 1], 9);
    OK(cuMemFree(device));
    OK(cuMemFree(of(data)));
    free(own);
}

/* Copies between it and arrays, which need no reply. */
static void arrays_see_it(struct api *api)
{
    enum { WORDS = 4096 };
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = WORDS, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUarray array;
    CUdeviceptr from, to;
    (void)api;
    OK(cuArrayCreate(&array, &shape));
    OK(cuMemAllocManaged(&from, WORDS * 4, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocManaged(&to, WORDS * 4, CU_MEM_ATTACH_GLOBAL));
    unsigned *in = (unsigned *)(uintptr_t)from, *out = (unsigned *)(uintptr_t)to;
    for (unsigned round = 1; round < 4; round++) {
        for (unsigned i = 0; i < WORDS; i++) {
            in[i] = i * round;
            out[i] = 1; /* older than what the array brings */
        }
        OK(cuMemcpyDtoA(array, 0, from, WORDS * 4));
        OK(cuMemcpyAtoD(to, array, 0, WORDS * 4));
        OK(cuCtxSynchronize());
        unsigned wrong = 0;
        for (unsigned i = 0; i < WORDS; i++) {
            wrong += out[i] != i * round;
        }
        EQUAL(wrong, 0);
    }
    OK(cuMemFree(to));
    OK(cuMemFree(from));
    OK(cuArrayDestroy(array));
}

static void a_child_does_not_hang(struct api *api)
{
    int *data = alloc(LARGE), status = -1;
    OK(api_add(api, of(data), 1, 3, NULL));
    OK(cuCtxSynchronize());
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(SIGSEGV, &action, NULL);
        alarm(20);
        _exit(((volatile int *)data)[LARGE / 8] == 0 ? 0 : 1); /* it has no such memory */
    }
    TRUE(waitpid(child, &status, 0) == child);
    TRUE(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM);
    EQUAL(data[0], 3);
    OK(cuMemFree(of(data)));
}

/* ---- for tests/system/test_managed.py ---- */

/* Much memory, of which little is used. */
static void use_little(struct api *api, int *number)
{
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int round = 0; round < 200; round++) {
        *number += 1;
        OK(api_add(api, of(number), 1, 1, NULL));
        OK(cuCtxSynchronize());
    }
    EQUAL(*number, 400);
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%ld ms\n",
           (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000);
}

static void little(struct api *api)
{
    int *data = alloc(MUCH);
    use_little(api, data + MUCH / 8);
    OK(cuMemFree(of(data)));
}

/* The same of a variable; all of it was written by the host before, and of that nothing came. */
static void little_variable(struct api *api)
{
    CUlibrary library = variables();
    int *data = variable(library, "large", VARIABLE + 32);
    memset(data, 0, VARIABLE);
    use_little(api, data + VARIABLE / 8);
    OK(cuLibraryUnload(library));
}

/* A byte of every line is written by the host, while the device has nothing to do. */
static void bytes_of_lines(struct api *api)
{
    enum { SIZE = 8 << 20, LINE = 64 };
    int *data = alloc(SIZE);
    uint8_t *bytes = (uint8_t *)data;
    memset(data, 0, SIZE);
    for (int round = 1; round <= 3; round++) {
        OK(api_add(api, of(data), 1, 1 << 8, NULL)); /* the second byte of the first line */
        OK(cuCtxSynchronize());
        for (size_t at = 0; at < SIZE; at += LINE) {
            bytes[at] = (uint8_t)round;
        }
    }
    OK(api_add(api, of(data), 1, 1 << 8, NULL));
    OK(cuCtxSynchronize());
    EQUAL(data[0], 3 + 4 * 256);
    for (size_t at = LINE; at < SIZE; at += LINE) {
        EQUAL(bytes[at] + bytes[at + 1], 3);
    }
    OK(cuMemFree(of(data)));
}

/* All of it was written by the host, and is looked at by nobody from then on. */
static void many_launches(struct api *api)
{
    int *data = alloc(MUCH);
    struct timespec begun, now;
    memset(data, 1, MUCH);
    OK(api_add(api, of(data), 1, 1, NULL));
    OK(api_add(api, of(data), 1, 1, NULL));
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int round = 0; round < 200; round++) {
        OK(api_add(api, of(data), 1, 1, NULL));
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%ld ms\n",
           (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000);
    OK(cuCtxSynchronize());
    EQUAL(data[0], 0x01010101 + 202);
    EQUAL(data[MUCH / 4 - 1], 0x01010101);
    OK(cuMemFree(of(data)));
}

/* The server stops, and is gone while this waits for its memory. */
static int lose(struct api *api)
{
    int *data = alloc(MUCH);
    OK(cuMemsetD32(of(data), 7, MUCH / 4));
    EQUAL(data[0], 7);
    printf("ready\n");
    getchar();
    int found = ((volatile int *)data)[MUCH / 8];
    printf("found %d, then %d\n", found, (int)cuCtxSynchronize());
    printf("kept %d\n", data[0]);
    data[MUCH / 16] = 1;
    (void)api;
    return 0;
}

/* Drivers refuse it in a stream's memory operations, and nothing of the call is done. */
static void memory_operations_name_it(struct api *api)
{
    (void)api;
    CUdeviceptr device = 0;
    int word = 0;
    OK(cuMemAlloc(&device, 4096));
    for (int round = 0; round < 2; round++) {
        size_t size = round ? LARGE : 4096;
        int *data = alloc(size);
        CUstreamBatchMemOpParams ops[2] = {
            {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = device}},
            {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = of(data)}}};
        CUstreamBatchMemOpParams wait = {
            .waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = of(data)}};
        ops[0].writeValue.value = ops[1].writeValue.value = 5;
        OK(cuMemsetD32(device, 4, 1));
        data[0] = 1;
        data[1] = 0;
        data[size / 4 - 1] = 3;
        EQUAL(cuStreamWriteValue32(NULL, of(data), 5, 0), CUDA_ERROR_INVALID_VALUE);
        EQUAL(cuStreamWriteValue64(NULL, of(data), 5, 0), CUDA_ERROR_INVALID_VALUE);
        EQUAL(cuStreamWaitValue32(NULL, of(data), 1, CU_STREAM_WAIT_VALUE_EQ),
              CUDA_ERROR_INVALID_VALUE);
        EQUAL(cuStreamWaitValue64(NULL, of(data), 1, CU_STREAM_WAIT_VALUE_EQ),
              CUDA_ERROR_INVALID_VALUE);
        EQUAL(cuStreamBatchMemOp(NULL, 2, ops, 0), CUDA_ERROR_INVALID_VALUE);
        EQUAL(cuStreamBatchMemOp(NULL, 1, &wait, 0), CUDA_ERROR_INVALID_VALUE);
        OK(cuCtxSynchronize());
        EQUAL(data[0], 1);
        EQUAL(data[size / 4 - 1], 3);
        OK(cuMemcpyDtoH(&word, device, sizeof word));
        EQUAL(word, 4);
        OK(cuMemFree(of(data)));
    }
    OK(cuMemFree(device));
}

int main(int argc, char **argv)
{
    struct api api;
    api_begin(&api);
    if (argc > 1 && strcmp(argv[1], "lost") == 0) {
        return lose(&api);
    }
    if (argc > 1) {
        (strcmp(argv[1], "little") == 0     ? little
         : strcmp(argv[1], "variable") == 0 ? little_variable
         : strcmp(argv[1], "lines") == 0    ? bytes_of_lines
                                            : many_launches)(&api);
        return api_end(&api);
    }
    variables_are_seen(&api);
    a_modules_variables_are_seen(&api);
    a_librarys_module_has_its_variables(&api);
    a_modules_variables_end_with_its_context(&api);
    host_and_kernel_take_turns(&api);
    all_of_it_is_seen(&api);
    system_calls_reach_it(&api);
    fresh_memory_is_fresh(&api);
    host_functions_see_it(&api);
    copies_name_it(&api);
    arrays_see_it(&api);
    memory_operations_name_it(&api);
    a_child_does_not_hang(&api);
    no_write_is_lost(&api);
    return api_end(&api);
}
