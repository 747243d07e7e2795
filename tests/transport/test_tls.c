/* SPDX-License-Identifier: Apache-2.0 */
/* Lines over tls: who gets in, what a stranger on the way can do, keys, and that it is TLS 1.3. */
#include "lines.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/lanes.h"
#include "transport/sock.h"
#include "transport/tls.h"
#include "transport/tls_record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* A program with a TLS library of its own, whose names it exports: ours must not call them. */
__attribute__((visibility("default"))) int EVP_DigestUpdate(void);
__attribute__((visibility("default"))) int EVP_DigestUpdate(void)
{
    abort();
}
__attribute__((visibility("default"))) int SSL_CIPHER_find(void);
__attribute__((visibility("default"))) int SSL_CIPHER_find(void)
{
    abort();
}
#endif

static const struct tow_grant grant = {"one session's id", "a secret of thirty-two bytes...."};

static void socket_pair(int ret[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret), 0);
}

/* One end of a handshake on a thread of its own. */
struct end {
    int fd;
    bool server;
    struct tow_grant grant;
    int64_t deadline_ns;
    pthread_t thread;
    int error;
    char why[TOW_WHY_MAX];
    struct tow_line *line;
};

static void *end_run(void *arg)
{
    struct end *end = arg;
    end->error = tow_tls_line(end->fd, end->server, &end->grant, end->deadline_ns, end->why,
                              sizeof end->why, &end->line);
    return NULL;
}

static void end_start(struct end *end, int fd, bool server, const struct tow_grant *with)
{
    *end = (struct end){.fd = fd,
                        .server = server,
                        .grant = *with,
                        .deadline_ns = tow_time_deadline(20 * TOW_TIME_S)};
    assert_int_equal(tow_thread_start("end", end_run, end, &end->thread), 0);
}

static int end_wait(struct end *end)
{
    pthread_join(end->thread, NULL);
    return end->error;
}

static void send_text(struct tow_line *line, const char *text, size_t n)
{
    uint8_t *at;
    if (tow_line_reserve(line, n, &at) == 0) {
        memcpy(at, text, n);
        tow_line_commit_now(line, n);
    }
}

/* ---- who gets in ---- */

static void another_secret_is_refused(void **state)
{
    for (int which = 0; which < 2; which++) {
        struct tow_grant wrong = grant;
        if (which == 0) {
            wrong.secret[31] ^= 1;
        } else {
            wrong.id[0] ^= 1;
        }
        int fds[2];
        struct end client, server;
        socket_pair(fds);
        end_start(&server, fds[0], true, &grant);
        end_start(&client, fds[1], false, &wrong);
        assert_int_equal(end_wait(&client), -EACCES);
        assert_int_equal(end_wait(&server), -EACCES);
        assert_non_null(strstr(client.why, "does not know this session's secret"));
    }
}

static void silence_ends_with_the_deadline(void **state)
{
    for (int server = 0; server < 2; server++) {
        int fds[2];
        char why[TOW_WHY_MAX] = "";
        struct tow_line *line;
        socket_pair(fds);
        int error = tow_tls_line(fds[0], server == 1, &grant, tow_time_deadline(20 * TOW_TIME_MS),
                                 why, sizeof why, &line);
        assert_int_equal(error, -ETIMEDOUT);
        assert_non_null(strstr(why, "in time"));
        close(fds[1]);
    }
}

/* And SIGPIPE, which would end the program, is not raised. */
static void a_peer_that_hangs_up_is_an_error(void **state)
{
    for (int server = 0; server < 2; server++) {
        int fds[2];
        char why[TOW_WHY_MAX] = "";
        struct tow_line *line;
        socket_pair(fds);
        close(fds[1]);
        int error = tow_tls_line(fds[0], server == 1, &grant, tow_time_deadline(20 * TOW_TIME_S),
                                 why, sizeof why, &line);
        assert_true(error == -EPIPE || error == -ECONNRESET);
        assert_non_null(strstr(why, "ended the connection"));
    }
}

static void plain_words_are_no_handshake(void **state)
{
    static const char *const said[] = {"GET / HTTP/1.1\r\n\r\n", "TOWL\1\0\0\0 a hello in plain"};
    for (int i = 0; i < 2; i++) {
        int fds[2];
        char why[TOW_WHY_MAX] = "";
        struct tow_line *line;
        socket_pair(fds);
        assert_true(send(fds[1], said[i], strlen(said[i]), 0) > 0);
        int error = tow_tls_line(fds[0], true, &grant, tow_time_deadline(20 * TOW_TIME_S), why,
                                 sizeof why, &line);
        assert_int_equal(error, -EACCES);
        close(fds[1]);
    }
}

/* ---- a stranger on the way ---- */

/* Passes bytes between the two ends, and does something to byte `at` of one direction. */
struct stranger {
    int client, server; /* its ends */
    bool to_server;
    atomic_size_t at;
    bool cut;     /* ends there; else the byte is flipped */
    bool reached; /* and that was done */
    uint8_t *record;
    atomic_size_t recorded; /* bytes of that direction that passed */
    pthread_t thread;
};

