/* SPDX-License-Identifier: Apache-2.0 */
/* checks ROUNDS SEED [all]: a program that checks everything that a line carries, so that what was
 * lost or came twice shows: kernels, copies both ways of many sizes, commands without replies, host
 * functions, device printf, mirrored memory, loading of modules, on all of a session's
 * connections. "all" adds what makes the rarer frames: events that are awaited, copies behind host
 * functions, copies that nobody waits for, managed memory, threads that end, exports.
 * It prints what the device printed, and "done". Exit code 1 and a line on stderr: something was
 * wrong. */
#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD                                                                                       \
    ".version 7.0\n"                                                                               \
    ".target sm_75\n"                                                                              \
    ".address_size 64\n"
#define ADD                                                                                        \
    ".visible .entry add(.param .u64 at, .param .u32 n, .param .u32 by)\n"                         \
    "{\n"                                                                                          \
    "    .reg .pred %p<2>;\n"                                                                      \
    "    .reg .b32 %r<9>;\n"                                                                       \
    "    .reg .b64 %rd<5>;\n"                                                                      \
    "    ld.param.u64 %rd1, [at];\n"                                                               \
    "    ld.param.u32 %r1, [n];\n"                                                                 \
    "    ld.param.u32 %r2, [by];\n"                                                                \
    "    mov.u32 %r3, %ctaid.x;\n"                                                                 \
    "    mov.u32 %r4, %ntid.x;\n"                                                                  \
    "    mov.u32 %r5, %tid.x;\n"                                                                   \
    "    mad.lo.u32 %r6, %r3, %r4, %r5;\n"                                                         \
    "    setp.ge.u32 %p1, %r6, %r1;\n"                                                             \
    "    @%p1 bra end;\n"                                                                          \
    "    mul.wide.u32 %rd2, %r6, 4;\n"                                                             \
    "    add.u64 %rd3, %rd1, %rd2;\n"                                                              \
    "    ld.global.u32 %r7, [%rd3];\n"                                                             \
    "    add.u32 %r8, %r7, %r2;\n"                                                                 \
    "    st.global.u32 [%rd3], %r8;\n"                                                             \
    "end:\n"                                                                                       \
    "    ret;\n"                                                                                   \
    "}\n"

/* Of code that prints the server tells nothing before it is asked. */
static const char quiet[] = HEAD ADD;

static const char text[] =
    HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
         ".global .align 1 .b8 form[10] = {114, 111, 117, 110, 100, 32, 37, 117, 10, 0};\n" ADD
         ".visible .entry say(.param .u32 what)\n"
         "{\n"
         "    .local .align 8 .b8 words[8];\n"
         "    .reg .b32 %r<3>;\n"
         "    .reg .b64 %rd<5>;\n"
         "    ld.param.u32 %r1, [what];\n"
         "    mov.u64 %rd1, words;\n"
         "    cvta.local.u64 %rd2, %rd1;\n"
         "    st.local.u32 [words], %r1;\n"
         "    mov.u64 %rd3, form;\n"
         "    cvta.global.u64 %rd4, %rd3;\n"
         "    {\n"
         "        .param .b64 f;\n"
         "        .param .b64 a;\n"
         "        .param .b32 r;\n"
         "        st.param.b64 [f], %rd4;\n"
         "        st.param.b64 [a], %rd2;\n"
         "        call.uni (r), vprintf, (f, a);\n"
         "        ld.param.b32 %r2, [r];\n"
         "    }\n"
         "    ret;\n"
         "}\n";

/* Kernels change the first of them only: what is tested is how they get there. */
enum { WORDS = 1 << 19, CHANGED = 1 << 14, LAUNCHES = 40, LARGE = 3 << 19 };

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 24) % below;
}

static bool right = true;

