/* SPDX-License-Identifier: Apache-2.0 */
/* Shakes hands in a process of its own, a thread for each client; the listener's side of it. */
#include "server/beside/shaker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/beside/process.h"
#include "server/login/tokens.h"
#include "server/walls/landlock.h"
#include "server/walls/user.h"
#include "server/walls/walls.h"
#include "transport/tls_shake.h"
#include "transport/transport.h"

enum {
    CLIENTS_MAX = 4096,    /* at once: more than the door has places for */
    CLIENT_FILES = 4,      /* descriptors that each may need */
    FINISH_MS = 90 * 1000, /* more than anybody waits in the door */
    CHUNK = 16 << 10,
    ORDERS_BYTES = 4 << 10,    /* of orders on their way: a dozen */
    AUTHORITIES_MAX = 8 << 20, /* of a file: more than all that the web trusts */
};
#define SHAKE_NS (10 * TOW_TIME_S)
#define START_NS (5 * TOW_TIME_S)
#define DRAIN_NS (5 * TOW_TIME_S)
#define AGAIN_NS TOW_TIME_S /* it is not started more often */
#define HANG_NS                                                                                    \
    (5 * TOW_TIME_S) /* so long without taking anything: it is replaced; nobody                    \
                      * waits for as long as twice that */

/* What the listener says: with the client's socket and the end of the plain one. */
struct shaker_order {
    char peer[128];
};

/* What it says when it has started. */
struct shaker_answer {
    int32_t error;
    struct tow_tls_print print;
    uint8_t authorities[TOW_SHA256_SIZE];
    char why[TOW_WHY_MAX];
};

/* ---- in the process ---- */

static const struct tow_tls_lib *lib;
static SSL_CTX *context;                     /* with the key */
static uint8_t authorities[TOW_SHA256_SIZE]; /* that it has for clients: of their file */
static atomic_uint clients;
static atomic_bool ending;
static unsigned clients_max;

struct shaker_client {
    int fd, plain; /* owned */
    struct tow_line *line;
    char peer[128];
};

/* What the listener says goes to the client. */
static void *say_to_client(void *arg)
{
    struct shaker_client *client = arg;
    uint8_t *at;
    ssize_t got;
    while (tow_line_reserve(client->line, CHUNK, &at) == 0 &&
           (got = recv(client->plain, at, CHUNK, 0)) > 0) {
        tow_line_commit_now(client->line, (size_t)got);
    }
    tow_line_drain(client->line, tow_time_deadline(DRAIN_NS));
    tow_line_shutdown(client->line);
    return NULL;
}

/* What the client says goes to the listener, until either has gone. */
static void carry_words(struct shaker_client *client, const struct tows_shaken *shaken)
{
    pthread_t thread;
    const uint8_t *at;
    size_t n;
    if (send(client->plain, shaken, sizeof *shaken, MSG_NOSIGNAL) != (ssize_t)sizeof *shaken ||
        tow_thread_start("towline-shaken", say_to_client, client, &thread) < 0) {
        return;
    }
    while (tow_line_peek(client->line, 1, TOW_TIME_FOREVER, &at, &n) == 0) {
        ssize_t sent = send(client->plain, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            break;
        }
        tow_line_consume(client->line, sent < 0 ? 0 : (size_t)sent);
    }
    shutdown(client->plain, SHUT_RDWR); /* which ends the other thread */
    pthread_join(thread, NULL);
}

static void shake_hands(struct shaker_client *client)
{
    struct tow_tls_shaken shaken = {.early_size = 0};
    struct tows_shaken said;
    memset(&said, 0, sizeof said);
    const struct tow_tls_shake_by by = {.context = context, .server = true, .ret_cert = &said.cert};
    const char *reason = NULL;
    struct tow_log_about about = {.peer = client->peer};
    int error = tow_tls_shake(lib, client->fd, &by, tow_time_deadline(SHAKE_NS), &reason, &shaken);
    if (error < 0) {
        close(client->fd);
        tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about,
                      "%s was refused: the TLS handshake failed: %s", client->peer,
                      error == -ETIMEDOUT ? "it took too long"
                      : reason != NULL    ? reason
                                          : strerror(-error));
        return;
    }
    memcpy(said.binding, shaken.binding, sizeof said.binding);
    memcpy(said.authorities, authorities, sizeof said.authorities);
    error = tow_tls_line_of(lib, client->fd, true, &shaken, &client->line);
    explicit_bzero(&shaken, sizeof shaken);
    if (error == 0) {
        carry_words(client, &said);
        tow_line_close(client->line);
    }
}

