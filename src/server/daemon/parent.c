/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the listener's questions, and tells it of signals and of processes that have ended. */
#include "server/daemon/parent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/config/logging.h"
#include "server/beside/shaker.h"
#include "server/beside/web_host.h"
#include "server/beside/systemd.h"
#include "server/door/pending_conn.h"
#include "server/login/tokens.h"
#include "server/pool/machine.h"
#include "server/pool/usage.h"
#include "server/worker/worker.h"

enum {
    AGAIN_MS = 100,
    PASS_RIGHTS = 83, /* SO_PASSRIGHTS, which older headers lack */
};
#define END_NS TOW_TIME_S /* what is left of its children has so long to be gone */

static void parent_count_more(struct tows_parent *parent)
{
    uint64_t most = parent->config.max_sessions + parent->config.idle_workers + TOW_PARENT_SPARE;
    parent->workers_most = most > parent->workers_most ? most : parent->workers_most;
}

/* Whether a process is an orphan: its parent was another server, and has ended. Then it has one of
 * those that this one descends from. */
static bool is_orphan(uint64_t parent)
{
    char path[64], text[TOW_MACHINE_TEXT];
    uint64_t ancestor = (uint64_t)getppid();
    while (ancestor > 1 && ancestor != parent) {
        snprintf(path, sizeof path, "/proc/%" PRIu64 "/status", ancestor);
        const char *at =
            tows_machine_read(AT_FDCWD, path, text) < 0 ? NULL : strstr(text, "\nPPid:");
        ancestor = at == NULL ? 0 : strtoull(at + strlen("\nPPid:"), NULL, 10);
    }
    return parent == 1 || (parent != 0 && ancestor == parent);
}

/* Who asks may be in a stranger's hands: a process of a tenant's user, which nobody else has, and
 * of no server that lives. */
static bool may_take(const struct tows_config *config, pid_t pid)
{
    const struct tows_config_range *range = &config->tenant_users;
    char path[64], text[TOW_MACHINE_TEXT];
    unsigned users[4];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (tows_machine_read(AT_FDCWD, path, text) < 0) {
        return false;
    }
    const char *uid = strstr(text, "\nUid:"), *parent = strstr(text, "\nPPid:");
    bool known = uid != NULL && parent != NULL &&
                 sscanf(uid + strlen("\nUid:"), "%u %u %u %u", &users[0], &users[1], &users[2],
                        &users[3]) == 4;
    for (int i = 0; i < 4 && known; i++) {
        known = users[i] >= range->first && users[i] - range->first < range->count;
    }
    return known && is_orphan(strtoull(parent + strlen("\nPPid:"), NULL, 10));
}

void tows_parent_init(struct tows_parent *parent, const struct tows_config *config, int line)
{
    memset(parent, 0, sizeof *parent);
    parent->config = *config;
    parent->line = line;
    parent->starts = TOW_PARENT_STARTS_MAX;
    parent->starts_ns = tow_time_now_ns();
    parent_count_more(parent);
    for (int i = 0; i < TOW_PARENT_FDS_MAX; i++) {
        parent->answer_fds[i] = -1;
    }
    tows_starter_init(&parent->starter, &parent->config);
    parent->starter.may_take = may_take;
}

static void close_fds(int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

bool tows_parent_refuse_descriptors(int line)
{
    const int refused = 0;
    return setsockopt(line, SOL_SOCKET, PASS_RIGHTS, &refused, sizeof refused) == 0;
}

void tows_parent_fini(struct tows_parent *parent)
{
    close_fds(parent->answer_fds, TOW_PARENT_FDS_MAX);
    close_fds(&parent->line, 1);
    tows_starter_fini(&parent->starter);
}

/* The settings that a new process is to have. */
static const struct tows_config *config_now(const struct tows_parent *parent)
{
    return parent->pending ? &parent->next : &parent->config;
}

/* ---- the folder of code ---- */

/* What is there from a server whose listener was root's: its user cannot write it otherwise. Nobody
 * else could put names of other files there yet; a second name is passed over all the same. */
static int code_hand_over(int folder, uint32_t group)
{
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again >= 0 ? fdopendir(again) : NULL;
    if (list == NULL) {
        int error = -errno;
        close_fds(&again, 1);
        return error;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        struct stat status;
        int file = openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
            status.st_nlink == 1 && status.st_uid == geteuid() &&
            fchown(file, (uid_t)-1, group) == 0) {
            fchmod(file, 0664);
        }
        close_fds(&file, 1);
    }
    closedir(list);
    return 0;
}

