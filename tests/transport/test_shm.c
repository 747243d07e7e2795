/* SPDX-License-Identifier: Apache-2.0 */
/* What only shared memory has: no system calls while both are awake, and a peer who writes
 * nonsense. */
#include "lines.h"

#include "base/clock.h"
#include "base/thread.h"
#include "transport/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ROUNDS 300

static void *answer_run(void *arg)
{
    struct tow_line *line = arg;
    for (int i = 0; i < ROUNDS; i++) {
        const uint8_t *at = NULL;
        uint8_t *to;
        size_t available;
        if (tow_line_peek(line, 104, TOW_TIME_FOREVER, &at, &available) < 0) {
            return line;
        }
        tow_line_consume(line, 104);
        if (tow_line_reserve(line, 24, &to) < 0) {
            return line;
        }
        memset(to, i, 24);
        tow_line_commit(line, 24);
    }
    return NULL;
}

static void awake_peers_make_no_system_call(void **state)
{
    struct tow_line *client, *server;
    /* Longer than any pause that a busy machine puts in. */
    tow_line_set_spin(20 * TOW_TIME_S, 20 * TOW_TIME_S);
    lines_pair(&client, &server);
    pthread_t thread;
    assert_int_equal(tow_thread_start("answer", answer_run, server, &thread), 0);
    struct tow_line_stats before[2], after[2];
    tow_line_get_stats(client, &before[0]);
    tow_line_get_stats(server, &before[1]);
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t *to;
        const uint8_t *at = NULL;
        size_t available;
        assert_int_equal(tow_line_reserve(client, 104, &to), 0);
        memset(to, i, 104);
        tow_line_commit(client, 104);
        assert_int_equal(tow_line_peek(client, 24, TOW_TIME_FOREVER, &at, &available), 0);
        assert_int_equal(at[0], i & 255);
        tow_line_consume(client, 24);
    }
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    tow_line_get_stats(client, &after[0]);
    tow_line_get_stats(server, &after[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(after[i].wakes - before[i].wakes, 0);
        assert_int_equal(after[i].sleeps - before[i].sleeps, 0);
        assert_int_equal(after[i].sends, 0);
        assert_int_equal(after[i].receives, 0);
    }
    assert_int_equal(after[0].frames_out - before[0].frames_out, ROUNDS);
    tow_line_close(client);
    tow_line_close(server);
    tow_line_set_spin(-1, -1);
}

static void *send_late(void *arg)
{
    struct tow_line *line = arg;
    uint8_t *to;
    nanosleep(&(struct timespec){0, 20 * TOW_TIME_MS}, NULL);
    if (tow_line_reserve(line, 24, &to) < 0) {
        return line;
    }
    memset(to, 1, 24);
    tow_line_commit(line, 24);
    return NULL;
}

/* How often the server sleeps while the client takes 20 ms to send. */
static uint64_t sleeps_while_late(bool expected)
{
    struct tow_line *client, *server;
    tow_line_set_spin(TOW_TIME_US, 2 * TOW_TIME_US);
    lines_pair(&client, &server);
    tow_line_set_spin(-1, -1);
    struct tow_line_stats before, after;
    tow_line_get_stats(server, &before);
    if (expected) {
        tow_line_expect(server, 20 * TOW_TIME_S);
    }
    pthread_t thread;
    assert_int_equal(tow_thread_start("late", send_late, client, &thread), 0);
    const uint8_t *at = NULL;
    size_t available;
    assert_int_equal(tow_line_peek(server, 24, TOW_TIME_FOREVER, &at, &available), 0);
    tow_line_get_stats(server, &after);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    tow_line_close(client);
    tow_line_close(server);
    return after.sleeps - before.sleeps;
}

static void who_expects_something_stays_awake(void **state)
{
    assert_int_equal(sleeps_while_late(true), 0);
    /* Where the processors are busy the reader may itself be too late to sleep. */
    bool slept = false;
    for (int i = 0; i < 10 && !slept; i++) {
        slept = sleeps_while_late(false) != 0;
    }
    assert_true(slept);
}

