/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's life: backend, one connection, one session, the end. */
#include "server/worker/worker.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "gen/context.h"
#include "gen/core.h"
#include "gen/device.h"
#include "server/worker/account.h"
#include "server/worker/alive.h"
#include "server/worker/cache.h"
#include "server/worker/describe.h"
#include "server/worker/gate.h"
#include "server/worker/guard.h"
#include "server/worker/leash.h"
#include "server/worker/output.h"
#include "server/worker/rejoin.h"
#include "server/worker/room.h"
#include "server/worker/suspend.h"
#include "server/worker/worker_msg.h"
#include "server/walls/walls.h"
#include "server/run/run.h"
#include "server/session/session.h"
#include "transport/keep.h"
#include "transport/tls.h"
#include "transport/tls_lib.h"
#include "transport/transport.h"

/* How long a session may take to end itself once its client has gone. */
#define GRACE_NS (1 * TOW_TIME_S)
/* How long a connection may take to say what it is. */
#define HANDSHAKE_NS (10 * TOW_TIME_S)
#define LANE_NS (2 * TOW_TIME_S) /* the client waits no longer, either */
/* How long the listener may take to answer. */
#define ASK_NS (10 * TOW_TIME_S)
/* Address space of one slot of the software GPU: a session's further servers put their memory
 * above. */
#define SLOT_SIZE (UINT64_C(1) << 40)
#define SLOT_SOFT_BASE UINT64_C(0x2b0000000000)

static int worker_send(int fd, uint32_t what, const struct tow_backend *backend, const void *text,
                       size_t size)
{
    struct tows_worker_msg head = {.what = what, .text_size = (uint32_t)size};
    if (backend != NULL) {
        snprintf(head.backend, sizeof head.backend, "%s", backend->name);
        snprintf(head.description, sizeof head.description, "%s", backend->description);
        head.pageable = tows_describe_pageable(backend);
    }
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)text, size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

static int open_soft(const struct tows_config *config, struct tow_backend *ret_backend, char *why,
                     size_t why_size)
{
    struct tow_soft_options options = {
        .devices = (unsigned)config->soft_devices,
        .memory = config->soft_memory,
        .capability = (int)config->soft_capability,
        .threads = (unsigned)config->soft_threads,
        .strict = config->soft_strict != 0,
        .dry = strcmp(config->device, "dry") == 0,
        .address_base = config->slot == 0 ? 0 : SLOT_SOFT_BASE + config->slot * SLOT_SIZE,
    };
    return tow_backend_soft_open(&options, ret_backend, why, why_size);
}

static int open_backend(const struct tows_config *config, struct tow_backend *ret_backend,
                        char *why, size_t why_size)
{
    const char *device = config->device;
    tow_backend_cuda_cupti(config->cupti);
    if (tows_config_wants_soft(config)) {
        return open_soft(config, ret_backend, why, why_size);
    }
    if (strcmp(device, "cuda") == 0) {
        return tow_backend_cuda_open(NULL, config->slot, ret_backend, why, why_size);
    }
    if (device[0] != '\0') {
        return tow_backend_cuda_open(device, config->slot, ret_backend, why, why_size);
    }
    if (tow_backend_cuda_open(NULL, config->slot, ret_backend, why, why_size) == 0) {
        return 0;
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "no real GPU (%s): the software GPU is used", why);
    return open_soft(config, ret_backend, why, why_size);
}

int tows_worker_open(const struct tows_config *config, struct tow_backend *ret_backend, char *why,
                     size_t why_size)
{
    struct tow_backend backend;
    int error = open_backend(config, &backend, why, why_size);
    if (error < 0) {
        return error;
    }
    CUresult result = tow_drive(&backend.driver, cuInit)(0);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "%s does not start: CUDA error %d", backend.description,
                 (int)result);
        backend.close(&backend);
        return -ENODEV;
    }
    *ret_backend = backend;
    return 0;
}

