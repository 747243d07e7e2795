/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver prints to stdout and stderr, by stdio or by the descriptors, reaches the session's
 * print functions, and the log goes on where it went. Without cmocka, which prints itself. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/worker/output.h"

static char got[512];
static atomic_size_t got_size;
static int failures;
static FILE *report; /* the real stderr */

static void take(void *user, const char *text, size_t length)
{
    size_t at = atomic_load(&got_size);
    if (user == got && at + length < sizeof got) {
        memcpy(got + at, text, length);
        atomic_store(&got_size, at + length);
    }
}

/* stderr's text is marked, so that the order of both is seen. */
static void take_error(void *user, const char *text, size_t length)
{
    take(user, "<", 1);
    take(user, text, length);
    take(user, ">", 1);
}

static void expect(const char *wanted, const char *what)
{
    if (atomic_load(&got_size) != strlen(wanted) || memcmp(got, wanted, strlen(wanted)) != 0) {
        fprintf(report, "%s: got \"%.*s\", wanted \"%s\"\n", what, (int)got_size, got, wanted);
        failures++;
    }
    atomic_store(&got_size, 0);
}

static void put(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        failures++;
    }
}

static void await(size_t size)
{
    for (int i = 0; i < 200 && atomic_load(&got_size) < size; i++) {
        tow_time_sleep(10 * TOW_TIME_MS);
    }
}

int main(void)
{
    struct tow_backend backend = {.name = "cuda"};
    char log[256] = "";
    int log_pipe[2];
    report = fdopen(fcntl(STDERR_FILENO, F_DUPFD, 3), "w");
    if (report == NULL || pipe(log_pipe) != 0 || fcntl(log_pipe[0], F_SETFL, O_NONBLOCK) != 0) {
        return 1;
    }
    setvbuf(report, NULL, _IONBF, 0);
    dup2(log_pipe[1], STDERR_FILENO); /* so that the log can be read */
    tow_log_configure("info");
    if (tows_output_capture(&backend) < 0 || backend.print == NULL || backend.print_error == NULL ||
        backend.flush_output == NULL) {
        fprintf(report, "no capture\n");
        return 1;
    }
    printf("nobody listens yet\n");
    fprintf(stderr, "the driver complains early\n");
    backend.flush_output(true);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a line of the log");
    if (read(log_pipe[0], log, sizeof log - 1) < 0 ||
        strcmp(log, "towline: the driver says: the driver complains early\n"
                    "towline: a line of the log\n") != 0) {
        fprintf(report, "the log has \"%s\"\n", log);
        failures++;
    }

    *backend.print_user = got;
    *backend.print = take;
    *backend.print_error = take_error;
    printf("one %d\n", 1);
    expect("one 1\n", "stdio's stdout arrives at once");
    printf("no end");
    backend.flush_output(false);
    expect("no end", "a line without an end arrives with the reply");

    fprintf(stderr, "assert %d\n", 2);
    backend.flush_output(true);
    expect("<assert 2\n>", "stdio's stderr arrives before a failure is told");
    put(STDERR_FILENO, "three\n");
    backend.flush_output(false);
    expect("<three\n>", "stderr's descriptor arrives before a reply");
    put(STDOUT_FILENO, "four\n");
    await(5);
    expect("four\n", "stdout's descriptor arrives soon");
    fprintf(stderr, "five\n");
    await(7);
    expect("<five\n>", "stderr arrives soon, also without a reply");

    for (int i = 0; i < 10; i++) {
        printf("out %d\n", i);
        fprintf(stderr, "err %d\n", i);
    }
    printf("end\n");
    char wanted[512];
    size_t length = 0;
    for (int i = 0; i < 10; i++) {
        length +=
            (size_t)snprintf(wanted + length, sizeof wanted - length, "out %d\n<err %d\n>", i, i);
    }
    snprintf(wanted + length, sizeof wanted - length, "end\n");
    expect(wanted, "the order of both is kept");

    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "another");
    backend.flush_output(true);
    expect("", "the log's lines are not forwarded");
    struct tow_backend printing = {.print = backend.print};
    if (tows_output_capture(&printing) != 0 || printing.print_user != NULL) {
        fprintf(report, "a backend that prints by itself was touched\n");
        failures++;
    }
    return failures != 0;
}