enum { RECORD_MAX = 16384 };

static void *stranger_run(void *arg)
{
    struct stranger *stranger = arg;
    struct pollfd polls[2] = {{stranger->client, POLLIN, 0}, {stranger->server, POLLIN, 0}};
    /* A changed length makes both wait for more: behind it, silence is the end. */
    while (polls[0].fd >= 0 && polls[1].fd >= 0 &&
           poll(polls, 2, stranger->reached ? 20 : 60000) > 0) {
        for (int i = 0; i < 2; i++) {
            if ((polls[i].revents & (POLLIN | POLLHUP)) == 0) {
                continue;
            }
            uint8_t bytes[4096];
            ssize_t n = recv(polls[i].fd, bytes, sizeof bytes, 0);
            bool ours = (i == 0) == stranger->to_server;
            if (n <= 0) {
                polls[0].fd = polls[1].fd = -1;
                break;
            }
            size_t from = stranger->recorded, to = from + (size_t)n;
            bool last = false;
            if (ours && stranger->at >= from && stranger->at < to) {
                bytes[stranger->at - from] ^= 0x10;
                stranger->reached = true;
                last = stranger->cut;
                n = last ? (ssize_t)(stranger->at - from) : n;
            }
            if (ours) {
                if (stranger->record != NULL && to <= RECORD_MAX) {
                    memcpy(stranger->record + from, bytes, (size_t)n);
                }
                stranger->recorded = to;
            }
            if (n > 0) {
                send(polls[1 - i].fd, bytes, (size_t)n, MSG_NOSIGNAL);
            }
            if (last) {
                polls[0].fd = polls[1].fd = -1;
                break;
            }
        }
    }
    shutdown(stranger->client, SHUT_RDWR);
    shutdown(stranger->server, SHUT_RDWR);
    close(stranger->client);
    close(stranger->server);
    return NULL;
}

static const char question[] = "what is asked, in forty-eight bytes, no fewer..";
static const char answer[] = "what is answered, in forty-eight bytes, not more";

/* Whether all of `text` came; what came is never anything else. */
static bool take_text(struct tow_line *line, const char *text)
{
    const uint8_t *at;
    size_t available;
    int error = tow_line_peek(line, 48, tow_time_deadline(20 * TOW_TIME_S), &at, &available);
    if (error < 0) {
        assert_true(error == -EPROTO || error == -ECONNRESET || error == -EPIPE);
        return false;
    }
    assert_int_equal(available, 48);
    assert_memory_equal(at, text, 48);
    tow_line_consume(line, 48);
    return true;
}

/* A session with a stranger on the way: whether everything went well. */
static bool talk(struct stranger *stranger)
{
    int client_fds[2], server_fds[2];
    struct end client, server;
    socket_pair(client_fds);
    socket_pair(server_fds);
    stranger->client = client_fds[1];
    stranger->server = server_fds[1];
    assert_int_equal(tow_thread_start("stranger", stranger_run, stranger, &stranger->thread), 0);
    end_start(&server, server_fds[0], true, &grant);
    end_start(&client, client_fds[0], false, &grant);
    bool good = end_wait(&client) == 0;
    if (good) {
        send_text(client.line, question, 48);
    }
    bool served = end_wait(&server) == 0;
    if (served && good) {
        good = take_text(server.line, question);
        if (good) {
            send_text(server.line, answer, 48);
            good = take_text(client.line, answer);
        }
    } else {
        good = false;
    }
    if (client.error == 0) {
        tow_line_close(client.line);
    }
    if (served) {
        tow_line_close(server.line);
    }
    pthread_join(stranger->thread, NULL);
    return good;
}

/* Bytes of the handshake that mean nothing may change (the version that a record claims): then all
 * goes well. Else it ends with an error, on both ends, and nobody reads what the other did not
 * write. Heads and tags of all records byte by byte, of the rest every eighth. */
static void a_byte_changed_or_cut_ends_the_line(void **state)
{
    uint8_t *record = malloc(RECORD_MAX);
    for (int to_server = 0; to_server < 2; to_server++) {
        struct stranger quiet = {.to_server = to_server == 1, .at = SIZE_MAX, .record = record};
        assert_true(talk(&quiet));
        size_t total = quiet.recorded, size, sessions = 0;
        assert_in_range(total, 200, 1000);
        for (size_t begin = 0; begin < total; begin += size) {
            assert_true(total - begin > TOW_TLS_HEAD);
            size = TOW_TLS_HEAD + ((size_t)record[begin + 3] << 8 | record[begin + 4]);
            bool content = begin + size == total; /* that is, behind the handshake */
            for (size_t at = 0; at < size; at++) {
                bool tag = record[begin] == TOW_TLS_DATA && at + TOW_TLS_TAG >= size;
                if (at >= TOW_TLS_HEAD && !tag && at % 8 != 0) {
                    continue;
                }
                struct stranger flips = {.to_server = to_server == 1, .at = begin + at};
                bool well = talk(&flips);
                assert_true(flips.reached);
                assert_true(!well || (!content && (at == 1 || at == 2)));
                struct stranger cuts = {.to_server = to_server == 1, .at = begin + at, .cut = true};
                assert_false(talk(&cuts));
                assert_true(cuts.reached);
                sessions += 2;
            }
            assert_true(!content || size == 48 + TOW_TLS_OVERHEAD);
        }
        assert_in_range(sessions, 100, 400);
    }
    free(record);
}