void tows_worker_code_cache(const struct tows_config *config, char *ret_path, size_t size)
{
    ret_path[0] = '\0';
    if (config->code_cache == 0) {
        return;
    }
    char base[TOW_CONFIG_TEXT_MAX];
    snprintf(base, sizeof base, "%s", config->cache_dir);
    if (base[0] == '\0' && tow_file_cache_dir(true, base, sizeof base) < 0) {
        return;
    }
    int length = snprintf(ret_path, size, "%s/code", base);
    if (length < 0 || (size_t)length >= size || tow_file_mkdir_all(ret_path, true) < 0) {
        ret_path[0] = '\0';
    }
}

static struct tows_session *_Atomic served; /* the session, once it may be dismissed */
static struct tow_line *_Atomic lasting;    /* its line, if it outlives its connection */
static atomic_bool said_goodbye;            /* the client did */
static struct tows_session_stats *shown;    /* borrowed: what the listener sees, and says */
static bool outlasts;      /* the session goes on without its listener for a while */
static int64_t silence_ns; /* how long the client's machine may be silent; set before threads */

/* The end, and for a listener that did not start this process how it was. */
__attribute__((noreturn)) static void worker_exit(enum tows_worker_end end)
{
    if (shown != NULL) {
        atomic_store(&shown->ended, (uint32_t)end + 1);
    }
    _exit((int)end);
}

static void session_begins(struct tows_session *session)
{
    atomic_store(&served, session);
}

static void session_lasts(struct tow_line *line, int64_t limit_ns)
{
    atomic_store(&lasting, line);
    atomic_store(&shown->lasts, 1);
    tows_leash_last(limit_ns);
}

/* A client that has said goodbye keeps its end open until this process has ended. From now on the
 * session has its grace time. */
static void client_leaves(void)
{
    tows_gate_let_go();
    tows_room_let_go();
    struct tow_line *line = atomic_load(&lasting);
    atomic_store(&said_goodbye, true);
    if (line != NULL) {
        tow_keep_acknowledge(line); /* or it would come again to say it once more */
    }
    tows_leash_release();
}

/* The listener has shut its end of the socket down: the session is to end, for the reason that it
 * has left where both look. A client that was not greeted yet finds the connection closed, and asks
 * the listener again. */
static void worker_dismiss(void)
{
    char sentence[sizeof shown->farewell + 1] = "";
    memcpy(sentence, shown->farewell, sizeof shown->farewell);
    struct tows_session *session = atomic_load(&served);
    if (session == NULL) {
        worker_exit(TOW_WORKER_END_TOLD);
    }
    tows_gate_let_go();
    tows_room_let_go();
    tows_session_dismiss(session, sentence, GRACE_NS);
}

static void client_gone(void)
{
    tows_gate_let_go();
    tows_room_let_go();
    struct tow_line *line = atomic_load(&lasting);
    if (line != NULL) {
        tow_keep_give_up(line);
    }
}

/* A client that is still there learns that this is no cut. */
static void hang_up(void)
{
    struct tow_line *line = atomic_load(&lasting);
    if (line != NULL && !atomic_load(&said_goodbye)) {
        tow_line_shutdown(line);
    }
}

__attribute__((noreturn)) static void worker_give_up(bool told)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s and its session has not ended: giving up on it",
            told ? "the client was told to go" : "the client has gone");
    tow_log_flush(true);
    hang_up();
    worker_exit(told                         ? TOW_WORKER_END_TOLD
                : atomic_load(&said_goodbye) ? TOW_WORKER_END_LEFT
                                             : TOW_WORKER_END_LOST);
}

/* The line of a connection that the listener sent, which it owns in any case. */
static int worker_line(struct tows_worker_msg *msg, int fd, char *why, size_t size,
                       struct tow_line **ret_line)
{
    /* One thread takes all lanes, and a stranger may have begun the handshake of one. */
    bool further = msg->granted != 0 && msg->what == TOW_WORKER_MSG_LANE;
    int64_t deadline_ns = tow_time_deadline(further ? LANE_NS : HANDSHAKE_NS);
    if (msg->granted == 0) {
        return tow_line_from_fd(fd, (enum tow_transport_kind)msg->transport, deadline_ns, why, size,
                                ret_line);
    }
    int error = tow_tls_line(fd, true, &msg->grant, deadline_ns, why, size, ret_line);
    explicit_bzero(&msg->grant, sizeof msg->grant);
    return error;
}

