/* SPDX-License-Identifier: Apache-2.0 */
/* What the parent does for a listener, and what for one that is in a stranger's hands. The test
 * plays the listener; workers are this program, which waits for its end. */
#include "cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/daemon/parent.h"
#include "server/listener/settings.h"
#include "server/beside/systemd.h"
#include "server/pool/machine.h"
#include "server/pool/parent_line.h"
#include "transport/transport.h"

#define PATIENCE_NS (20 * TOW_TIME_S)

static struct tows_parent parent;
static struct tows_config config;
static int line;
static char folder[] = "/tmp/towline-parent-XXXXXX", file[64], tokens[64];
static char *words[] = {(char *)"towlined", NULL, NULL};
static char flag[96];

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static int setup(void **state)
{
    int pair[2];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/towline-parent-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/conf", folder);
    snprintf(tokens, sizeof tokens, "%s/tokens", folder);
    snprintf(flag, sizeof flag, "--config=%s", file);
    write_file(file, "max-sessions = 7\n");
    words[1] = flag;
    tows_config_defaults(&config);
    snprintf(config.token_file, sizeof config.token_file, "%s", tokens);
    snprintf(config.cache_dir, sizeof config.cache_dir, "%s", folder);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    tows_parent_init(&parent, &config, pair[0]);
    parent.argc = 2;
    parent.argv = words;
    parent.group = getegid();
    line = pair[1];
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    tows_starter_kill(&parent.starter);
    int64_t deadline = tow_time_deadline(PATIENCE_NS);
    while (parent.starter.count > 0 && !tow_time_passed(deadline)) {
        tows_parent_reap(&parent);
    }
    tows_parent_fini(&parent);
    close(line);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* What comes next, with its descriptors. */
static struct tows_parent_news hear(int fds[TOW_PARENT_FDS_MAX])
{
    struct tows_parent_news news;
    int count = 0;
    fds[0] = fds[1] = -1;
    assert_int_equal(tow_fds_recv(line, &news, sizeof news, tow_time_deadline(PATIENCE_NS), fds,
                                  TOW_PARENT_FDS_MAX, &count),
                     0);
    return news;
}

static struct tows_parent_news ask_with(const struct tows_parent_msg *msg, const int *sent,
                                        int count, int fds[TOW_PARENT_FDS_MAX])
{
    struct tows_parent_news news;
    assert_int_equal(tow_fds_send(line, msg, sizeof *msg, sent, count), 0);
    assert_int_equal(tows_parent_hear(&parent), 0);
    do {
        news = hear(fds);
    } while (news.say != TOW_PARENT_ANSWER);
    return news;
}

static int ask(uint32_t what, uint64_t number, uint32_t value)
{
    struct tows_parent_msg msg = {.ask = what, .number = number, .value = value};
    int fds[TOW_PARENT_FDS_MAX];
    int error = ask_with(&msg, NULL, 0, fds).error;
    assert_int_equal(fds[0], -1);
    return error;
}

static void close_both(const int fds[TOW_PARENT_FDS_MAX])
{
    for (int i = 0; i < TOW_PARENT_FDS_MAX; i++) {
        if (fds[i] >= 0) {
            assert_int_equal(close(fds[i]), 0);
        }
    }
}

static int start(const char *key, struct tows_parent_news *ret_news)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_START};
    int fds[TOW_PARENT_FDS_MAX];
    snprintf(msg.text, sizeof msg.text, "%s", key);
    *ret_news = ask_with(&msg, NULL, 0, fds);
    assert_true((fds[0] >= 0 && fds[1] >= 0) == (ret_news->error == 0));
    close_both(fds);
    return ret_news->error;
}

static unsigned count_fds(void)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/fd");
    assert_non_null(list);
    while (readdir(list) != NULL) {
        count++;
    }
    closedir(list);
    return count;
}

static void wait_for_end(uint64_t number, pid_t pid)
{
    int fds[TOW_PARENT_FDS_MAX];
    int64_t deadline = tow_time_deadline(PATIENCE_NS);
    while (parent.ended_count == 0) {
        tows_parent_reap(&parent);
        assert_false(tow_time_passed(deadline));
    }
    tows_parent_tell(&parent);
    struct tows_parent_news news = hear(fds);
    assert_int_equal(news.say, TOW_PARENT_ENDED);
    assert_int_equal(news.number, number);
    assert_int_equal(news.pid, pid);
}

