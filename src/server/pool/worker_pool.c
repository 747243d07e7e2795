/* SPDX-License-Identifier: Apache-2.0 */
/* Starts workers, hands them connections, hears from them and reaps them. */
#include "server/pool/worker_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/pool/audit.h"
#include "server/pool/tenant_users.h"
#include "server/worker/worker_msg.h"
#include "server/walls/walls.h"

enum {
    BACKOFF_MAX_S = 60,
    ARRIVE_S = 10,          /* how long a program may take from its grant to its connection */
    DISMISS_S = 5,          /* how long a session may take to end when it is told to */
    LAST_WORDS_MAX = 512,   /* messages; a socket has no room for more */
    LISTENER_FILES = 65536, /* as packaging/systemd has it */
};

void tows_worker_pool_init(struct tows_worker_pool *pool, const struct tows_config *config)
{
    memset(pool, 0, sizeof *pool);
    pool->config = config;
    pool->next_session = 1;
    pool->records.fd = pool->records.older = -1;
    pool->meeting.folder = pool->meeting.lock = -1;
    tows_cache_writer_init(&pool->writer, config);
    tows_starter_init(&pool->starter, config);
    /* What sessions export is all here. Workers keep what they were given: not every library of a
     * driver's can do with high descriptors. */
    struct rlimit more = pool->starter.files;
    more.rlim_cur = more.rlim_max < LISTENER_FILES ? more.rlim_max : LISTENER_FILES;
    if (more.rlim_cur > pool->starter.files.rlim_cur) {
        setrlimit(RLIMIT_NOFILE, &more);
    }
    tows_export_registry_init(&pool->exports);
}

static unsigned lines_lesser(uint64_t a, uint64_t b)
{
    return (unsigned)(a < b ? a : b);
}

/* Lines of the log: `session-log-lines` while few were written, so that whoever has much to say
 * can, and a few when a flood has used them up. */
enum { LINES_FEW = 4 };

/* How many more a worker gets that has so many. */
static unsigned take_lines(const struct tows_config *config, uint32_t has)
{
    uint64_t many = config->session_log_lines;
    if (has >= (many + 1) / 2) {
        return 0;
    }
    unsigned plenty = lines_lesser(10 * many, (config->log_lines + 1) / 2);
    unsigned spare = tow_log_take(plenty), few = lines_lesser(many, LINES_FEW);
    unsigned given = spare == plenty ? lines_lesser(many, plenty)
                     : has >= few    ? 0
                                     : lines_lesser(spare, few);
    tow_log_give_back(spare - given);
    return given;
}

static void give_lines(const struct tows_config *config, struct tows_worker *worker)
{
    unsigned given = take_lines(config, atomic_load(&worker->stats->lines));
    worker->lines += given;
    atomic_fetch_add(&worker->stats->lines, given);
}

void tows_worker_pool_give_lines(struct tows_worker_pool *pool)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        give_lines(pool->config, worker);
    }
}

/* What it has not written; it may say what it likes, but not more than it was given. */
static void take_lines_back(struct tows_worker *worker)
{
    unsigned left = atomic_load(&worker->stats->lines);
    tow_log_give_back(left < worker->lines ? left : worker->lines);
}

static void worker_free(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    tows_gates_end(pool, worker);
    tows_meeting_end(pool, worker);
    tows_export_registry_end(&pool->exports, worker, &worker->exports);
    tows_handle_registry_end(&pool->handles, &worker->handles);
    take_lines_back(worker);
    if (worker->control >= 0) {
        close(worker->control);
    }
    if (worker->client >= 0) {
        close(worker->client);
    }
    tows_refusals_close(worker);
    munmap(worker->stats, sizeof *worker->stats);
    explicit_bzero(&worker->grant, sizeof worker->grant);
    explicit_bzero(&worker->secret, sizeof worker->secret);
    free(worker);
}

int tows_worker_pool_start(struct tows_worker_pool *pool, const char *key,
                           const struct tows_who *who)
{
    struct tows_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        return -ENOMEM;
    }
    struct tows_shared shared;
    unsigned lines = take_lines(pool->config, 0);
    int error =
        tows_starter_start(&pool->starter, key, lines, &shared, &worker->number, &worker->pid);
    if (error < 0) {
        goto give_back;
    }
    void *at =
        mmap(NULL, sizeof *worker->stats, PROT_READ | PROT_WRITE, MAP_SHARED, shared.stats, 0);
    error = at == MAP_FAILED ? -errno : 0;
    close(shared.stats);
    if (error < 0) {
        close(shared.control); /* by which the worker ends */
        tows_starter_signal(&pool->starter, worker->number, SIGKILL);
        goto give_back;
    }
    worker->stats = at;
    worker->lines = lines;
    worker->control = shared.control;
    worker->client = worker->refused = -1;
    snprintf(worker->key, sizeof worker->key, "%s", key);
    worker->who = who != NULL ? *who : (struct tows_who){0};
    worker->since_ns = tow_time_now_ns();
    worker->next = pool->workers;
    pool->workers = worker;
    tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "worker %d starts", (int)worker->pid);
    return 0;

