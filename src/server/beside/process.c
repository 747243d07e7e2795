/* SPDX-License-Identifier: Apache-2.0 */
/* Fork and exec: the process has its flags, its end of the line, and nothing of who started it. */
#include "server/beside/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/walls/walls.h"

/* The child between fork and exec: a fresh process has nothing of the listener's memory. */
static _Noreturn void process_run(const struct tows_config *config, const char *const *flags,
                                  uint32_t user, pid_t parent, int control)
{
    static const int theirs[] = {SIGINT,  SIGTERM, SIGHUP,
                                 SIGUSR1, SIGUSR2, SIGPIPE}; /* the listener's */
    static char text[8 * TOW_CONFIG_TEXT_MAX], become[32];
    static char *exports[TOW_WALLS_ENVIRONMENT_MAX + 1];
    char *args[TOW_CONFIG_ARGS_MAX + TOW_PROCESS_FLAGS_MAX + 3] = {(char *)"towlined",
                                                                   (char *)flags[0]};
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        signal(theirs[i], SIG_IGN);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int count = tows_config_worker_args(config, text, sizeof text, args + 2);
    if (getppid() != parent || count < 0) {
        _exit(1);
    }
    tows_walls_show(); /* until exec, and it hides again */
    count += 2;
    for (int i = 1; i < TOW_PROCESS_FLAGS_MAX && flags[i] != NULL; i++) {
        args[count++] = (char *)flags[i];
    }
    if (user != 0) {
        snprintf(become, sizeof become, "--become=%u", user);
        args[count++] = become;
    }
    if (control == TOW_PROCESS_CONTROL ? fcntl(control, F_SETFD, 0) != 0
                                       : dup2(control, TOW_PROCESS_CONTROL) < 0) {
        _exit(1);
    }
    tows_walls_close_from(TOW_PROCESS_CONTROL + 1);
    if (config->walls != 0) {
        tows_walls_environment(environ, exports);
    }
    execve("/proc/self/exe", args, config->walls != 0 ? exports : environ);
    _exit(127);
}

int tows_process_fork(const struct tows_config *config, const char *const *flags, uint32_t user,
                      int *ret_control, pid_t *ret_pid)
{
    int pair[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        process_run(config, flags, user, parent, pair[1]);
    }
    int error = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (error < 0) {
        close(pair[0]);
        return error;
    }
    *ret_pid = pid;
    *ret_control = pair[0];
    return 0;
}
