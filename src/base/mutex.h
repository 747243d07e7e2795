/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX mutexes and read-write locks that know their place in the order of locks
 * (base/locks.def). Where that is not checked they are the C library's, and nothing else. */
#ifndef TOW_BASE_MUTEX_H
#define TOW_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/locks.h"

struct tow_mutex {
    pthread_mutex_t mutex;
#ifdef TOW_LOCKS_CHECKED
    enum tow_lock_name name;
#endif
};

struct tow_rwlock {
    pthread_rwlock_t lock;
#ifdef TOW_LOCKS_CHECKED
    enum tow_lock_name name;
#endif
};

#ifdef TOW_LOCKS_CHECKED
#define TOW_LOCKS_CHECK(object) tow_locks_check((object)->name)
#define TOW_LOCKS_TAKEN(object) tow_locks_taken((object)->name)
#define TOW_LOCKS_GIVEN(object) tow_locks_given((object)->name)
#define TOW_LOCKS_NAME(object, lock_name) ((object)->name = (lock_name))
/* For locks that live as long as the process. */
#define TOW_MUTEX(name)                                                                            \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, TOW_LOCK_##name                                                 \
    }
#define TOW_RWLOCK(name)                                                                           \
    {                                                                                              \
        PTHREAD_RWLOCK_INITIALIZER, TOW_LOCK_##name                                                \
    }
#else
#define TOW_LOCKS_CHECK(object) ((void)0)
#define TOW_LOCKS_TAKEN(object) ((void)0)
#define TOW_LOCKS_GIVEN(object) ((void)0)
#define TOW_LOCKS_NAME(object, lock_name) ((void)(lock_name))
#define TOW_MUTEX(name)                                                                            \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }
#define TOW_RWLOCK(name)                                                                           \
    {                                                                                              \
        PTHREAD_RWLOCK_INITIALIZER                                                                 \
    }
#endif

/* `name` is a row of base/locks.def. */
#define tow_mutex_init(mutex, name) tow_mutex_init_as(mutex, TOW_LOCK_##name)

static inline int tow_mutex_init_as(struct tow_mutex *mutex, enum tow_lock_name name)
{
    TOW_LOCKS_NAME(mutex, name);
    return -pthread_mutex_init(&mutex->mutex, NULL);
}

static inline void tow_mutex_fini(struct tow_mutex *mutex)
{
    pthread_mutex_destroy(&mutex->mutex);
}

static inline void tow_mutex_lock(struct tow_mutex *mutex)
{
    TOW_LOCKS_CHECK(mutex);
    pthread_mutex_lock(&mutex->mutex);
    TOW_LOCKS_TAKEN(mutex);
}

/* Waits for nobody, so it may be called in any order. */
static inline bool tow_mutex_try(struct tow_mutex *mutex)
{
    if (pthread_mutex_trylock(&mutex->mutex) != 0) {
        return false;
    }
    TOW_LOCKS_TAKEN(mutex);
    return true;
}

/* False when the deadline has passed: then it is not held. The C library counts by the clock that
 * people set: a leap of that one makes the wait shorter or longer. */
static inline bool tow_mutex_lock_until(struct tow_mutex *mutex, int64_t deadline_ns)
{
    if (deadline_ns == TOW_TIME_FOREVER) {
        tow_mutex_lock(mutex);
        return true;
    }
    struct timespec until = tow_time_spec(tow_time_real_ns() + tow_time_left(deadline_ns));
    TOW_LOCKS_CHECK(mutex);
    if (pthread_mutex_timedlock(&mutex->mutex, &until) != 0) {
        return false;
    }
    TOW_LOCKS_TAKEN(mutex);
    return true;
}

static inline void tow_mutex_unlock(struct tow_mutex *mutex)
{
    TOW_LOCKS_GIVEN(mutex);
    pthread_mutex_unlock(&mutex->mutex);
}

/* Gives the mutex back while it waits for `changed`. What else is held stays so, and others wait
 * for that: the order is that of taking it anew. */
static inline void tow_mutex_wait(struct tow_mutex *mutex, pthread_cond_t *changed)
{
    TOW_LOCKS_GIVEN(mutex);
    TOW_LOCKS_CHECK(mutex);
    pthread_cond_wait(changed, &mutex->mutex);
    TOW_LOCKS_TAKEN(mutex);
}

/* The same, for a condition of tow_cond_init. 0, or -ETIMEDOUT when the deadline has passed. */
static inline int tow_mutex_wait_until(struct tow_mutex *mutex, pthread_cond_t *changed,
                                       int64_t deadline_ns)
{
    struct timespec until = tow_time_spec(deadline_ns);
    TOW_LOCKS_GIVEN(mutex);
    TOW_LOCKS_CHECK(mutex);
    int error = deadline_ns == TOW_TIME_FOREVER
                    ? pthread_cond_wait(changed, &mutex->mutex)
                    : pthread_cond_timedwait(changed, &mutex->mutex, &until);
    TOW_LOCKS_TAKEN(mutex);
    return -error;
}

static inline void tow_rwlock_read(struct tow_rwlock *lock)
{
    TOW_LOCKS_CHECK(lock);
    pthread_rwlock_rdlock(&lock->lock);
    TOW_LOCKS_TAKEN(lock);
}

static inline void tow_rwlock_write(struct tow_rwlock *lock)
{
    TOW_LOCKS_CHECK(lock);
    pthread_rwlock_wrlock(&lock->lock);
    TOW_LOCKS_TAKEN(lock);
}

static inline void tow_rwlock_unlock(struct tow_rwlock *lock)
{
    TOW_LOCKS_GIVEN(lock);
    pthread_rwlock_unlock(&lock->lock);
}

#endif