/* The client comes again. What is no line is taken care of here: -EALREADY. */
static int take_again(struct tows_worker_msg *msg, int fd, struct tow_line **ret_line)
{
    char why[TOW_WHY_MAX];
    if (msg->line == TOW_LANE_LEASH) {
        tows_leash_take(fd);
        return -EALREADY;
    }
    int own = msg->line == TOW_LANE_MAIN ? dup(fd) : -1;
    if (own >= 0 && outlasts) {
        tows_rejoin_client(own);
    }
    if (own >= 0) {
        tows_leash_renew(own);
    }
    return worker_line(msg, fd, why, sizeof why, ret_line);
}

/* Over tls only the session can read what a further connection is for. 1: it is for one that it had
 * before, and this was answered; 0: who takes it on sees. */
static int hear_resume(struct tow_line *line, uint64_t session, uint32_t *ret_number)
{
    const uint8_t *at = NULL;
    uint8_t *out = NULL;
    size_t available = 0;
    uint32_t length = 0;
    struct tow_frame frame;
    struct tow_resume resume;
    int64_t deadline = tow_time_deadline(LANE_NS);
    int error = tow_line_peek(line, TOW_FRAME_HEADER, deadline, &at, &available);
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    if (error < 0 || frame.kind != TOW_CONTROL_RESUME) {
        return error;
    }
    error = tow_line_peek(line, frame.length, deadline, &at, &available);
    if (error == 0) {
        error = tow_resume_decode(at, &frame, &resume);
    }
    if (error == 0 && (resume.session != session || atomic_load(&lasting) == NULL)) {
        error = -EPROTO;
    }
    if (error == 0) {
        tow_line_consume(line, frame.length);
        error = tow_line_reserve(line, 64, &out);
    }
    if (error == 0) {
        error = tow_resume_encode(&resume, out, 64, &length);
    }
    if (error < 0) {
        return error;
    }
    tow_line_commit_now(line, length);
    *ret_number = resume.line;
    return 1;
}

/* The same as take_again with a line of tls and its connection, of which it owns both. */
static int take_again_encrypted(uint32_t number, struct tow_line *line, int fd,
                                struct tow_line **ret_line)
{
    if (number == TOW_LANE_LEASH) {
        /* Nothing is said on it: what it takes to say something need not stay. */
        tow_line_let_go(line);
        tows_leash_take(fd);
        malloc_trim(0);
        return -EALREADY;
    }
    if (number == TOW_LANE_MAIN) {
        const struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_RENEWED};
        if (outlasts) {
            tows_rejoin_client(fd);
        }
        tow_fds_send(TOW_WORKER_MSG_FD, &msg, sizeof msg, &fd, 1);
        tows_leash_renew(fd);
    } else {
        close(fd);
    }
    *ret_line = line;
    return 0;
}

/* A further connection: 0, or nothing is left of it to be done. */
static int take_further(struct tows_worker_msg *msg, int fd, struct tow_line **ret_line,
                        bool *ret_again, uint32_t *ret_number)
{
    char why[TOW_WHY_MAX];
    bool encrypted = msg->granted != 0;
    int own = encrypted ? dup(fd) : -1, again = 0;
    struct tow_line *line = NULL;
    int error = worker_line(msg, fd, why, sizeof why, &line);
    if (error == 0 && encrypted) {
        again = own < 0 ? -EMFILE : hear_resume(line, msg->session, ret_number);
    }
    *ret_again = again > 0;
    if (again > 0) {
        return take_again_encrypted(*ret_number, line, own, ret_line);
    }
    if (own >= 0) {
        close(own);
    }
    if (error == 0 && again < 0) {
        tow_line_close(line);
    } else if (error == 0) {
        tow_line_set_silence(line, silence_ns);
        *ret_line = line;
    }
    return error < 0 ? error : again;
}

