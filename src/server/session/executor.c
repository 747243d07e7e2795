/* SPDX-License-Identifier: Apache-2.0 */
/* The executor thread, and how others hand it work. */
#include "server/session/executor.h"

#include "base/mutex.h"
#include "base/thread.h"
#include "gen/context.h"

static void *executor_work(void *arg)
{
    struct tows_executor *executor = arg;
    tow_mutex_lock(&executor->lock);
    while (!executor->ends) {
        if (executor->run != NULL) {
            tow_mutex_unlock(&executor->lock); /* what it is to do stays until it is done */
            tow_drive(executor->driver, cuCtxSetCurrent)(executor->context);
            executor->run(executor->arg);
            tow_mutex_lock(&executor->lock);
            executor->run = NULL;
            pthread_cond_broadcast(&executor->changed);
        } else {
            tow_mutex_wait(&executor->lock, &executor->changed);
        }
    }
    tow_mutex_unlock(&executor->lock);
    return NULL;
}

int tows_executor_begin(struct tows_executor *executor, const struct tow_driver *driver)
{
    *executor = (struct tows_executor){.driver = driver};
    tow_mutex_init(&executor->lock, SERVER_EXECUTOR);
    pthread_cond_init(&executor->changed, NULL);
    int error = tow_thread_start("towline-errand", executor_work, executor, &executor->thread);
    if (error != 0) {
        tow_mutex_fini(&executor->lock);
        pthread_cond_destroy(&executor->changed);
    }
    return error;
}

void tows_executor_do(struct tows_executor *executor, void (*run)(void *arg), void *arg)
{
    CUcontext context = NULL;
    tow_drive(executor->driver, cuCtxGetCurrent)(&context);
    tow_mutex_lock(&executor->lock);
    executor->context = context;
    executor->run = run;
    executor->arg = arg;
    pthread_cond_broadcast(&executor->changed);
    while (executor->run != NULL) {
        tow_mutex_wait(&executor->lock, &executor->changed);
    }
    tow_mutex_unlock(&executor->lock);
}

void tows_executor_end(struct tows_executor *executor)
{
    tow_mutex_lock(&executor->lock);
    executor->ends = true;
    pthread_cond_broadcast(&executor->changed);
    tow_mutex_unlock(&executor->lock);
    pthread_join(executor->thread, NULL);
    tow_mutex_fini(&executor->lock);
    pthread_cond_destroy(&executor->changed);
}
