/* SPDX-License-Identifier: Apache-2.0 */
/* Forks workers, knows which processes are its own, and touches no other. */
#include "server/pool/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/pool/machine.h"
#include "server/session/session.h"
#include "server/walls/walls.h"
#include "server/worker/worker_msg.h"

struct tows_started {
    struct tows_started *next; /* owned by the starter */
    uint64_t number;
    pid_t pid;
    int process;    /* owned: its descriptor, if it is no child of this process; else -1 */
    unsigned group; /* number of its control group; 0: it has none */
};

void tows_starter_init(struct tows_starter *starter, const struct tows_config *config)
{
    *starter = (struct tows_starter){.config = config, .next = 1, .watch = -1};
    getrlimit(RLIMIT_NOFILE, &starter->files);
}

static void close_process(const struct tows_started *started)
{
    if (started->process >= 0) {
        close(started->process);
    }
}

void tows_starter_fini(struct tows_starter *starter)
{
    while (starter->started != NULL) {
        struct tows_started *gone = starter->started;
        starter->started = gone->next;
        tows_cgroup_remove(&starter->groups, gone->group);
        close_process(gone);
        free(gone);
    }
    if (starter->watch >= 0) {
        close(starter->watch);
        starter->watch = -1;
    }
}

struct rlimit tows_starter_files(const struct tows_starter *starter)
{
    struct rlimit files = starter->files;
    rlim_t wanted = starter->config->session_files;
    if (wanted != 0) {
        files.rlim_cur = wanted < files.rlim_max ? wanted : files.rlim_max;
    }
    return files;
}

/* ---- the process between fork and exec ---- */

/* Splits a key: NAME=VALUE lines go into the environment, slot=N becomes a flag. */
static void apply_key(char *key, char **ret_slot)
{
    *ret_slot = NULL;
    char *rest;
    for (char *line = strtok_r(key, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "slot=", 5) == 0) {
            *ret_slot = line + 5;
        } else {
            putenv(line);
        }
    }
}

/* Who starts it has one thread, so everything may be called here. */
static void run_child(const struct tows_starter *starter, const char *key, int control, int stats,
                      unsigned group, pid_t parent)
{
    /* Workers end with who started them, whatever ended it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    tows_walls_show(); /* until exec, and it hides again */
    tows_cgroup_enter(&starter->groups, group);
    /* Both are moved out of the way first: either might be 3 or 4 already. */
    int high_control = fcntl(control, F_DUPFD, 16);
    int high_stats = fcntl(stats, F_DUPFD, 16);
    if (high_control < 0 || high_stats < 0 || dup2(high_control, TOW_WORKER_MSG_FD) < 0 ||
        dup2(high_stats, TOW_STATS_FD) < 0) {
        _exit(1);
    }
    close(high_control);
    close(high_stats);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        /* stdout stays: device printf of the real driver goes there. */
        dup2(null, STDIN_FILENO);
        if (null > TOW_STATS_FD) {
            close(null);
        }
    }
    /* When the machine's memory is used up, a session goes before the listener does. */
    int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (oom >= 0) {
        ssize_t written = write(oom, "500", 3);
        (void)written;
        close(oom);
    }
#if !defined(__SANITIZE_THREAD__)
    /* Everything of this process then lies at 0x2aaa... (x86-64) or 0x4000... (arm64), where no
     * client has anything: device addresses of the real driver, and room at the client's own
     * addresses for host memory that the GPU reaches. ThreadSanitizer cannot live with this layout.
     */
    personality(ADDR_COMPAT_LAYOUT);
#endif
    /* Whoever ends the listener may send these to the whole group; it ends its workers itself. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); /* drains the listener; a session goes on, whoever else hears it */
    signal(SIGUSR2, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct rlimit files = tows_starter_files(starter);
    setrlimit(RLIMIT_NOFILE, &files);

    static char text[8 * TOW_CONFIG_TEXT_MAX];
    static char key_copy[TOW_WORKER_KEY_MAX];
    static char slot_flag[32];
    char *args[TOW_CONFIG_ARGS_MAX + 5] = {(char *)"towlined", (char *)"--worker"};
    int count = tows_config_worker_args(starter->config, text, sizeof text, args + 2);
    if (count < 0) {
        _exit(1);
    }
    count += 2;
    char *slot;
    snprintf(key_copy, sizeof key_copy, "%s", key);
    apply_key(key_copy, &slot);
    if (slot != NULL) {
        snprintf(slot_flag, sizeof slot_flag, "--slot=%.8s", slot);
        args[count++] = slot_flag;
    }
    if (starter->config->tls) {
        args[count++] = (char *)"--tls";
    }
    args[count] = NULL;
    static char *exports[TOW_WALLS_ENVIRONMENT_MAX + 1];
    tows_walls_close_from(TOW_STATS_FD + 1);
    if (starter->config->walls != 0) {
        tows_walls_environment(environ, exports);
    }
    execve("/proc/self/exe", args, starter->config->walls != 0 ? exports : environ);
    _exit(127);
}