give_back:
    tow_log_give_back(lines);
    free(worker);
    return error;
}

struct tows_worker *tows_worker_pool_idle(struct tows_worker_pool *pool, const char *key)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_IDLE && strcmp(worker->key, key) == 0) {
            return worker;
        }
    }
    return NULL;
}

unsigned tows_worker_pool_count(const struct tows_worker_pool *pool, enum tows_worker_state state,
                                const char *key)
{
    unsigned count = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        count += worker->state == state && (key == NULL || strcmp(worker->key, key) == 0);
    }
    return count;
}

unsigned tows_worker_pool_count_for(const struct tows_worker_pool *pool,
                                    enum tows_worker_state state, const struct tows_who *who)
{
    unsigned count = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        count += worker->state == state && tows_who_same(&worker->who, who);
    }
    return count;
}

unsigned tows_worker_pool_count_class(const struct tows_worker_pool *pool, const char *class)
{
    unsigned count = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        count += worker->state == TOW_WORKER_BUSY && strcmp(worker->who.class, class) == 0;
    }
    return count;
}

unsigned tows_worker_pool_size(const struct tows_worker_pool *pool)
{
    unsigned count = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        count++;
    }
    return count;
}

static void set_state(struct tows_worker *worker, enum tows_worker_state state)
{
    worker->state = state;
    worker->since_ns = tow_time_now_ns();
}

struct tow_log_about tows_worker_about(const struct tows_worker *worker,
                                       char ret_tenant[TOW_WHO_TEXT_MAX])
{
    return (struct tow_log_about){.session = worker->session,
                                  .peer = worker->peer,
                                  .tenant = tows_who_text(&worker->who, ret_tenant)};
}

/* A connection over a network may be cut. The client makes the same of what it is sent. */
static void make_secret(struct tows_worker *worker, struct tows_worker_msg *msg)
{
    struct tow_login_token token;
    worker->lasting =
        tow_transport_kind_lasts((enum tow_transport_kind)msg->transport) &&
        worker->limits.reconnect != 0 &&
        getrandom(msg->secret, sizeof msg->secret, GRND_NONBLOCK) == (ssize_t)sizeof msg->secret;
    if (!worker->lasting) {
        msg->limits.reconnect = 0;
        return;
    }
    if (worker->granted) {
        explicit_bzero(worker->left, sizeof worker->left); /* nobody read what is sent */
    }
    tow_login_session(msg->session, msg->secret, worker->left, &token);
    tow_login_keep(&token, &worker->secret);
    explicit_bzero(&token, sizeof token);
    explicit_bzero(worker->left, sizeof worker->left);
}

/* Sends the client's connection. */
static int pool_serve(struct tows_worker_pool *pool, struct tows_worker *worker, int fd,
                      enum tow_transport_kind kind, uint64_t session, const char *peer,
                      const struct tows_who *who)
{
    struct tows_worker_msg msg = {
        .what = TOW_WORKER_MSG_SERVE, .transport = kind, .session = session};
    char tenant[TOW_WHO_TEXT_MAX];
    snprintf(msg.peer, sizeof msg.peer, "%s", peer);
    snprintf(msg.tenant, sizeof msg.tenant, "%s", tows_who_text(who, tenant));
    msg.granted = worker->granted ? 1 : 0;
    msg.grant = worker->grant;
    msg.limits = worker->limits;
    make_secret(worker, &msg);
    tows_gates_begin(pool, worker);
    msg.user = worker->user = tows_tenant_users_pick(pool, who);
    int fds[2] = {fd, tows_meeting_begin(pool, worker)};
    msg.owner = (uint32_t)geteuid();
    msg.restart = fds[1] < 0 ? 0 : (uint32_t)pool->config->restart_wait;
    int error = tow_fds_send(worker->control, &msg, sizeof msg, fds, msg.restart != 0 ? 2 : 1);
    if (fds[1] >= 0) {
        close(fds[1]);
    }
    explicit_bzero(&msg.grant, sizeof msg.grant);
    explicit_bzero(msg.secret, sizeof msg.secret);
    if (error < 0) {
        tows_worker_pool_end(pool, worker);
        return error;
    }
    /* Without one the client sees the end when the worker's own closes, a little early. */
    worker->client = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return 0;
}

