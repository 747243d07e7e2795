/* SPDX-License-Identifier: Apache-2.0 */
/* What the runtime's cases share: result codes by name, kernels, and streams held up. */
#ifndef TOW_CONFORM_RUNTIME_H
#define TOW_CONFORM_RUNTIME_H

#include "conform.h"

#include <cuda_runtime.h>

/* FULL: the context is there, and `rt_side` to look at memory while other streams are held up. */
enum level { BARE, FULL = LEVEL_MAX };

#define CASE(id, sentence) CASE_AT(id, FULL, sentence)
#define CASE_ALONE(id, sentence) CASE_ALONE_AT(id, FULL, sentence)

extern cudaStream_t rt_side;

cudaError_t runtime_see(const char *what, cudaError_t got);
void runtime_is(const char *what, cudaError_t got, cudaError_t wanted);
void runtime_need(const char *what, cudaError_t got);

/* The result is the observation; or: it must be this one; or: it must succeed, and says nothing. */
#define SEE(call) runtime_see(#call, (call))
#define IS(call, wanted) runtime_is(#call, (call), (wanted))
#define OK(call) runtime_need(#call, (call))

/* Kernels of one thread: *to = value; *to = *from; *to += value. */
__global__ void rt_set(int *to, int value);
__global__ void rt_copy(int *to, const int *from);
__global__ void rt_inc(int *to, int value);

/* `count` ints on the device, all 0; what one of them is now. */
int *rt_words(int count);
int rt_peek(const int *at, int index);

/* Nothing after rt_hold() in this stream runs before rt_let_go(). One at a time. */
void rt_hold(cudaStream_t stream);
void rt_let_go(void);
void rt_let_go_in(int ms);

cudaStream_t rt_stream(unsigned flags);
cudaEvent_t rt_event(unsigned flags);

/* Runs it in a thread of its own, to its end. */
void rt_in_thread(void (*run)(void *), void *arg);

#endif
