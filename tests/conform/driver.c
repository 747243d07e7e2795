/* SPDX-License-Identifier: Apache-2.0 */
/* The set-up of the driver's cases. */
#include "driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

CUdevice dev;
CUcontext ctx;
CUmodule mod;
CUstream side;

const char *result_name(CUresult result)
{
    const char *name = NULL;
    static char number[32];
    if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL) {
        return name;
    }
    snprintf(number, sizeof number, "result %d", result);
    return number;
}

CUresult driver_see(const char *what, CUresult got)
{
    conform_say("%s -> %s", what, result_name(got));
    return got;
}

void driver_is(const char *what, CUresult got, CUresult wanted)
{
    driver_see(what, got);
    if (got != wanted) {
        conform_wrong("%s was expected", result_name(wanted));
    }
}

void driver_need(const char *what, CUresult got)
{
    if (got != CUDA_SUCCESS) {
        conform_wrong("%s -> %s, and the rest of the case is left out", what, result_name(got));
        conform_stop();
    }
}

CUresult driver_late(CUresult now)
{
    CUresult late = cuCtxSynchronize();
    return now != CUDA_SUCCESS ? now : late;
}

CUfunction function(const char *name)
{
    CUfunction found = NULL;
    CUresult result = cuModuleGetFunction(&found, mod, name);
    if (result != CUDA_SUCCESS) {
        conform_wrong("there is no kernel %s: %s", name, result_name(result));
        conform_stop();
    }
    return found;
}

CUdeviceptr words(int count)
{
    CUdeviceptr at = 0;
    OK(cuMemAlloc(&at, (size_t)count * sizeof(int)));
    OK(cuMemsetD32(at, 0, (size_t)count));
    OK(cuCtxSynchronize());
    return at;
}

int peek(CUdeviceptr at, int index)
{
    int value = -1;
    OK(cuMemcpyDtoHAsync(&value, at + (CUdeviceptr)index * sizeof(int), sizeof value, side));
    OK(cuStreamSynchronize(side));
    return value;
}

static CUfunction f_set, f_copy, f_inc;

CUresult launch_set(CUstream stream, CUdeviceptr to, int value)
{
    void *params[] = {&to, &value};
    return cuLaunchKernel(f_set, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

CUresult launch_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
    void *params[] = {&to, &from};
    return cuLaunchKernel(f_copy, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

CUresult launch_inc(CUstream stream, CUdeviceptr to, int value)
{
    void *params[] = {&to, &value};
    return cuLaunchKernel(f_inc, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static sem_t hold_begun, hold_over;

static void wait_at_most(sem_t *semaphore, int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    sem_timedwait(semaphore, &until);
}

static void CUDA_CB hold_here(void *unused)
{
    (void)unused;
    sem_post(&hold_begun);
    wait_at_most(&hold_over, 15);
}

void hold(CUstream stream)
{
    OK(cuLaunchHostFunc(stream, hold_here, NULL));
    wait_at_most(&hold_begun, 15);
}

void let_go(void)
{
    sem_post(&hold_over);
}

static void *let_go_later(void *arg)
{
    conform_sleep_ms(*(int *)arg);
    let_go();
    return NULL;
}

void let_go_in(int ms)
{
    static int delay;
    pthread_t thread;
    delay = ms;
    if (pthread_create(&thread, NULL, let_go_later, &delay) != 0) {
        abort();
    }
    pthread_detach(thread);
}

CUdeviceptr gate(CUstream stream)
{
    CUdeviceptr word = words(1);
    OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    return word;
}

void open_gate(CUdeviceptr word)
{
    OK(cuMemsetD32Async(word, 1, 1, side));
    OK(cuStreamSynchronize(side));
}

CUstream stream_new(unsigned flags)
{
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

CUevent event_new(unsigned flags)
{
    CUevent event = NULL;
    OK(cuEventCreate(&event, flags));
    return event;
}

struct thread_work {
    void (*run)(void *);
    void *arg;
};

static void *thread_begin(void *arg)
{
    struct thread_work *work = arg;
    if (ctx != NULL) {
        cuCtxSetCurrent(ctx);
    }
    work->run(work->arg);
    return NULL;
}

void in_thread(void (*run)(void *), void *arg)
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
    if (from < INIT && level >= INIT) {
        OK(cuInit(0));
        OK(cuDeviceGet(&dev, 0));
    }
    if (from < CONTEXT && level >= CONTEXT) {
        OK(cuDevicePrimaryCtxRetain(&ctx, dev));
        OK(cuCtxSetCurrent(ctx));
    }
    if (from < FULL && level >= FULL) {
        OK(cuModuleLoadData(&mod, driver_ptx));
        OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
        f_set = function("set");
        f_copy = function("copy");
        f_inc = function("inc");
        /* Code that loads lazily is loaded now: later it might wait for a stream that is held up.
         */
        CUdeviceptr word = words(2);
        OK(launch_set(side, word, 1));
        OK(launch_copy(side, word + 4, word));
        OK(launch_inc(side, word, 1));
        OK(cuStreamSynchronize(side));
    }
}

bool conform_tidy(int level)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUcontext current = NULL;
    CUfunction found = NULL;
    while (sem_trywait(&hold_begun) == 0 || sem_trywait(&hold_over) == 0) {
    }
    if (level >= FULL && cuModuleGetFunction(&found, mod, "set") != CUDA_SUCCESS) {
        return false;
    }
    return level < CONTEXT || (cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS &&
                               cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx &&
                               cuCtxSynchronize() == CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    return conform_main(argc, argv);
}