/* The listener sends the session's further connections the way it sent the first. */
static int next_lane(struct tow_line **ret_line, bool *ret_again, uint32_t *ret_number)
{
    for (;;) {
        struct tows_worker_msg msg;
        int fd = -1, count = 0;
        uint32_t listener = tows_rejoin_count();
        int error =
            tow_fds_recv(TOW_WORKER_MSG_FD, &msg, sizeof msg, TOW_TIME_FOREVER, &fd, 1, &count);
        if (error < 0 && tows_rejoin_await(&listener) == 0) {
            continue;
        }
        if (error < 0) {
            return -EPIPE;
        }
        *ret_again = msg.what == TOW_WORKER_MSG_RESUME;
        *ret_number = msg.line;
        if (count == 0 &&
            (msg.what == TOW_WORKER_MSG_SUSPEND || msg.what == TOW_WORKER_MSG_GO_ON)) {
            tows_worker_suspend(atomic_load(&served), &msg);
            continue;
        }
        if (count == 1 && *ret_again) {
            if (take_again(&msg, fd, ret_line) == 0) {
                return 0;
            }
        } else if (count == 1 && msg.what != TOW_WORKER_MSG_LANE) {
            close(fd);
        } else if (count == 1 && take_further(&msg, fd, ret_line, ret_again, ret_number) == 0) {
            return 0;
        }
    }
}

/* ---- descriptors and handles for other sessions: the listener keeps them ---- */

/* Asks the listener, who never keeps anybody waiting for long. */
static int ask_once(struct tows_worker_msg *msg, const int *fd,
                    struct tows_worker_msg_answer *ret_answer, int *ret_fd)
{
    int pair[2], count = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return -errno;
    }
    int fds[2] = {pair[1], fd != NULL ? *fd : -1};
    int error = tow_fds_send(TOW_WORKER_MSG_FD, msg, sizeof *msg, fds, fd != NULL ? 2 : 1);
    close(pair[1]);
    *ret_fd = -1;
    if (error == 0) {
        error = tow_fds_recv(pair[0], ret_answer, sizeof *ret_answer, tow_time_deadline(ASK_NS),
                             ret_fd, 1, &count);
    }
    close(pair[0]);
    return error < 0 ? error : ret_answer->error;
}

/* One that ends meanwhile has not answered: the next one is asked. */
static int worker_ask(struct tows_worker_msg *msg, const int *fd,
                      struct tows_worker_msg_answer *ret_answer, int *ret_fd)
{
    for (;;) {
        uint32_t listener = tows_rejoin_count();
        int error = ask_once(msg, fd, ret_answer, ret_fd);
        bool unheard = error == -EPIPE || error == -ECONNRESET;
        if (!unheard || tows_rejoin_await(&listener) < 0) {
            return error;
        }
    }
}

static int worker_keep(int fd, struct tow_token *ret_token)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_KEEP};
    struct tows_worker_msg_answer answer;
    int none;
    int error = worker_ask(&msg, &fd, &answer, &none);
    close(fd);
    if (error == 0) {
        *ret_token = answer.token;
    }
    return error;
}

static int worker_get(const struct tow_token *token)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_GET, .token = *token};
    struct tows_worker_msg_answer answer;
    int fd;
    int error = worker_ask(&msg, NULL, &answer, &fd);
    return error < 0 ? error : fd >= 0 ? fd : -EPROTO;
}

static void worker_forget(const struct tow_token *token)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_FORGET, .token = *token};
    struct tows_worker_msg_answer answer;
    int none;
    worker_ask(&msg, NULL, &answer, &none);
}

static int worker_keep_handle(const struct tows_ipc_handle *handle, struct tow_token *ret_token)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_KEEP_HANDLE, .handle = *handle};
    struct tows_worker_msg_answer answer;
    int none;
    int error = worker_ask(&msg, NULL, &answer, &none);
    if (error == 0) {
        *ret_token = answer.token;
    }
    return error;
}

static int worker_get_handle(const struct tow_token *token, struct tows_ipc_handle *ret_handle)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_GET_HANDLE, .token = *token};
    struct tows_worker_msg_answer answer;
    int none;
    int error = worker_ask(&msg, NULL, &answer, &none);
    if (error == 0) {
        *ret_handle = answer.handle;
    }
    return error;
}

