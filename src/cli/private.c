/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a private towlined for `towline run` and waits until it serves. */
#include "cli/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

enum {
    READY_FD = 3,
    SETTING_MAX = 256,
};
/* The real driver starts within a few seconds, even on a machine with many GPUs. */
#define READY_NS (60 * TOW_TIME_S)

/* What run_child() hands on. */
struct private_order {
    const char *bin_dir, *device;
    const struct tow_private_setting *settings;
    unsigned setting_count;
};

/* The command line of towlined, from args[first] on. */
static void write_settings(const struct private_order *order, char **args, unsigned first,
                           char texts[TOW_PRIVATE_SETTINGS_MAX][SETTING_MAX])
{
    for (unsigned i = 0; i < order->setting_count && i < TOW_PRIVATE_SETTINGS_MAX; i++) {
        snprintf(texts[i], SETTING_MAX, "%s=%s", order->settings[i].flag, order->settings[i].value);
        args[first + i] = texts[i];
    }
}

static void run_child(const struct private_order *order, const char *dir, int ready, pid_t program)
{
    const char *bin_dir = order->bin_dir, *device = order->device;
    static char texts[TOW_PRIVATE_SETTINGS_MAX][SETTING_MAX];
    char path[4096], dir_flag[TOW_CLI_FOLDER_MAX + 32], pid_flag[32], device_flag[4096];
    snprintf(path, sizeof path, "%s/towlined", bin_dir);
    snprintf(dir_flag, sizeof dir_flag, "--private-dir=%s", dir);
    snprintf(pid_flag, sizeof pid_flag, "--watch-pid=%d", (int)program);
    snprintf(device_flag, sizeof device_flag, "--device=%s", device == NULL ? "" : device);
    /* The terminal's signals are for the program alone, and so are its input and output. */
    setsid();
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    int high = fcntl(ready, F_DUPFD, 16);
    dup2(high, READY_FD);
    for (int fd = READY_FD + 1; fd < 64; fd++) {
        close(fd);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < 32; number++) {
        signal(number, SIG_DFL);
    }
    char *args[TOW_PRIVATE_SETTINGS_MAX + 8] = {(char *)"towlined", dir_flag, pid_flag,
                                                (char *)"--ready-fd=3", (char *)"--idle-workers=0"};
    if (device != NULL) {
        args[5] = device_flag;
    }
    write_settings(order, args, device != NULL ? 6 : 5, texts);
    unsetenv("TOWLINE_TOKEN"); /* for servers of others */
    unsetenv("TOWLINE_TOKEN_FILE");
    execv(path, args);
    dprintf(READY_FD, "failed %s cannot be started: %s\n", path, strerror(errno));
    _exit(127);
}

/* One line: "ready WHAT" or "failed SENTENCE". */
static int read_ready(int fd, char *line, size_t size)
{
    size_t used = 0;
    int64_t deadline = tow_time_deadline(READY_NS);
    while (used < size - 1) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int64_t left_ms = tow_time_left(deadline) / TOW_TIME_MS;
        int ready = poll(&poll_fd, 1, (int)left_ms);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready == 0) {
            return -ETIMEDOUT;
        }
        ssize_t n = read(fd, line + used, size - 1 - used);
        if (n <= 0) {
            break;
        }
        used += (size_t)n;
        if (line[used - 1] == '\n') {
            used--;
            break;
        }
    }
    line[used] = '\0';
    return 0;
}

int tow_private_start(const char *bin_dir, const char *device,
                      const struct tow_private_setting *settings, unsigned setting_count,
                      char *ret_address, size_t address_size, char *ret_serves, size_t serves_size,
                      char *why, size_t why_size)
{
    char dir[TOW_CLI_FOLDER_MAX];
    int error = tow_cli_make_folder(dir);
    if (error < 0) {
        snprintf(why, why_size, "no folder for a private server can be made in /tmp: %s",
                 strerror(-error));
        return -EIO;
    }
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) {
        snprintf(why, why_size, "a pipe cannot be made: %s", strerror(errno));
        rmdir(dir);
        return -EIO;
    }
    struct private_order order = {bin_dir, device, settings, setting_count};
    pid_t program = getpid();
    /* Forked twice: the program must not find a child that it does not know of. */
    pid_t middle = fork();
    if (middle == 0) {
        if (fork() == 0) {
            run_child(&order, dir, ready[1], program);
        }
        _exit(0);
    }
    close(ready[1]);
    if (middle > 0) {
        while (waitpid(middle, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    char line[1024] = "";
    error = middle < 0 ? -errno : read_ready(ready[0], line, sizeof line);
    close(ready[0]);
    if (error == 0 && strncmp(line, "ready ", 6) == 0) {
        snprintf(ret_address, address_size, "unix://%s/sock", dir);
        snprintf(ret_serves, serves_size, "%s", line + 6);
        return 0;
    }
    if (strncmp(line, "failed ", 7) == 0) {
        snprintf(why, why_size, "a private server could not be started: %s", line + 7);
    } else {
        snprintf(why, why_size, "a private server could not be started: %s",
                 error < 0 ? strerror(-error) : "it ended at once");
    }
    rmdir(dir);
    return -EIO;
}
