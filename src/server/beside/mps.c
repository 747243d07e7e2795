/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, watches and ends nvidia-cuda-mps-control. */
#include "server/beside/mps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define PROGRAM "nvidia-cuda-mps-control"
#define START_NS (10 * TOW_TIME_S)
#define STOP_NS (5 * TOW_TIME_S)
#define LOOK_NS (20 * TOW_TIME_MS)

static struct {
    char folder[64];
    pid_t pid;     /* of the daemon; 0: there is none */
    pid_t starter; /* who has started it */
} mps;

/* In the child: `input` or (-1) nothing is its input. */
static void run_program(const char *flag, int input)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(input >= 0 ? input : null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execlp(PROGRAM, PROGRAM, flag, (char *)NULL);
    _exit(127);
}

/* It has its socket there. */
static bool is_ready(void)
{
    char path[sizeof mps.folder + 16];
    snprintf(path, sizeof path, "%s/control", mps.folder);
    return access(path, F_OK) == 0;
}

static void remove_folder(void)
{
    DIR *list = opendir(mps.folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        unlinkat(dirfd(list), entry->d_name, 0);
    }
    if (list != NULL) {
        closedir(list);
    }
    rmdir(mps.folder);
}

static int explain_end(int status, char *why, size_t why_size)
{
    bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
    snprintf(why, why_size,
             missing ? "scheduler = mps needs " PROGRAM ", which is not in PATH: install the "
                       "package of NVIDIA's driver that has it, or write scheduler = none"
                     : PROGRAM " has ended at its start: run " PROGRAM " -f to see why, or write "
                               "scheduler = none");
    return missing ? -ENOENT : -EIO;
}

static int await_start(char *why, size_t why_size)
{
    int64_t deadline = tow_time_deadline(START_NS);
    int status = 0;
    while (!is_ready()) {
        if (waitpid(mps.pid, &status, WNOHANG) == mps.pid) {
            mps.pid = 0;
            return explain_end(status, why, why_size);
        }
        if (tow_time_passed(deadline)) {
            snprintf(why, why_size, PROGRAM " was not ready after 10 s");
            return -ETIMEDOUT;
        }
        tow_time_sleep(LOOK_NS);
    }
    return 0;
}

int tows_mps_start(const struct tows_config *config, char *why, size_t why_size)
{
    if (config->scheduler != TOW_CONFIG_MPS) {
        return 0;
    }
    snprintf(mps.folder, sizeof mps.folder, "/tmp/towline-mps-XXXXXX");
    if (mkdtemp(mps.folder) == NULL) {
        snprintf(why, why_size, "/tmp has no room for a folder of NVIDIA's MPS: %s",
                 strerror(errno));
        return -errno;
    }
    setenv("CUDA_MPS_PIPE_DIRECTORY", mps.folder, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", mps.folder, 1);
    mps.starter = getpid();
    mps.pid = fork();
    if (mps.pid == 0) {
        run_program("-f", -1);
    }
    int error = mps.pid < 0 ? -errno : await_start(why, why_size);
    if (error < 0) {
        tows_mps_stop();
        return error;
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
            "NVIDIA's MPS daemon is process %d: programs run beside each other, and a fault of one "
            "can end all",
            (int)mps.pid);
    return 0;
}

/* The listener may be another process, which may not signal it. */
bool tows_mps_has_ended(void)
{
    char path[64], state = '?';
    if (mps.pid <= 0) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)mps.pid);
    FILE *file = fopen(path, "re");
    bool there = file != NULL && fscanf(file, "%*d %*[^)]) %c", &state) == 1;
    if (file != NULL) {
        fclose(file);
    }
    return !there || state == 'Z' || state == 'X';
}

/* It ends its servers first. */
static void tell_quit(void)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        run_program(NULL, pipes[0]);
    }
    close(pipes[0]);
    const char quit[] = "quit -t 1\n";
    ssize_t written = write(pipes[1], quit, sizeof quit - 1);
    (void)written;
    close(pipes[1]);
}

void tows_mps_stop(void)
{
    if (mps.starter != getpid()) {
        return;
    }
    int64_t deadline = tow_time_deadline(STOP_NS);
    if (mps.pid > 0) {
        tell_quit();
        while (!tows_mps_has_ended() && !tow_time_passed(deadline)) {
            tow_time_sleep(LOOK_NS);
        }
        if (!tows_mps_has_ended()) {
            kill(mps.pid, SIGKILL);
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
    mps.pid = 0;
    mps.starter = 0;
    remove_folder();
}