/* What the kernel lets its process have. */
static uint64_t pool_memory(const struct tows_worker_pool *pool, const struct tows_worker *worker)
{
    uint64_t swapped = worker->limits.swaps ? worker->limits.gpu_memory : 0;
    uint64_t suspended = tows_suspend_keeps(worker), saved = 0;
    if (strcmp(pool->backend, "cuda") == 0) {
        saved = suspended > swapped ? suspended : swapped;
    }
    return saved + tows_cgroup_memory(pool->config, worker->limits.session_memory,
                                      strcmp(pool->backend, "cuda") != 0,
                                      !tows_who_is_address(&worker->origin));
}

/* The next session is its, if it can be told so. */
static void pool_prepare(struct tows_worker_pool *pool, struct tows_worker *worker,
                         const char *peer, const struct tows_who *who,
                         const struct tows_who *origin)
{
    worker->session = pool->next_session;
    tows_meeting_number(&pool->meeting, worker->session);
    worker->who = *who;
    worker->origin = *origin;
    worker->began_ns = tow_time_real_ns();
    snprintf(worker->peer, sizeof worker->peer, "%s", peer);
}

void tows_worker_pool_limit(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    tows_starter_limit(&pool->starter, worker->number, pool_memory(pool, worker),
                       tows_cgroup_threads(pool->config));
}

/* It has a session now. */
static void pool_begin(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    char tenant[TOW_WHO_TEXT_MAX];
    const char *peer = worker->peer;
    pool->next_session++;
    set_state(worker, TOW_WORKER_BUSY);
    tows_worker_pool_limit(pool, worker);
    struct tow_log_about about = tows_worker_about(worker, tenant);
    bool says_whose = strstr(peer, tenant) != NULL;
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_INFO, &about, "session %llu: %s%s%s, worker %d",
                  (unsigned long long)worker->session, says_whose ? "" : tenant,
                  says_whose ? "" : " from ", peer, (int)worker->pid);
}

int tows_worker_pool_assign(struct tows_worker_pool *pool, struct tows_worker *worker, int fd,
                            enum tow_transport_kind kind, const char *peer,
                            const struct tows_who *who, const struct tows_who *origin)
{
    pool_prepare(pool, worker, peer, who, origin);
    int error = pool_serve(pool, worker, fd, kind, worker->session, peer, who);
    if (error == 0) {
        pool_begin(pool, worker);
    }
    return error;
}

int tows_worker_pool_grant(struct tows_worker_pool *pool, struct tows_worker *worker,
                           const char *peer, const struct tows_who *who,
                           const struct tows_who *origin, struct tow_grant *ret_grant)
{
    struct tow_grant grant;
    if (getrandom(&grant, sizeof grant, GRND_NONBLOCK) != (ssize_t)sizeof grant) {
        tows_worker_pool_end(pool, worker);
        return -EIO;
    }
    worker->grant = *ret_grant = grant;
    worker->granted = true;
    worker->arrive_ns = tow_time_deadline(ARRIVE_S * TOW_TIME_S);
    pool_prepare(pool, worker, peer, who, origin);
    pool_begin(pool, worker);
    explicit_bzero(&grant, sizeof grant);
    return 0;
}

/* On a network a session's further connections come from its own address, so that the session's
 * key, which anybody may read there, is of no use elsewhere. A user on a unix socket may have
 * become another meanwhile. */
static bool comes_from_there(const struct tows_worker *worker, const struct tows_who *origin)
{
    bool network = tows_who_is_address(origin) || tows_who_is_address(&worker->origin);
    return !network || tows_who_same(&worker->origin, origin);
}

/* A worker that does not take connections fast enough must not hold the listener up. */
static int pool_send_connection(const struct tows_worker *worker, const struct tows_worker_msg *msg,
                                int fd)
{
    struct pollfd room = {.fd = worker->control, .events = POLLOUT};
    if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) {
        return -EAGAIN;
    }
    return tow_fds_send(worker->control, msg, sizeof *msg, &fd, 1);
}

/* A further connection, for a worker that takes some. */
static int pool_send_lane(const struct tows_worker *worker, int fd, enum tow_transport_kind kind)
{
    struct tows_worker_msg msg = {
        .what = TOW_WORKER_MSG_LANE, .transport = kind, .session = worker->session};
    msg.granted = worker->granted ? 1 : 0;
    msg.grant = worker->grant;
    int error = pool_send_connection(worker, &msg, fd);
    explicit_bzero(&msg.grant, sizeof msg.grant);
    return error;
}