static const struct tows_export_ops export_ops = {worker_keep, worker_get, worker_forget,
                                                  worker_keep_handle, worker_get_handle};

/* The same for a backend. */

_Static_assert(sizeof(struct tow_backend_token) == sizeof(struct tow_token), "the same bits");

static int exchange_keep(int fd, struct tow_backend_token *ret_token)
{
    struct tow_token token;
    int error = worker_keep(fd, &token);
    if (error == 0) {
        memcpy(ret_token, &token, sizeof token);
    }
    return error;
}

static int exchange_get(const struct tow_backend_token *token)
{
    struct tow_token copy;
    memcpy(&copy, token, sizeof copy);
    return worker_get(&copy);
}

/* Without a socket for an answer: none comes. */
static void exchange_forget(const struct tow_backend_token *token)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_FORGET};
    memcpy(&msg.token, token, sizeof msg.token);
    tow_fds_send(TOW_WORKER_MSG_FD, &msg, sizeof msg, NULL, 0);
}

static const struct tow_backend_exchange_ops exchange_ops = {exchange_keep, exchange_get,
                                                             exchange_forget};

/* What the gate says lies where the listener looks. */
static void tell_turn(void)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_TURN};
    tow_fds_send(TOW_WORKER_MSG_FD, &msg, sizeof msg, NULL, 0);
}

/* For the program's stderr. */
static void tell_client(const char *sentence)
{
    struct tows_session *session = atomic_load(&served);
    if (session != NULL) {
        tows_session_tell(session, sentence);
    }
}

/* What it waits for, or waits for no more. */
static void tell_waiting(const char *what)
{
    struct tows_session *session = atomic_load(&served);
    char sentence[256];
    if (session != NULL) {
        snprintf(sentence, sizeof sentence, "session %llu %s",
                 (unsigned long long)session->options->id, what);
        tows_session_tell(session, sentence);
    }
}

/* Somebody waits for GPU memory that is put out. */
static void memory_called(void)
{
    atomic_store(&shown->called, 1);
    tell_turn();
}

/* What a session has that goes on without its listener. */
struct outlasting {
    int place;    /* owned: where the next one comes; -1: it ends with it */
    int stats_fd; /* owned, with `place` */
};

/* From now on the listener may end, and be started again. */
static void begin_outlasting(const struct tows_worker_msg *request, const struct outlasting *by,
                             int fd)
{
    const struct tows_rejoin_setup rejoin = {.control = TOW_WORKER_MSG_FD,
                                             .place = by->place,
                                             .stats_fd = by->stats_fd,
                                             .owner = request->owner,
                                             .session = request->session,
                                             .limit_ns = (int64_t)request->restart * TOW_TIME_S,
                                             .grace_ns = GRACE_NS,
                                             .stats = shown,
                                             .phase = tows_worker_suspend_phase,
                                             .dismiss = worker_dismiss,
                                             .give_up = worker_give_up};
    if (by->place < 0) {
        return;
    }
    tows_rejoin_client(fd);
    outlasts = tows_rejoin_start(&rejoin) == 0;
}

