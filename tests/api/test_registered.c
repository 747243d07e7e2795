/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program's own that it registers: one memory for program and GPU, and the program's
 * own all the same. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

enum { KIB = 1 << 10, PAGE = 4096, ODD = 52 };

static void *pages(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* How many of n ints from `at` on are not first, first + 1 ... */
static int wrong_from(const int *at, int n, int first)
{
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        wrong += at[i] != first + i;
    }
    return wrong;
}

static void count_from(int *at, int n, int first)
{
    for (int i = 0; i < n; i++) {
        at[i] = first + i;
    }
}

/* ---- copies and kernels ---- */

static void kernels_and_copies(struct api *api, int *own, int n)
{
    CUdeviceptr device, there;
    CUstream stream;
    int *back = malloc((size_t)n * sizeof *back);
    size_t size = (size_t)n * sizeof *own;
    unsigned flags = 99;
    OK(cuMemAlloc(&device, size));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    count_from(own, n, 5);
    OK(cuMemHostRegister(own, size, CU_MEMHOSTREGISTER_DEVICEMAP));
    EQUAL(cuMemHostRegister(own, size, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EQUAL(cuMemHostRegister(own + n / 2, 16, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EQUAL(cuMemHostUnregister(own + n / 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostGetFlags(&flags, own + n / 2));
    EQUAL(flags, CU_MEMHOSTREGISTER_DEVICEMAP);
    EQUAL(wrong_from(own, n, 5), 0);
    /* Up, down to another place and down to itself; all of it and what lies across its ends. */
    OK(cuMemcpyHtoDAsync(device, own, size, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(back, device, size));
    EQUAL(wrong_from(back, n, 5), 0);
    memset(own, 0, size);
    OK(cuMemcpyDtoHAsync(own + 1, device + 4, size - 8, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(own[0], 0);
    EQUAL(own[n - 1], 0);
    EQUAL(wrong_from(own + 1, n - 2, 6), 0);
    OK(cuMemcpyDtoH(own, device, size));
    EQUAL(wrong_from(own, n, 5), 0);
    OK(cuMemcpyHtoD(device, own + 3, 4000));
    OK(cuMemcpyDtoH(back, device, 4000));
    EQUAL(wrong_from(back, 1000, 8), 0);
    /* Kernels write it and see what the program writes. */
    OK(cuMemHostGetDevicePointer(&there, own, 0));
    for (int round = 1; round <= 2; round++) {
        OK(api_add(api, there, n, 100, stream));
        OK(cuStreamSynchronize(stream));
        EQUAL(wrong_from(own, n, 5 + 100 * round), 0);
        OK(api_add(api, there, n, 7, stream));
        OK(cuCtxSynchronize());
        EQUAL(wrong_from(own, n, 12 + 100 * round), 0);
        count_from(own, n, 5 + 100 * round);
    }
    /* A copy behind a kernel, in its stream. */
    OK(api_add(api, there, n, 1, stream));
    OK(cuMemcpyHtoDAsync(device, own, size, stream));
    OK(api_add(api, device, n, 1000, stream));
    OK(cuMemcpyDtoHAsync(own, device, size, stream));
    OK(api_add(api, there, n, 1, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(wrong_from(own, n, 1207), 0);
    /* Rows that lie across its ends; then it stands for device memory. */
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = own,
                          .srcPitch = 4096,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = device,
                          .dstPitch = 64,
                          .WidthInBytes = 64,
                          .Height = size / 4096};
    OK(cuMemcpy2D(&rows));
    OK(cuMemcpyDtoH(back, device, rows.Height * 64));
    EQUAL(back[0], 1207);
    EQUAL(back[16 * (rows.Height - 1)], 1207 + 1024 * (int)(rows.Height - 1));
    OK(cuMemsetD32Async(there, 77, (size_t)n, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(own[0] + own[n / 2] + own[n - 1], 3 * 77);
    OK(cuMemcpyDtoD(device, there, size));
    own[n / 3] = 78;
    OK(cuMemcpyHtoD(device, own, size));
    OK(cuMemcpyDtoH(back, device, size));
    EQUAL(memcmp(back, own, size), 0);
    count_from(own, n, 9);
    OK(cuMemHostUnregister(own));
    EQUAL(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EQUAL(wrong_from(own, n, 9), 0);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    free(back);
}

static void memory_of_all_kinds_is_one_memory(struct api *api)
{
    enum { SIZE = 128 * KIB };
    uint8_t *odd = malloc(SIZE), *whole = pages(SIZE), *few = malloc(2 * PAGE);
    kernels_and_copies(api, (int *)(odd + ODD), (SIZE - 4 * ODD) / 4);
    kernels_and_copies(api, (int *)whole, SIZE / 4);
    kernels_and_copies(api, (int *)(whole + PAGE), SIZE / 8);
    kernels_and_copies(api, (int *)(few + ODD), PAGE / 4);
    free(odd);
    free(few);
    munmap(whole, SIZE);
    for (int anonymous = 0; anonymous < 2; anonymous++) {
        int fd = anonymous ? -1 : memfd_create("registered", 0);
        EQUAL(anonymous ? 0 : ftruncate(fd, SIZE + PAGE), 0);
        uint8_t *shared =
            mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | (anonymous ? MAP_ANONYMOUS : 0),
                 fd, anonymous ? 0 : PAGE);
        kernels_and_copies(api, (int *)shared, SIZE / 4);
        kernels_and_copies(api, (int *)(shared + ODD), (SIZE - 4 * ODD) / 4);
        int last = 0;
        if (!anonymous) {
            /* Who else has the file finds the same there. */
            EQUAL(pread(fd, &last, 4, SIZE + PAGE - 4 - 4 * ODD + ODD), 4);
            EQUAL(last, 9 + (SIZE - 4 * ODD) / 4 - 1);
            close(fd);
        }
        munmap(shared, SIZE);
    }
}

/* ---- children ---- */

/* A child has what was there when it was forked, whatever its parent and the GPU write since; and
 * nobody sees what it writes. */
static void a_child_has_its_own(struct api *api)
{
    enum { SIZE = 100 * KIB, N = SIZE / 4 };
    uint8_t *memory = malloc(SIZE + ODD);
    int *own = (int *)(memory + ODD), go[2], status = 0;
    CUdeviceptr there;
    char word = 0;
    OK(cuMemHostRegister(own, SIZE, 0));
    OK(cuMemHostGetDevicePointer(&there, own, 0));
    count_from(own, N, 1);
    OK(api_add(api, there, N, 10, NULL));
    OK(cuCtxSynchronize());
    EQUAL(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int wrong = wrong_from(own, N, 11) != 0;
        wrong |= read(go[0], &word, 1) != 1 ? 2 : 0;
        wrong |= wrong_from(own, N, 11) != 0 ? 4 : 0;
        memset(own, 3, SIZE);
        _exit(wrong | (own[N - 1] != 0x03030303 ? 8 : 0));
    }
    count_from(own, N, 21);
    OK(api_add(api, there, N, 10, NULL));
    OK(cuCtxSynchronize());
    EQUAL(write(go[1], &word, 1), 1);
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    EQUAL(wrong_from(own, N, 31), 0);
    OK(api_add(api, there, N, 10, NULL));
    OK(cuMemHostUnregister(own));
    EQUAL(wrong_from(own, N, 41), 0);
    close(go[0]);
    close(go[1]);
    free(memory);
}

/* ---- what the program does with it ---- */

/* Nothing of the system's must change under who has its pages: O_DIRECT, io_uring, another device.
 */
static void expect_private(const void *own, size_t size)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], access[5] = "";
    unsigned long low, high, inode = 1;
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &low, &high, access, &inode) == 4 &&
            (uintptr_t)own - low < high - low) {
            break;
        }
    }
    fclose(maps);
    EQUAL(strcmp(access, "rw-p"), 0);
    EQUAL(inode, 0);
    EQUAL((uintptr_t)own + size <= high, 1);
}

static void private_memory_stays_private(struct api *api)
{
    enum { SIZE = 256 * KIB };
    int *own = pages(SIZE), *back = malloc(SIZE);
    CUdeviceptr device, there;
    count_from(own, SIZE / 4, 1);
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemHostRegister(own, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    expect_private(own, SIZE);
    OK(cuMemcpyHtoD(device, own, SIZE));
    OK(cuMemHostGetDevicePointer(&there, own, 0));
    OK(api_add(api, there, SIZE / 4, 2, NULL));
    OK(cuMemcpyDtoH(back, device, SIZE));
    EQUAL(wrong_from(back, SIZE / 4, 1), 0);
    expect_private(own, SIZE);
    OK(cuMemHostUnregister(own));
    expect_private(own, SIZE);
    EQUAL(wrong_from(own, SIZE / 4, 3), 0);
    OK(cuMemFree(device));
    munmap(own, SIZE);
    free(back);
}

/* With its context a registration ends, and the memory stays. */
static void a_context_ends(struct api *api)
{
    enum { SIZE = 256 * KIB };
    CUcontext context;
    CUdeviceptr device;
    int *own = pages(SIZE), status = 0, *back = malloc(SIZE);
    count_from(own, SIZE / 4, 3);
    OK(cuCtxCreate(&context, NULL, 0, api->device));
    OK(cuMemHostRegister(own, SIZE, 0));
    OK(cuCtxDestroy(context));
    OK(cuCtxSetCurrent(api->context));
    EQUAL(wrong_from(own, SIZE / 4, 3), 0);
    pid_t child = fork();
    if (child == 0) {
        memset(own, 0, SIZE);
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(wrong_from(own, SIZE / 4, 3), 0);
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemcpyHtoD(device, own, SIZE));
    OK(cuMemcpyDtoH(back, device, SIZE));
    EQUAL(wrong_from(back, SIZE / 4, 3), 0);
    OK(cuMemFree(device));
    cuMemHostUnregister(own);
    free(back);
    munmap(own, SIZE);
}

/* A graph reads and writes it at every launch. */
static void graphs_use_it_where_it_is(struct api *api)
{
    enum { SIZE = 100 * KIB, N = SIZE / 4 };
    uint8_t *memory = malloc(SIZE + ODD);
    int *own = (int *)(memory + ODD);
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream;
    CUdeviceptr device;
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemHostRegister(own, SIZE, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyHtoDAsync(device, own, SIZE, stream));
    OK(api_add(api, device, N, 1, stream));
    OK(cuMemcpyDtoHAsync(own, device, SIZE, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; round++) {
        count_from(own, N, 50 * round);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        EQUAL(wrong_from(own, N, 50 * round + 1), 0);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
    OK(cuMemHostUnregister(own));
    OK(cuMemFree(device));
    free(memory);
}

/* Unregistered while a copy is still to fill it. */
static void what_fills_it_ends_first(struct api *api)
{
    enum { SIZE = 256 * KIB };
    int *own = pages(SIZE);
    CUdeviceptr device;
    CUstream stream;
    pthread_t thread;
    (void)api;
    OK(cuMemAlloc(&device, SIZE));
    OK(cuMemsetD32(device, 5, SIZE / 4));
    OK(cuMemHostRegister(own, SIZE, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    sem_init(&api_gate, 0, 0);
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
    OK(cuMemcpyDtoHAsync(own, device, SIZE, stream));
    pthread_create(&thread, NULL, api_open_gate, NULL);
    OK(cuStreamSynchronize(stream));
    OK(cuMemHostUnregister(own));
    pthread_join(thread, NULL);
    EQUAL(own[0] + own[SIZE / 4 - 1], 10);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device));
    munmap(own, SIZE);
}

int main(void)
{
    struct api api;
    api_begin(&api);
    memory_of_all_kinds_is_one_memory(&api);
    a_child_has_its_own(&api);
    private_memory_stays_private(&api);
    a_context_ends(&api);
    graphs_use_it_where_it_is(&api);
    what_fills_it_ends_first(&api);
    return api_end(&api);
}