static void client_leaves(void)
{
    if (atomic_fetch_sub(&clients, 1) == 1 && atomic_load(&ending)) {
        _exit(0);
    }
}

/* The listener has another process: who came before that is still served, by this one. It closes
 * what takes too long. */
static _Noreturn void finish_clients(void)
{
    atomic_store(&ending, true);
    if (atomic_load(&clients) > 0) {
        poll(NULL, 0, FINISH_MS); /* the last one ends the process */
    }
    _exit(0);
}

static void *client_run(void *arg)
{
    struct shaker_client *client = arg;
    shake_hands(client);
    close(client->plain);
    free(client);
    client_leaves();
    return NULL;
}

static void take_client(const struct shaker_order *order, const int fds[2])
{
    pthread_t thread;
    struct shaker_client *client = calloc(1, sizeof *client);
    if (atomic_fetch_add(&clients, 1) < clients_max && client != NULL) {
        client->fd = fds[0];
        client->plain = fds[1];
        snprintf(client->peer, sizeof client->peer, "%.*s", (int)sizeof order->peer - 1,
                 order->peer);
        if (tow_thread_start("towline-shake", client_run, client, &thread) == 0) {
            pthread_detach(thread);
            return;
        }
    }
    atomic_fetch_sub(&clients, 1);
    free(client);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%.*s was refused: too many shake hands at once",
            (int)sizeof order->peer - 1, order->peer);
    close(fds[0]);
    close(fds[1]);
}

/* Their hash is of what was there before they were read: whoever changes the file meanwhile has it
 * differ later. */
static int read_authorities(const char *path, char *why, size_t why_size)
{
    struct tow_buf text;
    struct stat file;
    tow_buf_init(&text, AUTHORITIES_MAX);
    int error = stat(path, &file) != 0 ? -errno : tow_file_read(path, &text);
    if (error < 0) {
        snprintf(why, why_size, "the authorities for clients in %s cannot be read: %s", path,
                 strerror(-error));
    } else if ((file.st_mode & 022) != 0) {
        snprintf(why, why_size,
                 "others can change the authorities for clients in %s; run chmod 644 %s, and look "
                 "at what is in it",
                 path, path);
        error = -EPERM;
    } else {
        tow_sha256_of(text.data, text.size, authorities);
        error = tow_tls_client_cert_ask(lib, context, path, why, why_size);
    }
    tow_buf_fini(&text);
    return error;
}

/* Workers may have this process's user: then only their walls keep them from the file. */
static int check_place(const struct tows_config *config, const char *key, char *why,
                       size_t why_size)
{
    char cache[TOW_CONFIG_TEXT_MAX];
    snprintf(cache, sizeof cache, "%s", config->cache_dir);
    if (cache[0] == '\0' && tow_file_cache_dir(true, cache, sizeof cache) < 0) {
        cache[0] = '\0';
    }
    int shown = config->walls == 0 ? 0 : tows_landlock_shows(config, cache, key);
    if (shown == 0 || shown == -ENOSYS) {
        return 0;
    }
    if (shown < 0) {
        snprintf(why, why_size, "whether workers could read the key in %s cannot be told: %s", key,
                 strerror(-shown));
        return shown;
    }
    snprintf(why, why_size,
             "workers could read the key in %s, since it lies among libraries, devices or caches "
             "that they need; put it into a folder of its own, such as /var/lib/towline",
             key);
    return -EPERM;
}

static void read_key(const struct tows_config *config, struct shaker_answer *answer)
{
    const char *certificate = config->tls_certificate;
    const char *key = config->tls_key[0] != '\0' ? config->tls_key : certificate;
    answer->error = tow_tls_lib(&lib, answer->why, sizeof answer->why);
    if (answer->error == 0 && config->tls_make) {
        answer->error = tow_tls_cert_make(lib, certificate, answer->why, sizeof answer->why);
    }
    if (answer->error == 0) {
        answer->error = check_place(config, key, answer->why, sizeof answer->why);
    }
    if (answer->error == 0) {
        answer->error = tow_tls_cert_serve(lib, certificate, key, answer->why, sizeof answer->why,
                                           &context, &answer->print);
    }
    if (answer->error == 0 && config->tls_client_ca[0] != '\0') {
        answer->error = read_authorities(config->tls_client_ca, answer->why, sizeof answer->why);
        memcpy(answer->authorities, authorities, sizeof answer->authorities);
    }
}