static int worker_serve(const struct tows_config *config, struct tow_backend *backend,
                        struct tows_session_stats *stats, struct tows_worker_msg *request,
                        const char *code_cache, const struct outlasting *by, int fd)
{
    shown = stats;
    const int watched = dup(fd);
    silence_ns = (int64_t)config->heartbeat * TOW_TIME_S;
    char why[TOW_WHY_MAX];
    struct tow_line *line;
    int error = worker_line(request, fd, why, sizeof why, &line);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s: %s", request->peer, why);
        return error;
    }
    begin_outlasting(request, by, watched);
    const struct tows_leash_setup leash = {.fd = watched,
                                           .network = tow_line_can_break(line),
                                           .silence_ns = silence_ns,
                                           .grace_ns = GRACE_NS,
                                           .control = outlasts ? -1 : TOW_WORKER_MSG_FD,
                                           .stats = stats,
                                           .dismiss = worker_dismiss,
                                           .gone = client_gone,
                                           .give_up = worker_give_up};
    if (watched < 0 || tows_leash_start(&leash) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "no thread for watching the client can be had");
    }
    /* Threads of the session may still look at it when this one has left. */
    static uint8_t secret[TOW_LOGIN_SIZE];
    memcpy(secret, request->secret, sizeof secret);
    explicit_bzero(request->secret, sizeof request->secret);
    if (request->limits.gpu_memory != 0) {
        tows_account_limit(&backend->driver, request->limits.gpu_memory,
                           request->limits.gpu_memory_from, tell_client);
    }
    if (request->limits.swaps) {
        tows_room_begin(stats, tell_turn, tell_waiting);
    }
    if (backend->away != NULL && backend->away->watch != NULL) {
        backend->away->watch(memory_called);
    }
    if (request->limits.turns && tows_gate_start(backend, stats, tell_turn) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "no thread for turns can be had");
        return -EAGAIN;
    }
    /* Threads of the session may still look at these when this one has left. */
    static struct tows_session_options options;
    options = (struct tows_session_options){
        .id = request->session,
        .stats = stats,
        .handshake_ns = HANDSHAKE_NS,
        .code_cache = code_cache[0] == '\0' ? NULL : code_cache,
        .code_cache_max = config->code_cache,
        .cache_ops = tows_cache_ops(),
        .tenant = request->tenant,
        .memory_max = request->limits.session_memory != 0 ? request->limits.session_memory
                                                          : config->session_memory,
        .suspend_every = config->soft_suspend,
        .on_call = memory_called,
        .record_every = config->soft_record,
        .quota = request->limits.gpu_memory != 0,
        .threads_max = (unsigned)config->session_threads,
        .commands_max = (unsigned)config->session_commands,
        .silence_ms = config->heartbeat * 1000,
        .reconnect_s = (uint32_t)request->limits.reconnect,
        .secret = secret,
        .on_lasting = session_lasts,
        .lanes = (unsigned)config->lanes,
        .next_lane = next_lane,
        .on_bye = client_leaves,
        .on_still = tows_gate_rest,
        .on_begin = session_begins,
        .exports = &export_ops,
    };
    if (backend->session != NULL) {
        backend->session(TOW_BACKEND_BEGINS);
    }
    error = tows_session_run(line, backend, &options);
    tows_cache_wait();
    if (backend->session != NULL) {
        backend->session(error == 0 ? TOW_BACKEND_LEFT : TOW_BACKEND_LOST);
    }
    if (backend->gpu_time != NULL) {
        atomic_store(&stats->gpu_ns, backend->gpu_time());
    }
    if (error == -ECANCELED) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "dismissed");
    } else if (error == -EPROTO) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s broke the protocol: its session was ended",
                request->peer);
    } else if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s: %s", request->peer, strerror(-error));
    }
    /* A last sentence may still be on its way out; a client that has left reads none. */
    if (error != 0) {
        struct tow_line *own = atomic_load(&lasting);
        tow_line_drain(own != NULL ? own : line, tow_time_deadline(GRACE_NS));
        hang_up();
    }
    return error;
}

/* What tows_session_run gave back, for the listener. */
static enum tows_worker_end worker_end(int error)
{
    switch (error) {
    case 0:
        return TOW_WORKER_END_LEFT;
    case -ECANCELED:
        return TOW_WORKER_END_TOLD;
    case -EPROTO:
        return TOW_WORKER_END_BROKE;
    case -EPIPE:
    case -ECONNRESET:
        return TOW_WORKER_END_LOST;
    default:
        return TOW_WORKER_END_FAILED;
    }
}

/* How long a worker must have had nothing to do before it makes a context ahead: one that was
 * started for a client gets that client at once. */
#define WARM_AFTER_MS 50

/* Making a context takes most of a real driver's start-up, so a worker that is idle does it before
 * its client comes. With several GPUs nobody knows yet which one that client wants, and a context
 * on the wrong one would hold its memory for nothing. */
