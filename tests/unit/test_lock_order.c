/* SPDX-License-Identifier: Apache-2.0 */
/* The order of locks: what breaks it ends the process with a sentence, here in a child. Built with
 * the check, whatever the tree is built with. */
#include "cmocka_all.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/mutex.h"

/* Rows of base/locks.def, in their order. */
static struct tow_mutex first = TOW_MUTEX(CLIENT_CONNECT);
static struct tow_rwlock middle = TOW_RWLOCK(CLIENT_REGIONS);
static struct tow_mutex last = TOW_MUTEX(CLIENT_WAIT);
static struct tow_mutex like_first = TOW_MUTEX(CLIENT_CONNECT);
static struct tow_lock word; /* CLIENT_SEND: before `last`, may be held over a line's calls */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void backwards(void)
{
    tow_mutex_lock(&last);
    tow_mutex_lock(&first);
}

static void backwards_with_others(void)
{
    tow_lock_take(&word);
    tow_rwlock_read(&middle);
}

static void two_of_a_row(void)
{
    tow_mutex_lock(&first);
    tow_mutex_lock(&like_first);
}

static void two_of_a_row_by_trying(void)
{
    tow_mutex_lock(&first);
    tow_mutex_try(&like_first);
}

static void behind_one_that_was_tried(void)
{
    tow_mutex_try(&last);
    tow_rwlock_write(&middle);
}

static void waits_with_a_later_one(void)
{
    tow_mutex_lock(&first);
    tow_mutex_lock(&last);
    tow_mutex_wait(&first, &changed);
}

static void gives_back_what_it_has_not(void)
{
    tow_mutex_unlock(&first);
}

static void takes_one_without_a_name(void)
{
    struct tow_mutex nameless;
    memset(&nameless, 0, sizeof nameless);
    tow_mutex_lock(&nameless);
}

static void calls_the_driver(void)
{
    tow_mutex_lock(&last);
    tow_locks_over(TOW_LOCK_OVER_DRIVER, "cuCtxSynchronize");
}

static void waits_for_the_peer(void)
{
    tow_mutex_lock(&last);
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_reserve");
}

/* Runs it in a child; what that said and how it ended. */
static int run(void (*what)(void), char *ret_said, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        what();
        _exit(0);
    }
    close(ends[1]);
    size_t got = 0;
    ssize_t more;
    while ((more = read(ends[0], ret_said + got, size - 1 - got)) > 0) {
        got += (size_t)more;
    }
    ret_said[got] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void ends_saying(void (*what)(void), const char *one, const char *other)
{
    char said[1000];
    int status = run(what, said, sizeof said);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(said, one));
    assert_non_null(strstr(said, other));
}

static void the_wrong_order_ends_with_a_sentence_that_names_both(void **state)
{
    ends_saying(backwards, "holds CLIENT_WAIT", "takes CLIENT_CONNECT");
    ends_saying(backwards_with_others, "holds CLIENT_SEND", "takes CLIENT_REGIONS");
    ends_saying(behind_one_that_was_tried, "holds CLIENT_WAIT", "takes CLIENT_REGIONS");
}

static void nobody_holds_two_of_a_row(void **state)
{
    ends_saying(two_of_a_row, "holds CLIENT_CONNECT", "same name");
    ends_saying(two_of_a_row_by_trying, "holds CLIENT_CONNECT", "same name");
}

static void a_wait_takes_its_lock_anew(void **state)
{
    ends_saying(waits_with_a_later_one, "holds CLIENT_WAIT", "takes CLIENT_CONNECT");
}

static void mistakes_with_one_lock_are_noticed(void **state)
{
    ends_saying(gives_back_what_it_has_not, "gives back CLIENT_CONNECT", "does not hold");
    ends_saying(takes_one_without_a_name, "never initialised", "locks.def");
}

static void calls_that_wait_want_a_mark(void **state)
{
    ends_saying(calls_the_driver, "holds CLIENT_WAIT", "calls cuCtxSynchronize");
    ends_saying(waits_for_the_peer, "holds CLIENT_WAIT", "calls tow_line_reserve");
    tow_lock_take(&word);
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_reserve");
    tow_lock_give(&word);
    tow_locks_over(TOW_LOCK_OVER_DRIVER, "cuCtxSynchronize");
}

static bool waiting, awake; /* with `last` */

static void *wake(void *arg)
{
    tow_mutex_lock(&last);
    while (!waiting) {
        tow_mutex_wait(&last, &changed);
    }
    awake = true;
    pthread_cond_broadcast(&changed);
    tow_mutex_unlock(&last);
    return NULL;
}

static void the_right_order_goes_on(void **state)
{
    for (int i = 0; i < 2; i++) {
        tow_mutex_lock(&first);
        tow_rwlock_read(&middle);
        tow_lock_take(&word);
        tow_mutex_lock(&last);
        tow_mutex_unlock(&first); /* given back in any order */
        tow_mutex_unlock(&last);
        tow_lock_give(&word);
        tow_rwlock_unlock(&middle);
    }
    tow_mutex_lock(&last);
    assert_true(tow_mutex_try(&first)); /* who only tries waits for nobody */
    tow_mutex_unlock(&first);
    tow_mutex_unlock(&last);

    pthread_t thread;
    assert_int_equal(tow_thread_start("waker", wake, NULL, &thread), 0);
    tow_mutex_lock(&first);
    tow_mutex_lock(&last);
    waiting = true;
    pthread_cond_broadcast(&changed);
    while (!awake) {
        tow_mutex_wait(&last, &changed);
    }
    tow_mutex_unlock(&last);
    tow_mutex_unlock(&first);
    pthread_join(thread, NULL);
}

int main(void)
{
    tow_lock_init(&word, CLIENT_SEND);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wrong_order_ends_with_a_sentence_that_names_both),
        cmocka_unit_test(nobody_holds_two_of_a_row),
        cmocka_unit_test(a_wait_takes_its_lock_anew),
        cmocka_unit_test(mistakes_with_one_lock_are_noticed),
        cmocka_unit_test(calls_that_wait_want_a_mark),
        cmocka_unit_test(the_right_order_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
