/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and futexes: signals, deadlines, wake-ups. */
#include "cmocka_all.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void *look_around(void *arg)
{
    sigset_t *mask = arg;
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return (void *)(intptr_t)tow_thread_id();
}

static void signals_are_blocked_there_and_not_here(void **state)
{
    sigset_t before, after, there;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    pthread_t thread;
    assert_int_equal(tow_thread_start("a-name-that-is-too-long", look_around, &there, &thread), 0);
    void *id;
    pthread_join(thread, &id);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_true((intptr_t)id != tow_thread_id());
    for (int signal = 1; signal < 32; signal++) {
        bool fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE ||
                     signal == SIGILL || signal == SIGTRAP || signal == SIGSYS;
        if (signal != SIGKILL && signal != SIGSTOP) {
            assert_int_equal(sigismember(&there, signal), !fault);
        }
        assert_int_equal(sigismember(&before, signal), sigismember(&after, signal));
    }
}

static _Atomic uint32_t word;

static void *waker(void *arg)
{
    tow_time_sleep(20 * TOW_TIME_MS);
    atomic_store(&word, 1);
    tow_futex_wake(&word, 1, arg != NULL);
    return NULL;
}

static void a_sleeper_wakes_by_word_wake_or_time(void **state)
{
    for (int shared = 0; shared < 2; shared++) {
        atomic_store(&word, 0);
        assert_int_equal(tow_futex_wait(&word, 1, TOW_TIME_FOREVER, shared), 0);
        int64_t began = tow_time_now_ns();
        assert_int_equal(tow_futex_wait(&word, 0, tow_time_deadline(10 * TOW_TIME_MS), shared),
                         -ETIMEDOUT);
        assert_true(tow_time_now_ns() - began >= 10 * TOW_TIME_MS);
        pthread_t thread;
        assert_int_equal(tow_thread_start("waker", waker, shared ? &word : NULL, &thread), 0);
        while (atomic_load(&word) == 0) {
            assert_int_equal(tow_futex_wait(&word, 0, tow_time_deadline(5 * TOW_TIME_S), shared),
                             0);
        }
        pthread_join(thread, NULL);
    }
}

static void deadlines_do_not_overflow(void **state)
{
    assert_true(tow_time_deadline(-1) == TOW_TIME_FOREVER);
    assert_true(tow_time_deadline(TOW_TIME_FOREVER) == TOW_TIME_FOREVER);
    assert_true(tow_time_deadline(TOW_TIME_FOREVER - 5) == TOW_TIME_FOREVER);
    assert_true(tow_time_left(TOW_TIME_FOREVER) == TOW_TIME_FOREVER);
    assert_int_equal(tow_time_left(0), 0);
    assert_true(tow_time_passed(0));
    assert_false(tow_time_passed(TOW_TIME_FOREVER));
    assert_true(tow_cpu_count() >= 1);
}

enum { TAKERS = 4, TIMES = 20000 };

static struct tow_lock lock;
static unsigned taken; /* with the lock held */

static void *take_often(void *arg)
{
    for (int i = 0; i < TIMES; i++) {
        tow_lock_take(&lock);
        unsigned before = taken;
        if (i % 1000 == 0) {
            tow_time_sleep(TOW_TIME_US); /* others come to wait */
        }
        taken = before + 1;
        tow_lock_give(&lock);
    }
    return NULL;
}

static void one_at_a_time_has_a_lock(void **state)
{
    pthread_t threads[TAKERS];
    for (int i = 0; i < TAKERS; i++) {
        assert_int_equal(tow_thread_start("taker", take_often, NULL, &threads[i]), 0);
    }
    for (int i = 0; i < TAKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(taken, TAKERS * TIMES);
    assert_int_equal(atomic_load(&lock.word), TOW_LOCK_FREE);
}

static void *take_once(void *arg)
{
    tow_lock_take(&lock);
    taken++;
    tow_lock_give(&lock);
    return NULL;
}

static void who_waits_for_a_lock_sleeps_until_it_is_free(void **state)
{
    pthread_t threads[2];
    int64_t limit = tow_time_deadline(10 * TOW_TIME_S);
    assert_true(tow_lock_try(&lock));
    assert_false(tow_lock_try(&lock));
    taken = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tow_thread_start("taker", take_once, NULL, &threads[i]), 0);
    }
    while (atomic_load(&lock.word) != TOW_LOCK_WANTED && !tow_time_passed(limit)) {
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_int_equal(atomic_load(&lock.word), TOW_LOCK_WANTED);
    assert_int_equal(taken, 0);
    tow_lock_give(&lock);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(taken, 2);
    assert_true(tow_lock_try(&lock));
    tow_lock_give(&lock);
}

int main(void)
{
    tow_lock_init(&lock, CLIENT_SEND);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_are_blocked_there_and_not_here),
        cmocka_unit_test(a_sleeper_wakes_by_word_wake_or_time),
        cmocka_unit_test(deadlines_do_not_overflow),
        cmocka_unit_test(one_at_a_time_has_a_lock),
        cmocka_unit_test(who_waits_for_a_lock_sleeps_until_it_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