int tows_shaker_main(const struct tows_config *config)
{
    struct shaker_answer answer;
    memset(&answer, 0, sizeof answer);
    struct rlimit none = {0, 0}, files = {0, 0};
    getrlimit(RLIMIT_NOFILE, &files);
    clients_max = files.rlim_cur / CLIENT_FILES < CLIENTS_MAX
                      ? (unsigned)files.rlim_cur / CLIENT_FILES
                      : CLIENTS_MAX;
    prctl(PR_SET_NAME, "towline-shaker");
    setrlimit(RLIMIT_CORE, &none); /* before it has the key */
    tows_walls_hide();
    read_key(config, &answer);
    int error = config->become != 0 ? tows_user_become((uint32_t)config->become) : 0;
    if (error < 0 && answer.error == 0) {
        answer.error = error;
        snprintf(answer.why, sizeof answer.why,
                 "the process for TLS handshakes cannot become user %llu: %s",
                 (unsigned long long)config->become, strerror(-error));
    }
    tows_walls_raise_bare(config);
    int refused = tows_walls_finish(config, false);
    if (refused >= 0) {
        close(refused); /* nobody is asked about calls that are not in the list: they fail */
    }
    bool good = answer.error == 0;
    if (send(TOW_PROCESS_CONTROL, &answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer ||
        !good) {
        return 1;
    }
    for (;;) {
        struct shaker_order order;
        int fds[2] = {-1, -1}, count = 0;
        error = tow_fds_recv(TOW_PROCESS_CONTROL, &order, sizeof order, TOW_TIME_FOREVER, fds, 2,
                             &count);
        if (error == -ECONNRESET) {
            finish_clients();
        } else if (error < 0) {
            continue; /* no descriptor is left: they were closed, and others go on */
        }
        if (count == 2) {
            take_client(&order, fds);
        } else if (count == 1) {
            close(fds[0]);
        }
    }
}

/* ---- in the listener ---- */

/* Beside the tokens, unless the settings name it. */
static int find_certificate(const struct tows_config *config, char ret_path[PATH_MAX], char *why,
                            size_t why_size)
{
    if (config->tls_certificate[0] != '\0') {
        snprintf(ret_path, PATH_MAX, "%s", config->tls_certificate);
        return 0;
    }
    int error = tows_tokens_path(config, ret_path, PATH_MAX - 16, why, why_size);
    if (error == 0) {
        snprintf(strrchr(ret_path, '/'), 16, "/tls.pem");
    }
    return error;
}

int tows_shaker_fork(const struct tows_config *config, bool make, uint32_t user, int *ret_control,
                     pid_t *ret_pid, char *why, size_t why_size)
{
    char certificate[PATH_MAX], words[3][PATH_MAX + 32];
    const char *flags[TOW_PROCESS_FLAGS_MAX] = {"--shaker", words[0]};
    int count = 2, error = find_certificate(config, certificate, why, why_size);
    if (error < 0) {
        return error;
    }
    snprintf(words[0], sizeof words[0], "--tls-certificate=%s", certificate);
    if (config->tls_key[0] != '\0') {
        snprintf(words[1], sizeof words[1], "--tls-key=%s", config->tls_key);
        flags[count++] = words[1];
    }
    if (config->tls_client_ca[0] != '\0') {
        snprintf(words[2], sizeof words[2], "--tls-client-ca=%s", config->tls_client_ca);
        flags[count++] = words[2];
    }
    if (make && config->tls_certificate[0] == '\0') {
        flags[count++] = "--tls-make";
    }
    error = tows_process_fork(config, flags, user, ret_control, ret_pid);
    if (error < 0) {
        snprintf(why, why_size, "no process for TLS handshakes can be had: %s", strerror(-error));
    }
    return error;
}

/* Starts a process, and does not wait for its answer. */
static int shaker_launch(struct tows_starter *starter, const struct tows_config *config, bool first,
                         struct tows_shaker *ret_shaker, char *why, size_t why_size)
{
    int control = -1;
    pid_t pid = -1;
    uint64_t number = 0;
    int error = starter->line != NULL
                    ? tows_starter_shaker(starter, &control, &number, why, why_size)
                    : tows_shaker_fork(config, first, 0, &control, &pid, why, why_size);
    if (error == 0 && starter->line == NULL) {
        error = tows_starter_adopt(starter, pid, &number);
        if (error < 0) {
            close(control); /* by which it ends */
        }
    }
    if (error < 0) {
        return error;
    }
    setsockopt(control, SOL_SOCKET, SO_SNDBUF, &(int){ORDERS_BYTES}, sizeof(int));
    *ret_shaker = (struct tows_shaker){.starter = starter,
                                       .control = control,
                                       .number = number,
                                       .began_ns = tow_time_now_ns(),
                                       .starting = true};
    return 0;
}

/* Its answer, as it came. With a sentence. */
static int shaker_take_answer(struct tows_shaker *shaker, const struct shaker_answer *answer,
                              char *why, size_t why_size)
{
    shaker->starting = false;
    if (answer->error < 0) {
        snprintf(why, why_size, "%.*s", (int)sizeof answer->why - 1, answer->why);
        return answer->error;
    }
    shaker->print = answer->print;
    memcpy(shaker->authorities, answer->authorities, sizeof shaker->authorities);
    return 0;
}

int tows_shaker_start(struct tows_shaker *shaker, const struct tows_config *config, bool first,
                      char *why, size_t why_size)
{
    struct tows_shaker started;
    struct shaker_answer answer;
    int none, count = 0;
    int error = shaker_launch(shaker->starter, config, first, &started, why, why_size);
    if (error < 0) {
        return error;
    }
    error = tow_fds_recv(started.control, &answer, sizeof answer, tow_time_deadline(START_NS),
                         &none, 0, &count);
    if (error < 0) {
        snprintf(why, why_size, "the process for TLS handshakes does not start: %s",
                 strerror(-error));
    } else {
        error = shaker_take_answer(&started, &answer, why, why_size);
    }
    if (error < 0) {
        tows_shaker_stop(&started);
        return error;
    }
    tows_shaker_stop(shaker);
    *shaker = started;
    return 0;
}

void tows_shaker_stop(struct tows_shaker *shaker)
{
    if (shaker->control > 0) {
        close(shaker->control); /* it ends; whoever reaps workers reaps it */
        if (shaker->starting || shaker->full_ns != 0) {
            tows_starter_signal(shaker->starter, shaker->number, SIGKILL); /* it looks nowhere */
        }
    }
    shaker->control = 0;
    shaker->starting = false;
    shaker->full_ns = 0;
}

int tows_shaker_fd(const struct tows_shaker *shaker)
{
    return shaker->control > 0 ? shaker->control : -1;
}

void tows_shaker_hear(struct tows_shaker *shaker)
{
    struct shaker_answer answer;
    char why[TOW_WHY_MAX] = "the process for TLS handshakes has not started";
    if (shaker->control <= 0) {
        return;
    }
    ssize_t got = recv(shaker->control, &answer, sizeof answer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (!shaker->starting || tow_time_now_ns() - shaker->began_ns < START_NS) {
            return;
        }
        snprintf(why, sizeof why, "the process for TLS handshakes does not start in time");
    } else if (got == (ssize_t)sizeof answer && shaker->starting &&
               shaker_take_answer(shaker, &answer, why, sizeof why) == 0) {
        return;
    } else if (!shaker->starting && got != (ssize_t)sizeof answer) {
        why[0] = '\0'; /* it has ended: the next newcomer has another */
    }
    if (why[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
    }
    tows_shaker_stop(shaker);
}

/* Another process in its place. What it will say of its key is not awaited. */
static void shaker_replace(struct tows_shaker *shaker, const struct tows_config *config,
                           const char *reason)
{
    struct tows_shaker started;
    char why[TOW_WHY_MAX];
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the process for TLS handshakes %s: another is started",
            reason);
    tows_shaker_stop(shaker);
    shaker->began_ns = tow_time_now_ns();
    if (shaker_launch(shaker->starter, config, false, &started, why, sizeof why) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
        return;
    }
    started.print = shaker->print; /* until it says its own */
    memcpy(started.authorities, shaker->authorities, sizeof started.authorities);
    *shaker = started;
}

static int shaker_order(struct tows_shaker *shaker, const char *peer, const int fds[2])
{
    struct shaker_order order;
    memset(&order, 0, sizeof order);
    snprintf(order.peer, sizeof order.peer, "%s", peer);
    int error = shaker->control > 0
                    ? tow_fds_try_send(shaker->control, &order, sizeof order, fds, 2)
                    : -EPIPE;
    if (error != -EAGAIN) {
        shaker->full_ns = 0;
    } else if (shaker->full_ns == 0) {
        shaker->full_ns = tow_time_now_ns();
    }
    return error;
}

int tows_shaker_give(struct tows_shaker *shaker, const struct tows_config *config, int fd,
                     const char *peer, int *ret_plain)
{
    int plain[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, plain) != 0) {
        return -errno;
    }
    int fds[2] = {fd, plain[1]};
    int64_t now_ns = tow_time_now_ns();
    int error = shaker_order(shaker, peer, fds);
    bool hangs = error == -EAGAIN && now_ns - shaker->full_ns > HANG_NS;
    if (hangs || (error < 0 && error != -EAGAIN && now_ns - shaker->began_ns > AGAIN_NS)) {
        shaker_replace(shaker, config, hangs ? "takes nothing any more" : "has ended");
        error = shaker_order(shaker, peer, fds);
    }
    close(plain[1]);
    if (error < 0) {
        struct tow_log_about about = {.peer = peer};
        close(plain[0]);
        if (error != -EAGAIN) {
            tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about,
                          "%s was refused: the process for TLS handshakes is not there", peer);
        }
        return error;
    }
    *ret_plain = plain[0];
    return 0;
}

