/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the user's own ssh, which forwards a socket of ours to the server's, and has a detached
 * process watch the program: when that is gone, it ends ssh and removes the socket.
 *
 * ssh stays in the terminal's foreground group, so that it can ask for a password. It ignores what
 * the terminal and shells send to that group: a program that handles SIGINT or SIGTERM still needs
 * its server then. */
#include "cli/tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "transport/address.h"
#include "transport/ssh.h"

enum {
    FILES_MAX = 1024, /* descriptors that the watcher may have inherited */
    LIFE_FD_MIN = 64, /* beyond what programs expect to be theirs */
    NO_SSH = 127,     /* the child's exit code where there is no ssh; its own is 255 */
    LOOK_MIN_MS = 5,  /* how often is looked whether ssh has opened the socket */
    LOOK_MAX_MS = 50,
    WORDS_MAX = 256,
    FORWARD_MAX = 4 * TOW_SSH_PATH_MAX + 2,
};

enum tunnel_state { TUNNEL_GOES_ON, TUNNEL_SSH_ENDED, TUNNEL_PROGRAM_ENDED };

struct tunnel {
    const struct tow_ssh_target *target; /* borrowed */
    char folder[TOW_CLI_FOLDER_MAX];
    char socket[TOW_CLI_FOLDER_MAX + 8], said[TOW_CLI_FOLDER_MAX + 8]; /* in it */
    int life;              /* owned: hangs up when nobody has its other end; -1 then */
    int program;           /* owned: a pidfd; -1: it has ended, or this kernel has none */
    int report;            /* owned: one line for `towline` */
    int signals;           /* owned: a signalfd for SIGCHLD */
    int tty;               /* owned: -1 unless ssh may ask it */
    struct termios before; /* as the terminal was */
    pid_t ssh;             /* 0: it has ended, as `status` says */
    int status;
};

/* The terminal and the program's pipes are not ours to keep: the first `count` of 0, 1, 2. */
static void drop_streams(int count)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < count && null >= 0; fd++) {
        dup2(null, fd);
    }
    if (null > STDERR_FILENO) {
        close(null);
    }
}

/* ---- ssh ---- */

/* As -L wants a path: a colon separates, a per cent sign begins a token. */
static char *escape_path(const char *path, char *to)
{
    for (; *path != '\0'; path++) {
        if (*path == '\\' || *path == ':') {
            *to++ = '\\';
        } else if (*path == '%') {
            *to++ = '%';
        }
        *to++ = *path;
    }
    *to = '\0';
    return to;
}

/* How the user would do it by hand. */
static void write_command(const struct tow_ssh_target *target, char *ret_text, size_t size)
{
    bool port = target->port[0] != '\0', user = target->user[0] != '\0';
    snprintf(ret_text, size, "ssh %s%s%s%s%s%s", port ? "-p " : "", target->port, port ? " " : "",
             target->user, user ? "@" : "", target->host);
}

static void become_ssh(const struct tunnel *tunnel)
{
    const struct tow_ssh_target *target = tunnel->target;
    char forward[FORWARD_MAX], *at = escape_path(tunnel->socket, forward);
    *at++ = ':';
    escape_path(target->path, at);
    const char *args[40] = {"ssh", "-N", "-T",
                            /* A connection that others share would keep our socket open. */
                            "-o", "ControlMaster=no", "-o", "ControlPath=none",
                            /* A machine that is gone is noticed within 20 s, as over tcp. */
                            "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o",
                            "ConnectTimeout=10", "-o", "LogLevel=INFO", "-o",
                            "ExitOnForwardFailure=yes", "-L", forward};
    size_t n = 0;
    while (args[n] != NULL) {
        n++;
    }
    if (tunnel->tty < 0 && getenv("SSH_ASKPASS") == NULL) {
        args[n++] = "-o";
        args[n++] = "BatchMode=yes";
    }
    if (target->user[0] != '\0') {
        args[n++] = "-l";
        args[n++] = target->user;
    }
    if (target->port[0] != '\0') {
        args[n++] = "-p";
        args[n++] = target->port;
    }
    args[n++] = "--";
    args[n++] = target->host;
    args[n] = NULL;
    execvp(args[0], (char *const *)args);
    _exit(NO_SSH);
}