/* Even if it came at once with what ends the line. */
static void what_came_before_the_end_can_be_read(void **state)
{
    int fds[2];
    struct end client, server;
    socket_pair(fds);
    end_start(&server, fds[0], true, &grant);
    end_start(&client, fds[1], false, &grant);
    assert_int_equal(end_wait(&client), 0);
    assert_int_equal(end_wait(&server), 0);
    send_text(client.line, question, 48);
    static const uint8_t no_record[8] = {23, 3, 3, 0, 1};
    assert_int_equal(send(fds[1], no_record, sizeof no_record, 0), sizeof no_record);
    assert_true(take_text(server.line, question));
    assert_false(take_text(server.line, question));
    tow_line_close(client.line);
    tow_line_close(server.line);
}

/* A line that is broken while its socket is open and silent: whoever waits for it learns it. */
static void a_broken_line_is_readable(void **state)
{
    enum { SIZE = 20000 };
    int fds[2];
    struct end client, server;
    static uint8_t bytes[SIZE], came[SIZE];
    socket_pair(fds);
    end_start(&server, fds[0], true, &grant);
    end_start(&client, fds[1], false, &grant);
    assert_int_equal(end_wait(&client), 0);
    assert_int_equal(end_wait(&server), 0);
    lines_bytes(4, 0, bytes, SIZE);
    const struct iovec part = {bytes, SIZE};
    assert_int_equal(tow_line_send_direct(client.line, &part, 1), 0);
    static const uint8_t no_record[8] = {23, 3, 3, 0, 1};
    assert_int_equal(send(fds[1], no_record, sizeof no_record, 0), sizeof no_record);
    const uint8_t *at = NULL;
    size_t available;
    int64_t deadline = tow_time_deadline(20 * TOW_TIME_S);
    assert_int_equal(tow_line_peek(server.line, 8, deadline, &at, &available), 0);
    assert_int_equal(tow_line_recv_into(server.line, came, SIZE), 0);
    assert_memory_equal(came, bytes, SIZE);
    assert_int_equal(tow_line_wait_readable(server.line, deadline), 0);
    assert_int_equal(tow_line_peek(server.line, 1, deadline, &at, &available), -EPROTO);
    tow_line_close(client.line);
    tow_line_close(server.line);
}

/* Records have numbers, but one that was lost must not be passed over all the same. */
static void nothing_is_read_behind_what_was_changed(void **state)
{
    int client_fds[2], server_fds[2];
    struct end client, server;
    struct stranger stranger = {.to_server = true, .at = SIZE_MAX};
    socket_pair(client_fds);
    socket_pair(server_fds);
    stranger.client = client_fds[1];
    stranger.server = server_fds[1];
    assert_int_equal(tow_thread_start("stranger", stranger_run, &stranger, &stranger.thread), 0);
    end_start(&server, server_fds[0], true, &grant);
    end_start(&client, client_fds[0], false, &grant);
    assert_int_equal(end_wait(&client), 0);
    assert_int_equal(end_wait(&server), 0);
    /* All of the handshake has passed: this is within the first record of content. */
    atomic_store(&stranger.at, atomic_load(&stranger.recorded) + 20);
    send_text(client.line, question, 48);
    send_text(client.line, answer, 48);
    for (int i = 0; i < 3; i++) {
        assert_false(take_text(server.line, question));
    }
    tow_line_close(client.line);
    tow_line_close(server.line);
    pthread_join(stranger.thread, NULL);
}

/* What a client sent is no use to somebody who recorded it. */
static void a_replay_is_refused(void **state)
{
    uint8_t *record = calloc(1, RECORD_MAX);
    struct stranger listens = {.to_server = true, .at = SIZE_MAX, .record = record};
    assert_true(talk(&listens));
    int fds[2];
    struct end server;
    socket_pair(fds);
    end_start(&server, fds[0], true, &grant);
    assert_int_equal(send(fds[1], record, listens.recorded, 0), listens.recorded);
    assert_int_equal(end_wait(&server), -EACCES);
    close(fds[1]);
    free(record);
}

/* ---- records ---- */

