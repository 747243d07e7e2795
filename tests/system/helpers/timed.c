/* SPDX-License-Identifier: Apache-2.0 */
/* timed N: twice six threads that each ask N times for flags, and after each hundredth
 * time fill some memory. For timelines: no call of any thread is lost, whoever writes it down. */

#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 6, ROUNDS = 2 };

static CUcontext context;
static int calls;

static void *work(void *unused)
{
    CUdeviceptr at;
    unsigned flags;
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&at, 64));
    for (int i = 0; i < calls; i++) {
        CHECK(cuCtxGetFlags(&flags));
        if (i % 100 == 0) {
            CHECK(cuMemsetD8Async(at, 1, 64, NULL));
        }
    }
    CHECK(cuCtxSynchronize());
    return NULL;
}

int main(int argc, char **argv)
{
    calls = argc > 1 ? atoi(argv[1]) : 100;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            if (pthread_create(&threads[i], NULL, work, NULL) != 0) {
                return 1;
            }
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    puts("OK");
    return 0;
}