/* ---- what it does ---- */

static void a_worker_is_started_ended_and_told_of(void **state)
{
    struct tows_parent_news worker;
    (void)state;
    unsigned before = count_fds();
    assert_int_equal(start("CUDA_MODULE_LOADING=LAZY\nslot=3\n", &worker), 0);
    assert_true(worker.number != 0 && worker.pid > 0);
    assert_int_equal(count_fds(), before); /* it keeps none of the descriptors */
    assert_int_equal(ask(TOW_PARENT_SIGNAL, worker.number, SIGCONT), 0);
    assert_int_equal(ask(TOW_PARENT_LIMIT, worker.number, 0), 0);
    assert_int_equal(ask(TOW_PARENT_YIELD, worker.number, PRIO_MAX - 1), 0);
    assert_int_equal(ask(TOW_PARENT_SIGNAL, worker.number, SIGKILL), 0);
    wait_for_end(worker.number, worker.pid);
    /* The kernel may give its number to anybody now. */
    assert_int_equal(ask(TOW_PARENT_SIGNAL, worker.number, SIGKILL), -ESRCH);
    assert_int_equal(ask(TOW_PARENT_YIELD, worker.number, PRIO_MAX - 1), -ESRCH);
}

static void tokens_are_opened_by_what_they_are(void **state)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
    int fds[TOW_PARENT_FDS_MAX];
    char text[16] = "";
    (void)state;
    snprintf(msg.text, sizeof msg.text, "/etc/passwd"); /* nobody looks at that */
    assert_int_equal(ask_with(&msg, NULL, 0, fds).error, -ENOENT);
    write_file(tokens, "tokens");
    struct tows_parent_news news = ask_with(&msg, NULL, 0, fds);
    assert_int_equal(news.error, 0);
    assert_string_equal(news.text, tokens);
    assert_int_equal(read(fds[0], text, sizeof text - 1), 6);
    assert_string_equal(text, "tokens");
    assert_int_equal(fcntl(fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
    close(fds[0]);
}

static void tokens_are_a_file_of_roots(void **state)
{
    const struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
    int fds[TOW_PARENT_FDS_MAX];
    (void)state;
    assert_int_equal(mkfifo(tokens, 0600), 0);
    assert_int_equal(ask_with(&msg, NULL, 0, fds).error, -EINVAL);
    assert_int_equal(fds[0], -1);
    assert_int_equal(unlink(tokens), 0);
    assert_int_equal(mkdir(tokens, 0700), 0);
    assert_int_equal(ask_with(&msg, NULL, 0, fds).error, -EINVAL);
    assert_int_equal(rmdir(tokens), 0);
    write_file(tokens, "tokens");
    if (geteuid() == 0 && chown(tokens, 65534, (gid_t)-1) == 0) {
        assert_int_equal(ask_with(&msg, NULL, 0, fds).error, -EACCES);
        assert_int_equal(fds[0], -1);
    }
    assert_false(parent.broken);
}

static void settings_are_read_once_after_a_signal(void **state)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_RELOAD};
    int fds[TOW_PARENT_FDS_MAX];
    static struct tows_config got;
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        assert_int_equal(ask(TOW_PARENT_RELOAD, 0, 0), -EPERM);
        assert_int_equal(ask(TOW_PARENT_DECIDE, 0, 1), -EPERM);
        tows_parent_signal(&parent, SIGHUP);
        tows_parent_tell(&parent);
        struct tows_parent_news news = hear(fds);
        assert_int_equal(news.say, TOW_PARENT_SIGNALS);
        assert_int_equal(news.status, 1 << SIGHUP);
        news = ask_with(&msg, NULL, 0, fds);
        assert_int_equal(news.error, 0);
        assert_int_equal(pread(fds[0], &got, sizeof got, 0), sizeof got);
        assert_int_equal(got.max_sessions, 7);
        close(fds[0]);
        if (fds[1] >= 0) {
            close(fds[1]);
        }
        assert_int_equal(parent.config.max_sessions, 256);
        assert_int_equal(ask(TOW_PARENT_DECIDE, 0, 2), -EPERM);
        assert_int_equal(ask(TOW_PARENT_DECIDE, 0, (uint32_t)taken), 0);
        assert_int_equal(parent.config.max_sessions, taken ? 7 : 256);
    }
    write_file(file, "max-sessions = many\n");
    tows_parent_signal(&parent, SIGHUP);
    tows_parent_tell(&parent);
    hear(fds);
    struct tows_parent_news news = ask_with(&msg, NULL, 0, fds);
    assert_int_equal(news.error, -EINVAL);
    assert_non_null(strstr(news.text, "max-sessions = many cannot be understood"));
    assert_int_equal(ask(TOW_PARENT_DECIDE, 0, 1), -EPERM);
}