/* The folder comes last: until then its group writes nothing there, and what was left half done is
 * done again. */
static int code_give(int folder, uint32_t group)
{
    int error = fchmod(folder, 0711) != 0 ? -errno : code_hand_over(folder, group);
    return error < 0                                                            ? error
           : fchown(folder, (uid_t)-1, group) != 0 || fchmod(folder, 0771) != 0 ? -errno
                                                                                : 0;
}

/* Who owns a file may give it to a group that he is in: no other right is needed. */
static int code_open(const char *path, uint32_t group)
{
    struct stat status;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = folder < 0 || fstat(folder, &status) != 0 ? -errno : 0;
    if (error == 0 && (status.st_gid != group || (status.st_mode & 0777) != 0771)) {
        gid_t own = getegid();
        error = setegid(group) != 0 ? -errno : code_give(folder, group);
        if (setegid(own) != 0) {
            _exit(1);
        }
    }
    if (error < 0) {
        close_fds(&folder, 1);
        return error;
    }
    return folder;
}

int tows_parent_code(const struct tows_config *config, uint32_t group)
{
    char path[TOW_CONFIG_TEXT_MAX + 16];
    tows_worker_code_cache(config, path, sizeof path);
    int folder = path[0] != '\0' ? code_open(path, group) : -1;
    if (folder < 0 && path[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "no code is kept: %s cannot be used: %s", path,
                strerror(-folder));
    }
    return folder < 0 ? -1 : folder;
}

/* ---- what it is asked ---- */

static unsigned count_shakers(const struct tows_parent *parent)
{
    unsigned count = 0;
    for (int i = 0; i < TOW_PARENT_SHAKERS_MAX; i++) {
        count += parent->shakers[i] != 0;
    }
    return count;
}

/* Not more than there can be, nor too often: who asks may be in a stranger's hands. */
static int parent_allow_start(struct tows_parent *parent, bool shaker)
{
    unsigned shakers = count_shakers(parent), all = parent->starter.count + parent->ended_count;
    int64_t now_ns = tow_time_now_ns(), each_ns = TOW_TIME_S / TOW_PARENT_STARTS_SECOND;
    int64_t more = (now_ns - parent->starts_ns) / each_ns;
    if (more > 0) {
        int64_t starts = parent->starts + more;
        parent->starts = starts > TOW_PARENT_STARTS_MAX ? TOW_PARENT_STARTS_MAX : (unsigned)starts;
        parent->starts_ns = now_ns;
    }
    unsigned own = all - shakers - parent->starter.taken; /* which come on top */
    bool full = shaker ? shakers >= TOW_PARENT_SHAKERS_MAX : own >= parent->workers_most;
    if (parent->starts == 0 || full || all >= TOW_PARENT_ENDED_MAX) {
        return -EAGAIN;
    }
    parent->starts--;
    return 0;
}

static int answer_start(struct tows_parent *parent, const struct tows_parent_msg *msg,
                        struct tows_parent_news *answer, int ret_fds[TOW_PARENT_FDS_MAX])
{
    pid_t pid = 0;
    struct tows_shared shared = {.control = -1, .stats = -1};
    if (!tows_pending_conn_may_ask(msg->text)) {
        return -EPERM;
    }
    int error = parent_allow_start(parent, false);
    error = error < 0 ? error
                      : tows_starter_start(&parent->starter, msg->text, msg->value, &shared,
                                           &answer->number, &pid);
    answer->pid = (int32_t)pid;
    ret_fds[0] = shared.control;
    ret_fds[1] = shared.stats;
    return error;
}