static void start_ssh(struct tunnel *tunnel)
{
    pid_t watcher = getpid();
    tunnel->ssh = fork();
    if (tunnel->ssh > 0) {
        return;
    }
    if (tunnel->ssh < 0) {
        tunnel->ssh = 0;
        tunnel->status = -errno;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != watcher) {
        _exit(NO_SSH);
    }
    if (tunnel->tty < 0) {
        setsid();
    }
    drop_streams(2);
    int said = open(tunnel->said, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (said >= 0) {
        dup2(said, STDERR_FILENO);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    become_ssh(tunnel);
}

/* Why ssh has ended before it was of any use. */
static void explain_end(const struct tunnel *tunnel, char *why, size_t size)
{
    const struct tow_ssh_target *target = tunnel->target;
    char words[WORDS_MAX], command[sizeof *target], how[64];
    tow_ssh_last_words(tunnel->said, words, sizeof words);
    write_command(target, command, sizeof command);
    if (WIFEXITED(tunnel->status) && WEXITSTATUS(tunnel->status) == NO_SSH) {
        snprintf(why, size,
                 "ssh://%s needs the program ssh, which is in none of the folders of PATH; install "
                 "OpenSSH's client (on Debian: apt install openssh-client)",
                 target->host);
        return;
    }
    if (WIFSIGNALED(tunnel->status)) {
        snprintf(how, sizeof how, "it was ended by signal %d", WTERMSIG(tunnel->status));
    } else {
        snprintf(how, sizeof how, "it ended with exit code %d", WEXITSTATUS(tunnel->status));
    }
    const char *text = words[0] == '\0' ? how : words;
    bool asks = strstr(text, "ermission denied") != NULL || strstr(text, "verification") != NULL;
    snprintf(why, size, "ssh to %s failed: %s; %s: %s", target->host,
             strncmp(text, "ssh: ", 5) == 0 ? text + 5 : text,
             asks && tunnel->tty < 0 ? "it can ask for nothing here, try it in a terminal"
                                     : "try it by hand",
             command);
}

/* ---- the watcher ---- */

/* Waits for something to happen, and takes it in. */
static enum tunnel_state tunnel_watch(struct tunnel *tunnel, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = tunnel->signals, .events = POLLIN},
                           {.fd = tunnel->life, .events = POLLIN},
                           {.fd = tunnel->program, .events = POLLIN}};
    char bytes[sizeof(struct signalfd_siginfo)];
    if (poll(fds, 3, timeout_ms) > 0) {
        if (fds[0].revents != 0 && read(tunnel->signals, bytes, sizeof bytes) > 0 &&
            tunnel->ssh > 0 && waitpid(tunnel->ssh, &tunnel->status, WNOHANG) == tunnel->ssh) {
            tunnel->ssh = 0;
        }
        if (fds[1].revents != 0 && read(tunnel->life, bytes, sizeof bytes) <= 0) {
            close(tunnel->life);
            tunnel->life = -1;
        }
        if (fds[2].revents != 0) {
            close(tunnel->program);
            tunnel->program = -1;
        }
    }
    if (tunnel->life < 0 && tunnel->program < 0) {
        return TUNNEL_PROGRAM_ENDED;
    }
    return tunnel->ssh == 0 ? TUNNEL_SSH_ENDED : TUNNEL_GOES_ON;
}

/* ssh makes the socket when it has logged in. */
static bool is_open(const struct tunnel *tunnel)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", tunnel->socket);
    if (access(tunnel->socket, F_OK) != 0) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return open;
}

