/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex of one word for what is held for a few instructions: while nobody else wants it, taking
 * and giving it back are one atomic operation each. Who has to wait sleeps. It is not recursive and
 * need not be destroyed. It has its place in the order of locks as the others (base/mutex.h). */
#ifndef TOW_BASE_LOCK_H
#define TOW_BASE_LOCK_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

enum { TOW_LOCK_FREE, TOW_LOCK_HELD, TOW_LOCK_WANTED /* held, and somebody may sleep */ };

struct tow_lock {
    _Atomic uint32_t word;
#ifdef TOW_LOCKS_CHECKED
    enum tow_lock_name name;
#endif
};

/* `name` is a row of base/locks.def. */
#define tow_lock_init(lock, name) tow_lock_init_as(lock, TOW_LOCK_##name)

static inline void tow_lock_init_as(struct tow_lock *lock, enum tow_lock_name name)
{
    TOW_LOCKS_NAME(lock, name);
    atomic_store_explicit(&lock->word, TOW_LOCK_FREE, memory_order_relaxed);
}

static inline bool tow_lock_grab(struct tow_lock *lock)
{
    uint32_t word = TOW_LOCK_FREE;
    return atomic_compare_exchange_strong_explicit(&lock->word, &word, TOW_LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Waits for nobody, so it may be called in any order. */
static inline bool tow_lock_try(struct tow_lock *lock)
{
    if (!tow_lock_grab(lock)) {
        return false;
    }
    TOW_LOCKS_TAKEN(lock);
    return true;
}

static inline void tow_lock_take(struct tow_lock *lock)
{
    TOW_LOCKS_CHECK(lock);
    if (__builtin_expect(!tow_lock_grab(lock), 0)) {
        while (atomic_exchange_explicit(&lock->word, TOW_LOCK_WANTED, memory_order_acquire) !=
               TOW_LOCK_FREE) {
            tow_futex_wait(&lock->word, TOW_LOCK_WANTED, TOW_TIME_FOREVER, false);
        }
    }
    TOW_LOCKS_TAKEN(lock);
}

/* The same, but only until the deadline: false if somebody else has it by then. */
static inline bool tow_lock_take_until(struct tow_lock *lock, int64_t deadline_ns)
{
    TOW_LOCKS_CHECK(lock);
    if (!tow_lock_grab(lock)) {
        while (atomic_exchange_explicit(&lock->word, TOW_LOCK_WANTED, memory_order_acquire) !=
               TOW_LOCK_FREE) {
            if (tow_futex_wait(&lock->word, TOW_LOCK_WANTED, deadline_ns, false) == -ETIMEDOUT) {
                return false; /* whoever gives it back wakes somebody in vain */
            }
        }
    }
    TOW_LOCKS_TAKEN(lock);
    return true;
}

static inline void tow_lock_give(struct tow_lock *lock)
{
    TOW_LOCKS_GIVEN(lock);
    if (__builtin_expect(atomic_exchange_explicit(&lock->word, TOW_LOCK_FREE,
                                                  memory_order_release) == TOW_LOCK_WANTED,
                         0)) {
        tow_futex_wake(&lock->word, 1, false);
    }
}

#endif