static void change_shaker(struct tows_parent *parent, uint64_t from, uint64_t to)
{
    for (int i = 0; i < TOW_PARENT_SHAKERS_MAX; i++) {
        if (parent->shakers[i] == from) {
            parent->shakers[i] = to;
            return;
        }
    }
}

/* A process that was started beside the listener: its number, or its end. */
static int parent_adopt(struct tows_parent *parent, pid_t pid, struct tows_parent_news *answer,
                        int ret_fds[TOW_PARENT_FDS_MAX])
{
    int error = tows_starter_adopt(&parent->starter, pid, &answer->number);
    if (error < 0) {
        kill(pid, SIGKILL);
        close_fds(ret_fds, 1);
        return error;
    }
    change_shaker(parent, 0, answer->number);
    return 0;
}

static int answer_shaker(struct tows_parent *parent, struct tows_parent_news *answer,
                         int ret_fds[TOW_PARENT_FDS_MAX])
{
    pid_t pid = 0;
    int error = parent_allow_start(parent, true);
    if (error == 0) {
        error = tows_shaker_fork(config_now(parent), !parent->shook, parent->shaker_user,
                                 &ret_fds[0], &pid, answer->text, sizeof answer->text);
    }
    if (error < 0) {
        return error;
    }
    parent->shook = true;
    return parent_adopt(parent, pid, answer, ret_fds);
}

static int answer_web(struct tows_parent *parent, struct tows_parent_news *answer,
                      int ret_fds[TOW_PARENT_FDS_MAX])
{
    pid_t pid = 0;
    const struct tows_config *config = config_now(parent);
    int error = config->http[0] == '\0' ? -EPERM : parent_allow_start(parent, true);
    if (error == 0) {
        error = tows_web_host_fork(config, parent->web_user, &ret_fds[0], &pid);
    }
    return error < 0 ? error : parent_adopt(parent, pid, answer, ret_fds);
}

static int answer_tokens(const struct tows_parent *parent, struct tows_parent_news *answer,
                         int ret_fds[TOW_PARENT_FDS_MAX])
{
    char path[PATH_MAX], why[TOW_WHY_MAX];
    int error = tows_tokens_path(config_now(parent), path, sizeof path, why, sizeof why);
    if (error < 0) {
        return error;
    }
    snprintf(answer->text, sizeof answer->text, "%.*s", (int)sizeof answer->text - 1, path);
    int fd = tows_tokens_open_checked(path);
    ret_fds[0] = fd;
    return fd < 0 ? fd : 0;
}

/* The settings as bytes: who gets them is the same program. */
static int config_file(const struct tows_config *config)
{
    int fd = memfd_create("towline-settings", MFD_CLOEXEC);
    int error = fd < 0 ? -errno : tow_file_write_all(fd, config, sizeof *config);
    if (error < 0) {
        close_fds(&fd, 1);
    }
    return error < 0 ? error : fd;
}

static int answer_reload(struct tows_parent *parent, struct tows_parent_news *answer,
                         int ret_fds[TOW_PARENT_FDS_MAX])
{
    if (!parent->may_reload) {
        return -EPERM;
    }
    parent->may_reload = parent->pending = false;
    if (tows_config_load(parent->argc, parent->argv, &parent->next, answer->text,
                         sizeof answer->text) != TOW_CONFIG_GO) {
        return -EINVAL;
    }
    int fd = config_file(&parent->next);
    if (fd < 0) {
        snprintf(answer->text, sizeof answer->text, "%s", strerror(-fd));
        return fd;
    }
    if (tows_logging_read(&parent->next, answer->text, sizeof answer->text) < 0) {
        close(fd);
        return -EINVAL;
    }
    tows_config_keep(&parent->next, &parent->config);
    tows_usage_defaults(&parent->next);
    parent->pending = true;
    ret_fds[0] = fd;
    ret_fds[1] = tows_parent_code(&parent->next, parent->group);
    return 0;
}