static enum tunnel_state wait_open(struct tunnel *tunnel)
{
    enum tunnel_state state;
    int pause_ms = LOOK_MIN_MS;
    do {
        state = tunnel_watch(tunnel, pause_ms);
        pause_ms = 2 * pause_ms < LOOK_MAX_MS ? 2 * pause_ms : LOOK_MAX_MS;
    } while (state == TUNNEL_GOES_ON && !is_open(tunnel));
    return state;
}

static void remove_folder(const struct tunnel *tunnel)
{
    unlink(tunnel->socket);
    unlink(tunnel->said);
    rmdir(tunnel->folder);
}

static void end_ssh(struct tunnel *tunnel)
{
    if (tunnel->ssh > 0) {
        kill(tunnel->ssh, SIGKILL);
        while (waitpid(tunnel->ssh, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (tunnel->tty >= 0) {
        tcsetattr(tunnel->tty, TCSANOW, &tunnel->before); /* it asked for a password just now */
    }
    remove_folder(tunnel);
}

/* The program's calls find it there (transport/ssh.c). */
static void write_end(const struct tunnel *tunnel)
{
    char words[WORDS_MAX];
    tow_ssh_last_words(tunnel->said, words, sizeof words);
    int fd = open(tunnel->said, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0 && WIFSIGNALED(tunnel->status)) {
        dprintf(fd, "ssh was ended by signal %d\n", WTERMSIG(tunnel->status));
    } else if (fd >= 0 && words[0] == '\0') {
        dprintf(fd, "ssh has ended with exit code %d\n", WEXITSTATUS(tunnel->status));
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Only what the watcher needs: a copy of the program's own would keep others waiting. */
static void close_others(const struct tunnel *tunnel)
{
    for (int fd = STDERR_FILENO + 1; fd < FILES_MAX; fd++) {
        if (fd != tunnel->life && fd != tunnel->program && fd != tunnel->report) {
            close(fd);
        }
    }
}

/* Where ssh may ask: the terminal, if we are in its foreground. */
static int open_terminal(struct termios *ret_before)
{
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (tty >= 0 && (tcgetpgrp(tty) != getpgrp() || tcgetattr(tty, ret_before) != 0)) {
        close(tty);
        tty = -1;
    }
    return tty;
}

static void be_watcher(struct tunnel *tunnel)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGPIPE};
    close_others(tunnel);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        signal(ignored[i], SIG_IGN);
    }
    signal(SIGCHLD, SIG_DFL);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    tunnel->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    tunnel->tty = open_terminal(&tunnel->before);
    start_ssh(tunnel);
    setsid();
    drop_streams(3);
    enum tunnel_state state = wait_open(tunnel);
    if (state == TUNNEL_SSH_ENDED) {
        char why[TOW_WHY_MAX];
        explain_end(tunnel, why, sizeof why);
        end_ssh(tunnel);
        dprintf(tunnel->report, "failed %s\n", why);
        _exit(0);
    }
    if (state == TUNNEL_GOES_ON) {
        dprintf(tunnel->report, "open\n");
        close(tunnel->tty);
        tunnel->tty = -1;
    }
    close(tunnel->report);
    while (state != TUNNEL_PROGRAM_ENDED) {
        pid_t before = tunnel->ssh;
        state = tunnel_watch(tunnel, -1);
        if (before > 0 && tunnel->ssh == 0) {
            write_end(tunnel);
        }
    }
    end_ssh(tunnel);
    _exit(0);
}

/* ---- towline ---- */

static int read_report(int fd, char *line, size_t size)
{
    size_t used = 0;
    while (used < size - 1) {
        ssize_t n = read(fd, line + used, size - 1 - used);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        used += (size_t)n;
    }
    line[used] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, "open") == 0 ? 0 : -EIO;
}

/* Forked twice: the program must not find a child that it does not know of. */
static int start_watcher(struct tunnel *tunnel)
{
    pid_t middle = fork();
    if (middle == 0) {
        if (fork() == 0) {
            be_watcher(tunnel);
        }
        _exit(0);
    }
    int error = middle < 0 ? -errno : 0;
    while (middle > 0 && waitpid(middle, NULL, 0) < 0 && errno == EINTR) {
    }
    return error;
}

static int open_pipes(struct tunnel *tunnel, int *ret_life, int *ret_heard)
{
    int life[2], report[2];
    if (pipe2(life, O_CLOEXEC) != 0) {
        return -errno;
    }
    /* The program and its children have this end, as long as there are any. */
    int kept = fcntl(life[1], F_DUPFD, LIFE_FD_MIN);
    int error = kept < 0 || pipe2(report, O_CLOEXEC) != 0 ? -errno : 0;
    close(life[1]);
    if (error < 0) {
        close(life[0]);
        if (kept >= 0) {
            close(kept);
        }
        return error;
    }
    tunnel->life = life[0];
    tunnel->report = report[1];
    tunnel->program = (int)syscall(SYS_pidfd_open, getpid(), 0);
    *ret_life = kept;
    *ret_heard = report[0];
    return 0;
}

static int tunnel_open(struct tunnel *tunnel, char *why, size_t why_size)
{
    char line[TOW_WHY_MAX + 16] = "";
    int life = -1, heard = -1, error = tow_cli_make_folder(tunnel->folder);
    if (error < 0) {
        snprintf(why, why_size, "no folder for ssh's socket can be made in /tmp: %s",
                 strerror(-error));
        return error;
    }
    snprintf(tunnel->socket, sizeof tunnel->socket, "%s/" TOW_SSH_SOCKET, tunnel->folder);
    snprintf(tunnel->said, sizeof tunnel->said, "%s/" TOW_SSH_SAID, tunnel->folder);
    error = open_pipes(tunnel, &life, &heard);
    if (error < 0) {
        rmdir(tunnel->folder);
        snprintf(why, why_size, "a pipe cannot be made: %s", strerror(-error));
        return error;
    }
    error = start_watcher(tunnel);
    close(tunnel->life);
    close(tunnel->report);
    if (tunnel->program >= 0) {
        close(tunnel->program);
    }
    if (error == 0) {
        error = read_report(heard, line, sizeof line);
    }
    close(heard);
    if (error < 0) {
        close(life);
        bool told = strncmp(line, "failed ", 7) == 0;
        snprintf(why, why_size, "%s%s",
                 told ? "" : "ssh cannot be started: ", told ? line + 7 : strerror(-error));
        remove_folder(tunnel);
    }
    return error;
}

/* Opens the way to one server, if it needs one, and writes the address that goes through it. */
static int open_one(const char *address, char *ret_address, char *why, size_t why_size)
{
    struct tow_ssh_target target;
    if (!tow_transport_wants_ssh(tow_transport_behind_hook(address), &target)) {
        snprintf(ret_address, TOW_ADDRESS_MAX, "%s", address);
        return 0;
    }
    struct tunnel tunnel = {.target = &target, .tty = -1, .status = 0};
    int error = tunnel_open(&tunnel, why, why_size);
    if (error == 0 && tow_transport_through(address, tunnel.socket, ret_address) < 0) {
        snprintf(why, why_size, "the address %.64s... is too long", address);
        error = -ENAMETOOLONG;
    }
    return error;
}

int tow_tunnels_open(char *servers, char *why, size_t why_size)
{
    char list[TOW_CLI_ADDRESS_MAX], *rest = servers, *address;
    size_t used = 0;
    list[0] = '\0';
    while ((address = tow_address_next(&rest)) != NULL) {
        char one[TOW_ADDRESS_MAX];
        int error = open_one(address, one, why, why_size);
        if (error < 0) {
            return error;
        }
        int length = snprintf(list + used, sizeof list - used, "%s%s", used == 0 ? "" : ",", one);
        used += (size_t)length;
        if (used >= sizeof list) {
            snprintf(why, why_size, "the servers' addresses are too long");
            return -ENAMETOOLONG;
        }
    }
    memcpy(servers, list, used + 1);
    return 0;
}