struct tows_worker *tows_worker_pool_lasting(struct tows_worker_pool *pool, uint64_t session)
{
    struct tows_worker *worker = tows_worker_pool_find(pool, session);
    return worker != NULL && worker->lasting && worker->end_ns == 0 &&
                   atomic_load(&worker->stats->lasts) != 0
               ? worker
               : NULL;
}

/* Its own line goes on over this connection, which it owns; -1: there was no descriptor for it. */
static void pool_renew(struct tows_worker *worker, int own, const char *peer)
{
    char tenant[TOW_WHO_TEXT_MAX];
    snprintf(worker->peer, sizeof worker->peer, "%s", peer);
    worker->lingers = 0;
    if (own >= 0 && worker->client >= 0) {
        close(worker->client);
    }
    worker->client = own >= 0 ? own : worker->client;
    struct tow_log_about about = tows_worker_about(worker, tenant);
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_INFO, &about,
                  "session %llu was cut off, and goes on from %s",
                  (unsigned long long)worker->session, peer);
}

int tows_worker_pool_resume(struct tows_worker_pool *pool, struct tows_worker *worker,
                            uint32_t line, int fd, enum tow_transport_kind kind, const char *peer,
                            const struct tows_who *origin)
{
    const struct tows_worker_msg msg = {
        .what = TOW_WORKER_MSG_RESUME, .transport = kind, .session = worker->session, .line = line};
    int error = pool_send_connection(worker, &msg, fd);
    if (error == 0 && line == TOW_LANE_MAIN) {
        worker->origin = *origin; /* its further connections come from there now */
        pool_renew(worker, fcntl(fd, F_DUPFD_CLOEXEC, 0), peer);
        tows_meeting_renew(pool, worker);
    }
    return error;
}

int tows_worker_pool_arrive(struct tows_worker_pool *pool, const uint8_t id[TOW_GRANT_ID], int fd,
                            enum tow_transport_kind kind, const struct tows_who *origin)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->state != TOW_WORKER_BUSY || !worker->granted || worker->end_ns != 0 ||
            memcmp(worker->grant.id, id, TOW_GRANT_ID) != 0 || !comes_from_there(worker, origin)) {
            continue;
        }
        if (worker->arrive_ns != 0) {
            worker->arrive_ns = 0;
            return pool_serve(pool, worker, fd, kind, worker->session, worker->peer, &worker->who);
        }
        bool takes = atomic_load(&worker->stats->lanes) != 0 ||
                     (worker->lasting && atomic_load(&worker->stats->lasts) != 0);
        return takes ? pool_send_lane(worker, fd, kind) : -ENOENT;
    }
    return -ENOENT;
}

int tows_worker_pool_lane(struct tows_worker_pool *pool, uint64_t session, int fd,
                          enum tow_transport_kind kind, const struct tows_who *origin)
{
    const struct tows_worker *worker = tows_worker_pool_find(pool, session);
    /* One of tls takes none without its secret. */
    return worker != NULL && !worker->granted && comes_from_there(worker, origin) &&
                   atomic_load(&worker->stats->lanes) != 0
               ? pool_send_lane(worker, fd, kind)
               : -ENOENT;
}

static void record_failure(struct tows_worker_pool *pool, const char *sentence)
{
    snprintf(pool->failure, sizeof pool->failure, "%s", sentence);
    unsigned seconds = pool->failures < 6 ? 1u << pool->failures : BACKOFF_MAX_S;
    pool->failures++;
    pool->retry_ns = tow_time_now_ns() + (int64_t)seconds * TOW_TIME_S;
}

/* Groups of workers of the server before: it took their limits away with its own. Only now it is
 * known how much the backend may have. */
static void limit_taken(struct tows_worker_pool *pool)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_BUSY) {
            tows_worker_pool_limit(pool, worker);
        }
    }
}

static void record_ready(struct tows_worker_pool *pool, const struct tows_worker_msg *msg,
                         const char *text)
{
    char *devices = strndup(text, msg->text_size);
    if (devices != NULL) {
        free(pool->devices);
        pool->devices = devices;
    }
    snprintf(pool->backend, sizeof pool->backend, "%.*s", (int)sizeof msg->backend, msg->backend);
    snprintf(pool->description, sizeof pool->description, "%.*s", (int)sizeof msg->description,
             msg->description);
    pool->pageable = msg->pageable != 0;
    pool->opened = true;
    pool->failures = 0;
    pool->failure[0] = '\0';
    pool->retry_ns = 0;
}

