/* SPDX-License-Identifier: Apache-2.0 */
/* How long a silent server is waited for: as long as its listener answers, and no longer. */
#include "lines.h"

#include "base/clock.h"
#include "base/thread.h"
#include "transport/choose.h"
#include "wire/control.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tow_listener *listener;
static atomic_bool stop;
static atomic_int closes; /* so many connections are closed without a word */
static int said, said_seconds;

/* Answers every first frame as a server does that is there. */
static void *answer(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        struct pollfd ready = {.fd = listener->fd, .events = POLLIN};
        char peer[TOW_ADDRESS_MAX];
        uint8_t question[256], reply[256];
        uint32_t length;
        int fd;
        if (poll(&ready, 1, 10) != 1 || tow_listener_accept(listener, &fd, peer) < 0) {
            continue;
        }
        if (atomic_load(&closes) > 0) {
            atomic_fetch_sub(&closes, 1);
        } else if (recv(fd, question, sizeof question, 0) > 0 &&
                   tow_report_encode(&(struct tow_report){2, "{}"}, reply, sizeof reply, &length) ==
                       0) {
            send(fd, reply, length, MSG_NOSIGNAL);
        }
        close(fd);
    }
    return NULL;
}

static void say(const char *address, int seconds)
{
    assert_string_equal(address, listener->address);
    said++;
    said_seconds = seconds;
}

/* A patience whose time to ask has come. The time that is left is enough for that on a busy
 * machine, and too short for a second question. */
static struct tow_patience silent_for(const char *address, int64_t left_ns)
{
    struct tow_patience patience;
    tow_patience_begin(&patience, address, tow_ask_presence, say);
    assert_true(tow_patience_next(&patience) == patience.ask_ns);
    assert_true(patience.ask_ns < patience.deadline_ns);
    patience.ask_ns = tow_time_now_ns();
    patience.deadline_ns = tow_time_deadline(left_ns);
    return patience;
}

static struct tow_patience silent_for_a_second(const char *address)
{
    return silent_for(address, 900 * TOW_TIME_MS);
}

static void without_a_listener_the_deadline_is_all(void **state)
{
    int64_t deadline = tow_time_deadline(50 * TOW_TIME_MS);
    struct tow_patience patience = tow_patience_none(deadline);
    assert_true(tow_patience_next(&patience) == deadline);
    assert_true(tow_patience_goes_on(&patience));
    tow_time_sleep(51 * TOW_TIME_MS);
    assert_false(tow_patience_goes_on(&patience));
    tow_patience_heard(&patience);
    assert_true(patience.deadline_ns > tow_time_now_ns() + 3 * TOW_TIME_S);
    assert_true(tow_patience_next(&patience) == patience.deadline_ns);
    struct tow_patience self;
    tow_patience_begin(&self, "self:soft", tow_ask_presence, say);
    assert_null(self.address);
}

static void while_the_listener_answers_one_waits_on(void **state)
{
    char address[TOW_ADDRESS_MAX];
    snprintf(address, sizeof address, "hook:cut=1:%.400s", listener->address);
    struct tow_patience patience = silent_for(address, 2500 * TOW_TIME_MS);
    int64_t before = patience.deadline_ns;
    assert_true(tow_patience_goes_on(&patience));
    assert_true(patience.answered);
    assert_true(patience.deadline_ns > before + TOW_TIME_S);
    assert_int_equal(said, 0);
    patience.began_ns -= 7 * TOW_TIME_S;
    for (int i = 0; i < 2; i++) {
        patience.ask_ns = tow_time_now_ns();
        assert_true(tow_patience_goes_on(&patience));
        assert_int_equal(said, 1);
        assert_in_range(said_seconds, 7, 60);
    }
    tow_patience_heard(&patience);
    assert_false(patience.answered);
}

static void not_for_ever(void **state)
{
    struct tow_patience patience = silent_for_a_second(listener->address);
    patience.until_ns = tow_time_now_ns();
    patience.answered = true;
    int64_t before = patience.deadline_ns;
    assert_true(tow_patience_goes_on(&patience));
    assert_true(patience.deadline_ns == before);
    assert_true(patience.answered); /* the worker is who said nothing */
    tow_time_sleep(tow_time_left(before) + TOW_TIME_MS);
    assert_false(tow_patience_goes_on(&patience));
}

static void nobody_who_answers_is_given_up(void **state)
{
    static const char *const nobody[] = {"unix:///nonexistent/sock", "tcp://127.0.0.1:1"};
    for (int i = 0; i < 2; i++) {
        struct tow_patience patience = silent_for_a_second(nobody[i]);
        int64_t before = patience.deadline_ns;
        patience.answered = true; /* before */
        assert_true(tow_patience_goes_on(&patience));
        assert_true(patience.deadline_ns == before);
        assert_false(patience.answered);
        /* What is left of the time is for the server itself. */
        assert_true(tow_patience_next(&patience) == before);
    }
}

static void a_listener_without_a_place_is_asked_again(void **state)
{
    struct tow_patience patience = silent_for_a_second(listener->address);
    patience.deadline_ns = tow_time_deadline(20 * TOW_TIME_S);
    atomic_store(&closes, 2);
    assert_true(tow_patience_goes_on(&patience));
    assert_true(patience.answered);
    assert_int_equal(atomic_load(&closes), 0);
}

static void retries_end(void **state)
{
    struct tow_retry retry = {0};
    assert_false(tow_retry_pause(&retry, -ECONNREFUSED, TOW_TIME_FOREVER));
    int64_t start = tow_time_now_ns();
    unsigned tries = 0;
    retry = (struct tow_retry){0};
    while (tow_retry_pause(&retry, tries % 2 == 0 ? -EPIPE : -ECONNRESET, TOW_TIME_FOREVER)) {
        tries++;
    }
    int64_t took = tow_time_now_ns() - start;
    assert_true(took > 2 * TOW_TIME_S); /* longer than a listener keeps an answered stranger */
    assert_in_range(tries, 4, 12);
    /* One that says that it is full is worth more. */
    assert_true(tow_retry_pause(&retry, -EUSERS, TOW_TIME_FOREVER));
    /* One that was full closes a connection: it is full still. */
    retry.began_ns = tow_time_now_ns() - 5 * TOW_TIME_S;
    assert_true(tow_retry_pause(&retry, -ECONNRESET, TOW_TIME_FOREVER));
    assert_false(tow_retry_pause(&retry, -ECONNREFUSED, TOW_TIME_FOREVER));
    retry.began_ns -= TOW_RETRY_FULL_S * TOW_TIME_S;
    assert_false(tow_retry_pause(&retry, -EUSERS, TOW_TIME_FOREVER));
    retry = (struct tow_retry){0};
    assert_false(tow_retry_pause(&retry, -EPIPE, tow_time_deadline(10 * TOW_TIME_MS)));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_listener_the_deadline_is_all),
        cmocka_unit_test(while_the_listener_answers_one_waits_on),
        cmocka_unit_test(not_for_ever),
        cmocka_unit_test(nobody_who_answers_is_given_up),
        cmocka_unit_test(a_listener_without_a_place_is_asked_again),
        cmocka_unit_test(retries_end),
    };
    char why[TOW_WHY_MAX];
    pthread_t thread;
    if (tow_listener_open("tcp://127.0.0.1:0", 0600, why, sizeof why, &listener) < 0 ||
        tow_thread_start("answer", answer, NULL, &thread) < 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    tow_listener_close(listener);
    return failed;
}
