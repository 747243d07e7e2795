/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's cases share: the set-up, result codes by name, kernels, and streams held up. */
#ifndef TOW_CONFORM_DRIVER_H
#define TOW_CONFORM_DRIVER_H

#include "conform.h"

#include <cuda.h>

/* What a case finds: nothing; a driver; a current primary context; also a module and streams. */
enum level { BARE, INIT, CONTEXT, FULL = LEVEL_MAX };

extern CUdevice dev;
extern CUcontext ctx;
extern CUmodule mod;
extern CUstream side; /* non-blocking, for looking at memory while other streams are held up */

#define CASE(id, sentence) CASE_AT(id, FULL, sentence)
#define CASE_ALONE(id, sentence) CASE_ALONE_AT(id, FULL, sentence)

CUresult driver_see(const char *what, CUresult got);
void driver_is(const char *what, CUresult got, CUresult wanted);
void driver_need(const char *what, CUresult got);
CUresult driver_late(CUresult now);

/* The result is the observation; or: it must be this one; or: it must succeed, and says nothing. */
#define SEE(call) driver_see(#call, (call))
#define IS(call, wanted) driver_is(#call, (call), (wanted))
#define OK(call) driver_need(#call, (call))
/* The same for calls that queue work: a remote driver may tell of a refusal only when the program
 * next waits, so this waits and takes the first error. */
#define SEE_LATE(call) driver_see(#call, driver_late(call))
#define IS_LATE(call, wanted) driver_is(#call, driver_late(call), (wanted))

const char *result_name(CUresult result);

CUfunction function(const char *name);

/* `count` ints on the device, all 0. */
CUdeviceptr words(int count);

/* What word `index` is now, read by `side`, which waits for no other stream. */
int peek(CUdeviceptr at, int index);

/* Kernels of one thread: *to = value; *to = *from; *to += value. */
CUresult launch_set(CUstream stream, CUdeviceptr to, int value);
CUresult launch_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from);
CUresult launch_inc(CUstream stream, CUdeviceptr to, int value);

/* Nothing after hold() in this stream runs before let_go(). One at a time: the stream waits in a
 * host function. let_go_in() does it later, from another thread. */
void hold(CUstream stream);
void let_go(void);
void let_go_in(int ms);

/* The same with a word that the stream waits for. Making one waits for the device: no second one
 * before the first is open. */
CUdeviceptr gate(CUstream stream);
void open_gate(CUdeviceptr gate);

CUstream stream_new(unsigned flags);
CUevent event_new(unsigned flags);

/* Runs it in a thread of its own, to its end, with the primary context current there. */
void in_thread(void (*run)(void *), void *arg);

extern const char driver_ptx[];
extern const char condition_ptx[]; /* apart: it needs a function that the driver provides */

#endif