/* What a worker says, with at most two descriptors: -EAGAIN, or the packet's size (0: it has closed
 * its end). */
static ssize_t pool_receive(int control, void *packet, size_t size, int ret_fds[2])
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } fds;
    struct iovec iov = {packet, size};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &fds, .msg_controllen = sizeof fds};
    ssize_t got = recvmsg(control, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : 0;
    }
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        /* The kernel has put no more there than there was room for, and closed the rest. */
        memcpy(ret_fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
    }
    return got;
}

/* It uses what another has exported: their kernels may wait for each other. */
static void join_turns(struct tows_worker_pool *pool, struct tows_worker *worker, const void *owner)
{
    for (struct tows_worker *other = pool->workers; other != NULL; other = other->next) {
        if (other != worker && owner != NULL && (other == owner || &other->handles == owner)) {
            tows_gates_join(pool, worker, other);
        }
    }
}

/* A session exports, imports or forgets a descriptor or a handle. It may be in the hands of its
 * client: only what it has exported itself is its own, and a socket that takes no answer at once
 * gets none. */
static void pool_exchange(struct tows_worker_pool *pool, struct tows_worker *worker,
                          const struct tows_worker_msg *msg, int fds[2])
{
    struct tows_worker_msg_answer answer = {.error = -EINVAL};
    int given = -1;
    if (worker->state != TOW_WORKER_BUSY) {
        return;
    }
    if (msg->what == TOW_WORKER_MSG_KEEP && fds[1] >= 0) {
        answer.error = tows_export_registry_add(&pool->exports, worker, &worker->exports, fds[1],
                                                &answer.token);
        fds[1] = -1;
    } else if (msg->what == TOW_WORKER_MSG_GET) {
        given = tows_export_registry_find(&pool->exports, &msg->token);
        answer.error = given < 0 ? given : 0;
        join_turns(pool, worker, tows_export_registry_owner(&pool->exports, &msg->token));
    } else if (msg->what == TOW_WORKER_MSG_FORGET) {
        tows_export_registry_forget(&pool->exports, worker, &worker->exports, &msg->token);
        answer.error = 0;
    } else if (msg->what == TOW_WORKER_MSG_KEEP_HANDLE) {
        answer.error = tows_handle_registry_add(&pool->handles, &worker->handles, worker->session,
                                                &worker->who, &msg->handle, &answer.token);
    } else if (msg->what == TOW_WORKER_MSG_GET_HANDLE) {
        const struct tows_handle_owner *owner = NULL;
        answer.error = tows_handle_registry_find(&pool->handles, &msg->token, &worker->who,
                                                 &answer.handle, &owner);
        join_turns(pool, worker, owner);
    } else if (msg->what == TOW_WORKER_MSG_STORE) {
        char tenant[TOW_WHO_TEXT_MAX];
        answer.error =
            tows_cache_writer_store(&pool->writer, worker->session,
                                    tows_who_text(&worker->who, tenant), msg->hash, fds[1], fds[0]);
        if (answer.error == 0) {
            return; /* who writes it answers */
        }
    }
    if (fds[0] >= 0) {
        tow_fds_try_send(fds[0], &answer, sizeof answer, &given, given >= 0);
    }
}

