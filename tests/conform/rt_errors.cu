/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's errors: what is remembered, what is forgotten, what stays. */
#include "runtime.h"

__global__ void rt_trap(void)
{
    asm volatile("trap;");
}

__global__ void rt_nothing(void)
{
}

CASE(rt_get_last_error_clears, "cudaGetLastError gives the last error once")
{
    void *p = NULL;
    IS(cudaMalloc(&p, (size_t)1 << 60), cudaErrorMemoryAllocation);
    IS(cudaGetLastError(), cudaErrorMemoryAllocation);
    IS(cudaGetLastError(), cudaSuccess);
}

CASE(rt_peek_last_error_keeps, "cudaPeekAtLastError leaves the error in place")
{
    IS(cudaSetDevice(99), cudaErrorInvalidDevice);
    IS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    IS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    IS(cudaGetLastError(), cudaErrorInvalidDevice);
    IS(cudaPeekAtLastError(), cudaSuccess);
}

CASE(rt_success_keeps_last_error, "a call that succeeds does not clear the last error")
{
    IS(cudaSetDevice(99), cudaErrorInvalidDevice);
    int *w = rt_words(1);
    IS(cudaFree(w), cudaSuccess);
    IS(cudaGetLastError(), cudaErrorInvalidDevice);
}

CASE(rt_last_of_two_errors, "of two errors the later one is remembered")
{
    void *p = NULL;
    IS(cudaSetDevice(99), cudaErrorInvalidDevice);
    IS(cudaMalloc(&p, (size_t)1 << 60), cudaErrorMemoryAllocation);
    IS(cudaGetLastError(), cudaErrorMemoryAllocation);
    IS(cudaGetLastError(), cudaSuccess);
}

static void look_elsewhere(void *)
{
    IS(cudaGetLastError(), cudaSuccess);
}

CASE(rt_last_error_is_the_threads_own, "another thread does not see this thread's error")
{
    IS(cudaSetDevice(99), cudaErrorInvalidDevice);
    rt_in_thread(look_elsewhere, NULL);
    IS(cudaGetLastError(), cudaErrorInvalidDevice);
}

CASE(rt_not_ready_as_last_error, "whether a query's cudaErrorNotReady is remembered")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    rt_hold(s);
    IS(cudaStreamQuery(s), cudaErrorNotReady);
    SEE(cudaGetLastError());
    rt_let_go();
    OK(cudaStreamSynchronize(s));
}

CASE(rt_launch_configuration_error, "a launch with too many threads is an error that does not stay")
{
    int *w = rt_words(1);
    rt_set<<<1, 1025>>>(w, 5);
    IS(cudaPeekAtLastError(), cudaErrorInvalidValue);
    IS(cudaGetLastError(), cudaErrorInvalidValue);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 0);
    rt_set<<<1, 1>>>(w, 6);
    IS(cudaGetLastError(), cudaSuccess);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 6);
}

CASE(rt_launch_zero_grid, "a launch of no blocks or no threads is refused")
{
    rt_nothing<<<0, 1>>>();
    IS(cudaGetLastError(), cudaErrorInvalidValue);
    rt_nothing<<<1, 0>>>();
    IS(cudaGetLastError(), cudaErrorInvalidValue);
}

CASE(rt_launch_shared_too_large, "a launch with more dynamic shared memory than allowed is refused")
{
    rt_nothing<<<1, 1, 1 << 20>>>();
    IS(cudaGetLastError(), cudaErrorInvalidValue);
    IS(cudaDeviceSynchronize(), cudaSuccess);
}

CASE(rt_sticky_error_stays, "a kernel that traps ruins the context: every later call says so")
{
    int *w = rt_words(1);
    rt_trap<<<1, 1>>>();
    IS(cudaGetLastError(), cudaSuccess);
    IS(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    IS(cudaGetLastError(), cudaErrorLaunchFailure);
    SEE(cudaGetLastError());
    SEE(cudaPeekAtLastError());
    void *p = NULL;
    IS(cudaMalloc(&p, 4), cudaErrorLaunchFailure);
    IS(cudaMemset(w, 0, 4), cudaErrorLaunchFailure);
    rt_set<<<1, 1>>>(w, 1);
    IS(cudaGetLastError(), cudaErrorLaunchFailure);
    IS(cudaStreamQuery(0), cudaErrorLaunchFailure);
}

CASE_ALONE(rt_reset_after_sticky_error, "cudaDeviceReset makes the device usable again")
{
    rt_trap<<<1, 1>>>();
    IS(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    SEE(cudaDeviceReset());
    SEE(cudaGetLastError());
    int *w = NULL;
    SEE(cudaMalloc((void **)&w, 4));
    SEE(cudaMemset(w, 0, 4));
    SEE(cudaDeviceSynchronize());
}

CASE(rt_illegal_address,
     "a kernel that writes nowhere ruins the context with cudaErrorIllegalAddress")
{
    rt_set<<<1, 1>>>((int *)0x10, 1);
    IS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    IS(cudaGetLastError(), cudaErrorIllegalAddress);
    IS(cudaFree(NULL), cudaErrorIllegalAddress);
}

CASE(rt_sticky_error_in_other_thread, "a ruined context is ruined for every thread")
{
    rt_trap<<<1, 1>>>();
    IS(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    rt_in_thread([](void *) { IS(cudaDeviceSynchronize(), cudaErrorLaunchFailure); }, NULL);
}

CASE(rt_invalid_copy_direction, "an unknown kind of copy is refused")
{
    int *w = rt_words(1), h = 3;
    IS(cudaMemcpy(w, &h, 4, (cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    IS(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
}

CASE(rt_error_names, "names of errors are those of the toolkit")
{
    const int codes[] = {0,   1,   2,   3,   9,   11,  13,  21,  35,  46,  98,   100, 101,
                         201, 209, 218, 400, 500, 600, 700, 701, 702, 710, 716,  717, 718,
                         719, 720, 800, 801, 900, 901, 906, 907, 908, 999, 12345};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        conform_say("%d %s", codes[i], cudaGetErrorName((cudaError_t)codes[i]));
    }
}