/* ---- who has no rights asks ---- */

static int starter_ask(const struct tows_starter *starter, const struct tows_parent_msg *msg)
{
    struct tows_parent_news answer;
    int none[TOW_PARENT_FDS_MAX];
    return tows_parent_line_ask(starter->line, msg, NULL, 0, &answer, none);
}

static void close_both(const int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* Where this process has no room for descriptors they do not come; who was started then meets the
 * end of its socket. */
static int ask_for_worker(const struct tows_starter *starter, const char *key, uint32_t lines,
                          struct tows_shared *ret_shared, uint64_t *ret_number, pid_t *ret_pid)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_START, .value = lines};
    struct tows_parent_news answer = {.number = 0};
    int fds[TOW_PARENT_FDS_MAX];
    snprintf(msg.text, sizeof msg.text, "%s", key);
    int error = tows_parent_line_ask(starter->line, &msg, NULL, 0, &answer, fds);
    if (error == 0 && (fds[0] < 0 || fds[1] < 0)) {
        error = -EMFILE;
    }
    if (error < 0) {
        close_both(fds);
        return error;
    }
    *ret_shared = (struct tows_shared){.control = fds[0], .stats = fds[1]};
    *ret_number = answer.number;
    *ret_pid = answer.pid;
    return 0;
}

/* One of the processes that are no workers. */
static int starter_ask_process(struct tows_starter *starter, enum tows_parent_ask ask,
                               int *ret_control, struct tows_parent_news *answer)
{
    const struct tows_parent_msg msg = {.ask = ask};
    int fds[TOW_PARENT_FDS_MAX];
    int error = tows_parent_line_ask(starter->line, &msg, NULL, 0, answer, fds);
    if (error == 0 && fds[0] < 0) {
        error = -EMFILE;
    }
    if (error == 0) {
        *ret_control = fds[0];
    }
    return error;
}

int tows_starter_shaker(struct tows_starter *starter, int *ret_control, uint64_t *ret_number,
                        char *why, size_t why_size)
{
    struct tows_parent_news answer = {.number = 0};
    int error = starter_ask_process(starter, TOW_PARENT_SHAKER, ret_control, &answer);
    if (error == 0) {
        *ret_number = answer.number;
    } else {
        snprintf(why, why_size, "%s", answer.text[0] != '\0' ? answer.text : strerror(-error));
    }
    return error;
}

int tows_starter_web(struct tows_starter *starter, int *ret_control, uint64_t *ret_number)
{
    struct tows_parent_news answer = {.number = 0};
    int error = starter_ask_process(starter, TOW_PARENT_WEB, ret_control, &answer);
    if (error == 0) {
        *ret_number = answer.number;
    }
    return error;
}

/* ---- who starts it ---- */

static struct tows_started *starter_place(struct tows_starter *starter)
{
    struct tows_started *started = calloc(1, sizeof *started);
    if (started != NULL) {
        started->number = starter->next++;
        started->process = -1;
    }
    return started;
}

static void starter_keep(struct tows_starter *starter, struct tows_started *started)
{
    started->next = starter->started;
    starter->started = started;
    starter->count++;
}

