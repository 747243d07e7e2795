/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads that take no signals of the program, and wraps futexes. */
#include "base/thread.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int tow_thread_id(void)
{
    return (int)syscall(SYS_gettid);
}

int tow_thread_start(const char *name, void *(*run)(void *arg), void *arg, pthread_t *ret_thread)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&all, faults[i]); /* blocked, one would end the process unseen by its handlers */
    }
    /* A new thread inherits the mask, so it is blocked from its first instruction on. */
    int error = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (error != 0) {
        return -error;
    }
    pthread_t thread;
    error = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return -error;
    }
    char cut[16];
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(thread, cut);
    *ret_thread = thread;
    return 0;
}

int tow_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0) {
        return -error;
    }
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return -error;
}

int tow_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns, bool shared)
{
    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock. */
    int operation = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    struct timespec until = tow_time_spec(deadline_ns);
    long result =
        syscall(SYS_futex, word, operation, expected,
                deadline_ns == TOW_TIME_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    if (result == 0 || errno == EAGAIN) {
        return 0;
    }
    return -errno;
}

int tow_futex_wake(_Atomic uint32_t *word, int count, bool shared)
{
    int operation = FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    long woken = syscall(SYS_futex, word, operation, count, NULL, NULL, 0);
    return woken < 0 ? -errno : (int)woken;
}

static unsigned count_affinity(void)
{
    /* Machines with more than 1024 processors need a larger mask than cpu_set_t. */
    for (int cpus = 1024; cpus <= 65536; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL) {
            break;
        }
        size_t size = CPU_ALLOC_SIZE(cpus);
        int error = sched_getaffinity(0, size, set);
        int found = error == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (found > 0) {
            return (unsigned)found;
        }
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Rounded up: a quota of 1.5 processors counts as 2. 0 when there is none. */
static unsigned count_quota(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file == NULL) {
        return 0;
    }
    long quota = 0, period = 0;
    int fields = fscanf(file, "%ld %ld", &quota, &period);
    fclose(file);
    if (fields != 2 || quota <= 0 || period <= 0) {
        return 0;
    }
    return (unsigned)((quota + period - 1) / period);
}

unsigned tow_cpu_count(void)
{
    static _Atomic unsigned known;
    unsigned count = atomic_load_explicit(&known, memory_order_relaxed);
    if (count == 0) {
        count = count_affinity();
        unsigned quota = count_quota();
        if (quota > 0 && quota < count) {
            count = quota;
        }
        atomic_store_explicit(&known, count, memory_order_relaxed);
    }
    return count;
}