static void a_record_opens_once_and_only_as_it_was(void **state)
{
    const struct tow_tls_lib *lib = lines_tls_lib();
    uint8_t secret[TOW_TLS_SECRET] = {7}, record[256], copy[256], plain[256];
    struct tow_tls_key seals, opens;
    size_t n;
    uint8_t type;
    struct iovec parts[3] = {{(void *)(uintptr_t) "one ", 4}, {NULL, 0}, {record + 200, 37}};
    memset(record + 200, 'x', 37);
    for (size_t at = 0; at < 41 + TOW_TLS_OVERHEAD + 1; at++) {
        assert_int_equal(tow_tls_key_init(&seals, lib, true, secret), 0);
        assert_int_equal(tow_tls_key_init(&opens, lib, false, secret), 0);
        assert_int_equal(tow_tls_seal(&seals, TOW_TLS_DATA, parts, 41, record), 0);
        assert_int_equal(tow_tls_record_size(record), 41 + TOW_TLS_OVERHEAD);
        memcpy(copy, record, sizeof copy);
        if (at < 41 + TOW_TLS_OVERHEAD) {
            copy[at] ^= 1;
            bool none = tow_tls_record_size(copy) != 41 + TOW_TLS_OVERHEAD;
            memset(plain, 0xee, sizeof plain);
            assert_true(none || tow_tls_open(&opens, copy, plain, &n, &type) == -EBADMSG);
            for (size_t i = 0; !none && i < 41; i++) {
                assert_int_equal(plain[i], 0); /* nobody reads what was changed */
            }
        } else {
            assert_int_equal(tow_tls_open(&opens, copy, plain, &n, &type), 0);
            assert_int_equal(n, 41);
            assert_int_equal(type, TOW_TLS_DATA);
            assert_memory_equal(plain, "one xxxx", 8);
            /* Again, it is not the next one. */
            assert_int_equal(tow_tls_open(&opens, copy, plain, &n, &type), -EBADMSG);
        }
        tow_tls_key_fini(&seals);
        tow_tls_key_fini(&opens);
    }
}

/* This thread's list of errors is the program's too. */
static void the_programs_errors_stay(void **state)
{
    const struct tow_tls_lib *lib = lines_tls_lib();
    void (*new_error)(void) = (void (*)(void))(uintptr_t)dlsym(lib->crypto_library, "ERR_new");
    void (*set_error)(int, int, const char *, ...) = (void (*)(int, int, const char *, ...))(
        uintptr_t)dlsym(lib->crypto_library, "ERR_set_error");
    uint8_t secret[TOW_TLS_SECRET] = {7}, record[256], plain[256], type;
    const struct iovec part = {secret, sizeof secret};
    struct tow_tls_key seals, opens;
    size_t n;
    lib->ERR_clear_error();
    new_error();
    set_error(128, 77, NULL); /* ERR_LIB_USER */
    assert_int_equal(tow_tls_key_init(&seals, lib, true, secret), 0);
    assert_int_equal(tow_tls_key_init(&opens, lib, false, secret), 0);
    assert_int_equal(tow_tls_seal(&seals, TOW_TLS_DATA, &part, 32, record), 0);
    record[20] ^= 1;
    assert_int_equal(tow_tls_open(&opens, record, plain, &n, &type), -EBADMSG);
    tow_tls_key_fini(&seals);
    tow_tls_key_fini(&opens);
    assert_int_equal(lib->ERR_get_error() & 0x7fffff, 77);
    assert_int_equal(lib->ERR_get_error(), 0);
}

static int mac_failures; /* the call that fails, counted down to 0 */
static unsigned char *(*real_mac)(OSSL_LIB_CTX *, const char *, const char *, const char *,
                                  const OSSL_PARAM *, const void *, size_t, const unsigned char *,
                                  size_t, unsigned char *, size_t, size_t *);

static unsigned char *failing_mac(OSSL_LIB_CTX *context, const char *name, const char *query,
                                  const char *digest, const OSSL_PARAM *params, const void *key,
                                  size_t key_size, const unsigned char *bytes, size_t size,
                                  unsigned char *ret, size_t ret_max, size_t *ret_size)
{
    return --mac_failures == 0 ? NULL
                               : real_mac(context, name, query, digest, params, key, key_size,
                                          bytes, size, ret, ret_max, ret_size);
}

/* Wherever it failed, no number is used twice with a key: nothing more is sealed. */
static void a_key_that_could_not_be_changed_is_dead(void **state)
{
    struct tow_tls_lib lib = *lines_tls_lib();
    uint8_t secret[TOW_TLS_SECRET] = {7}, record[256];
    const struct iovec part = {secret, sizeof secret};
    real_mac = lib.EVP_Q_mac;
    lib.EVP_Q_mac = failing_mac;
    for (int call = 1; call <= 3; call++) {
        struct tow_tls_key key;
        assert_int_equal(tow_tls_key_init(&key, &lib, true, secret), 0);
        assert_int_equal(tow_tls_seal(&key, TOW_TLS_DATA, &part, 32, record), 0);
        mac_failures = call;
        assert_int_equal(tow_tls_key_update(&key), -ENOMEM);
        assert_int_equal(tow_tls_seal(&key, TOW_TLS_DATA, &part, 32, record), -ENOKEY);
        tow_tls_key_fini(&key);
    }
}

