/* SPDX-License-Identifier: Apache-2.0 */
// Two streams with events between them, elapsed time, priorities, host functions, queries, and the
// order that the default stream imposes.
#include "check.h"

#include <atomic>

__global__ void append(int *log, int value)
{
    int place = atomicAdd(&log[0], 1);
    log[1 + place] = value;
}

__global__ void busy(unsigned *out, int rounds)
{
    unsigned x = threadIdx.x;
    for (int i = 0; i < rounds; i++) {
        x = x * 1664525u + 1013904223u;
    }
    out[threadIdx.x] = x;
}

static std::atomic<int> calls;

static void CUDART_CB count_call(void *expected)
{
    // Host functions of one stream run one after another, in order.
    if (calls.load() == *static_cast<int *>(expected)) {
        calls++;
    }
}

int main()
{
    int *log, host[64];
    unsigned *scratch;
    cudaStream_t a, b;
    cudaEvent_t start, middle, stop, quiet;
    CHECK(cudaMalloc(&log, sizeof(host)));
    CHECK(cudaMalloc(&scratch, 64 * sizeof(unsigned)));
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, -1));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&middle));
    CHECK(cudaEventCreateWithFlags(&stop, cudaEventBlockingSync));
    CHECK(cudaEventCreateWithFlags(&quiet, cudaEventDisableTiming));

    unsigned flags = 99;
    int priority = 99;
    CHECK(cudaStreamGetFlags(a, &flags));
    CHECK(cudaStreamGetPriority(b, &priority));
    EXPECT(flags == cudaStreamNonBlocking && priority == -1);

    // Ping-pong: each step waits for the other stream's event.
    CHECK(cudaMemset(log, 0, sizeof(host)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventRecord(start, a));
    for (int i = 0; i < 20; i++) {
        cudaStream_t mine = i % 2 ? b : a, other = i % 2 ? a : b;
        busy<<<1, 64, 0, mine>>>(scratch, 500);
        append<<<1, 1, 0, mine>>>(log, i);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(quiet, mine)); // an event may be recorded again at once
        CHECK(cudaStreamWaitEvent(other, quiet, 0));
        if (i == 9) {
            CHECK(cudaEventRecord(middle, mine));
        }
    }
    CHECK(cudaEventRecord(stop, b));
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaEventQuery(stop));
    CHECK(cudaStreamSynchronize(a));
    CHECK(cudaStreamQuery(a));
    CHECK(cudaMemcpy(host, log, sizeof(host), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 20);
    for (int i = 0; i < 20; i++) {
        EXPECT(host[1 + i] == i);
    }
    float whole = -1, first = -1, second = -1;
    CHECK(cudaEventElapsedTime(&whole, start, stop));
    CHECK(cudaEventElapsedTime(&first, start, middle));
    CHECK(cudaEventElapsedTime(&second, middle, stop));
    EXPECT(whole > 0 && first > 0 && second > 0 && whole < 60000);
    EXPECT(first + second < whole * 1.01f + 0.01f && first + second > whole * 0.99f - 0.01f);
    EXPECT_ERROR(cudaEventElapsedTime(&whole, start, quiet), cudaErrorInvalidResourceHandle);
    cudaGetLastError();

    // A never recorded event counts as done; timing it is an error.
    cudaEvent_t fresh;
    CHECK(cudaEventCreate(&fresh));
    CHECK(cudaEventQuery(fresh));
    CHECK(cudaEventSynchronize(fresh));
    EXPECT_ERROR(cudaEventElapsedTime(&whole, start, fresh), cudaErrorInvalidResourceHandle);
    cudaGetLastError();

    // Host functions, in order with the copies around them.
    int expected[8];
    for (int i = 0; i < 8; i++) {
        expected[i] = i;
        busy<<<1, 64, 0, a>>>(scratch, 200);
        CHECK(cudaGetLastError());
        CHECK(cudaLaunchHostFunc(a, count_call, &expected[i]));
    }
    CHECK(cudaStreamSynchronize(a));
    EXPECT(calls.load() == 8);

    // Blocking streams and the legacy default stream wait for each other.
    cudaStream_t c, d;
    CHECK(cudaStreamCreate(&c));
    CHECK(cudaStreamCreate(&d));
    CHECK(cudaMemset(log, 0, sizeof(host)));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 12; i++) {
        cudaStream_t stream = i % 3 == 0 ? c : i % 3 == 1 ? cudaStreamLegacy : d;
        busy<<<1, 64, 0, stream>>>(scratch, 300);
        append<<<1, 1, 0, stream>>>(log, i);
        CHECK(cudaGetLastError());
        if (i % 3 == 2) { // d and c are not ordered between themselves
            CHECK(cudaStreamSynchronize(d));
        }
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, log, sizeof(host), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 12);
    for (int i = 0; i < 12; i++) {
        EXPECT(host[1 + i] == i);
    }
    for (cudaStream_t stream : {a, b, c, d}) {
        CHECK(cudaStreamDestroy(stream));
    }
    for (cudaEvent_t event : {start, middle, stop, quiet, fresh}) {
        CHECK(cudaEventDestroy(event));
    }
    return finish();
}
