/* SPDX-License-Identifier: Apache-2.0 */
/* The errand thread, and how others hand it work. */
#include "server/session/errand.h"

#include "base/mutex.h"
#include "base/thread.h"
#include "gen/context.h"

static void *errand_work(void *arg)
{
    struct tows_errand *errand = arg;
    tow_mutex_lock(&errand->lock);
    while (!errand->ends) {
        if (errand->run != NULL) {
            tow_mutex_unlock(&errand->lock); /* what it is to do stays until it is done */
            tow_drive(errand->driver, cuCtxSetCurrent)(errand->context);
            errand->run(errand->arg);
            tow_mutex_lock(&errand->lock);
            errand->run = NULL;
            pthread_cond_broadcast(&errand->changed);
        } else {
            tow_mutex_wait(&errand->lock, &errand->changed);
        }
    }
    tow_mutex_unlock(&errand->lock);
    return NULL;
}

int tows_errand_begin(struct tows_errand *errand, const struct tow_driver *driver)
{
    *errand = (struct tows_errand){.driver = driver};
    tow_mutex_init(&errand->lock, SERVER_ERRAND);
    pthread_cond_init(&errand->changed, NULL);
    int error = tow_thread_start("towline-errand", errand_work, errand, &errand->thread);
    if (error != 0) {
        tow_mutex_fini(&errand->lock);
        pthread_cond_destroy(&errand->changed);
    }
    return error;
}

void tows_errand_do(struct tows_errand *errand, void (*run)(void *arg), void *arg)
{
    CUcontext context = NULL;
    tow_drive(errand->driver, cuCtxGetCurrent)(&context);
    tow_mutex_lock(&errand->lock);
    errand->context = context;
    errand->run = run;
    errand->arg = arg;
    pthread_cond_broadcast(&errand->changed);
    while (errand->run != NULL) {
        tow_mutex_wait(&errand->lock, &errand->changed);
    }
    tow_mutex_unlock(&errand->lock);
}

void tows_errand_end(struct tows_errand *errand)
{
    tow_mutex_lock(&errand->lock);
    errand->ends = true;
    pthread_cond_broadcast(&errand->changed);
    tow_mutex_unlock(&errand->lock);
    pthread_join(errand->thread, NULL);
    tow_mutex_fini(&errand->lock);
    pthread_cond_destroy(&errand->changed);
}
