/* SPDX-License-Identifier: Apache-2.0 */
/* Computes until its input ends, and looks at what came out.
 *
 *     busy kernels STEPS    kernels of so many steps, many before it waits for them
 *     busy steps STEPS      the same, and waits for each; says how long that took: the median, the
 *                           99th percentile of microseconds
 *     busy copies MIB       copies so much up and down, again and again
 *     busy graphs STEPS     graphs of four such kernels
 *     busy fills MIB        takes memory until it is refused: between 99 % of so much and all of
 * it; and gives it back
 *
 * Says `ready` after the first round, and at the end what it did. */
#include "check.h"

#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { TIMES_MAX = 1 << 20, THREADS = 32, MANY = 4096, ROUND = 64, KERNELS = 4 };

/* Each thread adds 1 to its number, STEPS times. */
static const char ptx[] = ".version 6.4\n.target sm_50\n.address_size 64\n"
                          ".visible .entry add(.param .u64 at, .param .u32 steps)\n{\n"
                          ".reg .u64 %rd<4>; .reg .u32 %r<5>; .reg .pred %p;\n"
                          "ld.param.u64 %rd0, [at];\n"
                          "ld.param.u32 %r0, [steps];\n"
                          "mov.u32 %r1, %tid.x;\n"
                          "mul.wide.u32 %rd1, %r1, 4;\n"
                          "add.u64 %rd2, %rd0, %rd1;\n"
                          "ld.global.u32 %r2, [%rd2];\n"
                          "again:\n"
                          "add.u32 %r2, %r2, 1;\n"
                          "sub.u32 %r0, %r0, 1;\n"
                          "setp.ne.u32 %p, %r0, 0;\n"
                          "@%p bra again;\n"
                          "st.global.u32 [%rd2], %r2;\n"
                          "ret;\n}\n";

static CUdeviceptr numbers;
static CUfunction add;
static unsigned steps, launches;

static void launch(CUstream stream)
{
    void *params[] = {&numbers, &steps};
    CHECK(cuLaunchKernel(add, 1, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
}

static bool is_over(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

/* At most so many, and fewer at the end. */
static void compute(unsigned many)
{
    for (unsigned i = 0; i < many && (i % ROUND != 0 || i == 0 || !is_over()); i++) {
        launch(NULL);
        launches++;
    }
    CHECK(cuCtxSynchronize());
}

static void compute_graphs(unsigned many)
{
    static CUgraphExec exec;
    CUgraph graph;
    CUstream stream;
    if (exec == NULL) {
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int i = 0; i < KERNELS; i++) {
            launch(stream);
        }
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphInstantiate(&exec, graph, 0));
    }
    for (unsigned i = 0; i < many && (i % ROUND != 0 || i == 0 || !is_over()); i++) {
        CHECK(cuGraphLaunch(exec, NULL));
        launches += KERNELS;
    }
    CHECK(cuCtxSynchronize());
}

static double times[TIMES_MAX];
static unsigned time_count;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void step(void)
{
    double begin = now_us();
    compute(1);
    if (time_count < TIMES_MAX) {
        times[time_count++] = now_us() - begin;
    }
}

static int compare_times(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void tell_times(void)
{
    qsort(times, time_count, sizeof *times, compare_times);
    printf("steps took %.1f %.1f us\n", times[time_count / 2], times[time_count * 99 / 100]);
}

static void look_at_numbers(void)
{
    unsigned all[THREADS];
    CHECK(cuMemcpyDtoH(all, numbers, sizeof all));
    for (unsigned i = 0; i < THREADS; i++) {
        if (all[i] != i + launches * steps) {
            printf("wrong: number %u is %u after %u launches of %u\n", i, all[i], launches, steps);
            exit(2);
        }
    }
}

/* Beside what the program has anyway, which is less than a hundredth. */
static void fill(size_t quota)
{
    enum { PIECE = 1 << 18, PIECES_MAX = 1 << 16 };
    static CUdeviceptr pieces[PIECES_MAX];
    unsigned count = 0;
    CUresult result = CUDA_SUCCESS;
    while (count < PIECES_MAX && (result = cuMemAlloc(&pieces[count], PIECE)) == CUDA_SUCCESS) {
        count++;
    }
    size_t got = (size_t)count * PIECE;
    if (result != CUDA_ERROR_OUT_OF_MEMORY || got > quota || got < quota - quota / 100 - PIECE) {
        printf("wrong: %zu bytes of %zu, then %d\n", got, quota, result);
        exit(2);
    }
    while (count > 0) {
        CHECK(cuMemFree(pieces[--count]));
    }
    launches++;
}

static void copy(size_t size)
{
    static CUdeviceptr device;
    static unsigned char *from, *to, byte;
    if (device == 0) {
        CHECK(cuMemAlloc(&device, size));
        from = malloc(size);
        to = malloc(size);
    }
    memset(from, ++byte, size);
    CHECK(cuMemcpyHtoD(device, from, size));
    CHECK(cuMemcpyDtoH(to, device, size));
    launches++;
    if (memcmp(from, to, size) != 0) {
        printf("wrong: %u came back as %u\n", byte, to[0]);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule module;
    unsigned before[THREADS], rounds = 0;
    if (argc != 3) {
        return 2;
    }
    steps = (unsigned)strtoul(argv[2], NULL, 10);
    for (unsigned i = 0; i < THREADS; i++) {
        before[i] = i;
    }
    CHECK(cuInit(0));
    CHECK(cuCtxCreate(&context, NULL, 0, 0));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&add, module, "add"));
    CHECK(cuMemAlloc(&numbers, sizeof before));
    CHECK(cuMemcpyHtoD(numbers, before, sizeof before));
    do {
        if (strcmp(argv[1], "copies") == 0) {
            copy((size_t)steps << 20);
        } else if (strcmp(argv[1], "fills") == 0) {
            fill((size_t)steps << 20);
        } else if (strcmp(argv[1], "graphs") == 0) {
            compute_graphs(rounds == 0 ? 1 : MANY / KERNELS);
        } else if (strcmp(argv[1], "steps") == 0) {
            step();
        } else {
            compute(rounds == 0 ? 1 : MANY);
        }
        if (rounds++ == 0) {
            puts("ready");
            fflush(stdout);
        }
    } while (!is_over());
    if (strcmp(argv[1], "copies") != 0 && strcmp(argv[1], "fills") != 0) {
        look_at_numbers();
    }
    if (time_count > 0) {
        tell_times();
    }
    printf("%u done\n", launches);
    return 0;
}
