/* SPDX-License-Identifier: Apache-2.0 */
/* A program for being suspended. It says "ready", and then does something for each line that it
 * reads:
 *
 *   suspended hold MIB    looks whether its memory still is what it wrote, and says "right"
 *   suspended kernel      lets the kernel end that runs, says "ended", and starts the next one
 *   suspended hostfn      a host function reads the line; says "ended"
 *   suspended idle        ends
 *   suspended managed     has managed memory; frees it and says "freed", and ends with the next one
 *   suspended ask         three threads ask the driver all the time; all answers were right:
 * "right" suspended shared      has given a handle of its memory away, and ends suspended value a
 * stream waits for a value in memory, which it writes then; says "ended"
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

#define MIB ((size_t)1 << 20)

static const char spin_ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                               ".visible .entry spin(.param .u64 p)\n{\n"
                               "  .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
                               "  ld.param.u64 %d0, [p];\nagain:\n"
                               "  ld.volatile.global.u32 %r0, [%d0];\n"
                               "  setp.eq.u32 %p, %r0, 0;\n  @%p bra again;\n  ret;\n}\n";

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        printf("%s: %d\n", what, (int)result);
        exit(1);
    }
}
#define MUST(call) must(call, #call)

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

static int line_came(void)
{
    char line[64];
    return fgets(line, sizeof line, stdin) != NULL;
}

/* The server has it: it was asked. */
static void is_under_way(CUstream stream)
{
    if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
        say("the stream has nothing to do");
        exit(1);
    }
}

static void hold(size_t size)
{
    uint32_t *words = malloc(size), *back = malloc(size);
    CUdeviceptr memory;
    for (size_t i = 0; i < size / 4; i++) {
        words[i] = (uint32_t)i * 2654435761u + 1;
    }
    MUST(cuMemAlloc_v2(&memory, size));
    MUST(cuMemcpyHtoD_v2(memory, words, size));
    say("ready");
    while (line_came()) {
        memset(back, 0, size);
        MUST(cuMemcpyDtoH_v2(back, memory, size));
        say(memcmp(back, words, size) == 0 ? "right" : "wrong");
    }
    free(words);
    free(back);
}

static void run_kernels(void)
{
    CUmodule module;
    CUfunction spin;
    CUstream streams[2];
    CUdeviceptr word;
    MUST(cuModuleLoadData(&module, spin_ptx));
    MUST(cuModuleGetFunction(&spin, module, "spin"));
    MUST(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&word, 4));
    void *params[] = {&word};
    do {
        MUST(cuMemsetD32Async(word, 0, 1, streams[1]));
        MUST(cuStreamSynchronize(streams[1]));
        MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
        is_under_way(streams[0]);
        say("ready");
        if (!line_came()) {
            exit(0);
        }
        MUST(cuMemsetD32Async(word, 1, 1, streams[1]));
        MUST(cuStreamSynchronize(streams[0]));
        say("ended");
    } while (1);
}

static void CUDA_CB host_function(void *user)
{
    (void)user;
    say("ready");
    line_came();
}

static void run_hostfns(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, 0));
    while (!feof(stdin)) {
        MUST(cuLaunchHostFunc(stream, host_function, NULL));
        MUST(cuStreamSynchronize(stream));
        say("ended");
    }
}

static void await_values(void)
{
    CUstream streams[2];
    CUdeviceptr word;
    MUST(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&word, 4));
    MUST(cuMemsetD32_v2(word, 0, 1));
    for (unsigned i = 1;; i++) {
        MUST(cuStreamWaitValue32_v2(streams[0], word, i, CU_STREAM_WAIT_VALUE_GEQ));
        is_under_way(streams[0]);
        say("ready");
        if (!line_came()) {
            exit(0);
        }
        MUST(cuMemsetD32Async(word, i, 1, streams[1]));
        MUST(cuStreamSynchronize(streams[0]));
        say("ended");
    }
}

static void share(void)
{
    CUdeviceptr memory;
    CUipcMemHandle handle;
    MUST(cuMemAlloc_v2(&memory, MIB));
    MUST(cuIpcGetMemHandle(&handle, memory));
    say("ready");
    line_came();
}

static atomic_bool asked_enough;

static void *ask(void *context)
{
    size_t free, total;
    CUevent event;
    MUST(cuCtxSetCurrent(context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    while (!atomic_load(&asked_enough)) {
        MUST(cuMemGetInfo_v2(&free, &total));
        MUST(cuEventRecord(event, CU_STREAM_PER_THREAD));
        CUresult result;
        while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
        }
        MUST(result);
        MUST(cuStreamQuery(CU_STREAM_PER_THREAD));
    }
    return NULL;
}

static void ask_all(CUcontext context)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, ask, context);
    }
    say("ready");
    line_came();
    atomic_store(&asked_enough, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    say("right");
    line_came();
}

static void manage(void)
{
    CUdeviceptr memory;
    MUST(cuMemAllocManaged(&memory, MIB, CU_MEM_ATTACH_GLOBAL));
    say("ready");
    line_came();
    MUST(cuMemFree_v2(memory));
    say("freed");
    line_came();
}

int main(int argc, char **argv)
{
    CUcontext context;
    const char *what = argc > 1 ? argv[1] : "";
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    if (strcmp(what, "hold") == 0) {
        hold((argc > 2 ? (size_t)atoi(argv[2]) : 1) * MIB);
    } else if (strcmp(what, "idle") == 0) {
        say("ready");
        line_came();
    } else if (strcmp(what, "ask") == 0) {
        ask_all(context);
    } else if (strcmp(what, "managed") == 0) {
        manage();
    } else if (strcmp(what, "shared") == 0) {
        share();
    } else if (strcmp(what, "kernel") == 0) {
        run_kernels();
    } else if (strcmp(what, "hostfn") == 0) {
        run_hostfns();
    } else {
        await_values();
    }
    return 0;
}