static void make_file(const char *name, char path[96])
{
    snprintf(path, 96, "%s/code/%s", folder, name);
    write_file(path, "image");
    assert_int_equal(chmod(path, 0600), 0);
}

/* Of the cache the listener's group gets what is its folder's alone. */
static void only_the_caches_own_files_are_handed_over(void **state)
{
    char code[96], plain[96], second[96], target[96], link_path[96], others[96], rest[96];
    struct stat status;
    (void)state;
    snprintf(code, sizeof code, "%s/code", folder);
    int made = tows_parent_code(&config, parent.group);
    assert_true(made >= 0);
    close(made);
    assert_int_equal(chmod(code, 0711), 0); /* as a server of one process has it */
    make_file("plain", plain);
    make_file("second", second);
    make_file("others", others);
    snprintf(target, sizeof target, "%s/secret", folder);
    snprintf(link_path, sizeof link_path, "%s/code/link", folder);
    snprintf(rest, sizeof rest, "%s/another-name", folder);
    write_file(target, "secret");
    assert_int_equal(chmod(target, 0600), 0);
    assert_int_equal(symlink(target, link_path), 0);
    assert_int_equal(link(second, rest), 0);
    bool root = geteuid() == 0 && chown(others, 65534, (gid_t)-1) == 0;
    made = tows_parent_code(&config, parent.group);
    assert_true(made >= 0);
    assert_int_equal(fstat(made, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0771);
    close(made);
    assert_int_equal(stat(plain, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0664);
    assert_int_equal(stat(second, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(stat(target, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    if (root) {
        assert_int_equal(stat(others, &status), 0);
        assert_int_equal(status.st_mode & 0777, 0600);
    }
    unsigned before = count_fds();
    snprintf(config.cache_dir, sizeof config.cache_dir, "%s", target); /* no folder */
    assert_int_equal(tows_parent_code(&config, parent.group), -1);
    assert_int_equal(count_fds(), before);
}

/* ---- what it does not do ---- */

static void only_its_own_processes_are_touched(void **state)
{
    struct tows_parent_news worker;
    (void)state;
    const uint64_t others[] = {0, 1, 99, UINT64_MAX, (uint64_t)getpid(), (uint64_t)getppid()};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(ask(TOW_PARENT_SIGNAL, others[i], SIGKILL), -ESRCH);
        assert_int_equal(ask(TOW_PARENT_LIMIT, others[i], 0), -ESRCH);
        assert_int_equal(ask(TOW_PARENT_WEIGH, others[i], 100), -ENOENT);
        assert_int_equal(ask(TOW_PARENT_YIELD, others[i], PRIO_MAX - 1), -ESRCH);
    }
    assert_int_equal(start("", &worker), 0);
    const uint32_t signals[] = {0, SIGTERM, SIGSTOP, SIGSEGV, 63, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(ask(TOW_PARENT_SIGNAL, worker.number, signals[i]), -EINVAL);
    }
    /* The kernel would refuse it, and each time the log would have a line. */
    struct tows_parent_msg many = {
        .ask = TOW_PARENT_LIMIT, .number = worker.number, .threads = UINT64_MAX};
    int fds[TOW_PARENT_FDS_MAX];
    assert_int_equal(ask_with(&many, NULL, 0, fds).error, -EINVAL);
    many.threads = TOW_PARENT_THREADS_MAX;
    assert_int_equal(ask_with(&many, NULL, 0, fds).error, 0);
    int own = getpriority(PRIO_PROCESS, 0);
    assert_int_equal(ask(TOW_PARENT_YIELD, worker.number, (uint32_t)(own - 1)), -EINVAL);
    assert_int_equal(ask(TOW_PARENT_YIELD, worker.number, PRIO_MAX), -EINVAL);
}

/* A process that waits, with that user (0: ours); its parent has ended, or is this process. */
static pid_t make_process(uint32_t user, bool orphan)
{
    int said[2], alive[2]; /* an orphan waits for this process's end */
    pid_t pid = 0, child;
    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const pid_t self = getpid();
        pid = orphan ? fork() : 0;
        if (pid != 0) {
            _exit(0);
        }
        while (orphan && getppid() == self) {
            sched_yield();
        }
        pid = user == 0 || setresuid(user, user, user) == 0 ? getpid() : -1;
        prctl(PR_SET_PDEATHSIG, orphan ? 0 : SIGKILL);
        close(alive[1]);
        _exit(write(said[1], &pid, sizeof pid) == sizeof pid ? (int)read(alive[0], &pid, 1) : 1);
    }
    if (orphan) {
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_int_equal(read(said[0], &pid, sizeof pid), sizeof pid);
    close(said[0]);
    close(said[1]);
    close(alive[0]); /* its other end stays open to this process's end */
    return pid;
}

/* A listener in a stranger's hands would have others ended. */
static void only_orphans_of_tenants_are_taken_over(void **state)
{
    const uint32_t user = (uint32_t)parent.config.tenant_users.first;
    uint64_t born = 0;
    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can have processes of tenants' users */
    }
    const pid_t ours = make_process(user, false), roots = make_process(0, true);
    const pid_t orphan = make_process(user, true);
    assert_int_equal(tows_machine_born(orphan, &born), 0);
    assert_int_equal(ask(TOW_PARENT_TAKE, born, (uint32_t)orphan), -EPERM); /* no restart-dir */
    snprintf(parent.config.restart_dir, sizeof parent.config.restart_dir, "/run/x");
    assert_int_equal(ask(TOW_PARENT_TAKE, born + 1, (uint32_t)orphan), -ESRCH);
    const pid_t others[] = {ours, roots, getpid(), getppid(), 1};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(tows_machine_born(others[i], &born), 0);
        assert_int_equal(ask(TOW_PARENT_TAKE, born, (uint32_t)others[i]), -EPERM);
    }
    assert_int_equal(ask(TOW_PARENT_TAKE, 0, 0), -EPERM);
    assert_int_equal(ask(TOW_PARENT_TAKE, 0, UINT32_MAX), -EPERM);
    struct tows_parent_msg msg = {.ask = TOW_PARENT_TAKE, .value = (uint32_t)orphan};
    int fds[TOW_PARENT_FDS_MAX];
    assert_int_equal(tows_machine_born(orphan, &msg.number), 0);
    struct tows_parent_news news = ask_with(&msg, NULL, 0, fds);
    assert_int_equal(news.error, 0);
    assert_int_equal(ask(TOW_PARENT_TAKE, msg.number, (uint32_t)orphan), -EEXIST);
    /* The settings may allow fewer by now: they come on top. */
    parent.workers_most = 1;
    const pid_t second = make_process(user, true);
    struct tows_parent_news worker;
    assert_int_equal(tows_machine_born(second, &born), 0);
    assert_int_equal(ask(TOW_PARENT_TAKE, born, (uint32_t)second), 0);
    assert_int_equal(start("", &worker), 0);
    assert_int_equal(start("", &worker), -EAGAIN);
    assert_int_equal(ask(TOW_PARENT_SIGNAL, news.number, SIGKILL), 0);
    wait_for_end(news.number, orphan);
    kill(ours, SIGKILL);
    kill(roots, SIGKILL);
    tows_parent_reap(&parent);
}

static void keys_that_no_client_may_ask_for_start_nothing(void **state)
{
    static const char *const keys[] = {
        "LD_PRELOAD=/tmp/x.so\n",
        "LD_LIBRARY_PATH=/tmp\n",
        "CUDA_CACHE_PATH=/etc\n",
        "TOWLINE_LOG=debug\n",
        "CUDA_MODULE_LOADING=LAZY\nPATH=/tmp\n",
        "CUDA_MODULE_LOADING=LAZY", /* no end */
        "CUDA_MODULE_LOADING\n",
        "CUDA_MODULE_LOADING=/etc/x\n",
        "\n",
        "slot=0\n",
        "slot=16\n",
        "slot=3 --walls=0\n",
        "slot=3\nCUDA_MODULE_LOADING=LAZY\n",
        "slot=3\nslot=4\n",
    };
    struct tows_parent_news worker;
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_int_equal(start(keys[i], &worker), -EPERM);
    }
    assert_int_equal(parent.starter.count, 0);
}

static void messages_of_another_shape_are_refused(void **state)
{
    static char bytes[2 * sizeof(struct tows_parent_msg)];
    const size_t size = sizeof(struct tows_parent_msg);
    const size_t sizes[] = {1, 4, size - 1, size + 1, 2 * size};
    int fds[TOW_PARENT_FDS_MAX];
    struct tows_parent_msg msg = {.ask = TOW_PARENT_START};
    (void)state;
    unsigned before = count_fds();
    int some = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int many[] = {some, some, some, some, some, some};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bytes[0] = TOW_PARENT_START;
        assert_int_equal(tow_fds_send(line, bytes, sizes[i], many, (int)i), 0);
        assert_int_equal(tows_parent_hear(&parent), 0);
        assert_int_equal(hear(fds).error, -EPROTO);
    }
    /* None comes with descriptors. */
    for (uint32_t what = TOW_PARENT_START; what <= TOW_PARENT_TAKE; what++) {
        struct tows_parent_msg other = {.ask = what};
        for (int count = 1; count <= 6; count++) {
            assert_int_equal(ask_with(&other, many, count, fds).error, -EPROTO);
        }
    }
    close(some);
    memset(msg.text, 'a', sizeof msg.text); /* no end */
    assert_int_equal(ask_with(&msg, NULL, 0, fds).error, -EPROTO);
    assert_int_equal(ask(0, 0, 0), -EPROTO);
    assert_int_equal(ask(TOW_PARENT_TAKE + 1, 0, 0), -EPROTO);
    assert_int_equal(ask(UINT32_MAX, 0, 0), -EPROTO);
    assert_int_equal(count_fds(), before);
    assert_int_equal(parent.starter.count, 0);
    assert_true(parent.broken);
}

/* Whoever closes the last descriptor of a socket may have to wait for what was to be sent there. */
static void descriptors_cannot_be_sent_to_it(void **state)
{
    const struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
    int fds[TOW_PARENT_FDS_MAX], some = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)state;
    if (!tows_parent_refuse_descriptors(parent.line)) {
        close(some);
        skip_because("this kernel has no SO_PASSRIGHTS");
    }
    assert_int_equal(tow_fds_send(line, &msg, sizeof msg, &some, 1), -EPERM);
    write_file(tokens, "tokens");
    assert_int_equal(ask_with(&msg, NULL, 0, fds).error, 0); /* the other way they can */
    close_both(fds);
    close(some);
}