static void close_all(int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

static void hear_renewed(struct tows_worker_pool *pool, struct tows_worker *worker, int fds[2])
{
    char peer[TOW_ADDRESS_MAX];
    if (worker->state == TOW_WORKER_BUSY && worker->granted && worker->lasting && fds[0] >= 0) {
        tow_transport_peer(fds[0], peer);
        pool_renew(worker, fds[0], peer);
        tows_meeting_renew(pool, worker);
        fds[0] = -1;
    }
}

int tows_worker_pool_hear(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    static char packet[sizeof(struct tows_worker_msg) + TOW_WORKER_MSG_TEXT_MAX];
    int fds[2] = {-1, -1};
    ssize_t got = pool_receive(worker->control, packet, sizeof packet, fds);
    if (got == -EAGAIN) {
        return 0;
    }
    struct tows_worker_msg msg;
    if (got < (ssize_t)sizeof msg) {
        /* It has closed its end: SIGCHLD tells the rest. */
        close_all(fds);
        close(worker->control);
        worker->control = -1;
        return 0;
    }
    memcpy(&msg, packet, sizeof msg);
    if (msg.what == TOW_WORKER_MSG_HERE) {
        tows_meeting_hear(pool, worker, &msg, fds);
        close_all(fds);
        return 0;
    }
    if (msg.what == TOW_WORKER_MSG_RENEWED) {
        hear_renewed(pool, worker, fds); /* nothing is written there: the client reads it */
        close_all(fds);
        return 0;
    }
    pool_exchange(pool, worker, &msg, fds);
    /* The first one comes before it has heard its client. */
    if (msg.what == TOW_WORKER_MSG_REFUSED && worker->state == TOW_WORKER_BUSY &&
        !worker->tells_refused) {
        worker->tells_refused = true;
        tows_refusals_adopt(worker, fds[0]);
        fds[0] = -1;
    }
    close_all(fds);
    if (msg.text_size > (size_t)got - sizeof msg) {
        return 0;
    }
    const char *text = packet + sizeof msg;
    if (msg.what == TOW_WORKER_MSG_FACTS && worker->state == TOW_WORKER_BUSY) {
        char tenant[TOW_WHO_TEXT_MAX];
        tows_cache_writer_facts(&pool->writer, tows_who_text(&worker->who, tenant), msg.hash,
                                msg.key, text, msg.text_size);
    }
    if (msg.what == TOW_WORKER_MSG_USE && worker->state == TOW_WORKER_BUSY) {
        char tenant[TOW_WHO_TEXT_MAX];
        tows_cache_writer_use(&pool->writer, tows_who_text(&worker->who, tenant), msg.hash,
                              msg.key);
    }
    if (msg.what == TOW_WORKER_MSG_SUSPENDED && worker->state == TOW_WORKER_BUSY) {
        tows_suspend_hear(worker, msg.failed != 0, text, msg.text_size);
        tows_worker_pool_limit(pool, worker);
        if (worker->suspend.wanted && worker->suspend.phase == TOW_SUSPENSION_NONE) {
            worker->suspend.wanted = false;
            tows_meeting_renew(pool, worker);
        }
    }
    if (msg.what == TOW_WORKER_MSG_READY && worker->state == TOW_WORKER_STARTING) {
        bool first = !pool->opened;
        record_ready(pool, &msg, text);
        if (first) {
            limit_taken(pool);
        }
        tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "worker %d is ready after %lld ms",
                (int)worker->pid,
                (long long)((tow_time_now_ns() - worker->since_ns) / TOW_TIME_MS));
        set_state(worker, TOW_WORKER_IDLE);
        return 0;
    }
    /* One that has been given a client meanwhile finds that first, and makes no context ahead. */
    if (msg.what == TOW_WORKER_MSG_WARM && worker->state == TOW_WORKER_IDLE) {
        struct tows_worker_msg go = {.what = TOW_WORKER_MSG_WARM};
        if (send(worker->control, &go, sizeof go, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof go) {
            set_state(worker, TOW_WORKER_STARTING);
        }
        return 0;
    }
    if (msg.what == TOW_WORKER_MSG_WARM && worker->state == TOW_WORKER_STARTING) {
        set_state(worker, TOW_WORKER_IDLE);
        return 0;
    }
    if (msg.what == TOW_WORKER_MSG_FAILED && worker->state == TOW_WORKER_STARTING) {
        char sentence[512];
        snprintf(sentence, sizeof sentence, "%.*s", (int)msg.text_size, text);
        record_failure(pool, sentence);
        set_state(worker, TOW_WORKER_ENDING);
        return 1;
    }
    return 0;
}

void tows_pool_totals_add(struct tows_pool_totals *totals, const struct tows_worker *worker)
{
    const struct tows_session_stats *stats = worker->stats;
    totals->sessions++;
    totals->calls += stats->calls;
    totals->replies += stats->replies;
    totals->bytes_in += stats->bytes_in;
    totals->bytes_out += stats->bytes_out;
    totals->suspends += stats->suspends;
}

static void tell_end(struct tows_worker_pool *pool, const struct tows_worker *worker, int status)
{
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = tows_worker_about(worker, tenant);
    if (worker->stands) {
        tow_log_about(TOW_AREA_SERVER, TOW_LOG_INFO, &about,
                      "session %llu: its worker %d, which did not end by itself, is gone",
                      (unsigned long long)worker->session, (int)worker->pid);
    } else if (worker->state == TOW_WORKER_BUSY && status != TOW_AUDIT_UNKNOWN &&
               WIFSIGNALED(status)) {
        tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about,
                      "session %llu (%s): its worker %d was ended by signal %d (%s)",
                      (unsigned long long)worker->session, worker->peer, (int)worker->pid,
                      WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (worker->state == TOW_WORKER_BUSY) {
        tow_log_about(TOW_AREA_SERVER, TOW_LOG_INFO, &about,
                      "session %llu: ended after %.1f s, %llu calls",
                      (unsigned long long)worker->session,
                      (double)(tow_time_now_ns() - worker->since_ns) / TOW_TIME_S,
                      (unsigned long long)worker->stats->calls);
    }
    if (worker->state == TOW_WORKER_BUSY) {
        tows_audit_tell(worker, status);
        tows_records_tell(&pool->records, worker, status);
    }
}

/* Says why the kernel has killed it, if it was for its own memory. */
static void pool_judge(const struct tows_worker_pool *pool, struct tows_worker *worker, bool full)
{
    if (worker->state != TOW_WORKER_BUSY || worker->why[0] != '\0' || !full) {
        return;
    }
    snprintf(worker->why, sizeof worker->why,
             "it wanted more than the %llu MiB of memory of its control group there, and a session "
             "may have %llu MiB of host memory (session-memory)",
             (unsigned long long)(pool_memory(pool, worker) >> 20),
             (unsigned long long)(worker->limits.session_memory >> 20));
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = tows_worker_about(worker, tenant);
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about, "session %llu (%s) was ended: %s",
                  (unsigned long long)worker->session, worker->peer, worker->why);
}

void tows_worker_pool_lost(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    tell_end(pool, worker, TOW_AUDIT_UNKNOWN);
    worker_free(pool, worker);
}

/* What it said before it ended may still be in the socket: code for the cache, why it did not
 * start. 1 as tows_worker_pool_hear. */
static int hear_last_words(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    int failed = 0;
    for (int i = 0; i < LAST_WORDS_MAX && worker->control >= 0 && failed == 0; i++) {
        failed = tows_worker_pool_hear(pool, worker);
    }
    return failed;
}

int tows_worker_pool_reap(struct tows_worker_pool *pool, char ret_key[TOW_WORKER_KEY_MAX])
{
    struct tows_ended ended;
    while (tows_starter_reap(&pool->starter, &ended) > 0) {
        int status = ended.unknown ? TOW_AUDIT_UNKNOWN : ended.status;
        struct tows_worker **at = &pool->workers;
        while (*at != NULL && (*at)->number != ended.number) {
            at = &(*at)->next;
        }
        struct tows_worker *worker = *at;
        if (worker == NULL) {
            tows_cache_writer_reaped(&pool->writer, ended.pid);
            continue;
        }
        int failed = hear_last_words(pool, worker);
        if (!failed && worker->state == TOW_WORKER_STARTING) {
            char sentence[128];
            snprintf(sentence, sizeof sentence,
                     WIFSIGNALED(status) ? "the worker was ended by signal %d while it started"
                                         : "the worker ended with code %d while it started",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            record_failure(pool, sentence);
            failed = 1;
        }
        pool_judge(pool, worker, ended.full);
        if (ended.unknown && worker->stats->ended != 0) {
            status = W_EXITCODE((worker->stats->ended - 1) & 0xff, 0); /* what it said */
        }
        tell_end(pool, worker, status);
        if (worker->state == TOW_WORKER_BUSY) {
            tows_pool_totals_add(&pool->ended, worker);
        }
        snprintf(ret_key, TOW_WORKER_KEY_MAX, "%s", worker->key);
        *at = worker->next;
        worker_free(pool, worker);
        if (failed) {
            return 1;
        }
    }
    return 0;
}

void tows_worker_pool_end(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    if (worker->state != TOW_WORKER_ENDING) {
        set_state(worker, TOW_WORKER_ENDING);
        tows_starter_signal(&pool->starter, worker->number, SIGKILL);
    }
}

struct tows_worker *tows_worker_pool_find(struct tows_worker_pool *pool, uint64_t session)
{
    struct tows_worker *worker = pool->workers;
    while (worker != NULL && (worker->state != TOW_WORKER_BUSY || worker->session != session)) {
        worker = worker->next;
    }
    return worker;
}

static void pool_dismiss(struct tows_worker_pool *pool, struct tows_worker *worker,
                         enum tow_log_level level, const char *why)
{
    if (worker->end_ns != 0) {
        return;
    }
    worker->end_ns = tow_time_deadline(DISMISS_S * TOW_TIME_S);
    snprintf(worker->why, sizeof worker->why, "%s", why);
    snprintf(worker->stats->farewell, sizeof worker->stats->farewell, "%s", why);
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = tows_worker_about(worker, tenant);
    tow_log_about(TOW_AREA_SERVER, level, &about, "session %llu (%s) is ended: %s",
                  (unsigned long long)worker->session, worker->peer, why);
    if (worker->join_ns != 0 && worker->control >= 0) {
        return; /* it hears this when it has said where (tows_meeting_hear) */
    }
    /* It hears this whatever it is doing, and lets go of its further connections. */
    if (worker->control < 0 || shutdown(worker->control, SHUT_WR) != 0) {
        tows_starter_signal(&pool->starter, worker->number, SIGKILL);
    }
}

void tows_worker_pool_dismiss(struct tows_worker_pool *pool, struct tows_worker *worker,
                              const char *why)
{
    pool_dismiss(pool, worker, TOW_LOG_INFO, why);
}

void tows_worker_pool_wake(struct tows_worker_pool *pool, struct tows_worker *worker,
                           const char *why)
{
    pool_dismiss(pool, worker, TOW_LOG_WARN, why);
    tows_starter_signal(&pool->starter, worker->number, SIGCONT);
}

void tows_worker_pool_press(struct tows_worker_pool *pool)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->arrive_ns != 0 && worker->end_ns == 0 && tow_time_passed(worker->arrive_ns)) {
            tows_worker_pool_dismiss(pool, worker, "its program logged in and did not come");
        }
        if (worker->join_ns != 0 && tow_time_passed(worker->join_ns)) {
            worker->join_ns = 0;
            tows_worker_pool_dismiss(pool, worker, "its worker did not answer the new server");
        }
        if (worker->end_ns != 0 && tow_time_passed(worker->end_ns)) {
            char tenant[TOW_WHO_TEXT_MAX];
            struct tow_log_about about = tows_worker_about(worker, tenant);
            tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about,
                          "session %llu: its worker %d does not end: it is killed",
                          (unsigned long long)worker->session, (int)worker->pid);
            worker->end_ns = TOW_TIME_FOREVER;
            tows_starter_signal(&pool->starter, worker->number, SIGKILL);
        }
    }
}

