/* SPDX-License-Identifier: Apache-2.0 */
/* Forks the listener, and takes from each of both what the other one has. */
#include "server/daemon/split.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "server/listener/listen.h"
#include "server/walls/user.h"
#include "server/walls/walls.h"

/* The settings' user; false: they name none that this machine knows. */
static bool split_user(const struct tows_config *config, uint32_t own, uint32_t *ret_user)
{
    const char *name = config->user;
    char *end;
    if (name[0] == '\0') {
        *ret_user = own;
        return true;
    }
    errno = 0;
    unsigned long long number = strtoull(name, &end, 10);
    if (name[0] >= '0' && name[0] <= '9' && *end == '\0') {
        *ret_user = (uint32_t)number;
        return errno == 0 && number < UINT32_MAX;
    }
    const struct passwd *user = getpwnam(name);
    *ret_user = user != NULL ? user->pw_uid : 0;
    return user != NULL;
}

/* Who has the number of another process of the server's could signal it, and look into it. */
static int split_check(const struct tows_config *config, const struct tows_split *split, char *why,
                       size_t why_size)
{
    const struct tows_config_range *range = &config->tenant_users;
    if (split->group == 0) {
        snprintf(why, why_size,
                 "tenant-users = %llu:%llu leaves no number for the users of the server's own "
                 "processes; name fewer",
                 (unsigned long long)range->first, (unsigned long long)range->count);
        return -EINVAL;
    }
    if (split->user == split->shaker_user || split->user == split->web_user) {
        snprintf(why, why_size, "user: %u is the user of the process %s; name another", split->user,
                 split->user == split->web_user ? "that answers over HTTP" : "with the TLS key");
        return -EINVAL;
    }
    if (range->count != 0 && split->user >= range->first &&
        split->user - range->first < range->count) {
        snprintf(why, why_size, "user: %u is one of tenant-users; name another", split->user);
        return -EINVAL;
    }
    return 0;
}

int tows_split_choose(const struct tows_config *config, struct tows_split *ret_split, char *why,
                      size_t why_size)
{
    char reason[256];
    struct tows_split split = {.on = false};
    /* A private server serves the user who has started it. */
    bool asked = config->walls != 0 && geteuid() == 0 && config->watch_pid == 0 &&
                 config->private_dir[0] == '\0' && !tows_walls_sanitized();
    *ret_split = split;
    /* A group that nobody has, whoever the user is: what is the listener's alone is this group's.
     */
    split.group = tows_user_ours(config, TOW_USER_LISTENER);
    split.shaker_user = tows_user_ours(config, TOW_USER_SHAKER);
    split.web_user = tows_user_ours(config, TOW_USER_WEB);
    if (!split_user(config, split.group, &split.user)) {
        snprintf(why, why_size,
                 "user: this machine has no user \"%.64s\"; write a name or a number",
                 config->user);
        return -EINVAL;
    }
    if (!asked || (split.user == 0 && config->user[0] != '\0')) {
        return 0;
    }
    if (split_check(config, &split, why, why_size) < 0) {
        return -EINVAL;
    }
    if (tows_user_try_listener(config, split.user, split.group, reason, sizeof reason) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "the process that hears clients keeps root's user and the rights of this server: "
                "%s (user = root is for a server that wants that)",
                reason);
        return 0;
    }
    split.on = true;
    *ret_split = split;
    return 0;
}

/* ---- the listener ---- */

static int put_in_place(int fd, int place)
{
    int error = fd < 0 || dup2(fd, place) < 0 ? -errno : 0;
    if (fd > STDERR_FILENO) {
        close(fd);
    }
    return error;
}

/* A terminal is of who has started the server: whoever has it open can read it, and who has it as
 * his session's can type there. What is left of it can be written. */
static int leave_terminal(void)
{
    char path[32];
    if (setsid() < 0) {
        return -errno;
    }
    int error = put_in_place(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && error == 0; fd++) {
        if (isatty(fd)) {
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            error = put_in_place(open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC), fd);
        }
    }
    return error;
}

/* What this program opens is closed by exec, so all that is not was there before it. */
static int close_inherited(int kept)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        return -errno;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        if (fd > STDERR_FILENO && fd != kept && fd != dirfd(folder) &&
            (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) {
            close(fd);
        }
    }
    closedir(folder);
    return 0;
}