static int update_failures; /* the call that fails, counted down to 0 */
static int (*real_update)(EVP_CIPHER_CTX *, unsigned char *, int *, const unsigned char *, int);

static int failing_update(EVP_CIPHER_CTX *context, unsigned char *to, int *ret_size,
                          const unsigned char *from, int size)
{
    return --update_failures == 0 ? 0 : real_update(context, to, ret_size, from, size);
}

/* The peer reads the end, and nothing of what was sealed before. */
static void nothing_is_sent_behind_a_failed_seal(void **state)
{
    struct tow_tls_lib *lib = (struct tow_tls_lib *)(uintptr_t)lines_tls_lib();
    int fds[2];
    struct end client, server;
    static uint8_t bytes[100000];
    const struct iovec part = {bytes, sizeof bytes};
    socket_pair(fds);
    end_start(&server, fds[0], true, &grant);
    end_start(&client, fds[1], false, &grant);
    assert_int_equal(end_wait(&client), 0);
    assert_int_equal(end_wait(&server), 0);
    real_update = lib->EVP_CipherUpdate;
    lib->EVP_CipherUpdate = failing_update;
    update_failures = 8; /* of the third record */
    assert_int_equal(tow_line_send_direct(client.line, &part, 1), -ENOMEM);
    lib->EVP_CipherUpdate = real_update;
    /* The line has failed; nor does anybody who is already at it send more. */
    struct tow_sock_line *sock = (struct tow_sock_line *)client.line;
    struct iovec again = part;
    assert_int_equal(sock->kind->send_ring(sock, 0), -ENOMEM);
    assert_int_equal(sock->kind->send_parts(sock, &again, 1), -ENOMEM);
    tow_line_close(client.line);
    assert_false(take_text(server.line, question));
    tow_line_close(server.line);
}

/* RFC 8448, section 3: the server's first traffic secret and what is derived from it. */
static void keys_are_those_of_the_standard(void **state)
{
    static const uint8_t secret[32] = {0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56,
                                       0xad, 0x47, 0x11, 0x6b, 0x45, 0xa9, 0x50, 0x32,
                                       0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb, 0x6b, 0x3a,
                                       0x4b, 0x4f, 0x1f, 0x3f, 0xcb, 0x63, 0x16, 0x43};
    static const uint8_t key[16] = {0x9f, 0x02, 0x28, 0x3b, 0x6c, 0x9c, 0x07, 0xef,
                                    0xc2, 0x6b, 0xb9, 0xf2, 0xac, 0x92, 0xe3, 0x56};
    static const uint8_t iv[12] = {0xcf, 0x78, 0x2b, 0x88, 0xdd, 0x83,
                                   0x54, 0x9a, 0xad, 0xf1, 0xe9, 0x84};
    uint8_t got[32];
    assert_int_equal(tow_tls_expand(lines_tls_lib(), secret, "key", got, sizeof key), 0);
    assert_memory_equal(got, key, sizeof key);
    assert_int_equal(tow_tls_expand(lines_tls_lib(), secret, "iv", got, sizeof iv), 0);
    assert_memory_equal(got, iv, sizeof iv);
}

/* ---- keys ---- */

enum { LANES = 4, LANE_BYTES = 5 << 20, LIMIT = 1 << 20 };

static struct {
    atomic_size_t came;
    uint8_t *bytes;
} sides[2];

static int lane_take(void *user, struct tow_line *line, const struct tow_data *data)
{
    int side = *(int *)user;
    if (data->offset + data->size > (size_t)LANES * LANE_BYTES) {
        return -EPROTO;
    }
    int error = tow_line_recv_into(line, sides[side].bytes + data->offset, data->size);
    atomic_fetch_add(&sides[side].came, data->size);
    return error;
}

static void lane_ended(void *user, int error)
{
}

