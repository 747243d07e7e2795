/* SPDX-License-Identifier: Apache-2.0 */
/* Redirects stdout and stderr of a worker into pipes and sends what comes to the client. */
#include "server/worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"

enum { OUT, ERR, STREAMS };

static void (*print)(void *user, const char *text, size_t length);
static void (*print_error)(void *user, const char *text, size_t length);
static void *print_user;
static int log_fd = -1; /* where stderr led before */
static struct {
    struct tow_mutex lock; /* held while one is emptied: whoever gets it knows that earlier text is
                            * on its way; guards who gets the text */
    int ends[STREAMS];     /* for reading, never blocking */
    atomic_bool used;      /* text has come through a pipe, so more may come */
} pipes = {.lock = TOW_MUTEX(SERVER_OUTPUT), .ends = {-1, -1}};

/* No client is there yet: lines of the log, in its format. */
static void output_log(const char *text, size_t length)
{
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        size_t line = end != NULL ? (size_t)(end - text) : length;
        if (line > 0) {
            tow_log(TOW_AREA_BACKEND, TOW_LOG_WARN, "the driver says: %.*s", (int)line, text);
        }
        line += end != NULL;
        text += line;
        length -= line;
    }
}

static void output_forward(int stream, const char *text, size_t length)
{
    if (length == 0) {
        return;
    }
    if (stream == OUT && print != NULL) {
        print(print_user, text, length);
    } else if (stream == ERR && print_error != NULL) {
        print_error(print_user, text, length);
    } else if (stream == ERR) {
        output_log(text, length);
    }
}

static void output_drain(void)
{
    char text[4096];
    tow_mutex_lock(&pipes.lock);
    for (int i = 0; i < STREAMS; i++) {
        ssize_t n;
        while ((n = read(pipes.ends[i], text, sizeof text)) > 0 || (n < 0 && errno == EINTR)) {
            if (n > 0) {
                atomic_store(&pipes.used, true);
                output_forward(i, text, (size_t)n);
            }
        }
    }
    tow_mutex_unlock(&pipes.lock);
}

static ssize_t write_stdio(void *cookie, const char *text, size_t length)
{
    (void)cookie;
    if (atomic_load(&pipes.used)) {
        output_drain(); /* what was written to stderr before comes before */
    }
    output_forward(OUT, text, length);
    return (ssize_t)length;
}

static void *read_pipes(void *arg)
{
    (void)arg;
    struct pollfd wanted[STREAMS] = {{.fd = pipes.ends[OUT], .events = POLLIN},
                                     {.fd = pipes.ends[ERR], .events = POLLIN}};
    for (;;) {
        if (poll(wanted, STREAMS, -1) > 0) {
            output_drain();
        }
    }
    return NULL;
}

static void output_flush(bool failed)
{
    if (__fpending(stdout) > 0) {
        fflush(stdout); /* a line that has no end yet */
    }
    if (failed || atomic_load_explicit(&pipes.used, memory_order_relaxed)) {
        output_drain();
    }
}

static void output_hold(bool hold)
{
    if (hold) {
        tow_mutex_lock(&pipes.lock);
    } else {
        tow_mutex_unlock(&pipes.lock);
    }
}

/* A pipe takes the place of a descriptor. */
static int output_divert(int fd, int *ret_reading_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -errno;
    }
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 || dup2(ends[1], fd) < 0) {
        int error = -errno;
        close(ends[0]);
        close(ends[1]);
        return error;
    }
    close(ends[1]);
    *ret_reading_end = ends[0];
    return 0;
}

int tows_output_capture(struct tow_backend *backend)
{
    if (backend->print != NULL) {
        return 0;
    }
    log_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (log_fd < 0) {
        return -errno;
    }
    tow_log_move(log_fd);
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_stdio});
    if (stream == NULL) {
        return -ENOMEM;
    }
    int error = output_divert(STDOUT_FILENO, &pipes.ends[OUT]);
    if (error == 0) {
        setvbuf(stream, NULL, _IOLBF, 4096);
        stdout = stream;
        error = output_divert(STDERR_FILENO, &pipes.ends[ERR]);
    } else {
        fclose(stream);
    }
    pthread_t thread;
    if (error == 0) {
        error = tow_thread_start("tow-output", read_pipes, NULL, &thread);
    }
    if (error < 0) {
        dup2(log_fd, STDERR_FILENO); /* nobody would read the pipe */
        return error;
    }
    pthread_detach(thread);
    backend->print = &print;
    backend->print_error = &print_error;
    backend->print_user = &print_user;
    backend->hold_print = output_hold;
    backend->flush_output = output_flush;
    return 0;
}
