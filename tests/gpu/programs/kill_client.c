/* SPDX-License-Identifier: Apache-2.0 */
/* What another client of the same GPU held is free within 2 s of its kill -9, in the midst of
 * copies.
 *
 * The program starts itself as that other client, lets it copy for a while, kills it, and looks at
 * the free memory. Natively the driver frees it, through Towline the end of that client's worker.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const size_t HELD = (size_t)8 << 30, COPIED = (size_t)256 << 20;
/* Contexts that the server makes ahead for the next clients come and go meanwhile. */
static const size_t OTHERS = (size_t)3 << 30;
static const double LIMIT_S = 2;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "%s: %d\n", #call, (int)result_);                                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static size_t free_memory(void)
{
    size_t left, total;
    TRY(cuMemGetInfo(&left, &total));
    return left;
}

static void begin(void)
{
    CUcontext context;
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuCtxSetCurrent(context));
}

/* Copies for ever; one byte on stdout when the first copies are done. */
static void copy(void)
{
    CUdeviceptr at;
    char *host = malloc(COPIED);
    begin();
    if (host == NULL) {
        exit(1);
    }
    memset(host, 5, COPIED);
    TRY(cuMemAlloc(&at, HELD));
    TRY(cuMemsetD8(at, 1, HELD));
    for (size_t i = 0;; i++) {
        CUdeviceptr part = at + i % (HELD / COPIED) * COPIED;
        TRY(cuMemcpyHtoD(part, host, COPIED));
        TRY(cuMemcpyDtoH(host, part, COPIED));
        if (i == 0 && write(STDOUT_FILENO, "c", 1) != 1) {
            exit(1);
        }
    }
}

static pid_t start_copying(const char *program)
{
    int ends[2];
    char byte;
    if (pipe(ends) != 0) {
        exit(1);
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(program, program, "copy", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &byte, 1) != 1) {
        fprintf(stderr, "the other client does not copy\n");
        exit(1);
    }
    close(ends[0]);
    return child;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "copy") == 0) {
        copy();
    }
    char name[256];
    begin();
    TRY(cuDeviceGetName(name, sizeof name, 0));
    if (strstr(name, "Software") != NULL) {
        printf("the software GPU counts each client's memory by itself\n");
        return 77;
    }
    size_t before = free_memory();
    int failed = 0;
    for (int round = 0; round < 4; round++) {
        pid_t child = start_copying("/proc/self/exe");
        size_t during = free_memory();
        if (during > before - HELD + OTHERS) {
            printf("round %d: the other client's memory is not seen\n", round);
            failed = 1;
        }
        usleep(40000 + 13000 * (unsigned)round); /* somewhere else in a copy each time */
        double killed = now_s(), seconds;
        size_t left;
        kill(child, SIGKILL);
        do {
            left = free_memory();
            seconds = now_s() - killed;
        } while (left < before - OTHERS && seconds < 5 * LIMIT_S);
        waitpid(child, NULL, 0);
        fprintf(stderr, "round %d: %zu MiB free, %zu while it ran, %zu after %.2f s\n", round,
                before >> 20, during >> 20, left >> 20, seconds);
        printf("round %d: the memory is %s\n", round,
               seconds < LIMIT_S ? "free within 2 s" : "not free within 2 s");
        failed |= seconds >= LIMIT_S;
    }
    return failed;
}