static void a_unix_listener_serves_shm_and_plain_clients(void **state)
{
    char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX];
    struct tow_listener *listener;
    snprintf(address, sizeof address, "unix://%s/both", lines_folder());
    assert_int_equal(tow_listener_open(address, 0600, why, sizeof why, &listener), 0);
    struct tow_line *plain = lines_connect(address);
    struct tow_line *server = lines_adopt(listener);
    assert_string_equal(tow_line_kind(plain), "unix");
    assert_string_equal(tow_line_kind(server), "unix");
    tow_line_close(plain);
    tow_line_close(server);
    tow_listener_close(listener);
}

/* ---- a raw client that follows the arrangement and then misbehaves ---- */

struct answer {
    char magic[8];
    uint32_t version, control_size;
    uint64_t ring_size, sentence;
};

struct raw {
    int fd;
    struct tow_ring_ctl *ctl; /* [0] the client's, [1] the server's */
    uint8_t *rings;
    struct tow_line *server;
};

static void *raw_adopt(void *arg)
{
    struct tow_listener *listener = arg;
    struct pollfd poll_fd = {.fd = listener->fd, .events = POLLIN};
    int fd;
    char peer[TOW_ADDRESS_MAX], why[TOW_WHY_MAX];
    struct tow_line *line = NULL;
    if (poll(&poll_fd, 1, 5000) != 1 || tow_listener_accept(listener, &fd, peer) < 0 ||
        tow_line_from_fd(fd, listener->kind, tow_time_deadline(5 * TOW_TIME_S), why, sizeof why,
                         &line) < 0) {
        return NULL;
    }
    return line;
}

static int raw_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void raw_open(struct raw *raw)
{
    char address[TOW_ADDRESS_MAX];
    struct tow_listener *listener = lines_listen(address);
    pthread_t thread;
    assert_int_equal(tow_thread_start("adopt", raw_adopt, listener, &thread), 0);
    raw->fd = raw_connect(listener->path);
    assert_int_equal(send(raw->fd, "TOWLSHM\0\2\0\0\0\0\0\0\0", 16, MSG_NOSIGNAL), 16);
    struct answer answer;
    int memory, count;
    assert_int_equal(tow_fds_recv(raw->fd, &answer, sizeof answer,
                                  tow_time_deadline(5 * TOW_TIME_S), &memory, 1, &count),
                     0);
    assert_int_equal(count, 1);
    assert_memory_equal(answer.magic, "TOWLSHM\0", 8);
    assert_int_equal(answer.ring_size, TOW_LINE_RING_SIZE);
    /* The size is sealed. */
    assert_int_equal(ftruncate(memory, 4096), -1);
    assert_int_equal(ftruncate(memory, 1 << 30), -1);
    raw->ctl = mmap(NULL, answer.control_size + 2 * answer.ring_size, PROT_READ | PROT_WRITE,
                    MAP_SHARED, memory, 0);
    assert_true(raw->ctl != MAP_FAILED);
    raw->rings = (uint8_t *)raw->ctl + answer.control_size;
    close(memory);
    void *server;
    pthread_join(thread, &server);
    assert_non_null(server);
    raw->server = server;
    tow_listener_close(listener);
}

static void raw_close(struct raw *raw)
{
    tow_line_close(raw->server);
    munmap(raw->ctl, (64u << 10) + 2 * TOW_LINE_RING_SIZE);
    close(raw->fd);
}

static int64_t soon(void)
{
    return tow_time_deadline(2 * TOW_TIME_S);
}