/* Those that go on without this server, which hears nothing of them any more. */
static struct tows_worker *take_leaving(struct tows_worker_pool *pool)
{
    struct tows_worker *left = NULL, **at = &pool->workers;
    while (*at != NULL) {
        struct tows_worker *worker = *at;
        if (worker->state != TOW_WORKER_BUSY || !worker->kept || worker->end_ns != 0) {
            at = &worker->next;
            continue;
        }
        *at = worker->next;
        worker->next = left;
        left = worker;
    }
    return left;
}

/* It sees the connection end. Its files stay. */
static void free_left(struct tows_worker_pool *pool, struct tows_worker *left)
{
    while (left != NULL) {
        struct tows_worker *worker = left;
        left = worker->next;
        worker->kept = false;
        worker_free(pool, worker);
    }
}

void tows_worker_pool_fini(struct tows_worker_pool *pool, const char *why, bool leave)
{
    struct tows_worker *left = leave ? take_leaving(pool) : NULL;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        tows_refusals_close(worker); /* nobody hears from now on */
        if (worker->state == TOW_WORKER_BUSY) {
            tows_worker_pool_dismiss(pool, worker, why);
        } else {
            tows_worker_pool_end(pool, worker);
        }
    }
    int64_t deadline = tow_time_deadline(DISMISS_S * TOW_TIME_S);
    char key[TOW_WORKER_KEY_MAX];
    bool killed = false;
    while (pool->workers != NULL) {
        while (tows_worker_pool_reap(pool, key) > 0) {
        }
        if (pool->workers != NULL && tow_time_passed(deadline)) {
            if (killed) {
                break; /* stuck in the kernel: init inherits it */
            }
            for (struct tows_worker *worker = pool->workers; worker != NULL;
                 worker = worker->next) {
                tows_starter_signal(&pool->starter, worker->number, SIGKILL);
            }
            killed = true;
            deadline = tow_time_deadline(TOW_TIME_S);
        }
        if (pool->workers != NULL) {
            tow_time_sleep(5 * TOW_TIME_MS);
        }
    }
    while (pool->workers != NULL) {
        struct tows_worker *worker = pool->workers;
        pool->workers = worker->next;
        if (worker->state == TOW_WORKER_BUSY) {
            tows_audit_tell(worker, TOW_AUDIT_STAYS);
            tows_records_tell(&pool->records, worker, TOW_AUDIT_STAYS);
        }
        worker_free(pool, worker);
    }
    free_left(pool, left);
    tows_gates_fini(&pool->gates);
    tows_starter_fini(&pool->starter);
    tows_cache_writer_fini(&pool->writer);
    tows_meeting_close(&pool->meeting);
    free(pool->devices);
    pool->devices = NULL;
}
