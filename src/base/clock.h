/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds; a deadline is a moment on that clock. (Not called time.h: a build
 * with -Isrc/base would find it in place of the C library's.) */
#ifndef TOW_BASE_CLOCK_H
#define TOW_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define TOW_TIME_FOREVER INT64_MAX
#define TOW_TIME_US INT64_C(1000)
#define TOW_TIME_MS INT64_C(1000000)
#define TOW_TIME_S INT64_C(1000000000)

static inline int64_t tow_time_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * TOW_TIME_S + now.tv_nsec;
}

/* Nanoseconds since 1970, for people to read: somebody may set this clock. */
static inline int64_t tow_time_real_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * TOW_TIME_S + now.tv_nsec;
}

/* Nanoseconds of another clock: of the processor time of a thread, say. 0: it has ended. */
static inline uint64_t tow_time_of(clockid_t clock)
{
    struct timespec now = {0};
    return clock_gettime(clock, &now) != 0
               ? 0
               : (uint64_t)now.tv_sec * (uint64_t)TOW_TIME_S + (uint64_t)now.tv_nsec;
}

/* The moment `timeout_ns` from now; a negative timeout means never. */
static inline int64_t tow_time_deadline(int64_t timeout_ns)
{
    if (timeout_ns < 0 || timeout_ns == TOW_TIME_FOREVER) {
        return TOW_TIME_FOREVER;
    }
    int64_t deadline;
    if (__builtin_add_overflow(tow_time_now_ns(), timeout_ns, &deadline)) {
        return TOW_TIME_FOREVER;
    }
    return deadline;
}

/* Nanoseconds left, never below 0; TOW_TIME_FOREVER for a deadline of forever. */
static inline int64_t tow_time_left(int64_t deadline_ns)
{
    if (deadline_ns == TOW_TIME_FOREVER) {
        return TOW_TIME_FOREVER;
    }
    int64_t left = deadline_ns - tow_time_now_ns();
    return left > 0 ? left : 0;
}

static inline bool tow_time_passed(int64_t deadline_ns)
{
    return deadline_ns != TOW_TIME_FOREVER && tow_time_now_ns() >= deadline_ns;
}

static inline struct timespec tow_time_spec(int64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / TOW_TIME_S),
                             .tv_nsec = (long)(ns % TOW_TIME_S)};
}

/* Sleeps at least that long, whatever signals arrive. */
static inline void tow_time_sleep(int64_t ns)
{
    struct timespec left = tow_time_spec(ns);
    while (nanosleep(&left, &left) != 0) {
    }
}

#endif