static void a_head_that_cannot_be_is_a_protocol_error(void **state)
{
    static const uint64_t wrong[] = {TOW_LINE_RING_SIZE + 1, UINT64_MAX, UINT64_MAX / 2,
                                     1ull << 32};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct raw raw;
        const uint8_t *at = NULL;
        size_t available;
        raw_open(&raw);
        memset(raw.rings, 0x5a, 16);
        atomic_store(&raw.ctl[0].head, 16);
        assert_int_equal(tow_line_peek(raw.server, 16, soon(), &at, &available), 0);
        assert_int_equal(at[15], 0x5a);
        /* Bytes once peeked are ours: they do not change under the reader. */
        memset(raw.rings, 0xa5, 16);
        assert_int_equal(at[15], 0x5a);
        tow_line_consume(raw.server, 16);
        /* Behind what was read, too. */
        atomic_store(&raw.ctl[0].head, i == 3 ? 8 : 16 + wrong[i]);
        assert_int_equal(tow_line_peek(raw.server, 1, soon(), &at, &available), -EPROTO);
        uint8_t *to;
        assert_int_equal(tow_line_reserve(raw.server, 8, &to), -EPROTO);
        uint8_t byte;
        assert_int_equal(tow_line_recv_into(raw.server, &byte, 1), -EPROTO);
        raw_close(&raw);
    }
}

static void a_tail_that_cannot_be_is_a_protocol_error(void **state)
{
    static const uint64_t wrong[] = {TOW_LINE_RING_SIZE + 4096, UINT64_MAX, 1ull << 40};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct raw raw;
        raw_open(&raw);
        uint8_t *to;
        atomic_store(&raw.ctl[1].tail, wrong[i]);
        int error = 0;
        for (size_t sent = 0; error == 0 && sent < 2 * TOW_LINE_RING_SIZE; sent += 4096) {
            error = tow_line_reserve(raw.server, 4096, &to);
            if (error == 0) {
                memset(to, 1, 4096);
                tow_line_commit(raw.server, 4096);
            }
        }
        assert_int_equal(error, -EPROTO);
        raw_close(&raw);
    }
}

static void words_about_sleeping_only_cost_time(void **state)
{
    struct raw raw;
    const uint8_t *at = NULL;
    uint8_t *to;
    size_t available;
    raw_open(&raw);
    for (uint32_t i = 0; i < 200; i++) {
        atomic_store(&raw.ctl[0].producer_waits, i * 77777);
        atomic_store(&raw.ctl[1].consumer_waits, i * 99999);
        atomic_store(&raw.ctl[0].tail, i * 12345); /* not ours to write: nobody reads it */
        atomic_store(&raw.ctl[0].head, (i + 1) * 8);
        assert_int_equal(tow_line_peek(raw.server, 8, soon(), &at, &available), 0);
        tow_line_consume(raw.server, 8);
        assert_int_equal(tow_line_reserve(raw.server, 8, &to), 0);
        tow_line_commit(raw.server, 8);
    }
    raw_close(&raw);
}

static void a_peer_that_vanishes_ends_a_sleep(void **state)
{
    struct raw raw;
    const uint8_t *at = NULL;
    size_t available;
    raw_open(&raw);
    /* Without a word in shared memory: only the socket tells. */
    shutdown(raw.fd, SHUT_RDWR);
    int64_t began = tow_time_now_ns();
    assert_int_equal(tow_line_peek(raw.server, 1, TOW_TIME_FOREVER, &at, &available), -ECONNRESET);
    assert_true(tow_time_now_ns() - began < 20 * TOW_TIME_S);
    raw_close(&raw);
}

/* ---- requests ---- */

struct request {
    char magic[8];
    uint32_t version, preface;
    uint8_t bytes[TOW_PREFACE_MAX + 1];
};

/* What the server makes of the first `n` bytes of a request. The client is still there (*ret_fd),
 * or gone. */
static int serve_request(const struct request *request, size_t n, int64_t timeout_ns, int *ret_fd,
                         char *ret_why, struct tow_line **ret_line)
{
    char address[TOW_ADDRESS_MAX], peer[TOW_ADDRESS_MAX];
    struct tow_listener *listener = lines_listen(address);
    int fd = raw_connect(listener->path), served;
    assert_int_equal(send(fd, request, n, MSG_NOSIGNAL), n);
    if (ret_fd != NULL) {
        *ret_fd = fd;
    } else {
        close(fd);
    }
    assert_int_equal(tow_listener_accept(listener, &served, peer), 0);
    *ret_line = NULL;
    int error = tow_line_from_fd(served, listener->kind, tow_time_deadline(timeout_ns), ret_why,
                                 TOW_WHY_MAX, ret_line);
    tow_listener_close(listener);
    return error;
}

