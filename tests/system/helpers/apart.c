/* SPDX-License-Identifier: Apache-2.0 */
/* One of two programs at once: says where its memory is and what its handles are, is told the
 * other's, and then writes and checks its own memory while it tries the other's.
 *   apart NUMBER (0 or 1)
 * It says "mine ..." and reads "theirs ..."; says "tried" and reads a line, when the other has
 * tried as well; says "kept" if its memory still is what it wrote, and "end" after a kernel has
 * tried. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20, ROUNDS = 30, SPARE = 8 };

static const char read_text[] = ".version 7.0\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry take(.param .u64 from, .param .u64 to)\n"
                                "{\n"
                                "    .reg .b64 %r<4>;\n"
                                "    ld.param.u64 %r0, [from];\n"
                                "    ld.param.u64 %r1, [to];\n"
                                "    ld.global.u64 %r2, [%r0];\n"
                                "    st.global.u64 [%r1], %r2;\n"
                                "    ret;\n"
                                "}\n";

static unsigned char *host;

static int stop(const char *what, int value)
{
    printf("%s: %d\n", what, value);
    fflush(stdout);
    return 1;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            return stop(#call, (int)result_);                                                      \
        }                                                                                          \
    } while (0)

/* The error of a call that nobody waits for comes with the next synchronisation. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS) {                       \
            return stop(#call " succeeded", round);                                                \
        }                                                                                          \
    } while (0)

static unsigned char pattern(int number, int round, size_t i)
{
    return (unsigned char)((i * 7 + (size_t)round * 2 + (size_t)number) % 256);
}

static int check(CUdeviceptr at, int number, int round)
{
    memset(host, 0, SIZE);
    TRY(cuMemcpyDtoH(host, at, SIZE));
    for (size_t i = 0; i < SIZE; i++) {
        if (host[i] != pattern(number, round, i)) {
            return stop("the memory is not what was written, at", (int)i);
        }
    }
    return 0;
}

struct values {
    unsigned long long at, stream, event, module, function;
};

static int try_theirs(const struct values *theirs, CUdeviceptr mine, int round)
{
    CUdeviceptr at = theirs->at;
    CUstream stream = (CUstream)theirs->stream;
    CUevent event = (CUevent)theirs->event;
    CUfunction function;
    void *args[] = {&mine, &mine};
    memset(host, 0, SIZE);
    REFUSED(cuMemcpyDtoH(host, at, SIZE));
    for (size_t i = 0; i < SIZE; i++) {
        if (host[i] != 0) {
            return stop("a refused copy has brought something, at", (int)i);
        }
    }
    REFUSED(cuMemcpyHtoD(at, host, SIZE));
    REFUSED(cuMemcpyDtoD(mine, at, SIZE));
    REFUSED(cuMemcpyDtoD(at, mine, SIZE));
    REFUSED(cuMemsetD8(at, 0, SIZE));
    REFUSED(cuMemFree(at));
    REFUSED(cuStreamSynchronize(stream));
    REFUSED(cuMemsetD8Async(mine, 0, 1, stream));
    REFUSED(cuStreamDestroy(stream));
    REFUSED(cuEventRecord(event, NULL));
    REFUSED(cuEventDestroy(event));
    REFUSED(cuModuleGetFunction(&function, (CUmodule)theirs->module, "take"));
    REFUSED(cuModuleUnload((CUmodule)theirs->module));
    REFUSED(cuLaunchKernel((CUfunction)theirs->function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    return 0;
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 0, round = 0;
    CUcontext context;
    CUdeviceptr spare_at, at;
    CUstream spare_stream[SPARE], stream;
    CUevent spare_event[SPARE], event;
    CUmodule spare_module, module;
    CUfunction function;
    struct values theirs;
    host = malloc(SIZE);
    if (host == NULL) {
        return 1;
    }
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuCtxSetCurrent(context));
    /* Programs that do the same get the same values: the second takes what the first has, and gives
     * it up again. */
    if (number == 1) {
        TRY(cuMemAlloc(&spare_at, 64 * SIZE));
        TRY(cuModuleLoadData(&spare_module, read_text));
        TRY(cuModuleGetFunction(&function, spare_module, "take"));
        for (int i = 0; i < SPARE; i++) {
            TRY(cuStreamCreate(&spare_stream[i], 0));
            TRY(cuEventCreate(&spare_event[i], 0));
        }
    }
    TRY(cuMemAlloc(&at, SIZE));
    TRY(cuStreamCreate(&stream, 0));
    TRY(cuEventCreate(&event, 0));
    TRY(cuModuleLoadData(&module, read_text));
    TRY(cuModuleGetFunction(&function, module, "take"));
    if (number == 1) {
        TRY(cuMemFree(spare_at));
        TRY(cuModuleUnload(spare_module));
        for (int i = 0; i < SPARE; i++) {
            TRY(cuStreamDestroy(spare_stream[i]));
            TRY(cuEventDestroy(spare_event[i]));
        }
    }
    printf("mine %llu %llu %llu %llu %llu\n", (unsigned long long)at, (unsigned long long)stream,
           (unsigned long long)event, (unsigned long long)module, (unsigned long long)function);
    fflush(stdout);
    if (scanf(" theirs %llu %llu %llu %llu %llu", &theirs.at, &theirs.stream, &theirs.event,
              &theirs.module, &theirs.function) != 5) {
        return stop("nothing is known of the other", 0);
    }

    for (round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < SIZE; i++) {
            host[i] = pattern(number, round, i);
        }
        TRY(cuMemcpyHtoD(at, host, SIZE));
        if (try_theirs(&theirs, at, round) != 0 || check(at, number, round) != 0) {
            return 1;
        }
    }
    puts("tried");
    fflush(stdout);
    if (scanf(" go%*c") == EOF || check(at, number, ROUNDS - 1) != 0) {
        return 1;
    }
    puts("kept");
    void *args[] = {&theirs.at, &at};
    TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    CUresult result = cuCtxSynchronize();
    if (result != CUDA_ERROR_ILLEGAL_ADDRESS) {
        return stop("a kernel that reads the other's memory", (int)result);
    }
    puts("end");
    return 0;
}
