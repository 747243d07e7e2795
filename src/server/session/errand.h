/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does what others ask of it, one thing at a time, while they wait: for what a driver
 * wants done by the same thread from beginning to end. */
#ifndef TOW_SERVER_ERRAND_H
#define TOW_SERVER_ERRAND_H

#include "backend/driver.h"
#include "base/mutex.h"

#include <pthread.h>
#include <stdbool.h>

struct tows_errand {
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
int tows_errand_begin(struct tows_errand *errand, const struct tow_driver *driver);
/* Calls run(arg) over there, with the caller's context current, and returns when it has returned.
 * One caller at a time. */
void tows_errand_do(struct tows_errand *errand, void (*run)(void *arg), void *arg);
/* Ends the thread. */
void tows_errand_end(struct tows_errand *errand);

#endif