static void check(bool good, const char *what, int round)
{
    if (!good) {
        fprintf(stderr, "round %d: %s\n", round, what);
        right = false;
    }
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "round %d: %s is %d\n", round, #call, (int)result_);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void called(void *user)
{
    ++*(int *)user;
}

/* All that kernels write is in memory that they share with the program, or comes by copies. */
static void round_of(int round, CUdeviceptr device, uint32_t *host, uint32_t *shared,
                     CUstream stream)
{
    static int calls;
    CUmodule module;
    CUfunction add, say;
    CUdeviceptr mapped;
    uint32_t n = 1 + draw(WORDS), by = draw(1000) + 1, count = n < CHANGED ? n : CHANGED;
    const uint32_t start = (uint32_t)round * 77u;
    void *arguments[] = {&device, &count, &by};
    TRY(cuModuleLoadData(&module, text));
    TRY(cuModuleGetFunction(&add, module, "add"));
    TRY(cuModuleGetFunction(&say, module, "say"));
    for (uint32_t i = 0; i < n; i++) {
        host[i] = start + i;
    }
    TRY(cuMemcpyHtoD(device, host, n * sizeof *host));
    memset(host, 0xee, n * sizeof *host); /* the copy has its bytes */
    for (int i = 0; i < LAUNCHES; i++) {
        TRY(cuLaunchKernel(add, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
    }
    TRY(cuStreamSynchronize(stream));
    TRY(cuMemcpyDtoH(host, device, n * sizeof *host));
    bool same = true;
    for (uint32_t i = 0; i < n && same; i++) {
        uint32_t wanted = start + i + (i < CHANGED ? LAUNCHES * by : 0);
        same = host[i] == wanted;
        if (!same) {
            fprintf(stderr, "word %u of %u is %#x, not %#x; each launch adds %#x\n", i, n, host[i],
                    wanted, by);
        }
    }
    check(same, "what came back is not what the kernels made", round);

    uint32_t what = (uint32_t)round;
    void *words[] = {&what};
    TRY(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, stream, words, NULL));
    TRY(cuMemHostGetDevicePointer(&mapped, shared, 0));
    count = 1000 + draw(3000);
    for (uint32_t i = 0; i < count; i++) {
        shared[i] = start ^ i;
    }
    void *on_shared[] = {&mapped, &count, &by};
    TRY(cuLaunchKernel(add, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, on_shared, NULL));
    int before = calls;
    if (round % 4 == 3) {
        TRY(cuLaunchHostFunc(stream, called, &calls));
    }
    TRY(cuStreamSynchronize(stream));
    check(calls == before + (round % 4 == 3), "the host function was not called once", round);
    same = true;
    for (uint32_t i = 0; i < count; i++) {
        same = same && shared[i] == (start ^ i) + by;
    }
    check(same, "mirrored memory is not what the kernel made", round);
    TRY(cuModuleUnload(module));
}

/* Copies that are spread over the session's connections. */
static void large_copies(int round, CUdeviceptr device, uint32_t *host)
{
    uint32_t n = LARGE - draw(1000), salt = draw(1u << 30);
    for (uint32_t i = 0; i < n; i++) {
        host[i] = salt ^ i * 2654435761u;
    }
    TRY(cuMemcpyHtoD(device, host, n * sizeof *host));
    memset(host, 0xee, n * sizeof *host);
    TRY(cuMemcpyDtoH(host, device, n * sizeof *host));
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        same = same && host[i] == (salt ^ i * 2654435761u);
    }
    check(same, "what came back is not what was copied", round);
}

/* ---- what makes the rarer frames ---- */

enum { FEW = 4096 }; /* words */

struct few {
    int round;
    CUcontext context;
    CUfunction add;
    CUstream stream;
    CUdeviceptr device;
    uint32_t *pinned;  /* FEW words to send, and as many to receive */
    uint32_t *managed; /* FEW words */
    sem_t goes_on;
    uint32_t salt;
};

static void launch_add(const struct few *few, CUdeviceptr at, uint32_t by)
{
    int round = few->round;
    uint32_t count = FEW;
    void *arguments[] = {&at, &count, &by};
    TRY(cuLaunchKernel(few->add, FEW / 256, 1, 1, 256, 1, 1, 0, few->stream, arguments, NULL));
}

static void check_few(const struct few *few, const uint32_t *words, uint32_t first,
                      const char *what)
{
    bool same = true;
    for (uint32_t i = 0; i < FEW; i++) {
        same = same && words[i] == first + i;
    }
    check(same, what, few->round);
}

static void fill_few(void *user)
{
    const struct few *few = user;
    for (uint32_t i = 0; i < FEW; i++) {
        few->pinned[i] = few->salt + i;
    }
}

/* The upload's source is written by a host function before it, and nobody waits for the download.
 */
static void copies_in_order(struct few *few)
{
    int round = few->round;
    few->salt = draw(1u << 30);
    memset(few->pinned, 0xee, 2 * FEW * sizeof *few->pinned);
    TRY(cuLaunchHostFunc(few->stream, fill_few, few));
    TRY(cuMemcpyHtoDAsync(few->device, few->pinned, FEW * sizeof *few->pinned, few->stream));
    launch_add(few, few->device, 3);
    TRY(cuMemcpyDtoHAsync(few->pinned + FEW, few->device, FEW * sizeof *few->pinned, few->stream));
    TRY(cuStreamSynchronize(few->stream));
    check_few(few, few->pinned, few->salt, "the host function was not called once");
    check_few(few, few->pinned + FEW, few->salt + 3, "what came behind a host function is wrong");
}

static void stand(void *user)
{
    sem_wait(user);
}

/* Asks until it is so. The first answer of one that stands still is no, so that the server tells.
 */
static void await(struct few *few, CUevent event, bool stands)
{
    int round = few->round;
    CUresult result = CUDA_ERROR_NOT_READY;
    for (bool first = true; result == CUDA_ERROR_NOT_READY; first = false) {
        result = event != NULL ? cuEventQuery(event) : cuStreamQuery(few->stream);
        if (first && stands) {
            check(result == CUDA_ERROR_NOT_READY, "what stands still is done", round);
            sem_post(&few->goes_on);
        }
    }
    TRY(result);
}

static void events(struct few *few)
{
    int round = few->round;
    CUevent event;
    TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 5; i++) {
        if (i < 3) {
            TRY(cuLaunchHostFunc(few->stream, stand, &few->goes_on));
        }
        launch_add(few, few->device, 1);
        TRY(cuEventRecord(event, few->stream));
        await(few, i % 2 == 0 ? event : NULL, i < 3);
    }
    TRY(cuMemcpyDtoH(few->pinned, few->device, FEW * sizeof *few->pinned));
    check_few(few, few->pinned, few->salt + 8, "five launches did not add five");
    TRY(cuEventDestroy(event));
}