static void no_more_are_started_than_there_may_be(void **state)
{
    struct tows_parent_news worker;
    (void)state;
    parent.workers_most = 1 + TOW_PARENT_SPARE;
    for (int i = 0; i < 1 + TOW_PARENT_SPARE; i++) {
        assert_int_equal(start("", &worker), 0);
    }
    assert_int_equal(start("", &worker), -EAGAIN);
    parent.workers_most = 100 + TOW_PARENT_SPARE;
    parent.starts = 0;
    parent.starts_ns = tow_time_now_ns() + TOW_TIME_S; /* and not too often */
    assert_int_equal(start("", &worker), -EAGAIN);
    parent.starts_ns = tow_time_now_ns() - TOW_TIME_S;
    assert_int_equal(start("", &worker), 0);
}

/* Sessions outlive the settings that allowed them, and handshakes go on beside them. */
static void fewer_sessions_lock_nobody_out(void **state)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_RELOAD};
    struct tows_parent_msg shaker = {.ask = TOW_PARENT_SHAKER};
    struct tows_parent_msg web = {.ask = TOW_PARENT_WEB};
    struct tows_parent_news worker;
    int fds[TOW_PARENT_FDS_MAX];
    (void)state;
    for (int i = 0; i < 7 + 1 + TOW_PARENT_SPARE; i++) {
        assert_int_equal(start("", &worker), 0);
    }
    tows_parent_signal(&parent, SIGHUP);
    tows_parent_tell(&parent);
    hear(fds);
    assert_int_equal(ask_with(&msg, NULL, 0, fds).error, 0);
    close(fds[0]);
    if (fds[1] >= 0) {
        close(fds[1]);
    }
    snprintf(parent.next.tls_certificate, sizeof parent.next.tls_certificate, "%s", tokens);
    assert_int_equal(ask(TOW_PARENT_DECIDE, 0, 1), 0);
    assert_int_equal(parent.config.max_sessions, 7);
    assert_int_equal(ask_with(&web, NULL, 0, fds).error, -EPERM); /* nobody wants it */
    snprintf(parent.config.http, sizeof parent.config.http, "0");
    for (int i = 0; i < TOW_PARENT_SHAKERS_MAX; i++) {
        assert_int_equal(ask_with(i % 2 == 0 ? &shaker : &web, NULL, 0, fds).error, 0);
        assert_true(fds[0] >= 0 && fds[1] < 0);
        close_both(fds);
    }
    assert_int_equal(ask_with(&shaker, NULL, 0, fds).error, -EAGAIN);
    assert_int_equal(ask_with(&web, NULL, 0, fds).error, -EAGAIN);
    assert_int_equal(start("", &worker), 0); /* of which there may be more */
    tows_starter_kill(&parent.starter);
    int64_t deadline = tow_time_deadline(PATIENCE_NS);
    while (parent.starter.count > 0) {
        tows_parent_reap(&parent);
        assert_false(tow_time_passed(deadline));
    }
    assert_int_equal(ask_with(&shaker, NULL, 0, fds).error, 0);
    close_both(fds);
}