static void warm_up(struct tow_backend *backend)
{
    CUdevice device;
    CUcontext context;
    if (tow_drive(&backend->driver, cuDeviceGet)(&device, 0) != CUDA_SUCCESS) {
        return;
    }
    /* It is kept: a client's release empties it (tows_serve_cuDevicePrimaryCtxRelease_v2). */
    CUresult status = tow_drive(&backend->driver, cuDevicePrimaryCtxRetain)(&context, device);
    if (status != CUDA_SUCCESS) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "no context could be made ahead (error %d): the next client makes its own",
                (int)status);
    }
}

/* Waits for a connection to serve. Making a context may take seconds when many do it at once: the
 * listener is asked first, since a client that it hands over must be answered at once. */
static int await_request(struct tow_backend *backend, struct tows_worker_msg *ret_request,
                         int *ret_fd, int *ret_place)
{
    struct pollfd request = {.fd = TOW_WORKER_MSG_FD, .events = POLLIN};
    int fds[2] = {-1, -1}, devices = 0, count = 0, error = 0;
    if (poll(&request, 1, WARM_AFTER_MS) == 0 &&
        tow_drive(&backend->driver, cuDeviceGetCount)(&devices) == CUDA_SUCCESS && devices == 1) {
        error = worker_send(TOW_WORKER_MSG_FD, TOW_WORKER_MSG_WARM, NULL, NULL, 0);
    }
    while (error == 0) {
        error = tow_fds_recv(TOW_WORKER_MSG_FD, ret_request, sizeof *ret_request, TOW_TIME_FOREVER,
                             fds, 2, &count);
        if (error == 0 && ret_request->what == TOW_WORKER_MSG_WARM) {
            warm_up(backend);
            error = worker_send(TOW_WORKER_MSG_FD, TOW_WORKER_MSG_WARM, NULL, NULL, 0);
        } else if (error == 0) {
            *ret_fd = fds[0];
            *ret_place = fds[1];
            return count == (ret_request->restart != 0 ? 2 : 1) &&
                           ret_request->what == TOW_WORKER_MSG_SERVE
                       ? 0
                       : -EPROTO;
        }
    }
    return error;
}

/* The stack grows to there, and only there memory is touched. A compiler that touches every page on
 * the way is why they are given back. */
__attribute__((noinline, no_sanitize("address"))) static void grow_stack(size_t size)
{
    uint8_t *low = alloca(size);
    *(volatile uint8_t *)low = 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)low + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)low + size) & ~(page - 1);
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Memory of the client is mapped where the client has it, be it right below the stack of this
 * thread, which then cannot grow any more. So it grows now, as far as it ever may. */
static void claim_stack(void)
{
    enum { MOST = 8 << 20, SPARE = 64 << 10 };
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return;
    }
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    uintptr_t most = here - (uintptr_t)low < MOST ? here - (uintptr_t)low : MOST;
    if (most > 2 * SPARE) {
        grow_stack(most - SPARE);
    }
}

/* The listener answers system calls that this process is refused, and names them in the log. */
static void give_refused(int fd)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_REFUSED};
    if (fd >= 0) {
        tow_fds_send(TOW_WORKER_MSG_FD, &msg, sizeof msg, &fd, 1);
        close(fd); /* if it was not sent, the kernel refuses by itself */
    }
}

/* What a stranger must not find is given up now, all of it, or nobody is served. */
static void close_in(const struct tows_config *config, const struct tows_worker_msg *request)
{
    const bool waits = request->restart != 0;
    int error = tows_walls_become(config, request->user, request->tenant);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "this worker cannot become user %u (tenant-users), and serves nobody: %s",
                request->user, strerror(-error));
        tow_log_flush(true);
        _exit(TOW_WORKER_END_FAILED);
    }
    if (waits) {
        prctl(PR_SET_PDEATHSIG, 0); /* its program does not end with the server */
    }
    give_refused(tows_walls_finish(config, waits));
}

/* A tenant's user may read what he can name, and cannot come from above: folders there may be for
 * root only. */
static void hold_code_cache(const struct tows_config *config, char *code_cache, size_t size)
{
    if (config->tenant_users.count == 0 || code_cache[0] == '\0') {
        return;
    }
    struct stat status;
    int folder = open(code_cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Where it is another's, it may be open to all already. */
    if (folder < 0 || fstat(folder, &status) != 0 ||
        ((status.st_mode & S_IXOTH) == 0 && fchmod(folder, 0711) != 0)) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s cannot be used: %s", code_cache,
                strerror(errno));
        code_cache[0] = '\0';
        return;
    }
    snprintf(code_cache, size, "/proc/self/fd/%d", folder);
}

