#include "server/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/thread.h"

static void (*print)(void *user, const char *text, size_t length);
static void *print_user;
static int output_pipe = -1;

/* Until there is a session nobody wants the text. */
static void forward(const char *text, size_t length)
{
    if (print != NULL && length > 0) {
        print(print_user, text, length);
    }
}

static ssize_t write_stdio(void *cookie, const char *text, size_t length)
{
    forward(text, length);
    return (ssize_t)length;
}

static void *read_pipe(void *arg)
{
    char text[4096];
    for (;;) {
        ssize_t n = read(output_pipe, text, sizeof text);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return NULL;
        }
        forward(text, (size_t)n);
    }
}

int tow_output_capture(struct tow_backend *backend)
{
    if (backend->print != NULL) {
        return 0;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -errno;
    }
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_stdio});
    if (stream == NULL || dup2(ends[1], STDOUT_FILENO) < 0) {
        int error = -errno;
        if (stream != NULL) {
            fclose(stream);
        }
        close(ends[0]);
        close(ends[1]);
        return error;
    }
    close(ends[1]);
    output_pipe = ends[0];
    setvbuf(stream, NULL, _IOLBF, 4096);
    stdout = stream;
    pthread_t thread;
    int error = tow_thread_start("tow-output", read_pipe, NULL, &thread);
    if (error < 0) {
        return error;
    }
    pthread_detach(thread);
    backend->print = &print;
    backend->print_user = &print_user;
    return 0;
}
