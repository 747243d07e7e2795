/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose server is hostile: says how often its functions ran, and how its calls ended. */
#include "check.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FUNCTIONS = 3, LAUNCHES = 4, SECONDS = 30 };

static atomic_int ran[FUNCTIONS];

static void count(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Until the server is lost; false: that does not come. */
static int lose(void)
{
    time_t end = time(NULL) + SECONDS;
    CUresult status = CUDA_SUCCESS;
    while (status == CUDA_SUCCESS && time(NULL) < end) {
        usleep(10000);
        status = cuCtxSynchronize();
    }
    return status == CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static int tell(int lost)
{
    usleep(100000); /* for functions that are about to run */
    printf("ran");
    for (int i = 0; i < FUNCTIONS; i++) {
        printf(" %d", atomic_load(&ran[i]));
    }
    printf("; %s\n", lost ? "lost" : "not lost");
    return 0;
}

static int functions(void)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        CHECK(cuLaunchHostFunc(NULL, count, &ran[i]));
    }
    return tell(lose());
}

/* A function waits in a stream of the first server for a turn that never comes. */
static int other_link(void)
{
    CUcontext second;
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuLaunchHostFunc(NULL, count, &ran[0]));
    CHECK(cuCtxSetCurrent(second));
    int lost = lose();
    tell(lost);
    fflush(stdout);
    _exit(0); /* the first server would be waited for */
}

static void add_function(CUgraph graph, atomic_int *counter)
{
    CUgraphNode node;
    CUDA_HOST_NODE_PARAMS params = {.fn = count, .userData = counter};
    CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
}

static int graphs(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuGraphCreate(&graph, 0));
    add_function(graph, &ran[0]);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        cuGraphLaunch(exec, NULL);
    }
    return tell(lose());
}

/* Graphs in graphs: each launch runs a function often. */
static int nested(void)
{
    CUstream stream;
    CUgraph inner, middle, outer;
    CUgraphExec exec;
    CUgraphNode node;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuLaunchHostFunc(stream, count, &ran[0]));
    CHECK(cuStreamEndCapture(stream, &inner));
    CHECK(cuGraphCreate(&middle, 0));
    add_function(middle, &ran[1]);
    for (int i = 0; i < 3; i++) {
        CHECK(cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
    }
    CHECK(cuGraphClone(&outer, middle));
    CHECK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, middle));
    CHECK(cuGraphInstantiate(&exec, outer, 0));
    for (int i = 0; i < 10; i++) {
        CHECK(cuGraphLaunch(exec, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    return tell(cuCtxSynchronize() != CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {
        {"functions", functions},
        {"other-link", other_link},
        {"graphs", graphs},
        {"nested", nested},
    };
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof ways[0]; i++) {
        if (strcmp(argv[1], ways[i].name) == 0) {
            return ways[i].run();
        }
    }
    fprintf(stderr, "FAILED: no such way\n");
    return 1;
}