static void systemd_is_told_nothing_else(void **state)
{
    static const struct {
        const char *text;
        int error;
    } said[] = {
        {"READY=1\nSTATUS=Serving soft", 0},
        {"WATCHDOG=1", 0},
        {"STOPPING=1\nSTATUS=Being shut down", 0},
        {"", 0},
        {"MAINPID=1", -EPERM},
        {"READY=1\nMAINPID=1", -EPERM},
        {"FDSTORE=1", -EPERM},
        {"NOTIFYACCESS=all", -EPERM},
        {"STATUS=a\x1b[2J", -EPERM},
        {"STATUS=\xc2\x9b"
         "2J",
         -EPERM}, /* a terminal may know it as ESC [ */
        {"READY=1 ", -EPERM},
        {"WATCHDOG=trigger", -EPERM},
        {"\n", -EPERM},
    };
    int fds[TOW_PARENT_FDS_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct tows_parent_msg msg = {.ask = TOW_PARENT_NOTIFY};
        snprintf(msg.text, sizeof msg.text, "%s", said[i].text);
        assert_int_equal(ask_with(&msg, NULL, 0, fds).error, said[i].error);
    }
}

/* It never waits for who does not hear, and nothing is lost. */
static void who_does_not_hear_is_not_waited_for(void **state)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
    struct tows_parent_news worker, news;
    int fds[TOW_PARENT_FDS_MAX], asked = 0, answers = 0, ended = 0, signals = 0;
    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(start("", &worker), 0);
    }
    while (asked < 100000 && !parent.answering) {
        assert_int_equal(tow_fds_send(line, &msg, sizeof msg, NULL, 0), 0);
        assert_int_equal(tows_parent_hear(&parent), 0);
        asked++;
    }
    assert_true(parent.answering); /* the socket is full */
    assert_int_equal(tows_parent_hear(&parent), 0);
    tows_starter_kill(&parent.starter);
    tows_parent_signal(&parent, SIGTERM);
    int64_t deadline = tow_time_deadline(PATIENCE_NS);
    while (parent.ended_count < 8) {
        tows_parent_reap(&parent);
        tows_parent_tell(&parent);
        assert_false(tow_time_passed(deadline));
    }
    while (answers < asked || ended < 8 || signals < 1) {
        tows_parent_tell(&parent);
        news = hear(fds);
        answers += news.say == TOW_PARENT_ANSWER;
        ended += news.say == TOW_PARENT_ENDED;
        signals += news.say == TOW_PARENT_SIGNALS && news.status == 1 << SIGTERM;
    }
    assert_int_equal(parent.ended_count, 0);
}