static int answer_decide(struct tows_parent *parent, uint32_t taken)
{
    if (!parent->pending || taken > 1) {
        return -EPERM;
    }
    parent->pending = false;
    if (taken == 1) {
        parent->config = parent->next;
        parent_count_more(parent);
        tows_logging_apply(&parent->config);
    }
    return 0;
}

static int answer_take(struct tows_parent *parent, const struct tows_parent_msg *msg,
                       struct tows_parent_news *answer)
{
    if (parent->config.restart_dir[0] == '\0' || msg->value == 0 || msg->value > INT_MAX) {
        return -EPERM;
    }
    /* There are no more of them than there are, whatever the settings say by now. */
    if (parent->starter.count + parent->ended_count >= TOW_PARENT_ENDED_MAX) {
        return -EAGAIN;
    }
    return tows_starter_take(&parent->starter, (pid_t)msg->value, msg->number, &answer->number);
}

static int answer_notify(const struct tows_parent_msg *msg)
{
    if (!tows_systemd_is_state(msg->text)) {
        return -EPERM;
    }
    tows_systemd_notify(msg->text);
    return 0;
}

static int parent_answer(struct tows_parent *parent, const struct tows_parent_msg *msg, int count,
                         struct tows_parent_news *answer, int ret_fds[TOW_PARENT_FDS_MAX])
{
    struct tows_starter *starter = &parent->starter;
    if (count != 0 || memchr(msg->text, '\0', sizeof msg->text) == NULL) {
        return -EPROTO;
    }
    switch (msg->ask) {
    case TOW_PARENT_START:
        return answer_start(parent, msg, answer, ret_fds);
    case TOW_PARENT_SHAKER:
        return answer_shaker(parent, answer, ret_fds);
    case TOW_PARENT_WEB:
        return answer_web(parent, answer, ret_fds);
    case TOW_PARENT_SIGNAL:
        return msg->value > INT_MAX ? -EINVAL
                                    : tows_starter_signal(starter, msg->number, (int)msg->value);
    case TOW_PARENT_LIMIT:
        return msg->threads > TOW_PARENT_THREADS_MAX
                   ? -EINVAL
                   : tows_starter_limit(starter, msg->number, msg->memory, msg->threads);
    case TOW_PARENT_WEIGH:
        return tows_starter_weigh(starter, msg->number, msg->value) ? 0 : -ENOENT;
    case TOW_PARENT_YIELD:
        return tows_starter_yield(starter, msg->number, (int32_t)msg->value);
    case TOW_PARENT_TOKENS:
        return answer_tokens(parent, answer, ret_fds);
    case TOW_PARENT_RELOAD:
        return answer_reload(parent, answer, ret_fds);
    case TOW_PARENT_DECIDE:
        return answer_decide(parent, msg->value);
    case TOW_PARENT_NOTIFY:
        return answer_notify(msg);
    case TOW_PARENT_TAKE:
        return answer_take(parent, msg, answer);
    default:
        return -EPROTO;
    }
}

/* ---- the line ---- */

/* Once: a listener that is not itself any more could fill the log. */
static void parent_complain(struct tows_parent *parent, const struct tows_parent_msg *msg,
                            int error)
{
    if ((error == -EPROTO || error == -EPERM) && !parent->broken) {
        parent->broken = true;
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "the process that hears clients asked for what it may not have (question %u): it "
                "may be in a stranger's hands; this is said once",
                msg->ask);
    }
}

/* One packet and its descriptors: how many bytes, 0: it has closed its end, or -Exxx. More
 * descriptors than fit are not put there; `ret_count` is then one more than there may be. */
