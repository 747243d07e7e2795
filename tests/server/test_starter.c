/* SPDX-License-Identifier: Apache-2.0 */
/* Who starts workers signals, limits and reaps those that it has started, by their numbers, and no
 * other process. The worker here is this program, which says what it was started with. */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/pool/machine.h"
#include "server/pool/starter.h"
#include "server/session/session.h"
#include "server/worker/worker_msg.h"
#include "transport/transport.h"

#define PATIENCE_NS (20 * TOW_TIME_S)

static struct tows_starter starter;
static struct tows_config config;
static struct tows_shared shared;

static int setup(void **state)
{
    (void)state;
    tows_config_defaults(&config);
    tows_starter_init(&starter, &config);
    shared = (struct tows_shared){.control = -1, .stats = -1};
    return 0;
}

static void close_shared(void)
{
    if (shared.control >= 0) {
        close(shared.control);
        close(shared.stats);
    }
    shared = (struct tows_shared){.control = -1, .stats = -1};
}

static int teardown(void **state)
{
    (void)state;
    tows_starter_fini(&starter);
    close_shared();
    return 0;
}

/* Waits for the end of a child, as its number. */
static struct tows_ended wait_for_end(void)
{
    struct tows_ended ended = {0};
    int64_t deadline = tow_time_deadline(PATIENCE_NS);
    while (tows_starter_reap(&starter, &ended) == 0) {
        assert_false(tow_time_passed(deadline));
        tow_time_sleep(TOW_TIME_MS);
    }
    return ended;
}

static uint64_t start(const char *key, pid_t *ret_pid, char ret_said[64])
{
    uint64_t number = 0;
    int count = 0, none;
    memset(ret_said, 0, 64);
    close_shared();
    assert_int_equal(tows_starter_start(&starter, key, 7, &shared, &number, ret_pid), 0);
    assert_int_equal(tow_fds_recv(shared.control, ret_said, 64, tow_time_deadline(PATIENCE_NS),
                                  &none, 0, &count),
                     0);
    return number;
}

static void a_worker_is_started_as_its_key_says(void **state)
{
    char said[64];
    pid_t pid = 0;
    (void)state;
    uint64_t number = start("CUDA_VISIBLE_DEVICES=7\nslot=3\n", &pid, said);
    assert_string_equal(said, "7 --slot=3");
    /* Neither side can make the memory smaller, and let the other meet its end. */
    struct tows_session_stats *stats =
        mmap(NULL, sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED, shared.stats, 0);
    assert_true(stats != MAP_FAILED);
    assert_int_equal(stats->lines, 7);
    assert_int_equal(ftruncate(shared.stats, 0), -1);
    assert_int_equal(ftruncate(shared.stats, 1 << 20), -1);
    assert_int_equal(munmap(stats, sizeof *stats), 0);
    assert_int_equal(tows_starter_signal(&starter, number, SIGKILL), 0);
    struct tows_ended ended = wait_for_end();
    assert_int_equal(ended.number, number);
    assert_int_equal(ended.pid, pid);
    assert_true(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL);
    assert_false(ended.full);
}

static void a_key_that_is_too_long_starts_nothing(void **state)
{
    char key[TOW_WORKER_KEY_MAX + 1];
    uint64_t number;
    pid_t pid;
    struct tows_ended ended;
    (void)state;
    memset(key, 'x', sizeof key);
    key[TOW_WORKER_KEY_MAX] = '\0';
    assert_int_equal(tows_starter_start(&starter, key, 7, &shared, &number, &pid), -E2BIG);
    assert_int_equal(tows_starter_reap(&starter, &ended), 0);
}

static void two_workers_never_have_one_number(void **state)
{
    char said[64];
    pid_t pid;
    (void)state;
    uint64_t first = start("", &pid, said);
    assert_int_equal(tows_starter_signal(&starter, first, SIGKILL), 0);
    assert_int_equal(wait_for_end().number, first);
    uint64_t second = start("", &pid, said);
    assert_true(first != second && first != 0 && second != 0);
    /* The first is gone: whoever names it reaches nobody. */
    assert_int_equal(tows_starter_signal(&starter, first, SIGKILL), -ESRCH);
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(tows_starter_signal(&starter, second, SIGKILL), 0);
    assert_int_equal(wait_for_end().number, second);
}