static void another_version_is_told_ours(void **state)
{
    static const uint32_t versions[] = {1, 3, UINT32_MAX};
    char why[TOW_WHY_MAX], wanted[128];
    struct tow_line *line;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        struct request request = {.magic = "TOWLSHM", .version = versions[i], .preface = 12345};
        struct answer answer;
        int fd, memory, count = -1;
        assert_int_equal(serve_request(&request, 16, 5 * TOW_TIME_S, &fd, why, &line),
                         -EPROTONOSUPPORT);
        snprintf(wanted, sizeof wanted,
                 "shared memory in version %u, this server has version 2; install the same Towline",
                 versions[i]);
        assert_non_null(strstr(why, wanted));
        assert_int_equal(tow_fds_recv(fd, &answer, sizeof answer, soon(), &memory, 1, &count), 0);
        assert_int_equal(count, 0);
        assert_memory_equal(answer.magic, "TOWLSHM", 8);
        assert_int_equal(answer.version, 2);
        assert_int_equal(answer.ring_size, 0);
        assert_int_equal(answer.sentence, strlen(why));
        char sentence[TOW_WHY_MAX];
        assert_int_equal(recv(fd, sentence, sizeof sentence, MSG_DONTWAIT), strlen(why));
        assert_memory_equal(sentence, why, strlen(why));
        close(fd);
    }
}

static void a_request_that_makes_no_sense_is_closed(void **state)
{
    char why[TOW_WHY_MAX];
    struct tow_line *line;
    struct request request = {.magic = "TOWLSHM"};
    assert_int_equal(serve_request(&request, 16, 5 * TOW_TIME_S, NULL, why, &line), -EPROTO);
    assert_non_null(strstr(why, "makes no sense"));
    request.version = 2;
    static const uint32_t sizes[] = {TOW_PREFACE_MAX + 1, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        request.preface = sizes[i];
        assert_int_equal(serve_request(&request, 16, 5 * TOW_TIME_S, NULL, why, &line), -EPROTO);
        assert_non_null(strstr(why, "has a preface of"));
    }
}

static void a_request_that_is_cut_is_not_waited_for(void **state)
{
    static const size_t sizes[] = {8, 15, 16, 17, 16 + 99};
    char why[TOW_WHY_MAX];
    struct tow_line *line;
    struct request request = {.magic = "TOWLSHM", .version = 2, .preface = 100};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(serve_request(&request, sizes[i], 5 * TOW_TIME_S, NULL, why, &line),
                         -ECONNRESET);
        assert_non_null(strstr(why, "did not arrive"));
        int fd; /* silent */
        int64_t began = tow_time_now_ns();
        assert_int_equal(serve_request(&request, sizes[i], 100 * TOW_TIME_MS, &fd, why, &line),
                         -ETIMEDOUT);
        assert_true(tow_time_now_ns() - began < 2 * TOW_TIME_S);
        assert_non_null(strstr(why, "did not arrive"));
        close(fd);
    }
    assert_int_equal(serve_request(&request, 16 + 100, 5 * TOW_TIME_S, NULL, why, &line), -EPIPE);
}

