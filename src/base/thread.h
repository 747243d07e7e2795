/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that are guests in someone else's process, and the futex calls our rings sleep with. */
#ifndef TOW_BASE_THREAD_H
#define TOW_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts a thread with every signal blocked, so that the program's handlers never run on it. `name`
 * is cut to 15 characters. Returns -EAGAIN or another negative error when there is none to be had.
 */
int tow_thread_start(const char *name, void *(*run)(void *arg), void *arg, pthread_t *ret_thread);

/* The kernel's number of the calling thread (asked each time: keep it if it is needed often). */
int tow_thread_id(void);

/* A condition whose waits end by the monotonic clock, whatever happens to the other one.
 * tow_mutex_wait_until waits for it. */
int tow_cond_init(pthread_cond_t *cond);

/* Sleeps while *word == expected, until `deadline_ns` (TOW_TIME_FOREVER: no limit). Returns 0 when
 * woken or when the word differs, -ETIMEDOUT, or -EINTR. Wakes without a reason are possible:
 * look again. `shared`: the word is in memory that several processes map. */
int tow_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns, bool shared);

/* Wakes at most `count` sleepers; returns how many. */
int tow_futex_wake(_Atomic uint32_t *word, int count, bool shared);

/* Tells the core that this is a spin loop. */
static inline void tow_thread_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* isb waits a few dozen cycles; yield is a no-op on most cores. */
    __asm__ volatile("isb" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* How many processors this process may use: its affinity mask, and a cgroup's quota where one is
 * set. At least 1. Found once. */
unsigned tow_cpu_count(void);

#endif