static ssize_t parent_receive(const struct tows_parent *parent, struct tows_parent_msg *ret_msg,
                              int ret_fds[TOW_PARENT_FDS_MAX], int *ret_count)
{
    union {
        char bytes[CMSG_SPACE(TOW_PARENT_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } fds;
    struct iovec iov = {ret_msg, sizeof *ret_msg};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &fds, .msg_controllen = sizeof fds};
    ssize_t got = recvmsg(parent->line, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (got < 0) {
        return -errno;
    }
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *ret_count = 0;
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *ret_count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(ret_fds, CMSG_DATA(head), (size_t)*ret_count * sizeof(int));
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        *ret_count = TOW_PARENT_FDS_MAX + 1;
    }
    return got;
}

int tows_parent_hear(struct tows_parent *parent)
{
    struct tows_parent_msg msg;
    int fds[TOW_PARENT_FDS_MAX] = {-1, -1}, count = 0;
    if (parent->answering) {
        return 0; /* one question at a time */
    }
    ssize_t got = parent_receive(parent, &msg, fds, &count);
    if (got == -EAGAIN || got == -EINTR) {
        return 0;
    }
    if (got <= 0) {
        return -ECONNRESET;
    }
    if (got != (ssize_t)sizeof msg) {
        memset(&msg, 0, sizeof msg);
    }
    memset(&parent->answer, 0, sizeof parent->answer);
    parent->answer.say = TOW_PARENT_ANSWER;
    parent->asked = msg.ask;
    parent->answer.error = parent_answer(parent, &msg, count, &parent->answer, parent->answer_fds);
    parent_complain(parent, &msg, parent->answer.error);
    close_fds(fds, TOW_PARENT_FDS_MAX);
    parent->answering = true;
    tows_parent_tell(parent);
    return 0;
}

/* False: it must be said again. Where nobody hears any more nothing is left to say; what the kernel
 * lacks for it (memory) may be there later. */
static bool parent_say(struct tows_parent *parent, const struct tows_parent_news *news,
                       const int *fds)
{
    int count = fds == NULL || fds[0] < 0 ? 0 : fds[1] < 0 ? 1 : 2;
    parent->send_error = tow_fds_try_send(parent->line, news, sizeof *news, fds, count);
    return parent->send_error == 0 || parent->send_error == -EPIPE ||
           parent->send_error == -ECONNRESET;
}

/* Descriptors that cannot be sent are none: who asked hears that. */
static bool parent_say_answer(struct tows_parent *parent)
{
    if (parent_say(parent, &parent->answer, parent->answer_fds)) {
        return true;
    }
    if (parent->send_error == -EAGAIN || parent->answer_fds[0] < 0) {
        return false;
    }
    parent->answer.error = parent->send_error;
    if (parent->asked == TOW_PARENT_RELOAD) {
        parent->pending = false; /* nobody decides on what he does not have */
    }
    close_fds(parent->answer_fds, TOW_PARENT_FDS_MAX);
    return parent_say(parent, &parent->answer, NULL);
}

void tows_parent_tell(struct tows_parent *parent)
{
    parent->send_error = 0;
    if (parent->answering) {
        if (!parent_say_answer(parent)) {
            return;
        }
        parent->answering = false;
        close_fds(parent->answer_fds, TOW_PARENT_FDS_MAX);
    }
    struct tows_parent_news news = {.say = TOW_PARENT_SIGNALS, .status = (int32_t)parent->signals};
    if (parent->signals != 0) {
        if (!parent_say(parent, &news, NULL)) {
            return;
        }
        parent->may_reload |= (parent->signals & UINT32_C(1) << SIGHUP) != 0;
        parent->signals = 0;
    }
    while (parent->ended_count > 0) {
        const struct tows_ended *ended = &parent->ended[parent->ended_first];
        news = (struct tows_parent_news){.say = TOW_PARENT_ENDED,
                                         .number = ended->number,
                                         .pid = (int32_t)ended->pid,
                                         .status = ended->status,
                                         .full = ended->full,
                                         .unknown = ended->unknown};
        if (!parent_say(parent, &news, NULL)) {
            return;
        }
        parent->ended_first = (parent->ended_first + 1) % TOW_PARENT_ENDED_MAX;
        parent->ended_count--;
    }
}

void tows_parent_signal(struct tows_parent *parent, int signal)
{
    parent->signals |= UINT32_C(1) << signal;
}

void tows_parent_reap(struct tows_parent *parent)
{
    struct tows_ended ended;
    while (tows_starter_reap(&parent->starter, &ended) > 0) {
        if (ended.number != 0) {
            change_shaker(parent, ended.number, 0);
        }
        if (ended.number != 0 && parent->ended_count < TOW_PARENT_ENDED_MAX) {
            unsigned last = parent->ended_first + parent->ended_count++;
            parent->ended[last % TOW_PARENT_ENDED_MAX] = ended;
        } else if (ended.pid == parent->listener) {
            parent->done = true;
            parent->status = ended.status;
        }
    }
}

/* ---- the process ---- */

static void parent_take_signals(struct tows_parent *parent, int signals)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            tows_parent_reap(parent);
        } else {
            tows_parent_signal(parent, (int)info.ssi_signo);
        }
    }
}