static void every_lane_changes_its_key(void **state)
{
    static int numbers[2] = {0, 1};
    struct tow_lanes *lanes[2];
    struct tow_line *lines[2][LANES];
    uint8_t *bytes = malloc((size_t)LANES * LANE_BYTES);
    lines_bytes(5, 0, bytes, (size_t)LANES * LANE_BYTES);
    tow_tls_set_key_limit(LIMIT);
    for (int i = 0; i < 2; i++) {
        const struct tow_lanes_user user = {lane_take, lane_ended, &numbers[i]};
        lanes[i] = tow_lanes_create(&user);
        sides[i].bytes = calloc(LANES, LANE_BYTES);
        atomic_store(&sides[i].came, 0);
    }
    for (int i = 0; i < LANES; i++) {
        lines_pair(&lines[0][i], &lines[1][i]);
        assert_int_equal(tow_lanes_add(lanes[0], lines[0][i]), 0);
        assert_int_equal(tow_lanes_add(lanes[1], lines[1][i]), 0);
    }
    tow_tls_set_key_limit(0);
    struct tow_lane_job jobs[2][LANES];
    for (int i = 0; i < 2 * LANES; i++) {
        size_t at = (size_t)(i / 2) * LANE_BYTES;
        jobs[i % 2][i / 2] = (struct tow_lane_job){
            .bytes = bytes + at, .size = LANE_BYTES, .offset = at, .transfer = 7};
        tow_lanes_send(lanes[i % 2], (unsigned)i / 2, &jobs[i % 2][i / 2]);
    }
    for (int i = 0; i < 2 * LANES; i++) {
        assert_int_equal(tow_lanes_wait(lanes[i % 2], &jobs[i % 2][i / 2]), 0);
    }
    for (int i = 0; i < 2; i++) {
        for (int ms = 0; ms < 20000 && atomic_load(&sides[i].came) < LANES * LANE_BYTES; ms++) {
            tow_time_sleep(TOW_TIME_MS);
        }
        assert_int_equal(atomic_load(&sides[i].came), LANES * LANE_BYTES);
        assert_memory_equal(sides[i].bytes, bytes, (size_t)LANES * LANE_BYTES);
    }
    for (int i = 0; i < 2 * LANES; i++) {
        uint64_t out, in;
        tow_tls_key_updates(lines[i % 2][i / 2], &out, &in);
        assert_in_range(out, LANE_BYTES / LIMIT, LANE_BYTES / LIMIT + 1);
        assert_in_range(in, LANE_BYTES / LIMIT, LANE_BYTES / LIMIT + 1);
    }
    for (int i = 0; i < 2; i++) {
        tow_lanes_destroy(lanes[i]);
        free(sides[i].bytes);
    }
    free(bytes);
}

/* ---- that it is TLS 1.3: the other end is all OpenSSL's ---- */

static struct {
    int (*read)(SSL *, void *, int);
    int (*write)(SSL *, const void *, int);
    int (*key_update)(SSL *, int);
    int (*set_fd)(SSL *, int);
    int (*accept)(SSL *);
} peer_calls;

static int peer_find(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **ret_session)
{
    const struct tow_tls_lib *lib = lines_tls_lib();
    static const unsigned char number[2] = {0x13, 0x01};
    SSL_SESSION *session = lib->SSL_SESSION_new();
    if (id_size != sizeof grant.id || memcmp(id, grant.id, id_size) != 0 ||
        lib->SSL_SESSION_set1_master_key(session, grant.secret, sizeof grant.secret) != 1 ||
        lib->SSL_SESSION_set_cipher(session, lib->SSL_CIPHER_find(ssl, number)) != 1 ||
        lib->SSL_SESSION_set_protocol_version(session, 0x0304) != 1) {
        return 0;
    }
    *ret_session = session;
    return 1;
}

/* Sends back what comes, and asks for a new key now and then. */
static void *peer_run(void *arg)
{
    const struct tow_tls_lib *lib = lines_tls_lib();
    SSL_CTX *context = lib->SSL_CTX_new_ex(lib->context, NULL, lib->TLS_method());
    lib->SSL_CTX_set_psk_find_session_callback(context, peer_find);
    lib->SSL_CTX_set_num_tickets(context, 0);
    SSL *ssl = lib->SSL_new(context);
    peer_calls.set_fd(ssl, *(int *)arg);
    intptr_t echoed = 0;
    uint8_t bytes[20000];
    int n = peer_calls.accept(ssl);
    for (int i = 0; n == 1 || n > 0; i++) {
        n = peer_calls.read(ssl, bytes, sizeof bytes);
        if (n > 0 && i % 3 == 0) {
            peer_calls.key_update(ssl, 1); /* SSL_KEY_UPDATE_REQUESTED */
        }
        if (n > 0 && peer_calls.write(ssl, bytes, n) != n) {
            break;
        }
        echoed += n > 0 ? n : 0;
    }
    lib->SSL_free(ssl);
    lib->SSL_CTX_free(context);
    return (void *)echoed;
}

static void openssl_itself_understands_a_line(void **state)
{
    enum { ROUNDS = 60, SIZE = 70000 };
    const struct tow_tls_lib *lib = lines_tls_lib();
    peer_calls.read = (int (*)(SSL *, void *, int))(uintptr_t)dlsym(lib->ssl_library, "SSL_read");
    peer_calls.write =
        (int (*)(SSL *, const void *, int))(uintptr_t)dlsym(lib->ssl_library, "SSL_write");
    peer_calls.key_update =
        (int (*)(SSL *, int))(uintptr_t)dlsym(lib->ssl_library, "SSL_key_update");
    peer_calls.set_fd = (int (*)(SSL *, int))(uintptr_t)dlsym(lib->ssl_library, "SSL_set_fd");
    peer_calls.accept = (int (*)(SSL *))(uintptr_t)dlsym(lib->ssl_library, "SSL_accept");
    int fds[2];
    pthread_t thread;
    struct tow_line *line;
    char why[TOW_WHY_MAX] = "";
    socket_pair(fds);
    assert_int_equal(tow_thread_start("peer", peer_run, &fds[1], &thread), 0);
    tow_tls_set_key_limit(LIMIT);
    if (tow_tls_line(fds[0], false, &grant, tow_time_deadline(20 * TOW_TIME_S), why, sizeof why,
                     &line) < 0) {
        fail_msg("%s", why);
    }
    tow_tls_set_key_limit(0);
    uint8_t *out = malloc(SIZE), *in = malloc(SIZE);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        size_t size = i % 2 == 0 ? SIZE : 100 + (size_t)i * 100;
        lines_bytes(9, i * 1000, out, size);
        const struct iovec part = {out, size};
        assert_int_equal(tow_line_send_direct(line, &part, 1), 0);
        assert_int_equal(tow_line_recv_into(line, in, size), 0);
        assert_memory_equal(in, out, size);
    }
    uint64_t updates_out, updates_in;
    tow_tls_key_updates(line, &updates_out, &updates_in);
    assert_true(updates_out > 2 && updates_in > 2);
    tow_line_shutdown(line);
    void *echoed;
    pthread_join(thread, &echoed);
    assert_true((intptr_t)echoed > ROUNDS / 2 * SIZE);
    tow_line_close(line);
    close(fds[1]);
    free(out);
    free(in);
}

