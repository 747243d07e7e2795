/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does what others ask of it, one thing at a time, while they wait: for what a driver
 * wants done by the same thread from beginning to end. */
#ifndef TOW_SERVER_EXECUTOR_H
#define TOW_SERVER_EXECUTOR_H

#include "backend/driver.h"
#include "base/mutex.h"

#include <pthread.h>
#include <stdbool.h>

struct tows_executor {
    const struct tow_driver *driver;
    pthread_t thread;
    struct tow_mutex lock; /* guards the rest */
    pthread_cond_t changed;
    void (*run)(void *arg); /* NULL: nothing to do */
    void *arg;
    CUcontext context; /* current for whoever asks, and so for what is done */
    bool ends;
};

/* Returns -EAGAIN or another negative error when no thread is to be had. */
int tows_executor_begin(struct tows_executor *executor, const struct tow_driver *driver);
/* Calls run(arg) over there, with the caller's context current, and returns when it has returned.
 * One caller at a time. */
void tows_executor_do(struct tows_executor *executor, void (*run)(void *arg), void *arg);
/* Ends the thread. */
void tows_executor_end(struct tows_executor *executor);

#endif
