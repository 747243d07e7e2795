/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, finds and ends what is kept for each thread. */
#include "client/session/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "wire/limits.h"

__thread struct towc_thread *towc_thread_here __attribute__((tls_model("initial-exec")));

/* Process-wide: threads are the process's. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key;

/* Process-wide: threads are the process's, and have one number on all servers. */
static struct {
    struct tow_mutex lock;                      /* guards all here */
    uint64_t taken[(TOW_THREADS_MAX + 1) / 64]; /* bit i: number i is in use */
    unsigned lowest;                            /* no free number below */
    uint64_t uniques;
} numbers = {.lock = TOW_MUTEX(CLIENT_THREADS), .lowest = 1};

/* Process-wide: the same. */
static _Atomic(towc_thread_end *) at_end;

void towc_thread_at_end(towc_thread_end *hook)
{
    atomic_store(&at_end, hook);
}

static unsigned take_number(uint64_t *ret_unique)
{
    unsigned found = 0;
    tow_mutex_lock(&numbers.lock);
    for (unsigned number = numbers.lowest; number < TOW_THREADS_MAX; number++) {
        if ((numbers.taken[number / 64] >> number % 64 & 1) == 0) {
            numbers.taken[number / 64] |= UINT64_C(1) << number % 64;
            numbers.lowest = number + 1;
            found = number;
            break;
        }
    }
    *ret_unique = ++numbers.uniques;
    tow_mutex_unlock(&numbers.lock);
    return found;
}

static void give_number(unsigned number)
{
    tow_mutex_lock(&numbers.lock);
    numbers.taken[number / 64] &= ~(UINT64_C(1) << number % 64);
    if (number < numbers.lowest) {
        numbers.lowest = number;
    }
    tow_mutex_unlock(&numbers.lock);
}

/* Runs on the thread that ends. Destructors of other libraries may still make calls after it: those
 * get a fresh state, and this hook again. */
static void thread_ends(void *value)
{
    struct towc_thread *self = value;
    towc_thread_here = self;
    towc_thread_end *hook = atomic_load(&at_end);
    if (self->sent > 0 && hook != NULL) {
        hook(self->number);
    }
    towc_thread_here = NULL;
    give_number(self->number);
    free(self);
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}

struct towc_thread *towc_thread_make(void)
{
    pthread_once(&once, make_key);
    struct towc_thread *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return NULL;
    }
    unsigned number = take_number(&self->unique);
    if (number == 0) {
        free(self);
        return NULL;
    }
    self->number = (uint16_t)number;
    self->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (have_key) {
        pthread_setspecific(key, self);
    }
    towc_thread_here = self;
    return self;
}