/* ---- what it costs ---- */

static void *answer_run(void *arg)
{
    struct tow_line *line = arg;
    const uint8_t *at;
    size_t available;
    while (tow_line_peek(line, 64, TOW_TIME_FOREVER, &at, &available) == 0) {
        tow_line_consume(line, 64);
        send_text(line, "sixty-four bytes, which are the size of one launch of a kernel..", 64);
    }
    return NULL;
}

static void a_question_costs_as_many_calls_as_over_tcp(void **state)
{
    enum { ROUNDS = 500 };
    struct tow_line_stats stats[2];
    static const char *const kinds[] = {"tcp", "tls"};
    tow_line_set_spin(0, 0); /* which asks as often as there is time for */
    for (int i = 0; i < 2; i++) {
        struct tow_line *client, *server;
        pthread_t thread;
        struct tow_line_stats before;
        lines_kind = kinds[i];
        lines_pair(&client, &server);
        assert_int_equal(tow_thread_start("answer", answer_run, server, &thread), 0);
        /* The greeting is sent when an answer is there. */
        for (int k = 0; k <= ROUNDS; k++) {
            const uint8_t *at;
            size_t available;
            send_text(client, "sixty-four bytes, which are the size of one launch of a kernel..",
                      64);
            assert_int_equal(tow_line_peek(client, 64, TOW_TIME_FOREVER, &at, &available), 0);
            tow_line_consume(client, 64);
            if (k == 0) {
                tow_line_get_stats(client, &before);
            }
        }
        tow_line_get_stats(client, &stats[i]);
        stats[i].receives -= before.receives;
        stats[i].sends -= before.sends;
        tow_line_shutdown(client);
        pthread_join(thread, NULL);
        tow_line_close(client);
        tow_line_close(server);
    }
    tow_line_set_spin(-1, -1);
    lines_kind = "tls";
    assert_int_equal(stats[0].sends, ROUNDS);
    assert_int_equal(stats[1].sends, ROUNDS);
    assert_int_equal(stats[0].receives, stats[1].receives);
}

/* Frames that begin and end within records: what is missing of one is asked for at once. */
static void a_payload_costs_few_calls_wherever_its_records_end(void **state)
{
    enum { FRAMES = 10, SIZE = 10 << 10 };
    int fds[2];
    struct end client, server;
    static uint8_t frames[FRAMES * SIZE], frame[SIZE];
    socket_pair(fds);
    end_start(&server, fds[0], true, &grant);
    end_start(&client, fds[1], false, &grant);
    assert_int_equal(end_wait(&client), 0);
    assert_int_equal(end_wait(&server), 0);
    /* All of it is there before the first byte is asked for. */
    lines_bytes(3, 0, frames, sizeof frames);
    const struct iovec part = {frames, sizeof frames};
    assert_int_equal(tow_line_send_direct(client.line, &part, 1), 0);
    struct tow_line_stats before, after;
    tow_line_get_stats(server.line, &before);
    for (uint64_t i = 0; i < FRAMES; i++) {
        const uint8_t *at = NULL;
        size_t available;
        assert_int_equal(
            tow_line_peek(server.line, 8, tow_time_deadline(20 * TOW_TIME_S), &at, &available), 0);
        memcpy(frame, at, 8);
        tow_line_consume(server.line, 8);
        assert_int_equal(tow_line_recv_into(server.line, frame + 8, SIZE - 8), 0);
        assert_memory_equal(frame, frames + i * SIZE, SIZE);
    }
    tow_line_get_stats(server.line, &after);
    assert_in_range(after.receives - before.receives, 1, 2 * FRAMES);
    tow_line_close(client.line);
    tow_line_close(server.line);
}

/* ---- where it runs ---- */