/* Its listener is gone, and with it all who could say what its processes are for. */
static int parent_end(struct tows_parent *parent, int signals)
{
    struct pollfd polled = {.fd = signals, .events = POLLIN};
    int64_t deadline = tow_time_deadline(END_NS);
    if (WIFSIGNALED(parent->status) && parent->config.restart_dir[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "the process that hears clients was ended by signal %d (%s): sessions wait for the "
                "next server",
                WTERMSIG(parent->status), strsignal(WTERMSIG(parent->status)));
        return 1; /* what has no session ends with this process */
    }
    if (WIFEXITED(parent->status) && WEXITSTATUS(parent->status) == TOW_PARENT_LEFT &&
        parent->config.restart_dir[0] != '\0') {
        return 0;
    }
    tows_starter_kill(&parent->starter);
    tows_parent_reap(parent);
    while (parent->starter.count > 0 && !tow_time_passed(deadline)) {
        poll(&polled, 1, (int)(tow_time_left(deadline) / TOW_TIME_MS) + 1);
        parent_take_signals(parent, signals);
    }
    if (WIFSIGNALED(parent->status)) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "the process that hears clients was ended by signal %d (%s): all sessions end",
                WTERMSIG(parent->status), strsignal(WTERMSIG(parent->status)));
        return 1;
    }
    return WEXITSTATUS(parent->status);
}

int tows_parent_run(struct tows_parent *parent, int signals)
{
    while (!parent->done) {
        short wanted = parent->answering ? POLLOUT : POLLIN;
        if (parent->ended_count > 0 || parent->signals != 0) {
            wanted |= POLLOUT;
        }
        /* What could not be sent though there was room: room is no event then. */
        bool again = parent->send_error != 0 && parent->send_error != -EAGAIN;
        if (again) {
            wanted &= ~POLLOUT;
        }
        struct pollfd polls[3] = {{.fd = signals, .events = POLLIN},
                                  {.fd = parent->line, .events = wanted},
                                  {.fd = parent->starter.watch, .events = POLLIN}};
        if (poll(polls, 3, again ? AGAIN_MS : -1) < 0 && errno != EINTR && errno != ENOMEM) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "poll: %s", strerror(errno));
            kill(parent->listener, SIGKILL);
            parent->status = 1 << 8;
            break;
        }
        parent_take_signals(parent, signals);
        if (polls[2].revents != 0) {
            tows_parent_reap(parent);
        }
        if (parent->line >= 0 && (polls[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
            tows_parent_hear(parent) < 0) {
            close_fds(&parent->line, 1);
            if (!parent->done) {                 /* its number may be another's by now */
                kill(parent->listener, SIGKILL); /* if it is not about to end */
            }
        }
        if (parent->line >= 0) {
            tows_parent_tell(parent);
        }
    }
    return parent_end(parent, signals);
}
