/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex of one word for what is held for a few instructions: while nobody else wants it, taking
 * and giving it back are one atomic operation each. Who has to wait sleeps. It is not recursive and
 * need not be destroyed; all zeros are a free one. */
#ifndef TOW_BASE_LOCK_H
#define TOW_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/thread.h"

enum { TOW_LOCK_FREE, TOW_LOCK_HELD, TOW_LOCK_WANTED /* held, and somebody may sleep */ };

struct tow_lock {
    _Atomic uint32_t word;
};

static inline bool tow_lock_try(struct tow_lock *lock)
{
    uint32_t word = TOW_LOCK_FREE;
    return atomic_compare_exchange_strong_explicit(&lock->word, &word, TOW_LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void tow_lock_take(struct tow_lock *lock)
{
    if (__builtin_expect(!tow_lock_try(lock), 0)) {
        while (atomic_exchange_explicit(&lock->word, TOW_LOCK_WANTED, memory_order_acquire) !=
               TOW_LOCK_FREE) {
            tow_futex_wait(&lock->word, TOW_LOCK_WANTED, TOW_TIME_FOREVER, false);
        }
    }
}

static inline void tow_lock_give(struct tow_lock *lock)
{
    if (__builtin_expect(atomic_exchange_explicit(&lock->word, TOW_LOCK_FREE,
                                                  memory_order_release) == TOW_LOCK_WANTED,
                         0)) {
        tow_futex_wake(&lock->word, 1, false);
    }
}

#endif
