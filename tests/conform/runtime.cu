/* SPDX-License-Identifier: Apache-2.0 */
/* The set-up of the runtime's cases. */
#include "runtime.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

cudaStream_t rt_side;

cudaError_t runtime_see(const char *what, cudaError_t got)
{
    conform_say("%s -> %s", what, cudaGetErrorName(got));
    return got;
}

void runtime_is(const char *what, cudaError_t got, cudaError_t wanted)
{
    runtime_see(what, got);
    if (got != wanted) {
        conform_wrong("%s was expected", cudaGetErrorName(wanted));
    }
}

void runtime_need(const char *what, cudaError_t got)
{
    if (got != cudaSuccess) {
        conform_wrong("%s -> %s, and the rest of the case is left out", what,
                      cudaGetErrorName(got));
        conform_stop();
    }
}

__global__ void rt_set(int *to, int value)
{
    *to = value;
}

__global__ void rt_copy(int *to, const int *from)
{
    *to = *from;
}

__global__ void rt_inc(int *to, int value)
{
    *to += value;
}

int *rt_words(int count)
{
    int *at = NULL;
    OK(cudaMalloc((void **)&at, count * sizeof(int)));
    OK(cudaMemset(at, 0, count * sizeof(int)));
    OK(cudaDeviceSynchronize());
    return at;
}

int rt_peek(const int *at, int index)
{
    int value = -1;
    OK(cudaMemcpyAsync(&value, at + index, sizeof value, cudaMemcpyDeviceToHost, rt_side));
    OK(cudaStreamSynchronize(rt_side));
    return value;
}

static sem_t hold_begun, hold_over;

static void wait_at_most(sem_t *semaphore, int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    sem_timedwait(semaphore, &until);
}

static void CUDART_CB hold_here(void *)
{
    sem_post(&hold_begun);
    wait_at_most(&hold_over, 15);
}

void rt_hold(cudaStream_t stream)
{
    OK(cudaLaunchHostFunc(stream, hold_here, NULL));
    wait_at_most(&hold_begun, 15);
}

void rt_let_go(void)
{
    sem_post(&hold_over);
}

static void *let_go_later(void *arg)
{
    conform_sleep_ms(*(int *)arg);
    rt_let_go();
    return NULL;
}

void rt_let_go_in(int ms)
{
    static int delay;
    pthread_t thread;
    delay = ms;
    if (pthread_create(&thread, NULL, let_go_later, &delay) != 0) {
        abort();
    }
    pthread_detach(thread);
}

cudaStream_t rt_stream(unsigned flags)
{
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

cudaEvent_t rt_event(unsigned flags)
{
    cudaEvent_t event = NULL;
    OK(cudaEventCreateWithFlags(&event, flags));
    return event;
}

struct thread_work {
    void (*run)(void *);
    void *arg;
};

static void *thread_begin(void *arg)
{
    struct thread_work *work = (struct thread_work *)arg;
    work->run(work->arg);
    return NULL;
}

void rt_in_thread(void (*run)(void *), void *arg)
{
    struct thread_work work = {run, arg};
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_begin, &work) != 0) {
        abort();
    }
    pthread_join(thread, NULL);
}

void conform_set_up(int from, int level)
{
    if (from < BARE) {
        sem_init(&hold_begun, 0, 0);
        sem_init(&hold_over, 0, 0);
    }
    if (from < FULL && level >= FULL) {
        OK(cudaStreamCreateWithFlags(&rt_side, cudaStreamNonBlocking));
        /* Code that loads lazily is loaded now: later it might wait for a stream that is held up.
         */
        int *word = rt_words(2);
        rt_set<<<1, 1, 0, rt_side>>>(word, 1);
        rt_copy<<<1, 1, 0, rt_side>>>(word + 1, word);
        rt_inc<<<1, 1, 0, rt_side>>>(word, 1);
        OK(cudaStreamSynchronize(rt_side));
    }
}

bool conform_tidy(int level)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    while (sem_trywait(&hold_begun) == 0 || sem_trywait(&hold_over) == 0) {
    }
    cudaGetLastError();
    return level < FULL || (cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess &&
                            cudaStreamSynchronize(rt_side) == cudaSuccess &&
                            cudaDeviceSynchronize() == cudaSuccess &&
                            cudaGetLastError() == cudaSuccess);
}

int main(int argc, char **argv)
{
    return conform_main(argc, argv);
}
