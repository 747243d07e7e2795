/* SPDX-License-Identifier: Apache-2.0 */
/* What the hook does to a line. */
#include "lines.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "wire/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char why[TOW_WHY_MAX];

static void hooked_pair(const char *spec, struct tow_line **ret_client,
                        struct tow_line **ret_server)
{
    assert_int_equal(tow_line_pair(ret_client, ret_server), 0);
    assert_int_equal(tow_line_hook(*ret_client, spec, why, sizeof why, ret_client), 0);
    assert_string_equal(tow_line_kind(*ret_client), "hook");
}

static void send_word(struct tow_line *line)
{
    uint8_t *at;
    assert_int_equal(tow_line_reserve(line, 8, &at), 0);
    memset(at, 1, 8);
    tow_line_commit(line, 8);
}

static int64_t soon(void)
{
    return tow_time_deadline(5 * TOW_TIME_S);
}

static void a_delay_is_a_latency_and_no_limit_of_the_rate(void **state)
{
    struct tow_line *client, *server;
    const uint8_t *at;
    size_t available;
    hooked_pair("delay=30ms", &client, &server);
    int64_t began = tow_time_now_ns();
    for (int i = 0; i < 200; i++) {
        send_word(client);
        tow_time_sleep(500 * TOW_TIME_US);
    }
    int64_t sent = tow_time_now_ns();
    for (int i = 0; i < 200; i++) {
        assert_int_equal(tow_line_peek(server, 8, soon(), &at, &available), 0);
        assert_true(tow_time_now_ns() - began >= 30 * TOW_TIME_MS);
        tow_line_consume(server, 8);
    }
    /* 200 delays in a row would be 6 s, less what the sending took: on a busy machine that is long.
     */
    assert_true(tow_time_now_ns() - sent < 5 * TOW_TIME_S);
    began = tow_time_now_ns();
    send_word(server);
    assert_int_equal(tow_line_peek(client, 8, soon(), &at, &available), 0);
    assert_true(tow_time_now_ns() - began >= 30 * TOW_TIME_MS);
    tow_line_close(client);
    tow_line_close(server);
}

static void a_cut_ends_the_line_after_that_many_bytes(void **state)
{
    struct tow_line *client, *server;
    const uint8_t *at;
    size_t available;
    hooked_pair("cut=20", &client, &server);
    for (int i = 0; i < 4; i++) {
        send_word(client);
    }
    assert_int_equal(tow_line_peek(server, 20, soon(), &at, &available), 0);
    assert_int_equal(available, 20);
    tow_line_consume(server, 20);
    assert_int_equal(tow_line_peek(server, 1, soon(), &at, &available), -ECONNRESET);
    assert_int_equal(tow_line_peek(client, 1, soon(), &at, &available), -ECONNRESET);
    uint8_t *to;
    int error = 0;
    for (int i = 0; i < 3000 && error == 0; i++) {
        error = tow_line_reserve(client, 4096, &to);
        if (error == 0) {
            tow_line_commit(client, 4096);
        }
    }
    assert_int_equal(error, -EPIPE);
    tow_line_close(client);
    tow_line_close(server);
}

static void a_trace_names_the_frames(void **state)
{
    struct tow_line *client, *server;
    char spec[TOW_ADDRESS_MAX], path[200];
    snprintf(path, sizeof path, "%s/trace", lines_folder());
    snprintf(spec, sizeof spec, "trace=%s", path);
    hooked_pair(spec, &client, &server);
    uint8_t *at;
    const uint8_t *in;
    size_t available;
    uint32_t length;
    assert_int_equal(tow_line_reserve(client, 256, &at), 0);
    struct tow_bye bye = {.code = 1, .sentence = "over"};
    assert_int_equal(tow_bye_encode(&bye, at, 256, &length), 0);
    tow_line_commit(client, length);
    struct tow_frame frame = {.length = 48, .kind = 43, .thread = 2, .context = 1, .seq = 9};
    assert_int_equal(tow_line_reserve(client, 48, &at), 0);
    memset(at, 0, 48);
    tow_frame_write(at, &frame);
    /* A frame that arrives in two pieces is one line. */
    tow_line_commit(client, 10);
    tow_time_sleep(5 * TOW_TIME_MS);
    assert_int_equal(tow_line_reserve(client, 38, &at), 0);
    tow_line_commit(client, 38);
    assert_int_equal(tow_line_peek(server, length + 48, soon(), &in, &available), 0);
    assert_int_equal(tow_line_reserve(server, 16, &at), 0);
    memset(at, 0xff, 16);
    tow_line_commit(server, 16);
    assert_int_equal(tow_line_peek(client, 16, soon(), &in, &available), 0);
    tow_line_close(client);
    tow_line_close(server);
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0644 & ~mask);
    struct tow_buf buf;
    tow_buf_init(&buf, 65536);
    assert_int_equal(tow_file_read(path, &buf), 0);
    assert_int_equal(tow_buf_append(&buf, "", 1), 0);
    const char *text = (const char *)buf.data;
    assert_non_null(strstr(text, "> BYE length 32 context 0 seq 0\n"));
    assert_non_null(strstr(text, "> function 43 length 48 thread 2 context 1 seq 9\n"));
    assert_non_null(strstr(text, "< not a frame; from here on only sizes\n"));
    tow_buf_fini(&buf);
}

static void options_that_are_not_understood_are_explained(void **state)
{
    static const char *const wrong[] = {"delay=1",
                                        "delay=ms",
                                        "delay=-1ms",
                                        "cut=x",
                                        "speed=10",
                                        "delay",
                                        "trace=/no/such/folder/f"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tow_line *client, *server;
        assert_int_equal(tow_line_pair(&client, &server), 0);
        assert_true(tow_line_hook(client, wrong[i], why, sizeof why, &client) < 0);
        assert_int_equal(strncmp(why, "hook: ", 6), 0);
        tow_line_close(server);
    }
    assert_string_equal(why, "hook: cannot write the trace to /no/such/folder/f: No such file or "
                             "directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delay_is_a_latency_and_no_limit_of_the_rate),
        cmocka_unit_test(a_cut_ends_the_line_after_that_many_bytes),
        cmocka_unit_test(a_trace_names_the_frames),
        cmocka_unit_test(options_that_are_not_understood_are_explained),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lines_cleanup();
    return failed;
}