int tows_shaker_begin(struct tows_shaker *shaker, const struct tows_config *config,
                      struct tow_listener *const *listeners, unsigned count, bool first, char *why,
                      size_t why_size)
{
    char print[TOW_TLS_PRINT_TEXT + 1];
    const char *address = NULL;
    for (unsigned i = 0; i < count && address == NULL; i++) {
        address = tow_transport_encrypts(listeners[i]->kind) ? listeners[i]->address : NULL;
    }
    if (address == NULL && config->tls_client_ca[0] != '\0' && config->private_dir[0] == '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "tls-client-ca is of no use: no address is of tls://, and nobody is asked for a "
                "certificate");
    }
    int error = address != NULL ? tows_shaker_start(shaker, config, first, why, why_size) : 0;
    if (address != NULL && error == 0) {
        tow_tls_print_write(&shaker->print, print);
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "its key for TLS is %s; clients run: towline trust tls://HOST%s %s", print,
                strrchr(address, ':'), print);
    }
    return error;
}

int tows_shaker_grant(struct tows_worker_pool *pool, struct tows_worker *worker,
                      struct tows_pending_conn *conn)
{
    struct tow_grant grant;
    int error = tows_worker_pool_grant(pool, worker, conn->peer, &conn->who, &conn->origin, &grant);
    if (error == 0) {
        tows_pending_conn_grant(conn, &grant);
        explicit_bzero(&grant, sizeof grant);
    }
    return error;
}

