/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that end while host functions, theirs or others', are in streams. */
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "driver.h"

/* A host function that waits until it is let go, then writes 42; and what ran behind it. */
static sem_t begun, over;
static int opened, ended, ran;

static void CUDA_CB wait_here(void *to)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    sem_post(&begun);
    sem_timedwait(&over, &until);
    if (to != NULL) {
        *(int *)to = 42;
    }
    __atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
}

static void CUDA_CB count_run(void *unused)
{
    (void)unused;
    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
}

static CUresult told = (CUresult)-1;

static void CUDA_CB count_callback(CUstream stream, CUresult status, void *unused)
{
    (void)stream;
    (void)unused;
    told = status;
    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
}

static void block(CUstream stream, int *to)
{
    OK(cuLaunchHostFunc(stream, wait_here, to));
    sem_wait(&begun);
}

static void open_now(void)
{
    __atomic_store_n(&opened, 1, __ATOMIC_SEQ_CST);
    sem_post(&over);
}

static void *open_later(void *unused)
{
    (void)unused;
    conform_sleep_ms(300);
    open_now();
    return NULL;
}

static pthread_t opener;

static void open_soon(void)
{
    if (pthread_create(&opener, NULL, open_later, NULL) != 0) {
        abort();
    }
}

/* Whether the function had been let go, whether it had ended, what had run behind it. */
static void see(const char *when)
{
    conform_say("%s: let go %d, ended %d, ran behind it %d", when,
                __atomic_load_n(&opened, __ATOMIC_SEQ_CST),
                __atomic_load_n(&ended, __ATOMIC_SEQ_CST), __atomic_load_n(&ran, __ATOMIC_SEQ_CST));
}

static void begin(void)
{
    sem_init(&begun, 0, 0);
    sem_init(&over, 0, 0);
}

static CUcontext another(void)
{
    CUcontext b = NULL;
    OK(cuCtxCreate(&b, NULL, 0, dev));
    OK(cuCtxSetCurrent(ctx));
    return b;
}

static CUstream stream_in(CUcontext context)
{
    OK(cuCtxSetCurrent(context));
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuCtxSetCurrent(ctx));
    return s;
}

static void destroy_context(void *arg)
{
    SEE(cuCtxDestroy(*(CUcontext *)arg));
}

/* NVIDIA's driver waits for the function; whoever does not is as good, so that is not told. */
static void others(bool elsewhere)
{
    begin();
    CUcontext b = another();
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    int *h = NULL;
    OK(cuMemHostAlloc((void **)&h, 4, 0));
    *h = 1;
    block(s, h);
    open_soon();
    if (elsewhere) {
        in_thread(destroy_context, &b);
    } else {
        destroy_context(&b);
    }
    SEE(cuMemcpyHtoDAsync(w, h, 4, s));
    pthread_join(opener, NULL);
    SEE(cuStreamSynchronize(s));
    NUM(peek(w, 0));
}

CASE_ALONE(context_ends_beside_function,
           "a context is destroyed while a host function of another one waits")
{
    others(false);
}

CASE_ALONE(context_ends_beside_function_elsewhere, "the same, destroyed by another thread")
{
    others(true);
}

CASE_ALONE(context_ends_with_function, "a context is destroyed while a host function of it waits, "
                                       "with more behind it")
{
    begin();
    CUcontext b = another();
    CUstream s = stream_in(b);
    CUdeviceptr w = words(1);
    block(s, NULL);
    SEE(cuMemsetD32Async(w, 5, 1, s));
    OK(cuLaunchHostFunc(s, count_run, NULL));
    OK(cuStreamAddCallback(s, count_callback, NULL, 0));
    open_soon();
    SEE(cuCtxDestroy(b));
    see("after the destruction");
    pthread_join(opener, NULL);
    SEE(cuCtxSynchronize());
    conform_sleep_ms(100);
    see("at the end");
    SEE(told);
    NUM(peek(w, 0));
}

CASE_ALONE(context_ends_with_function_of_default_stream, "the same in its default stream")
{
    begin();
    CUcontext b = another();
    OK(cuCtxSetCurrent(b));
    block(NULL, NULL);
    OK(cuLaunchHostFunc(NULL, count_run, NULL));
    OK(cuCtxSetCurrent(ctx));
    open_soon();
    SEE(cuCtxDestroy(b));
    see("after the destruction");
    pthread_join(opener, NULL);
    conform_sleep_ms(100);
    see("at the end");
}

static CUdeviceptr word;

static void *open_word_later(void *unused)
{
    (void)unused;
    conform_sleep_ms(300);
    cuCtxSetCurrent(ctx);
    __atomic_store_n(&opened, 1, __ATOMIC_SEQ_CST);
    open_gate(word);
    return NULL;
}

CASE_ALONE(context_ends_with_function_to_come, "a context is destroyed while its host functions "
                                               "wait behind work that does not end yet")
{
    begin();
    CUcontext b = another();
    CUstream s = stream_in(b);
    word = words(1);
    OK(cuStreamWaitValue32(s, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuLaunchHostFunc(s, count_run, NULL));
    OK(cuStreamAddCallback(s, count_callback, NULL, 0));
    if (pthread_create(&opener, NULL, open_word_later, NULL) != 0) {
        abort();
    }
    SEE(cuCtxDestroy(b));
    see("after the destruction");
    pthread_join(opener, NULL);
    SEE(cuCtxSynchronize());
    conform_sleep_ms(100);
    see("at the end");
    SEE(told);
}

CASE_ALONE(context_ends_with_function_of_a_graph,
           "a context is destroyed while a host node of a graph waits in its stream")
{
    begin();
    CUcontext b = another();
    CUstream s = stream_in(b);
    CUgraph graph = NULL;
    CUgraphNode first = NULL, second = NULL;
    CUgraphExec exec = NULL;
    CUDA_HOST_NODE_PARAMS one = {.fn = wait_here}, two = {.fn = count_run};
    OK(cuCtxSetCurrent(b));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddHostNode(&first, graph, NULL, 0, &one));
    OK(cuGraphAddHostNode(&second, graph, &first, 1, &two));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    sem_wait(&begun);
    OK(cuCtxSetCurrent(ctx));
    open_soon();
    SEE(cuCtxDestroy(b));
    see("after the destruction");
    pthread_join(opener, NULL);
    conform_sleep_ms(100);
    see("at the end");
}

CASE_ALONE(context_ends_with_function_reset, "the primary context is reset while a host function "
                                             "of it waits, with another one behind it")
{
    begin();
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    block(s, NULL);
    OK(cuLaunchHostFunc(s, count_run, NULL));
    open_soon();
    SEE(cuDevicePrimaryCtxReset(dev));
    see("after the reset");
    pthread_join(opener, NULL);
    conform_sleep_ms(100);
    see("at the end");
}

CASE_ALONE(context_ends_before_its_graph,
           "a graph that was made while a context was current is used after that context's end")
{
    begin();
    CUcontext b = another();
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphExec exec = NULL;
    CUDA_HOST_NODE_PARAMS one = {.fn = count_run};
    OK(cuCtxSetCurrent(b));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &one));
    OK(cuCtxSetCurrent(ctx));
    SEE(cuCtxDestroy(b));
    SEE(cuGraphInstantiate(&exec, graph, 0));
    if (exec != NULL) {
        SEE(cuGraphLaunch(exec, side));
        SEE(cuStreamSynchronize(side));
    }
    see("at the end");
}