/* What the kernel does not send now is said later; descriptors that it does not are missing. */
static void what_cannot_be_sent_is_not_lost(void **state)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
    struct tows_parent_news worker, news;
    int fds[TOW_PARENT_FDS_MAX], other = open("/dev/null", O_RDWR | O_CLOEXEC), own = parent.line;
    (void)state;
    assert_int_equal(start("", &worker), 0);
    assert_int_equal(tow_fds_send(line, &msg, sizeof msg, NULL, 0), 0);
    assert_int_equal(tows_parent_hear(&parent), 0);
    assert_int_equal(hear(fds).error, -ENOENT);
    parent.line = other; /* not a socket */
    parent.answering = true;
    parent.answer.error = -ENOENT;
    parent.answer_fds[0] = -1;
    tows_parent_signal(&parent, SIGUSR1);
    tows_starter_kill(&parent.starter);
    int64_t deadline = tow_time_deadline(PATIENCE_NS);
    while (parent.ended_count == 0) {
        tows_parent_reap(&parent);
        assert_false(tow_time_passed(deadline));
    }
    tows_parent_tell(&parent);
    assert_true(parent.answering && parent.signals != 0 && parent.ended_count == 1);
    assert_int_equal(parent.send_error, -ENOTSOCK);
    parent.line = own;
    parent.answer_fds[0] = dup(other);
    close(parent.answer_fds[0]); /* so that it cannot be sent */
    tows_parent_tell(&parent);
    news = hear(fds);
    assert_int_equal(news.say, TOW_PARENT_ANSWER);
    assert_int_equal(news.error, -EBADF);
    assert_int_equal(fds[0], -1);
    assert_int_equal(hear(fds).say, TOW_PARENT_SIGNALS);
    assert_int_equal(hear(fds).say, TOW_PARENT_ENDED);
    assert_false(parent.answering);
    assert_int_equal(parent.ended_count, 0);
    close(other);
}

