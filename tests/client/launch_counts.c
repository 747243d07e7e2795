/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch costs besides the GPU, in counts. The real client and the real session in one
 * process, and a driver whose cuLaunchKernel does nothing. tests/system/test_counts.py runs it.
 *
 *     launch_counts launches N   for callgrind: N launches, one synchronisation
 *     launch_counts up N         (or down N) for callgrind: N synchronous copies of 4 bytes over
 * unix
 *     launch_counts pairs N      for callgrind: N times cuMemAlloc and cuMemFree, over shm
 *     launch_counts drain N      N launches over shm to a peer that only drains the ring: prints
 * our own counts of system calls as JSON
 *     launch_counts tcp N        N launches and a synchronisation over tcp, to a driver that takes
 * 5 us for each: prints the counts of both ends as JSON
 *     launch_counts heap-tcp N   (or heap-self, heap-shm) N launches and a synchronisation: prints
 * how often both ends allocated memory meanwhile, and before
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "client/session/state.h"
#include "client/link/link.h"
#include "client/link/self.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/core_client.h"
#include "gen/launch_client.h"
#include "gen/memory_client.h"
#include "gen/module_client.h"
#include "gen/stream_client.h"
#include "heap.h"
#include "server/run/run.h"
#include "server/session/session.h"
#include "transport/transport.h"

static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry nothing(.param .u64 at, .param .u64 by)\n{\nret;\n}\n";

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "launch_counts: %s\n", what);
        exit(1);
    }
}

/* ---- the server ---- */

static CUresult null_launch(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                            unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                            CUstream stream, void **params, void **extra)
{
    return CUDA_SUCCESS;
}

/* About what NVIDIA's driver takes. */
static CUresult slow_launch(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                            unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                            CUstream stream, void **params, void **extra)
{
    int64_t until = tow_time_now_ns() + 5 * TOW_TIME_US;
    while (tow_time_now_ns() < until) {
    }
    return CUDA_SUCCESS;
}

static struct tow_backend backend;

static void *serve(void *arg)
{
    static const struct tows_session_options options = {.id = 1, .in_process = false};
    tows_session_run(arg, &backend, &options);
    return NULL;
}

static int open_backend(char *why, size_t why_size)
{
    struct tow_soft_options options = {.memory = 256u << 20, .threads = 1};
    int error = tow_backend_soft_open(&options, &backend, why, why_size);
    if (error == 0) {
        tow_drive(&backend.driver, cuInit)(0);
    }
    return error;
}

int tow_self_start(const char *device, struct tow_line *line, char *why, size_t why_size)
{
    pthread_t thread;
    int error = open_backend(why, why_size);
    if (error < 0) {
        return error;
    }
    tow_driver_set(&backend.driver, cuLaunchKernel, null_launch);
    error = -pthread_create(&thread, NULL, serve, line);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

/* ---- the program ---- */

static CUfunction nothing;
static CUstream stream;

static void launches(unsigned n)
{
    uint64_t at = 0, by = 0;
    void *args[] = {&at, &by};
    for (unsigned i = 0; i < n; i++) {
        must(towc_cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL) == CUDA_SUCCESS,
             "a launch failed");
    }
}

