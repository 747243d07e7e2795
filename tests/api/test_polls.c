/* SPDX-License-Identifier: Apache-2.0 */
/* Events and streams that a program asks for again and again while they are not done: what they say
 * is never early, and not later than what the program knows from elsewhere. */
#include "api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { COUNT = 1024, ROUNDS = 60, PATIENCE_S = 20 };

/* A stream that stands until its gate is opened so often. */
struct gate {
    CUdeviceptr word;
    CUstream held, free; /* who stands, who opens */
    unsigned passes;
};

static void make_gate(struct gate *gate)
{
    gate->passes = 0;
    OK(cuMemAlloc(&gate->word, 4096));
    OK(cuMemsetD32(gate->word, 0, 1024));
    OK(cuStreamCreate(&gate->held, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&gate->free, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
}

static void end_gate(struct gate *gate)
{
    OK(cuStreamDestroy(gate->held));
    OK(cuStreamDestroy(gate->free));
    OK(cuMemFree(gate->word));
}

static void hold(struct gate *gate)
{
    OK(cuStreamWaitValue32(gate->held, gate->word, ++gate->passes, CU_STREAM_WAIT_VALUE_GEQ));
}

static void let_go(struct gate *gate)
{
    OK(cuStreamWriteValue32(gate->free, gate->word, gate->passes, 0));
}

static long seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static CUresult poll_event(CUevent event)
{
    CUresult result = cuEventQuery(event);
    for (long end = seconds() + PATIENCE_S; result == CUDA_ERROR_NOT_READY && seconds() < end;) {
        result = cuEventQuery(event);
    }
    return result;
}

static CUresult poll_stream(CUstream stream)
{
    CUresult result = cuStreamQuery(stream);
    for (long end = seconds() + PATIENCE_S; result == CUDA_ERROR_NOT_READY && seconds() < end;) {
        result = cuStreamQuery(stream);
    }
    return result;
}

static void a_stream_is_ready_when_it_is_let_go(struct api *api, CUdeviceptr data)
{
    struct gate gate;
    make_gate(&gate);
    int early = 0;
    for (int round = 0; round < ROUNDS; round++) {
        hold(&gate);
        OK(api_add(api, data, COUNT, 1, gate.held));
        for (int i = 0; i < 50; i++) {
            early += cuStreamQuery(gate.held) != CUDA_ERROR_NOT_READY;
        }
        let_go(&gate);
        OK(poll_stream(gate.held));
        OK(cuStreamQuery(gate.held)); /* and stays so */
        hold(&gate);                  /* until something is sent to it */
        early += cuStreamQuery(gate.held) != CUDA_ERROR_NOT_READY;
        let_go(&gate);
        OK(cuStreamSynchronize(gate.held));
        OK(cuStreamQuery(gate.held));
    }
    EQUAL(early, 0);
    end_gate(&gate);
}

static void the_default_stream_is_asked_for_like_others(struct api *api, CUdeviceptr data)
{
    struct gate gate;
    make_gate(&gate);
    for (int round = 0; round < ROUNDS; round++) {
        OK(cuStreamWaitValue32(NULL, gate.word, ++gate.passes, CU_STREAM_WAIT_VALUE_GEQ));
        OK(api_add(api, data, COUNT, 1, NULL));
        EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
        EQUAL(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
        OK(cuStreamQuery(gate.free)); /* which waits for nobody */
        let_go(&gate);
        OK(poll_stream(NULL));
    }
    end_gate(&gate);
}

static void note_turn(void *user)
{
    sem_post(user);
}

/* What is done before something else is done is done, however the program knows of that. */
static void what_is_known_from_elsewhere_is_known(void)
{
    struct gate gate;
    CUevent first, second;
    sem_t turn;
    int late = 0;
    sem_init(&turn, 0, 0);
    make_gate(&gate);
    OK(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < 4 * ROUNDS; round++) {
        hold(&gate);
        OK(cuEventRecord(first, gate.held));
        OK(cuEventRecord(second, gate.held));
        if (round % 4 == 3) {
            OK(cuLaunchHostFunc(gate.held, note_turn, &turn));
        }
        /* In both orders: which one the server is told to watch first makes no difference. */
        EQUAL(cuEventQuery(round % 8 < 4 ? first : second), CUDA_ERROR_NOT_READY);
        EQUAL(cuEventQuery(round % 8 < 4 ? second : first), CUDA_ERROR_NOT_READY);
        EQUAL(cuStreamQuery(gate.held), CUDA_ERROR_NOT_READY);
        let_go(&gate);
        if (round % 4 == 0) {
            OK(cuEventSynchronize(second));
        } else if (round % 4 == 1) {
            OK(poll_event(second));
        } else if (round % 4 == 2) {
            OK(cuStreamSynchronize(gate.held));
            late += cuStreamQuery(gate.held) != CUDA_SUCCESS;
        } else {
            sem_wait(&turn);
        }
        late += cuEventQuery(first) != CUDA_SUCCESS;
        OK(poll_event(second));
        OK(poll_stream(gate.held));
    }
    EQUAL(late, 0);
    OK(cuEventDestroy(first));
    OK(cuEventDestroy(second));
    end_gate(&gate);
    sem_destroy(&turn);
}

/* Asking for a stream that captures ends the capture: nobody does so for the program. */
static void a_stream_that_was_asked_for_can_capture(struct api *api, CUdeviceptr data)
{
    struct gate gate;
    CUevent event;
    make_gate(&gate);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < 10; round++) {
        CUgraph graph = NULL;
        size_t nodes = 0;
        hold(&gate);
        OK(cuEventRecord(event, gate.held));
        EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        EQUAL(cuStreamQuery(gate.held), CUDA_ERROR_NOT_READY);
        EQUAL(cuStreamQuery(NULL), CUDA_SUCCESS);
        OK(cuStreamBeginCapture(gate.held, CU_STREAM_CAPTURE_MODE_RELAXED));
        usleep(3000);
        OK(api_add(api, data, COUNT, 1, gate.held));
        OK(cuEventRecord(event, gate.held));
        usleep(3000);
        OK(cuStreamEndCapture(gate.held, &graph));
        OK(cuGraphGetNodes(graph, NULL, &nodes));
        EQUAL(nodes, 1);
        OK(cuGraphDestroy(graph));
        EQUAL(cuStreamQuery(gate.held), CUDA_ERROR_NOT_READY);
        let_go(&gate);
        OK(poll_stream(gate.held));
        OK(cuEventRecord(event, gate.held));
        OK(poll_event(event));
    }
    OK(cuEventDestroy(event));
    end_gate(&gate);
}

/* What was asked for may end before it is done. */
static void what_was_asked_for_can_be_destroyed(void)
{
    struct gate gate;
    make_gate(&gate);
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        CUevent event;
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        OK(cuStreamWaitValue32(stream, gate.word, ++gate.passes, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuEventRecord(event, stream));
        EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        OK(cuEventDestroy(event));
        OK(cuStreamDestroy(stream));
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        OK(cuEventQuery(event)); /* a new one, that was never recorded */
        OK(cuEventDestroy(event));
        let_go(&gate);
    }
    OK(cuCtxSynchronize());
    end_gate(&gate);
}

struct lane {
    CUcontext context;
    CUevent event;
    struct gate gate;
    atomic_int recorded, opened; /* rounds */
    atomic_int early, wrong;     /* answers */
};

static void *record_and_poll(void *user)
{
    struct lane *lane = user;
    OK(cuCtxSetCurrent(lane->context));
    for (int round = 1; round <= 2 * ROUNDS; round++) {
        hold(&lane->gate);
        lane->wrong += cuEventRecord(lane->event, lane->gate.held) != CUDA_SUCCESS;
        atomic_store(&lane->recorded, round);
        for (int i = 0; i < 20; i++) {
            lane->early += cuEventQuery(lane->event) != CUDA_ERROR_NOT_READY;
        }
        atomic_store(&lane->opened, round);
        let_go(&lane->gate);
        lane->wrong += poll_event(lane->event) != CUDA_SUCCESS;
    }
    return NULL;
}

static void *look_on(void *user)
{
    struct lane *lane = user;
    OK(cuCtxSetCurrent(lane->context));
    while (atomic_load(&lane->opened) < 2 * ROUNDS) {
        int recorded = atomic_load(&lane->recorded);
        CUresult result = cuEventQuery(lane->event);
        /* Recorded before it was asked for, and not let go after that. */
        if (atomic_load(&lane->opened) < recorded) {
            lane->early += result != CUDA_ERROR_NOT_READY;
        }
        lane->wrong += result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    }
    return NULL;
}

/* A record is not taken for done because the one before it is. */
static void threads_poll_what_others_record(struct api *api)
{
    enum { LANES = 3 };
    static struct lane lanes[LANES];
    pthread_t recorders[LANES], lookers[LANES];
    for (int i = 0; i < LANES; i++) {
        lanes[i].context = api->context;
        OK(cuEventCreate(&lanes[i].event, CU_EVENT_DISABLE_TIMING));
        make_gate(&lanes[i].gate);
    }
    for (int i = 0; i < LANES; i++) {
        TRUE(pthread_create(&recorders[i], NULL, record_and_poll, &lanes[i]) == 0);
        TRUE(pthread_create(&lookers[i], NULL, look_on, &lanes[i]) == 0);
    }
    for (int i = 0; i < LANES; i++) {
        pthread_join(recorders[i], NULL);
        pthread_join(lookers[i], NULL);
    }
    for (int i = 0; i < LANES; i++) { /* freeing memory waits for all streams */
        EQUAL(atomic_load(&lanes[i].early), 0);
        EQUAL(atomic_load(&lanes[i].wrong), 0);
        OK(cuEventDestroy(lanes[i].event));
        end_gate(&lanes[i].gate);
    }
}

/* The last one: it breaks the context, while the program polls. */
static void a_fault_ends_a_poll(struct api *api)
{
    struct gate gate;
    make_gate(&gate);
    hold(&gate);
    OK(api_add(api, 64, COUNT, 1, gate.held)); /* nothing lies there */
    EQUAL(cuStreamQuery(gate.held), CUDA_ERROR_NOT_READY);
    EQUAL(cuStreamQuery(gate.held), CUDA_ERROR_NOT_READY);
    let_go(&gate);
    EQUAL(poll_stream(gate.held), CUDA_ERROR_ILLEGAL_ADDRESS);
    EQUAL(cuStreamQuery(gate.held), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
    struct api api;
    CUdeviceptr data;
    api_begin(&api);
    OK(cuMemAlloc(&data, COUNT * sizeof(int)));
    a_stream_is_ready_when_it_is_let_go(&api, data);
    the_default_stream_is_asked_for_like_others(&api, data);
    what_is_known_from_elsewhere_is_known();
    a_stream_that_was_asked_for_can_capture(&api, data);
    what_was_asked_for_can_be_destroyed();
    threads_poll_what_others_record(&api);
    a_fault_ends_a_poll(&api);
    printf("%s\n", api_failures == 0 ? "OK" : "FAILED");
    return api_failures != 0;
}