static void who_has_closed_its_end_is_gone(void **state)
{
    (void)state;
    close(line);
    line = -1;
    assert_int_equal(tows_parent_hear(&parent), -ECONNRESET);
}

/* ---- the listener's end ---- */

/* What comes beside an answer is kept, in order. */
static void the_listener_keeps_what_comes_between(void **state)
{
    struct tows_parent_line asking;
    struct tows_parent_news answer = {.say = TOW_PARENT_ENDED};
    const struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
    int fds[TOW_PARENT_FDS_MAX];
    (void)state;
    tows_parent_line_init(&asking, line);
    for (uint64_t i = 1; i <= 40; i++) {
        answer.number = i;
        assert_int_equal(tow_fds_send(parent.line, &answer, sizeof answer, NULL, 0), 0);
    }
    answer = (struct tows_parent_news){.say = TOW_PARENT_SIGNALS, .status = 1 << SIGHUP};
    assert_int_equal(tow_fds_send(parent.line, &answer, sizeof answer, NULL, 0), 0);
    answer = (struct tows_parent_news){.say = TOW_PARENT_ANSWER, .error = -EACCES};
    assert_int_equal(tow_fds_send(parent.line, &answer, sizeof answer, NULL, 0), 0);
    assert_int_equal(tows_parent_line_ask(&asking, &msg, NULL, 0, &answer, fds), -EACCES);
    assert_true(tows_parent_line_has_news(&asking));
    assert_int_equal(tows_parent_line_signals(&asking), 1 << SIGHUP);
    assert_int_equal(tows_parent_line_signals(&asking), 0);
    for (uint64_t i = 1; i <= 40; i++) {
        assert_int_equal(tows_parent_line_next(&asking, &answer), 1);
        assert_int_equal(answer.number, i);
    }
    assert_int_equal(tows_parent_line_next(&asking, &answer), 0);
    assert_false(tows_parent_line_has_news(&asking));
    asking.fd = -1; /* the test closes it */
    tows_parent_line_fini(&asking);
}