static void a_forked_child_makes_lines_of_its_own(void **state)
{
#if defined(__SANITIZE_THREAD__)
    print_message("ThreadSanitizer allows no threads behind a fork\n");
    skip();
#endif
    struct tow_line *client, *server;
    lines_pair(&client, &server);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tow_line_abandon(client);
        tow_line_abandon(server);
        lines_pair(&client, &server);
        send_text(client, question, 48);
        _exit(take_text(server, question) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    send_text(server, answer, 48);
    assert_true(take_text(client, answer));
    tow_line_close(client);
    tow_line_close(server);
}

/* In an image that has no OpenSSL 3: a sentence that says what to install. */
static int without_openssl(void)
{
    const struct tow_tls_lib *lib;
    char why[TOW_WHY_MAX] = "";
    int error = tow_tls_lib(&lib, why, sizeof why);
    return error == -ENOTSUP && strstr(why, "install the package libssl3") != NULL ? 0 : 1;
}

/* And these tests are not run there. */
static void a_missing_library_is_a_sentence(void **state)
{
    char path[256], self[512];
    snprintf(path, sizeof path, "%s/libcrypto.so.3", lines_folder());
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0 && write(fd, "none", 4) == 4);
    close(fd);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("LD_LIBRARY_PATH", lines_folder(), 1);
            dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO); /* the reason */
            execl(self, self, i == 0 ? "without" : NULL, NULL);
            _exit(2);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), i == 0 ? 0 : LINES_SKIP);
    }
}

/* A program that has the same OpenSSL and a configuration of its own: it gets its settings although
 * we were first, and our lines do not take them over. */
static int with_configuration(void)
{
    enum { GET_MIN_VERSION = 130, GET_MAX_VERSION = 131, TLS_1_2 = 0x0303 };
    struct tow_line *client, *server;
    lines_kind = "tls";
    lines_pair(&client, &server);
    send_text(client, question, 48);
    bool ours = take_text(server, question);
    tow_line_close(client);
    tow_line_close(server);
    const struct tow_tls_lib *lib = lines_tls_lib();
    SSL_CTX *context = lib->SSL_CTX_new_ex(NULL, NULL, lib->TLS_method());
    bool theirs = context != NULL &&
                  lib->SSL_CTX_ctrl(context, GET_MIN_VERSION, 0, NULL) == TLS_1_2 &&
                  lib->SSL_CTX_ctrl(context, GET_MAX_VERSION, 0, NULL) == TLS_1_2;
    lib->SSL_CTX_free(context);
    return !ours ? 3 : !theirs ? 4 : 0;
}

static void the_program_keeps_its_configuration(void **state)
{
    static const char text[] = "openssl_conf = all\n[all]\nssl_conf = ssl\n"
                               "[ssl]\nsystem_default = settings\n"
                               "[settings]\nMinProtocol = TLSv1.2\nMaxProtocol = TLSv1.2\n"
                               "Ciphersuites = TLS_CHACHA20_POLY1305_SHA256\nGroups = P-521\n";
    char path[256], self[512];
    snprintf(path, sizeof path, "%s/openssl.cnf", lines_folder());
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    pid_t child = fork();
    if (child == 0) {
        setenv("OPENSSL_CONF", path, 1);
        execl(self, self, "configuration", NULL);
        _exit(2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "configuration") == 0) {
        return with_configuration();
    }
    if (argc > 1 && strcmp(argv[1], "without") == 0) {
        return without_openssl();
    }
    lines_kind = "tls";
    if (lines_missing()) {
        return LINES_SKIP;
    }
    tow_log_configure("off"); /* a line for each byte that a stranger changes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(silence_ends_with_the_deadline),
        cmocka_unit_test(a_peer_that_hangs_up_is_an_error),
        cmocka_unit_test(plain_words_are_no_handshake),
        cmocka_unit_test(a_byte_changed_or_cut_ends_the_line),
        cmocka_unit_test(what_came_before_the_end_can_be_read),
        cmocka_unit_test(a_broken_line_is_readable),
        cmocka_unit_test(nothing_is_read_behind_what_was_changed),
        cmocka_unit_test(a_replay_is_refused),
        cmocka_unit_test(a_record_opens_once_and_only_as_it_was),
        cmocka_unit_test(the_programs_errors_stay),
        cmocka_unit_test(a_key_that_could_not_be_changed_is_dead),
        cmocka_unit_test(nothing_is_sent_behind_a_failed_seal),
        cmocka_unit_test(keys_are_those_of_the_standard),
        cmocka_unit_test(every_lane_changes_its_key),
        cmocka_unit_test(openssl_itself_understands_a_line),
        cmocka_unit_test(a_question_costs_as_many_calls_as_over_tcp),
        cmocka_unit_test(a_payload_costs_few_calls_wherever_its_records_end),
        cmocka_unit_test(a_forked_child_makes_lines_of_its_own),
        cmocka_unit_test(a_missing_library_is_a_sentence),
        cmocka_unit_test(the_program_keeps_its_configuration),
    };
    int failed = cmocka_run_group_tests_name("tls", tests, NULL, NULL);
    lines_cleanup();
    return failed;
}