static void managed(const struct few *few)
{
    int round = few->round;
    for (uint32_t i = 0; i < FEW; i++) {
        few->managed[i] = few->salt + i;
    }
    launch_add(few, (CUdeviceptr)(uintptr_t)few->managed, 5);
    TRY(cuStreamSynchronize(few->stream));
    check_few(few, few->managed, few->salt + 5, "managed memory is not what the kernel made");
}

static void *other_thread(void *user)
{
    const struct few *few = user;
    int round = few->round;
    uint32_t words[FEW];
    TRY(cuCtxSetCurrent(few->context));
    TRY(cuMemcpyDtoH(words, few->device, sizeof words));
    check_few(few, words, few->salt + 3, "another thread reads something else");
    return NULL;
}

static void thread_that_ends(struct few *few)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, few) != 0) {
        exit(1);
    }
    pthread_join(thread, NULL);
}

static void export_that_ends(const struct few *few)
{
    int round = few->round, fd = -1;
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    TRY(cuMemCreate(&memory, 2 << 20, &how, 0));
    TRY(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    TRY(cuMemRelease(memory));
}

static void load_add(struct few *few, const char *code, CUmodule *ret_module, int round)
{
    few->round = round;
    TRY(cuModuleLoadData(ret_module, code));
    TRY(cuModuleGetFunction(&few->add, *ret_module, "add"));
}

static void rare_frames(struct few *few, int round)
{
    CUmodule module;
    load_add(few, text, &module, round);
    copies_in_order(few);
    managed(few);
    thread_that_ends(few);
    export_that_ends(few);
    TRY(cuModuleUnload(module));
}

/* Events are told of as long as there is no memory that kernels and the program both see. */
static void begin_rare(struct few *few, CUdeviceptr device, CUstream stream, int rounds)
{
    int round = -1;
    CUmodule module;
    few->device = device;
    few->stream = stream;
    sem_init(&few->goes_on, 0, 0);
    TRY(cuCtxGetCurrent(&few->context));
    TRY(cuMemHostAlloc((void **)&few->pinned, 2 * FEW * sizeof *few->pinned, 0));
    for (int i = 0; i < rounds; i++) {
        load_add(few, quiet, &module, round);
        copies_in_order(few);
        events(few);
        TRY(cuModuleUnload(module));
    }
    CUdeviceptr at;
    TRY(cuMemAllocManaged(&at, FEW * sizeof *few->managed, CU_MEM_ATTACH_GLOBAL));
    few->managed = (uint32_t *)(uintptr_t)at;
}

int main(int argc, char **argv)
{
    bool all = argc > 3 && strcmp(argv[3], "all") == 0;
    int rounds = argc > 1 ? atoi(argv[1]) : 1, round = -1;
    struct few few = {0};
    CUdevice gpu;
    CUcontext context;
    CUstream stream;
    CUdeviceptr device;
    uint32_t *host = malloc(LARGE * sizeof *host), *shared;
    seed = 88172645463325252u ^ (argc > 2 ? strtoull(argv[2], NULL, 0) << 20 : 0);
    TRY(cuInit(0));
    TRY(cuDeviceGet(&gpu, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, gpu));
    TRY(cuCtxSetCurrent(context));
    /* Behind the copies, which may return before the device has what they copied. */
    TRY(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    TRY(cuMemAlloc(&device, LARGE * sizeof *host));
    if (all) {
        begin_rare(&few, device, stream, rounds);
    }
    TRY(cuMemHostAlloc((void **)&shared, 16384, CU_MEMHOSTALLOC_DEVICEMAP));
    for (round = 0; round < rounds && right; round++) {
        round_of(round, device, host, shared, stream);
        if (round % 3 == 0) {
            large_copies(round, device, host);
        }
        if (all) {
            rare_frames(&few, round);
        }
    }
    fflush(stdout);
    printf("done\n");
    free(host);
    return right ? 0 : 1;
}