/* Sealed, so that neither who has it can let the other meet its end. */
static int make_stats(uint32_t lines)
{
    int fd = memfd_create("towline-session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, sizeof(struct tows_session_stats)) != 0 ||
        pwrite(fd, &lines, sizeof lines, offsetof(struct tows_session_stats, lines)) !=
            sizeof lines ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

/* `ret_control`: the worker's end. */
static int make_shared(uint32_t lines, struct tows_shared *ret_shared, int *ret_control)
{
    int pair[2], stats = make_stats(lines);
    if (stats < 0) {
        return stats;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        int error = -errno;
        close(stats);
        return error;
    }
    *ret_shared = (struct tows_shared){.control = pair[0], .stats = stats};
    *ret_control = pair[1];
    return 0;
}

int tows_starter_start(struct tows_starter *starter, const char *key, uint32_t lines,
                       struct tows_shared *ret_shared, uint64_t *ret_number, pid_t *ret_pid)
{
    struct tows_shared shared = {.control = -1, .stats = -1};
    int control = -1;
    if (strlen(key) >= TOW_WORKER_KEY_MAX) {
        return -E2BIG;
    }
    if (starter->line != NULL) {
        return ask_for_worker(starter, key, lines, ret_shared, ret_number, ret_pid);
    }
    struct tows_started *started = starter_place(starter);
    if (started == NULL) {
        return -ENOMEM;
    }
    int error = make_shared(lines, &shared, &control);
    if (error < 0) {
        free(started);
        return error;
    }
    started->group = tows_cgroup_make(&starter->groups);
    pid_t self = getpid();
    started->pid = fork();
    if (started->pid == 0) {
        run_child(starter, key, control, shared.stats, started->group, self);
    }
    error = started->pid < 0 ? -errno : 0;
    close(control);
    if (error < 0) {
        close(shared.control);
        close(shared.stats);
        tows_cgroup_remove(&starter->groups, started->group);
        free(started);
        return error;
    }
    starter_keep(starter, started);
    *ret_shared = shared;
    *ret_number = started->number;
    *ret_pid = started->pid;
    return 0;
}

int tows_starter_adopt(struct tows_starter *starter, pid_t pid, uint64_t *ret_number)
{
    struct tows_started *started = starter_place(starter);
    if (started == NULL) {
        return -ENOMEM;
    }
    started->pid = pid;
    starter_keep(starter, started);
    *ret_number = started->number;
    return 0;
}

/* Its descriptor, if it is the one that was meant. */
static int find_process(const struct tows_starter *starter, pid_t pid, uint64_t born)
{
    uint64_t began = 0;
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = {.fd = process, .events = POLLIN};
    int error = process < 0 ? -errno : 0;
    if (error == 0 && (tows_machine_born(pid, &began) < 0 || began != born)) {
        error = -ESRCH;
    }
    if (error == 0 && starter->may_take != NULL && !starter->may_take(starter->config, pid)) {
        error = -EPERM;
    }
    /* If it is there still, all this was its own. */
    if (error == 0 && poll(&end, 1, 0) != 0) {
        error = -ESRCH;
    }
    if (error < 0 && process >= 0) {
        close(process);
    }
    return error < 0 ? error : process;
}

static int ask_to_take(const struct tows_starter *starter, pid_t pid, uint64_t born,
                       uint64_t *ret_number)
{
    const struct tows_parent_msg msg = {
        .ask = TOW_PARENT_TAKE, .value = (uint32_t)pid, .number = born};
    struct tows_parent_news answer = {.number = 0};
    int none[TOW_PARENT_FDS_MAX];
    int error = tows_parent_line_ask(starter->line, &msg, NULL, 0, &answer, none);
    *ret_number = answer.number;
    return error;
}

/* It ends with a signal for others only. */
static int watch_process(struct tows_starter *starter, int process)
{
    struct epoll_event end = {.events = EPOLLIN};
    if (starter->watch < 0) {
        starter->watch = epoll_create1(EPOLL_CLOEXEC);
    }
    return starter->watch < 0 || epoll_ctl(starter->watch, EPOLL_CTL_ADD, process, &end) != 0
               ? -errno
               : 0;
}

/* Each once: who asks may be in a stranger's hands. */
static bool has_taken(const struct tows_starter *starter, pid_t pid)
{
    const struct tows_started *started = starter->started;
    while (started != NULL && (started->process < 0 || started->pid != pid)) {
        started = started->next;
    }
    return started != NULL;
}

int tows_starter_take(struct tows_starter *starter, pid_t pid, uint64_t born, uint64_t *ret_number)
{
    if (starter->line != NULL) {
        return ask_to_take(starter, pid, born, ret_number);
    }
    if (has_taken(starter, pid)) {
        return -EEXIST;
    }
    int process = find_process(starter, pid, born);
    int error = process < 0 ? process : watch_process(starter, process);
    error = error < 0 ? error : tows_starter_adopt(starter, pid, ret_number);
    if (error < 0) {
        if (process >= 0) {
            close(process);
        }
        return error;
    }
    starter->started->process = process;
    starter->started->group = tows_cgroup_find(&starter->groups, pid);
    starter->taken++;
    return 0;
}

static const struct tows_started *find_started(const struct tows_starter *starter, uint64_t number)
{
    const struct tows_started *started = starter->started;
    while (started != NULL && started->number != number) {
        started = started->next;
    }
    return started;
}

/* The number of one that is no child may be another's by now. */
static int send_signal(const struct tows_started *started, int signal)
{
    int error = started->process >= 0
                    ? (int)syscall(SYS_pidfd_send_signal, started->process, signal, NULL, 0)
                    : kill(started->pid, signal);
    return error == 0 ? 0 : -errno;
}

int tows_starter_signal(struct tows_starter *starter, uint64_t number, int signal)
{
    if (starter->line != NULL) {
        const struct tows_parent_msg msg = {
            .ask = TOW_PARENT_SIGNAL, .number = number, .value = (uint32_t)signal};
        return starter_ask(starter, &msg);
    }
    const struct tows_started *started = find_started(starter, number);
    if (started == NULL || (signal != SIGKILL && signal != SIGCONT)) {
        return started == NULL ? -ESRCH : -EINVAL;
    }
    return send_signal(started, signal);
}

void tows_starter_kill(const struct tows_starter *starter)
{
    for (const struct tows_started *started = starter->started; started != NULL;
         started = started->next) {
        send_signal(started, SIGKILL);
    }
}

int tows_starter_limit(struct tows_starter *starter, uint64_t number, uint64_t memory,
                       uint64_t threads)
{
    if (starter->line != NULL) {
        const struct tows_parent_msg msg = {
            .ask = TOW_PARENT_LIMIT, .number = number, .memory = memory, .threads = threads};
        return starter_ask(starter, &msg);
    }
    const struct tows_started *started = find_started(starter, number);
    if (started == NULL) {
        return -ESRCH;
    }
    tows_cgroup_limit(&starter->groups, started->group, memory, threads);
    return 0;
}

bool tows_starter_weigh(struct tows_starter *starter, uint64_t number, unsigned weight)
{
    if (starter->line != NULL) {
        const struct tows_parent_msg msg = {
            .ask = TOW_PARENT_WEIGH, .number = number, .value = weight};
        return starter_ask(starter, &msg) == 0;
    }
    const struct tows_started *started = find_started(starter, number);
    return started != NULL && tows_cgroup_weigh(&starter->groups, started->group, weight);
}

int tows_starter_nice(const struct tows_starter *starter)
{
    /* Theirs is of who starts them: a listener beside a parent goes before it (split.c). */
    return getpriority(PRIO_PROCESS, starter->line != NULL ? (id_t)getppid() : 0);
}

int tows_starter_yield(struct tows_starter *starter, uint64_t number, int nice)
{
    if (starter->line != NULL) {
        const struct tows_parent_msg msg = {
            .ask = TOW_PARENT_YIELD, .number = number, .value = (uint32_t)nice};
        return starter_ask(starter, &msg);
    }
    const struct tows_started *started = find_started(starter, number);
    if (started == NULL || nice < tows_starter_nice(starter) || nice >= PRIO_MAX) {
        return started == NULL ? -ESRCH : -EINVAL;
    }
    struct pollfd end = {.fd = started->process, .events = POLLIN};
    if (started->process >= 0 && poll(&end, 1, 0) != 0) {
        return -ESRCH; /* its number may be another's */
    }
    tows_machine_yield(started->pid, nice);
    return 0;
}

/* One that is no child of this process; NULL: all of them are there. */
static struct tows_started *find_ended(const struct tows_starter *starter)
{
    struct tows_started *started = starter->taken > 0 ? starter->started : NULL;
    for (; started != NULL; started = started->next) {
        struct pollfd end = {.fd = started->process, .events = POLLIN};
        if (started->process >= 0 && poll(&end, 1, 0) > 0) {
            return started;
        }
    }
    return NULL;
}

/* What the line has said, then children of this process. */
static int reap_heard(const struct tows_starter *starter, struct tows_ended *ret_ended)
{
    struct tows_parent_news news;
    tows_parent_line_hear(starter->line);
    if (tows_parent_line_next(starter->line, &news) > 0) {
        *ret_ended = (struct tows_ended){.number = news.number,
                                         .pid = news.pid,
                                         .status = news.status,
                                         .full = news.full != 0,
                                         .unknown = news.unknown != 0};
        return 1;
    }
    return 0;
}

int tows_starter_reap(struct tows_starter *starter, struct tows_ended *ret_ended)
{
    struct tows_ended ended = {0};
    if (starter->line != NULL && reap_heard(starter, ret_ended) > 0) {
        return 1;
    }
    const struct tows_started *other = find_ended(starter);
    ended.unknown = other != NULL;
    ended.pid = other != NULL ? other->pid : waitpid(-1, &ended.status, WNOHANG);
    if (ended.pid <= 0) {
        return 0;
    }
    struct tows_started **at = &starter->started;
    /* The number of one that is no child may be a child's by now. */
    while (*at != NULL &&
           (other != NULL ? *at != other : (*at)->process >= 0 || (*at)->pid != ended.pid)) {
        at = &(*at)->next;
    }
    struct tows_started *gone = *at;
    if (gone != NULL) {
        *at = gone->next;
        starter->count--;
        starter->taken -= gone->process >= 0;
        close_process(gone);
        ended.number = gone->number;
        ended.full = WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL &&
                     tows_cgroup_was_full(&starter->groups, gone->group);
        tows_cgroup_remove(&starter->groups, gone->group);
        free(gone);
    }
    *ret_ended = ended;
    return 1;
}