/* READY is told whatever a driver's path is. */
static void what_systemd_is_told_is_plain(void **state)
{
    struct tows_parent_line asking;
    struct tows_parent_msg msg;
    const struct tows_parent_news answer = {.say = TOW_PARENT_ANSWER};
    int none, count = 0;
    (void)state;
    tows_parent_line_init(&asking, line);
    tows_systemd_relay(&asking);
    assert_int_equal(setenv("NOTIFY_SOCKET", "/nowhere", 1), 0);
    assert_int_equal(tow_fds_send(parent.line, &answer, sizeof answer, NULL, 0), 0);
    tows_systemd_notify("READY=1\nSTATUS=Serving cuda /f\xc3\xbcr\t/x");
    tows_systemd_relay(NULL);
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(tow_fds_recv(parent.line, &msg, sizeof msg, tow_time_deadline(PATIENCE_NS),
                                  &none, 0, &count),
                     0);
    assert_string_equal(msg.text, "READY=1\nSTATUS=Serving cuda /f??r?/x");
    assert_true(tows_systemd_is_state(msg.text));
    asking.fd = -1; /* the test closes it */
    tows_parent_line_fini(&asking);
}

/* Settings that do not come whole hold nowhere. */
static void settings_that_cannot_be_read_are_not_taken(void **state)
{
    static struct tows_config got;
    struct tows_parent_line asking;
    struct tows_parent_msg msg;
    const struct tows_parent_news answer = {.say = TOW_PARENT_ANSWER};
    char why[TOW_WHY_MAX];
    const int nothing = memfd_create("nothing", MFD_CLOEXEC), empty[] = {nothing, nothing};
    int none, kept, count = 0;
    const uint32_t asked[] = {TOW_PARENT_RELOAD, TOW_PARENT_DECIDE};
    (void)state;
    unsigned before = count_fds();
    tows_parent_line_init(&asking, line);
    assert_int_equal(tow_fds_send(parent.line, &answer, sizeof answer, empty, 2), 0);
    assert_int_equal(tow_fds_send(parent.line, &answer, sizeof answer, NULL, 0), 0);
    assert_int_equal(tows_settings_read(&asking, 0, NULL, &got, &kept, why, sizeof why), -EIO);
    assert_int_equal(kept, -1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tow_fds_recv(parent.line, &msg, sizeof msg, tow_time_deadline(PATIENCE_NS),
                                      &none, 0, &count),
                         0);
        assert_int_equal(msg.ask, asked[i]);
        assert_int_equal(msg.value, 0);
    }
    assert_int_equal(count_fds(), before);
    close(nothing);
    asking.fd = -1; /* the test closes it */
    tows_parent_line_fini(&asking);
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--worker") == 0 || strcmp(argv[1], "--shaker") == 0 ||
                     strcmp(argv[1], "--web") == 0)) {
        pause();
        return 0;
    }
    unsetenv("NOTIFY_SOCKET");
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_worker_is_started_ended_and_told_of),
        TEST(tokens_are_opened_by_what_they_are),
        TEST(tokens_are_a_file_of_roots),
        TEST(settings_are_read_once_after_a_signal),
        TEST(only_the_caches_own_files_are_handed_over),
        TEST(only_its_own_processes_are_touched),
        TEST(only_orphans_of_tenants_are_taken_over),
        TEST(keys_that_no_client_may_ask_for_start_nothing),
        TEST(messages_of_another_shape_are_refused),
        TEST(descriptors_cannot_be_sent_to_it),
        TEST(no_more_are_started_than_there_may_be),
        TEST(fewer_sessions_lock_nobody_out),
        TEST(systemd_is_told_nothing_else),
        TEST(who_does_not_hear_is_not_waited_for),
        TEST(what_cannot_be_sent_is_not_lost),
        TEST(who_has_closed_its_end_is_gone),
        TEST(the_listener_keeps_what_comes_between),
        TEST(what_systemd_is_told_is_plain),
        TEST(settings_that_cannot_be_read_are_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