static void others_are_not_touched(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    /* Not by its process, either: it is none of those that were started here. */
    assert_int_equal(tows_starter_signal(&starter, (uint64_t)child, SIGKILL), -ESRCH);
    assert_int_equal(tows_starter_signal(&starter, 0, SIGKILL), -ESRCH);
    assert_int_equal(tows_starter_limit(&starter, (uint64_t)child, 1, 1), -ESRCH);
    assert_int_equal(tows_starter_yield(&starter, (uint64_t)child, 5), -ESRCH);
    assert_false(tows_starter_weigh(&starter, (uint64_t)child, 1));
    assert_int_equal(kill(child, SIGKILL), 0);
    /* Its end is told all the same: somebody else of this process may wait for it. */
    struct tows_ended ended = wait_for_end();
    assert_int_equal(ended.number, 0);
    assert_int_equal(ended.pid, child);
}

static void only_two_signals_are_sent(void **state)
{
    char said[64];
    pid_t pid;
    (void)state;
    uint64_t number = start("", &pid, said);
    for (int signal = 0; signal < 64; signal++) {
        if (signal != SIGKILL && signal != SIGCONT) {
            assert_int_equal(tows_starter_signal(&starter, number, signal), -EINVAL);
        }
    }
    assert_int_equal(tows_starter_yield(&starter, number, PRIO_MAX), -EINVAL);
    assert_int_equal(tows_starter_yield(&starter, number, PRIO_MIN - 1), -EINVAL);
    assert_int_equal(tows_starter_yield(&starter, number, PRIO_MAX - 1), 0);
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)pid), PRIO_MAX - 1);
    /* It goes on when it was stopped. */
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(tows_starter_signal(&starter, number, SIGCONT), 0);
    assert_int_equal(tows_starter_signal(&starter, number, SIGKILL), 0);
    assert_int_equal(wait_for_end().number, number);
}

/* One that is no child here may have the number that a child was given since; a child plays both.
 */
static void one_that_was_taken_is_told_from_a_child(void **state)
{
    uint64_t taken = 0, adopted = 0, born = 0;
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(tows_machine_born(child, &born), 0);
    assert_int_equal(tows_starter_take(&starter, child, born + 1, &taken), -ESRCH);
    assert_int_equal(tows_starter_take(&starter, child, born, &taken), 0);
    assert_int_equal(tows_starter_take(&starter, child, born, &adopted), -EEXIST);
    assert_int_equal(tows_starter_adopt(&starter, child, &adopted), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    const struct tows_ended ended[2] = {wait_for_end(), wait_for_end()};
    unsigned child_at = ended[0].unknown ? 1 : 0; /* either may be seen first */
    assert_true(ended[1 - child_at].unknown);
    assert_int_equal(ended[1 - child_at].number, taken);
    assert_false(ended[child_at].unknown);
    assert_int_equal(ended[child_at].number, adopted);
    assert_int_equal(starter.count, 0);
    assert_int_equal(starter.taken, 0);
}

/* As a worker: says what it has, and waits for its end. */
static int be_worker(int argc, char **argv)
{
    const char *devices = getenv("CUDA_VISIBLE_DEVICES");
    char said[64] = "";
    snprintf(said, sizeof said, "%s %s", devices != NULL ? devices : "-",
             strncmp(argv[argc - 1], "--slot", 6) == 0 ? argv[argc - 1] : "-");
    if (send(TOW_WORKER_MSG_FD, said, sizeof said, MSG_NOSIGNAL) != (ssize_t)sizeof said ||
        fcntl(TOW_STATS_FD, F_GETFD) < 0 || fcntl(TOW_STATS_FD + 1, F_GETFD) >= 0) {
        return 1;
    }
    pause();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--worker") == 0) {
        return be_worker(argc, argv);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_is_started_as_its_key_says, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_that_is_too_long_starts_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(two_workers_never_have_one_number, setup, teardown),
        cmocka_unit_test_setup_teardown(others_are_not_touched, setup, teardown),
        cmocka_unit_test_setup_teardown(only_two_signals_are_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_was_taken_is_told_from_a_child, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
