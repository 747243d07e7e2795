/* SPDX-License-Identifier: Apache-2.0 */
/* Events that a program looks at again and again: what they say is true at every moment. */
#include "api.h"

#include <pthread.h>

enum { COUNT = 1024 };

/* A stream that stands until api_gate is opened. */
static void hold(CUstream stream)
{
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
}

static CUresult query_for(CUevent event, int milliseconds)
{
    CUresult result = cuEventQuery(event);
    for (int i = 0; result == CUDA_ERROR_NOT_READY && i < milliseconds * 10; i++) {
        usleep(100);
        result = cuEventQuery(event);
    }
    return result;
}

static void a_held_event_is_not_ready_until_it_is_let_go(struct api *api, CUevent event,
                                                         CUdeviceptr data)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 30; round++) {
        hold(stream);
        OK(api_add(api, data, COUNT, 1, stream));
        OK(cuEventRecord(event, stream));
        EQUAL(query_for(event, 5), CUDA_ERROR_NOT_READY);
        sem_post(&api_gate);
        OK(query_for(event, 10000));
        OK(cuEventQuery(event)); /* and stays so */
        OK(cuEventSynchronize(event));
    }
    OK(cuStreamDestroy(stream));
}

/* Its old record is done, its new one is not. */
static void the_last_record_counts(CUevent event)
{
    CUstream held, free;
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 10; round++) {
        OK(cuEventRecord(event, free));
        OK(query_for(event, 10000));
        hold(held);
        OK(cuEventRecord(event, held));
        EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        OK(cuEventRecord(event, free)); /* the held one no longer matters */
        OK(query_for(event, 10000));
        sem_post(&api_gate);
        OK(cuStreamSynchronize(held));
    }
    OK(cuStreamDestroy(held));
    OK(cuStreamDestroy(free));
}

/* What was downloaded before the record has arrived when the event is done. */
static void a_download_is_there_when_its_event_is(struct api *api, CUevent event, CUdeviceptr data)
{
    enum { ROUNDS = 50 };
    CUstream stream;
    int *locked, *plain = malloc(COUNT * sizeof *plain), wrong = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost((void **)&locked, COUNT * sizeof *locked));
    OK(cuMemsetD32(data, 0, COUNT));
    for (int round = 1; round <= ROUNDS; round++) {
        OK(api_add(api, data, COUNT, 1, stream));
        OK(cuMemcpyDtoHAsync(locked, data, COUNT * sizeof *locked, stream));
        OK(cuMemcpyDtoHAsync(plain, data, COUNT * sizeof *plain, stream));
        OK(cuEventRecord(event, stream));
        if (round % 2 != 0) {
            OK(query_for(event, 10000));
        } else {
            OK(cuEventSynchronize(event));
        }
        wrong += locked[0] != round || locked[COUNT - 1] != round || plain[COUNT - 1] != round;
    }
    EQUAL(wrong, 0);
    OK(cuMemFreeHost(locked));
    free(plain);
    OK(cuStreamDestroy(stream));
}

struct lane {
    CUcontext context;
    CUevent event;
    int wrong;
};

static void *record_and_look(void *user)
{
    struct lane *lane = user;
    CUstream stream;
    OK(cuCtxSetCurrent(lane->context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 200; i++) {
        lane->wrong += cuEventRecord(lane->event, stream) != CUDA_SUCCESS;
        CUresult result = cuEventQuery(lane->event);
        lane->wrong += result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    }
    OK(cuStreamDestroy(stream));
    return NULL;
}

/* Several threads record one event: it is done when they are. */
static void threads_share_an_event(struct api *api, CUevent event)
{
    enum { THREADS = 4 };
    struct lane lanes[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        lanes[i] = (struct lane){api->context, event, 0};
        TRUE(pthread_create(&threads[i], NULL, record_and_look, &lanes[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EQUAL(lanes[i].wrong, 0);
    }
    OK(cuCtxSynchronize());
    OK(cuEventQuery(event));
}

/* A record that was captured is none; the event looks as before. */
static void a_captured_record_is_none(CUevent event)
{
    CUstream stream;
    CUgraph graph;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventRecord(event, stream));
    OK(query_for(event, 10000));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuEventRecord(event, stream));
    OK(query_for(event, 10000));
    OK(cuStreamDestroy(stream));
}

static CUresult asked_in_function;

static void ask_in_function(void *user)
{
    asked_in_function = cuEventQuery(user);
}

/* A host function asks nothing, also where the answer lies at hand. */
static void a_host_function_does_not_ask(CUevent event)
{
    CUstream stream, held;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuEventRecord(event, held));
    OK(query_for(event, 10000)); /* it is looked at: its next record has a note */
    hold(held);
    OK(cuEventRecord(event, held));
    OK(cuLaunchHostFunc(stream, ask_in_function, event));
    sem_post(&api_gate); /* functions run one after another */
    OK(cuStreamSynchronize(stream));
    OK(cuStreamSynchronize(held));
    if (api_is_remote()) {
        EQUAL(asked_in_function, CUDA_ERROR_NOT_PERMITTED);
    }
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(held));
}

/* The last one: it breaks the context. Who looks at an event is told, however often it looks. */
static void a_fault_is_told(struct api *api, CUevent event)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        OK(cuEventRecord(event, stream));
        OK(query_for(event, 10000));
    }
    OK(api_add(api, 64, COUNT, 1, stream)); /* nothing lies there */
    OK(cuEventRecord(event, stream));
    EQUAL(query_for(event, 10000), CUDA_ERROR_ILLEGAL_ADDRESS);
    EQUAL(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
    struct api api;
    CUevent event;
    CUdeviceptr data;
    api_begin(&api);
    sem_init(&api_gate, 0, 0);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&data, COUNT * sizeof(int)));
    a_held_event_is_not_ready_until_it_is_let_go(&api, event, data);
    the_last_record_counts(event);
    a_download_is_there_when_its_event_is(&api, event, data);
    threads_share_an_event(&api, event);
    a_captured_record_is_none(event);
    a_host_function_does_not_ask(event);
    a_fault_is_told(&api, event);
    printf("%s\n", api_failures == 0 ? "OK" : "FAILED");
    return api_failures != 0;
}