void tows_shaker_lead(struct tows_worker_pool *pool, struct tows_pending_conn *conn)
{
    if (tows_worker_pool_arrive(pool, conn->grant_id, conn->fd, conn->kind, &conn->origin) < 0) {
        struct tow_log_about about = {.peer = conn->peer};
        tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about,
                      "%s was refused: its session is not here", conn->peer);
    }
    conn->state = TOW_CONN_GONE;
}

void tows_shaker_meet(struct tows_shaker *shaker, const struct tows_config *config,
                      struct tows_door *door)
{
    struct tows_pending_conn *conn;
    while ((conn = tows_door_next_shake(door)) != NULL) {
        int plain = -1;
        int error = tows_shaker_give(shaker, config, conn->fd, conn->peer, &plain);
        bool soon = tow_time_now_ns() - shaker->began_ns <= AGAIN_NS; /* it is started again */
        if (error == -EAGAIN || error == -EMFILE || error == -ENFILE || error == -ENOMEM ||
            error == -ENOBUFS || (error == -EPIPE && soon)) {
            return;
        }
        tows_door_shook(door, conn);
        if (error == 0) {
            tows_pending_conn_shakes(conn, plain);
        } else {
            conn->state = TOW_CONN_GONE;
        }
    }
}

int64_t tows_shaker_full(const struct tows_shaker *shaker, struct tows_door *door)
{
    bool waits = shaker->full_ns != 0 && tows_door_next_shake(door) != NULL;
    return waits ? shaker->full_ns + HANG_NS + TOW_TIME_MS : TOW_TIME_FOREVER;
}
