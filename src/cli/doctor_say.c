/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: findings, as people or programs read them, and programs that checks run. */
#include "cli/doctor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { SAID_MAX = 8 << 20, LINE_MAX_BYTES = 4096 };

static const struct {
    const char *word; /* of --json */
    const char *mark; /* on a terminal */
    enum tow_colour colour;
} levels[TOW_DOCTOR_LEVELS] = {
    [TOW_DOCTOR_GOOD] = {"ok", "ok", TOW_GREEN},
    [TOW_DOCTOR_HINT] = {"hint", "hint", TOW_BOLD},
    [TOW_DOCTOR_WARNING] = {"warning", "warning", TOW_YELLOW},
    [TOW_DOCTOR_WRONG] = {"wrong", "WRONG", TOW_RED},
};

void tow_doctor_group(struct tow_doctor *doctor, const char *group)
{
    doctor->group = group;
    if (!doctor->json) {
        printf("%s%s%s\n", tow_cli_colour(stdout, TOW_BOLD), group,
               tow_cli_colour(stdout, TOW_PLAIN));
        fflush(stdout);
    }
}

/* What a server, a file or a variable says may be in it: that moves no cursor. */
static void say_write(char line[LINE_MAX_BYTES], const char *format, va_list args)
{
    vsnprintf(line, LINE_MAX_BYTES, format, args);
    for (char *at = line; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? ' ' : *at;
    }
}

void tow_doctor_close(struct tow_doctor *doctor)
{
    if (doctor->open) {
        tow_json_end(&doctor->out);
        doctor->open = false;
    }
}

void tow_doctor_say(struct tow_doctor *doctor, enum tow_doctor_level level, const char *check,
                    const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    say_write(line, format, args);
    va_end(args);
    doctor->count[level]++;
    doctor->last = level;
    if (!doctor->json) {
        printf("  %s%-8s%s %s\n", tow_cli_colour(stdout, levels[level].colour), levels[level].mark,
               tow_cli_colour(stdout, TOW_PLAIN), line);
        fflush(stdout);
        return;
    }
    tow_doctor_close(doctor);
    tow_json_object(&doctor->out, NULL);
    tow_json_str(&doctor->out, "group", doctor->group);
    tow_json_str(&doctor->out, "check", check);
    tow_json_str(&doctor->out, "level", levels[level].word);
    tow_json_str(&doctor->out, "text", line);
    doctor->open = true;
}

void tow_doctor_mend(struct tow_doctor *doctor, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    say_write(line, format, args);
    va_end(args);
    if (doctor->json) {
        tow_json_str(&doctor->out, "mend", line);
    } else {
        printf("           %s: %s\n",
               doctor->last >= TOW_DOCTOR_WARNING ? "to mend it" : "to change it", line);
        fflush(stdout);
    }
}

/* ---- running something ---- */

/* Until its end, or the deadline; what is too much is read and dropped. */
static int say_read(int fd, int64_t deadline_ns, struct tow_buf *said)
{
    for (;;) {
        char bytes[4096];
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int64_t left_ms = tow_time_left(deadline_ns) / TOW_TIME_MS;
        int ready = poll(&poll_fd, 1, (int)left_ms);
        if (ready < 0 && errno != EINTR) {
            return -errno;
        }
        if (ready == 0) {
            return -ETIMEDOUT;
        }
        ssize_t n = ready > 0 ? read(fd, bytes, sizeof bytes) : 0;
        if (n < 0) {
            return -errno;
        }
        if (n == 0 && ready > 0) {
            return 0;
        }
        if (n > 0 && said->size + (size_t)n < SAID_MAX) {
            tow_buf_append(said, bytes, (size_t)n);
        }
    }
}

int tow_doctor_run(const char *const *args, void (*prepare)(const void *user), const void *user,
                   int seconds, struct tow_buf *said)
{
    int ends[2], status = 0;
    tow_buf_init(said, SAID_MAX + 1);
    if (pipe(ends) != 0) {
        return -errno;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        prepare(user);
        execv(args[0], (char *const *)args);
        fprintf(stderr, "%s cannot be run: %s\n", args[0], strerror(errno));
        _exit(TOW_EXIT_NOT_EXECUTABLE);
    }
    close(ends[1]);
    int error =
        child < 0 ? -errno : say_read(ends[0], tow_time_deadline(seconds * TOW_TIME_S), said);
    close(ends[0]);
    if (child > 0 && error < 0) {
        kill(child, SIGKILL);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (error == 0) {
        error = tow_buf_append(said, "", 1);
    }
    return error < 0 ? error : status;
}