static void a_listener_sees_the_preface_when_it_is_whole(void **state)
{
    static struct request request = {.magic = "TOWLSHM", .version = 2};
    char why[TOW_WHY_MAX];
    struct tow_preface preface = {0};
    const uint8_t *bytes = (const uint8_t *)&request;
    assert_int_equal(tow_shm_read_request(bytes, 16, &preface, why, sizeof why), 0);
    assert_int_equal(preface.size, 0);
    request.preface = 100;
    for (size_t n = 8; n < 16 + 100; n++) {
        assert_int_equal(tow_shm_read_request(bytes, n, &preface, why, sizeof why), -EAGAIN);
    }
    assert_int_equal(tow_shm_read_request(bytes, 16 + 100, &preface, why, sizeof why), 0);
    assert_ptr_equal(preface.bytes, request.bytes);
    assert_int_equal(preface.size, 100);
    request.preface = TOW_PREFACE_MAX;
    assert_int_equal(tow_shm_read_request(bytes, 16 + TOW_PREFACE_MAX, &preface, why, sizeof why),
                     0);
    assert_int_equal(preface.size, TOW_PREFACE_MAX);
    request.preface++; /* at once, not when the rest has come */
    assert_int_equal(tow_shm_read_request(bytes, 16, &preface, why, sizeof why), -EPROTO);
    request.version = 1;
    assert_int_equal(tow_shm_read_request(bytes, 16, &preface, why, sizeof why), -EPROTONOSUPPORT);
}

static void a_preface_leaves_the_line_alone(void **state)
{
    static uint8_t bytes[TOW_PREFACE_MAX + 1];
    static const size_t sizes[] = {0, 1, 5000, TOW_PREFACE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX] = "";
        struct tow_listener *listener = lines_listen(address);
        struct tow_preface preface = {bytes, sizes[i]};
        struct tow_line *client = NULL;
        struct tow_patience patience = tow_patience_none(soon());
        pthread_t thread;
        assert_int_equal(tow_thread_start("adopt", raw_adopt, listener, &thread), 0);
        assert_int_equal(
            tow_transport_connect_by(address, &preface, &patience, why, sizeof why, &client), 0);
        void *adopted;
        pthread_join(thread, &adopted);
        struct tow_line *server = adopted;
        assert_non_null(server);
        /* The socket is used on, for descriptors. */
        int fd = -1, memory = memfd_create("passed", MFD_CLOEXEC);
        assert_int_equal(tow_line_send_fd(client, memory, 77), 0);
        assert_int_equal(tow_line_take_fd(server, 77, soon(), &fd), 0);
        close(fd);
        close(memory);
        tow_line_close(client);
        tow_line_close(server);
        preface.size = TOW_PREFACE_MAX + 1;
        assert_int_equal(
            tow_transport_connect_by(address, &preface, &patience, why, sizeof why, &client),
            -EMSGSIZE);
        tow_listener_close(listener);
    }
}

/* ---- a server that offers memory that is not safe ---- */

static int fake_seals;
static uint64_t fake_size;

/* Answers without memory: the client is to say why it got none, or that this makes no sense. */
static const struct {
    uint32_t version;
    uint64_t ring_size, sentence;
    int error;
    const char *why;
    uint32_t later;
} refusals[] = {
    {2, 0, 8, -EBUSY, "refuses: it rains"},
    {2, 0, 8, -EUSERS, "refuses: it rains", 1},
    {2, 0, 0, -EBUSY, "refuses: "},
    {3, 0, 8, -EPROTO, "in a way this client does not know"},
    {2, TOW_LINE_RING_SIZE, 8, -EPROTO, "in a way this client does not know"},
    {2, 0, TOW_WHY_MAX, -EPROTO, "in a way this client does not know"},
    {2, 0, UINT64_MAX, -EPROTO, "in a way this client does not know"},
    {2, 0, 9, -EPROTO, "in a way this client does not know"}, /* and then it goes */
};
static size_t refusal;

/* Somebody who asks for shared memory, and has said so; -1 if nobody comes. */
static int accept_request(struct tow_listener *listener)
{
    struct pollfd poll_fd = {.fd = listener->fd, .events = POLLIN};
    char peer[TOW_ADDRESS_MAX], request[16];
    int fd;
    if (poll(&poll_fd, 1, 5000) != 1 || tow_listener_accept(listener, &fd, peer) < 0) {
        return -1;
    }
    recv(fd, request, sizeof request, MSG_WAITALL);
    return fd;
}