/* Of root's folder, descriptors and environment what the listener works with. */
static int leave_starter(const struct tows_config *config)
{
    tows_walls_forget_environment();
    if (chdir("/") != 0) {
        return -errno;
    }
    return close_inherited(config->ready_fd != 0 ? (int)config->ready_fd : -1);
}

enum { LISTENER_AHEAD = 10 }; /* of its workers, as a nice value */

/* Workers may keep all processors busy, with a software GPU. Who asks the listener, a program that
 * starts or one that waits for its turn, waits for little all the same. */
static void go_ahead(void)
{
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) - LISTENER_AHEAD);
    /* Who has left its terminal may be in a group of its own, of which the kernel asks first. */
    int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        char nice[8];
        int length = snprintf(nice, sizeof nice, "%d", -LISTENER_AHEAD);
        (void)tow_file_write_all(fd, nice, (size_t)length);
        close(fd);
    }
}

/* Signals are the parent's, whoever else they are sent to: it tells of them once. */
static int become_listener(const struct tows_split *split, const struct tows_config *config,
                           pid_t parent)
{
    static const int theirs[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        signal(theirs[i], SIG_IGN);
        sigaddset(&set, theirs[i]);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* what is blocked would come by the signalfd */
    prctl(PR_SET_NAME, "tow-listener");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        return -ESRCH;
    }
    int error = leave_terminal();
    go_ahead();
    error = error < 0 ? error : leave_starter(config);
    return error < 0 ? error : tows_walls_raise_listener(split->user, split->group);
}

/* ---- the parent ---- */

/* What a listener of one process removes when it ends; the files are root's. Sessions may take long
 * to end: by then another server may listen there. */
static void remove_sockets(struct tow_listener *const *listeners, unsigned count,
                           const struct stat *files)
{
    struct stat now;
    for (unsigned i = 0; i < count; i++) {
        if (listeners[i]->path[0] != '\0' && lstat(listeners[i]->path, &now) == 0 &&
            now.st_dev == files[i].st_dev && now.st_ino == files[i].st_ino &&
            now.st_mtim.tv_sec == files[i].st_mtim.tv_sec &&
            now.st_mtim.tv_nsec == files[i].st_mtim.tv_nsec) {
            unlink(listeners[i]->path);
        }
    }
}

static int be_parent(struct tows_parent *parent, struct tow_listener *const *listeners,
                     unsigned count, int signals)
{
    struct stat files[TOW_LISTEN_MAX] = {0};
    for (unsigned i = 0; i < count; i++) {
        lstat(listeners[i]->path, &files[i]);
        close(listeners[i]->fd); /* it hears nobody */
    }
    if (parent->config.ready_fd != 0) {
        close((int)parent->config.ready_fd);
        parent->config.ready_fd = 0;
    }
    tows_walls_raise_parent();
    int code = tows_parent_run(parent, signals);
    remove_sockets(listeners, count, files);
    tows_cgroups_close(&parent->starter.groups);
    tows_parent_fini(parent);
    tow_log_flush(true);
    return code;
}

int tows_split_do(const struct tows_split *split, struct tows_parent *parent,
                  const struct tows_config *config, struct tow_listener *const *listeners,
                  unsigned count, int signals, int *ret_line, int *ret_folder, int *ret_code,
                  char *why, size_t why_size)
{
    int pair[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        int error = -errno;
        snprintf(why, why_size, "the server cannot be split: %s", strerror(-error));
        return error;
    }
    tows_parent_refuse_descriptors(pair[0]);
    int folder = tows_parent_code(config, split->group);
    tow_log_on(TOW_AREA_SERVER, TOW_LOG_WARN); /* opens a log file, which root's may be */
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        int error = become_listener(split, config, self);
        if (error < 0) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                    "the process that hears clients cannot give up root's rights: %s",
                    strerror(-error));
            _exit(1);
        }
        *ret_line = pair[1];
        *ret_folder = folder;
        return 0;
    }
    int error = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (folder >= 0) {
        close(folder);
    }
    if (error < 0) {
        close(pair[0]);
        snprintf(why, why_size, "the server cannot be split: %s", strerror(-error));
        return error;
    }
    parent->line = pair[0];
    parent->listener = pid;
    parent->group = split->group;
    parent->shaker_user = split->shaker_user;
    parent->web_user = split->web_user;
    *ret_code = be_parent(parent, listeners, count, signals);
    return 1;
}