int tows_worker_main(const struct tows_config *config)
{
    claim_stack();
    struct tows_session_stats *stats =
        mmap(NULL, sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED, TOW_STATS_FD, 0);
    if (stats == MAP_FAILED) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "--worker is for towlined itself; start towlined without it");
        return 2;
    }
    fcntl(TOW_STATS_FD, F_SETFD, FD_CLOEXEC);
    stats->device = -1;
    tow_log_allow(&stats->lines);
    /* Threads of the session may still look at it when this one has left. */
    static char code_cache[TOW_CONFIG_TEXT_MAX + 16];
    tows_worker_code_cache(config, code_cache, sizeof code_cache);
    struct tow_backend backend;
    char why[TOW_WHY_MAX];
    const struct tow_tls_lib *lib;
    if (config->tls) {
        tow_tls_lib(&lib, why, sizeof why); /* where it lies behind the walls it is not found */
    }
    if (config->soft_check[0] != '\0' &&
        tow_backend_soft_check(config->soft_check, why, sizeof why) < 0) {
        worker_send(TOW_WORKER_MSG_FD, TOW_WORKER_MSG_FAILED, NULL, why, strlen(why));
        return 1;
    }
    tows_walls_raise(config, code_cache);
    hold_code_cache(config, code_cache, sizeof code_cache);
    if (config->watchdog != 0) {
        tows_alive_start(stats); /* a driver may take long to open, or for ever */
    }
    int error = tows_worker_open(config, &backend, why, sizeof why);
    if (error < 0) {
        worker_send(TOW_WORKER_MSG_FD, TOW_WORKER_MSG_FAILED, NULL, why, strlen(why));
        return 1;
    }
    tows_account_install(&backend.driver, stats);
    tows_guard_install(&backend.driver);
    tows_alive_tell_time(backend.gpu_time);
    if (backend.exchange != NULL) {
        *backend.exchange = &exchange_ops;
    }
    if (backend.limit_queued != NULL) {
        backend.limit_queued(&stats->queued, (uint32_t)config->session_commands);
    }
    if (backend.show_used != NULL) {
        atomic_store(&stats->used_count, backend.show_used(stats->used, TOW_STATS_GPUS_MAX));
    }
    error = tows_output_capture(&backend);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "device printf will not reach the client: %s",
                strerror(-error));
    }
    struct tow_buf devices;
    tow_buf_init(&devices, TOW_WORKER_MSG_TEXT_MAX);
    error = tows_describe_devices(&backend, &devices);
    if (error == 0) {
        error = worker_send(TOW_WORKER_MSG_FD, TOW_WORKER_MSG_READY, &backend, devices.data,
                            devices.size);
    }
    tow_buf_fini(&devices);

    static struct tows_worker_msg request; /* the log has texts of it to the end */
    static struct tow_log_about about;
    struct outlasting by = {.place = -1, .stats_fd = TOW_STATS_FD};
    int fd = -1;
    if (error == 0) {
        error = await_request(&backend, &request, &fd, &by.place);
    }
    if (error == 0) {
        if (by.place < 0) {
            close(by.stats_fd);
        }
        request.peer[sizeof request.peer - 1] = '\0';
        request.tenant[sizeof request.tenant - 1] = '\0';
        request.limits.gpu_memory_from[sizeof request.limits.gpu_memory_from - 1] = '\0';
        about = (struct tow_log_about){
            .session = request.session, .peer = request.peer, .tenant = request.tenant};
        tow_log_set_about(&about);
        close_in(config, &request);
        error = worker_serve(config, &backend, stats, &request, code_cache, &by, fd);
        tow_log_flush(true);
        /* Threads may still be inside the driver: nothing is freed by hand, the kernel does it all.
         */
        worker_exit(worker_end(error));
    }
    backend.close(&backend);
    munmap(stats, sizeof *stats);
    return 0;
}