static void *refusing_server(void *arg)
{
    int fd = accept_request(arg);
    if (fd < 0) {
        return NULL;
    }
    struct answer answer = {.magic = "TOWLSHM",
                            .version = refusals[refusal].version,
                            .control_size = refusals[refusal].later,
                            .ring_size = refusals[refusal].ring_size,
                            .sentence = refusals[refusal].sentence};
    send(fd, &answer, sizeof answer, MSG_NOSIGNAL);
    send(fd, "it rains", 8, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void a_refusal_is_told(void **state)
{
    for (refusal = 0; refusal < sizeof refusals / sizeof *refusals; refusal++) {
        char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX] = "";
        struct tow_listener *listener = lines_listen(address);
        pthread_t thread;
        struct tow_line *line = NULL;
        assert_int_equal(tow_thread_start("fake", refusing_server, listener, &thread), 0);
        assert_int_equal(tow_transport_connect(address, soon(), why, sizeof why, &line),
                         refusals[refusal].error);
        assert_non_null(strstr(why, refusals[refusal].why));
        pthread_join(thread, NULL);
        tow_listener_close(listener);
    }
}

static void *fake_server(void *arg)
{
    int fd = accept_request(arg);
    if (fd < 0) {
        return NULL;
    }
    int memory = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(memory, (off_t)fake_size) != 0 || fcntl(memory, F_ADD_SEALS, fake_seals) != 0) {
        return NULL;
    }
    struct answer answer = {.magic = "TOWLSHM",
                            .version = 2,
                            .control_size = 64u << 10,
                            .ring_size = TOW_LINE_RING_SIZE};
    tow_fds_send(fd, &answer, sizeof answer, &memory, 1);
    close(memory);
    close(fd);
    return NULL;
}

static void memory_that_could_shrink_is_not_mapped(void **state)
{
    uint64_t right = (64u << 10) + 2 * TOW_LINE_RING_SIZE;
    int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const struct {
        int seals;
        uint64_t size;
        int error;
    } cases[] = {{F_SEAL_GROW, right, -EPROTO},
                 {F_SEAL_SHRINK | F_SEAL_GROW, right, -EPROTO},
                 {all, right - 4096, -EPROTO},
                 {all, 0, -EPROTO},
                 {all, right, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX] = "";
        struct tow_listener *listener = lines_listen(address);
        pthread_t thread;
        fake_seals = cases[i].seals;
        fake_size = cases[i].size;
        assert_int_equal(tow_thread_start("fake", fake_server, listener, &thread), 0);
        struct tow_line *line = NULL;
        assert_int_equal(tow_transport_connect(address, soon(), why, sizeof why, &line),
                         cases[i].error);
        if (cases[i].error < 0) {
            assert_non_null(strstr(why, "shares memory in a way this client does not know; use "
                                        "unix://"));
        }
        tow_line_close(line);
        pthread_join(thread, NULL);
        tow_listener_close(listener);
    }
}

int main(void)
{
    lines_kind = "shm";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(awake_peers_make_no_system_call),
        cmocka_unit_test(who_expects_something_stays_awake),
        cmocka_unit_test(a_unix_listener_serves_shm_and_plain_clients),
        cmocka_unit_test(a_head_that_cannot_be_is_a_protocol_error),
        cmocka_unit_test(a_tail_that_cannot_be_is_a_protocol_error),
        cmocka_unit_test(words_about_sleeping_only_cost_time),
        cmocka_unit_test(a_peer_that_vanishes_ends_a_sleep),
        cmocka_unit_test(another_version_is_told_ours),
        cmocka_unit_test(a_request_that_makes_no_sense_is_closed),
        cmocka_unit_test(a_request_that_is_cut_is_not_waited_for),
        cmocka_unit_test(a_listener_sees_the_preface_when_it_is_whole),
        cmocka_unit_test(a_preface_leaves_the_line_alone),
        cmocka_unit_test(a_refusal_is_told),
        cmocka_unit_test(memory_that_could_shrink_is_not_mapped),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lines_cleanup();
    return failed;
}