static void set_up(const char *address)
{
    CUcontext context;
    CUmodule module;
    setenv("TOWLINE_SERVER", address, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    must(towc_cuInit(0) == CUDA_SUCCESS, "cuInit");
    must(towc_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
             towc_cuCtxSetCurrent(context) == CUDA_SUCCESS,
         "no context");
    must(towc_cuModuleLoadData(&module, text) == CUDA_SUCCESS &&
             towc_cuModuleGetFunction(&nothing, module, "nothing") == CUDA_SUCCESS,
         "no kernel");
    must(towc_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "no stream");
    launches(1);
    must(towc_cuStreamSynchronize(stream) == CUDA_SUCCESS, "the first launch");
}

/* ---- draining ---- */

struct peer {
    struct tow_listener *listener; /* borrowed */
    struct tow_line *line;         /* owned */
    _Atomic uint64_t drained;
    _Atomic int ready, stop;
};

static void *drain(void *arg)
{
    struct peer *peer = arg;
    char why[TOW_WHY_MAX], who[TOW_ADDRESS_MAX];
    int fd = -1, error;
    while ((error = tow_listener_accept(peer->listener, &fd, who)) == -EAGAIN) {
        sched_yield();
    }
    must(error == 0, "accept");
    must(tow_line_from_fd(fd, TOW_TRANSPORT_SHM, tow_time_deadline(10 * TOW_TIME_S), why,
                          sizeof why, &peer->line) == 0,
         "adopt");
    atomic_store(&peer->ready, 1);
    while (!atomic_load(&peer->stop)) {
        const uint8_t *at;
        size_t available;
        /* Spins: it never sleeps for so long that it would have to be woken. */
        if (tow_line_peek(peer->line, 1, TOW_TIME_FOREVER, &at, &available) < 0) {
            break;
        }
        tow_line_consume(peer->line, available);
        atomic_fetch_add(&peer->drained, available);
    }
    return NULL;
}

static void drained_launches(unsigned n)
{
    struct peer peer = {0};
    char address[64], why[TOW_WHY_MAX];
    struct tow_line *line;
    pthread_t thread;
    /* The peer is awake: it spins longer than this test lasts. */
    tow_line_set_spin(60 * TOW_TIME_S, 60 * TOW_TIME_S);
    snprintf(address, sizeof address, "shm://@towline-counts-%d", (int)getpid());
    must(tow_listener_open(address, 0600, why, sizeof why, &peer.listener) == 0, "listen");
    must(pthread_create(&thread, NULL, drain, &peer) == 0, "thread");
    must(tow_transport_connect(address, tow_time_deadline(10 * TOW_TIME_S), why, sizeof why,
                               &line) == 0,
         why);
    while (!atomic_load(&peer.ready)) {
        sched_yield();
    }
    struct towc_link *link = towc_client_link(-1);
    struct tow_line *real = link->line;
    uint64_t bytes = link->counters.bytes_out;
    struct tow_line_stats before, after, there;
    link->line = line;
    tow_line_get_stats(line, &before);
    launches(n);
    tow_line_get_stats(line, &after);
    bytes = link->counters.bytes_out - bytes;
    while (atomic_load(&peer.drained) < bytes) {
        sched_yield();
    }
    tow_line_get_stats(peer.line, &there);
    link->line = real;
    printf("{\"launches\":%u,\"bytes\":%llu,\"frames\":%llu,\"sends\":%llu,\"wakes\":%llu,"
           "\"sleeps\":%llu,\"receives\":%llu,\"peer_wakes\":%llu,\"peer_sleeps\":%llu}\n",
           n, (unsigned long long)bytes, (unsigned long long)(after.frames_out - before.frames_out),
           (unsigned long long)(after.sends - before.sends),
           (unsigned long long)(after.wakes - before.wakes),
           (unsigned long long)(after.sleeps - before.sleeps),
           (unsigned long long)(after.receives - before.receives), (unsigned long long)there.wakes,
           (unsigned long long)there.sleeps);
    fflush(stdout);
    /* Whoever spins looks at nothing but the ring: a last frame ends it. */
    uint8_t *last;
    atomic_store(&peer.stop, 1);
    must(tow_line_reserve(line, 8, &last) == 0, "the last frame");
    memset(last, 0, 8);
    tow_line_commit(line, 8);
    pthread_join(thread, NULL);
    tow_line_close(line);
    tow_line_close(peer.line);
    tow_listener_close(peer.listener);
}

/* ---- the real session, over a transport ---- */

static void *serve_one(void *arg)
{
    struct peer *peer = arg;
    char why[TOW_WHY_MAX], who[TOW_ADDRESS_MAX];
    int fd = -1, error;
    while ((error = tow_listener_accept(peer->listener, &fd, who)) == -EAGAIN) {
        sched_yield();
    }
    must(error == 0, "accept");
    must(tow_line_from_fd(fd, peer->listener->kind, tow_time_deadline(10 * TOW_TIME_S), why,
                          sizeof why, &peer->line) == 0,
         "adopt");
    return serve(peer->line);
}

static struct peer server; /* its session goes on until the process ends */

static void set_up_over(const char *address, bool slow)
{
    char why[TOW_WHY_MAX];
    pthread_t thread;
    must(open_backend(why, sizeof why) == 0, why);
    tow_driver_set(&backend.driver, cuLaunchKernel, slow ? slow_launch : null_launch);
    must(tow_listener_open(address, 0600, why, sizeof why, &server.listener) == 0, why);
    must(pthread_create(&thread, NULL, serve_one, &server) == 0, "thread");
    set_up(server.listener->address);
}

static void heap_launches(const char *kind, unsigned n)
{
    if (strcmp(kind, "self") == 0) {
        set_up("self:");
    } else {
        char address[64];
        snprintf(address, sizeof address, "shm://@towline-heap-%d", (int)getpid());
        set_up_over(strcmp(kind, "shm") == 0 ? address : "tcp://127.0.0.1:0", false);
    }
    /* Once more than fits a ring: whatever grows has its size then. */
    launches(n);
    must(towc_cuStreamSynchronize(stream) == CUDA_SUCCESS, "synchronisation");
    unsigned long before = atomic_load(&allocations);
    launches(n);
    must(towc_cuStreamSynchronize(stream) == CUDA_SUCCESS, "synchronisation");
    printf("%lu of %lu\n", atomic_load(&allocations) - before, before);
    fflush(stdout);
}

static void small_copies(bool up, unsigned n)
{
    char address[64];
    CUdeviceptr device;
    uint32_t word = 7;
    snprintf(address, sizeof address, "unix://@towline-copies-%d", (int)getpid());
    set_up_over(address, false);
    must(towc_cuMemAlloc_v2(&device, sizeof word) == CUDA_SUCCESS &&
             towc_cuMemcpyHtoD_v2(device, &word, sizeof word) == CUDA_SUCCESS,
         "memory");
    for (unsigned i = 0; i < n; i++) {
        must((up ? towc_cuMemcpyHtoD_v2(device, &word, sizeof word)
                 : towc_cuMemcpyDtoH_v2(&word, device, sizeof word)) == CUDA_SUCCESS,
             "a copy failed");
    }
    must(towc_cuCtxSynchronize() == CUDA_SUCCESS, "synchronisation");
}

/* A driver that takes no time for either. */
static CUresult null_alloc(CUdeviceptr *ret_at, size_t size)
{
    *ret_at = UINT64_C(1) << 40;
    return CUDA_SUCCESS;
}

static CUresult null_free(CUdeviceptr at)
{
    return CUDA_SUCCESS;
}

static void pairs(unsigned n)
{
    char address[64];
    CUdeviceptr at;
    snprintf(address, sizeof address, "shm://@towline-pairs-%d", (int)getpid());
    set_up_over(address, false);
    must(towc_cuCtxSynchronize() == CUDA_SUCCESS, "synchronisation");
    tow_driver_set(&backend.driver, cuMemAlloc_v2, null_alloc);
    tow_driver_set(&backend.driver, cuMemFree_v2, null_free);
    for (unsigned i = 0; i < n; i++) {
        must(towc_cuMemAlloc_v2(&at, 1 << 20) == CUDA_SUCCESS &&
                 towc_cuMemFree_v2(at) == CUDA_SUCCESS,
             "a pair failed");
    }
    must(towc_cuCtxSynchronize() == CUDA_SUCCESS, "synchronisation");
}

static void tcp_launches(unsigned n)
{
    set_up_over("tcp://127.0.0.1:0", true);
    struct tow_line *line = towc_client_link(-1)->line;
    struct tow_line_stats before, after, before_there, after_there;
    tow_line_get_stats(line, &before);
    tow_line_get_stats(server.line, &before_there);
    launches(n);
    must(towc_cuStreamSynchronize(stream) == CUDA_SUCCESS, "synchronisation");
    tow_line_get_stats(line, &after);
    tow_line_get_stats(server.line, &after_there);
    printf("{\"launches\":%u,\"bytes\":%llu,\"sends\":%llu,\"wakes\":%llu,"
           "\"server_receives\":%llu,\"server_sends\":%llu}\n",
           n, (unsigned long long)(after.bytes_out - before.bytes_out),
           (unsigned long long)(after.sends - before.sends),
           (unsigned long long)(after.wakes - before.wakes),
           (unsigned long long)(after_there.receives - before_there.receives),
           (unsigned long long)(after_there.sends - before_there.sends));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    unsigned n = (unsigned)strtoul(argv[2], NULL, 10);
    tow_line_set_spin(0, 0); /* waiting must not be counted as work */
    if (strcmp(argv[1], "tcp") == 0) {
        tcp_launches(n);
        return 0;
    }
    if (strncmp(argv[1], "heap-", 5) == 0) {
        heap_launches(argv[1] + 5, n);
        return 0;
    }
    if (strcmp(argv[1], "up") == 0 || strcmp(argv[1], "down") == 0) {
        small_copies(strcmp(argv[1], "up") == 0, n);
        return 0;
    }
    if (strcmp(argv[1], "pairs") == 0) {
        pairs(n);
        return 0;
    }
    set_up("self:");
    if (strcmp(argv[1], "drain") == 0) {
        drained_launches(n);
    } else {
        launches(n);
    }
    return towc_cuStreamSynchronize(stream) == CUDA_SUCCESS ? 0 : 1;
}
