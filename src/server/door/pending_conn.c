/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a newcomer's first frame without blocking and decides what it wants. */
#include "server/door/pending_conn.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/shm.h"
#include "transport/tls_hello.h"
#include "wire/handshake.h"

#define STRANGER_NS (10 * TOW_TIME_S)
/* The real driver may take a while to start; a client that has had enough goes by itself. */
#define PROGRAM_NS (60 * TOW_TIME_S)
/* So often it is told that this is a server, which has no worker ready yet: it waits 4 s only for
 * somebody who says nothing. */
#define PATIENCE_NS (2 * TOW_TIME_S)
/* And so often when its place in line changes. */
#define PLACE_NS (200 * TOW_TIME_MS)
#define ANSWER_NS (5 * TOW_TIME_S)
#define LEAVE_NS (2 * TOW_TIME_S)
/* How soon one with a few bytes is looked at again: whatever else happens, not more often. */
#define PARTIAL_NS (20 * TOW_TIME_MS)

/* How much of a hello is looked at. It stays in the socket: the worker reads it again. */
enum { PEEK_MAX = 64 << 10 };
_Static_assert(TOW_SHM_REFUSAL_MAX <= TOW_SENTENCE_MAX + 64, "both forms of a refusal fit");
_Static_assert(PEEK_MAX >= TOW_PREFACE_MAX + 64, "a request for shared memory is seen whole");

struct tows_pending_conn *tows_pending_conn_create(int fd, enum tow_transport_kind kind,
                                                   const char *peer)
{
    struct tows_pending_conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL) {
        close(fd);
        return NULL;
    }
    conn->fd = fd;
    conn->outer = -1;
    conn->kind = kind;
    conn->origin = conn->who = tows_who_of(fd);
    conn->encrypted = tow_transport_encrypts(kind);
    conn->deadline_ns = tow_time_deadline(STRANGER_NS);
    snprintf(conn->peer, sizeof conn->peer, "%s", peer);
    tow_buf_init(&conn->out, TOW_FRAME_MAX);
    return conn;
}

void tows_pending_conn_destroy(struct tows_pending_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    close(conn->fd);
    if (conn->outer >= 0) {
        /* The handshake ends with it: nobody has more of them under way than places. */
        shutdown(conn->outer, SHUT_RDWR);
        close(conn->outer);
    }
    if (conn->bound && conn->out.data != NULL) {
        explicit_bzero(conn->out.data, conn->out.size); /* a GRANT */
    }
    tow_buf_fini(&conn->out);
    free(conn);
}

short tows_pending_conn_events(const struct tows_pending_conn *conn)
{
    switch (conn->state) {
    case TOW_CONN_STRANGER:
    case TOW_CONN_LOGIN:
        return conn->partial || conn->held_ns != 0 ? POLLRDHUP : POLLIN;
    case TOW_CONN_SHAKING:
        return POLLIN;
    case TOW_CONN_ANSWERED:
        return POLLOUT;
    case TOW_CONN_LEAVING:
        return POLLIN;
    case TOW_CONN_SHAKE:
    case TOW_CONN_PROGRAM:
        return POLLRDHUP;
    default:
        return 0;
    }
}

static void conn_complain(const struct tows_pending_conn *conn, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void conn_complain(const struct tows_pending_conn *conn, const char *format, ...)
{
    char sentence[TOW_WHY_MAX + TOW_ADDRESS_MAX], tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = {.peer = conn->peer, .tenant = tows_who_text(&conn->who, tenant)};
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about, "%s", sentence);
}

bool tows_pending_conn_reads(const struct tows_pending_conn *conn)
{
    return conn->state == TOW_CONN_STRANGER || conn->state == TOW_CONN_LOGIN;
}

static void move_on(struct tows_pending_conn *conn, enum tows_pending_conn_state state,
                    int64_t timeout_ns)
{
    conn->state = state;
    conn->deadline_ns = tow_time_deadline(timeout_ns);
}

static void become_program(struct tows_pending_conn *conn, bool shared)
{
    move_on(conn, TOW_CONN_PROGRAM, PATIENCE_NS);
    conn->until_ns = tow_time_deadline(PROGRAM_NS);
    conn->came_ns = tow_time_now_ns();
    conn->shared = shared;
}

/* A few bytes into an empty socket: they go at once, or the client is beyond help. */
static void ask_for_patience(struct tows_pending_conn *conn)
{
    uint8_t bytes[256];
    uint32_t size = TOW_SHM_ANSWER_SIZE;
    if (conn->shared) {
        tow_shm_write_patience(conn->place.place, conn->place.of, conn->place.wait_for, bytes);
    } else {
        struct tow_notice notice = {
            .topic = TOW_NOTICE_PATIENCE,
            .values = {conn->place.place | (uint64_t)conn->place.of << 32, conn->place.wait_for},
            .text = ""};
        if (tow_notice_encode(&notice, bytes, sizeof bytes, &size) < 0) {
            return;
        }
    }
    if (send(conn->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->told_ns = tow_time_now_ns();
    conn->deadline_ns = conn->told_ns + PATIENCE_NS;
}

void tows_pending_conn_queue(struct tows_pending_conn *conn, struct tows_place place)
{
    bool moved = place.place != conn->place.place || place.of != conn->place.of ||
                 place.wait_for != conn->place.wait_for;
    conn->place = place;
    conn->admitted = place.place == 0;
    if (!conn->admitted) {
        conn->until_ns = tow_time_deadline(PROGRAM_NS); /* a worker's time has not begun */
    }
    if (moved && conn->deadline_ns > conn->told_ns + PLACE_NS) {
        conn->deadline_ns = conn->told_ns + PLACE_NS;
        if (!conn->admitted && tow_time_passed(conn->deadline_ns)) {
            ask_for_patience(conn);
        }
    }
}

bool tows_pending_conn_has_gone(const struct tows_pending_conn *conn)
{
    struct pollfd poll_fd = {.fd = conn->fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) == 1;
}

void tows_pending_conn_refuse(struct tows_pending_conn *conn, uint32_t code, const char *sentence)
{
    struct tow_refuse refuse = {.code = code, .sentence = sentence};
    uint8_t *at;
    uint32_t length;
    tow_buf_clear(&conn->out);
    if (tow_buf_extend(&conn->out, TOW_SENTENCE_MAX + 64, &at) < 0) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    if (conn->shared) {
        length = (uint32_t)tow_shm_write_refusal(sentence, code == TOW_REFUSE_BUSY, at);
    } else if (tow_refuse_encode(&refuse, at, conn->out.size, &length) < 0) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->out.size = length;
    move_on(conn, TOW_CONN_ANSWERED, ANSWER_NS);
}

void tows_pending_conn_report(struct tows_pending_conn *conn, const char *json, size_t size)
{
    struct tow_report report = {.size = (uint32_t)size, .text = json};
    uint8_t *at;
    uint32_t length;
    tow_buf_clear(&conn->out);
    if (size > TOW_FRAME_MAX - 64 || tow_buf_extend(&conn->out, size + 64, &at) < 0 ||
        tow_report_encode(&report, at, conn->out.size, &length) < 0) {
        tows_pending_conn_refuse(conn, TOW_REFUSE_FAILED, "the report is too long to be sent");
        return;
    }
    conn->out.size = length;
    move_on(conn, TOW_CONN_ANSWERED, ANSWER_NS);
}

void tows_pending_conn_grant(struct tows_pending_conn *conn, const struct tow_grant *grant)
{
    uint8_t *at;
    uint32_t length;
    tow_buf_clear(&conn->out);
    if (tow_buf_extend(&conn->out, 128, &at) < 0 ||
        tow_grant_encode(grant, at, conn->out.size, &length) < 0) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->out.size = length;
    move_on(conn, TOW_CONN_ANSWERED, ANSWER_NS);
}

/* A client may set what changes how the driver starts, and nothing else of a server's environment:
 * it must not reach its files or its loader. */
static bool variable_allowed(const char *variable)
{
    size_t length = strcspn(variable, "=");
    bool known = false;
    for (const char *const *name = tow_driver_variables; *name != NULL; name++) {
        known |= strlen(*name) == length && memcmp(*name, variable, length) == 0;
    }
    if (!known || variable[length] != '=' || strlen(variable + length) > 64) {
        return false;
    }
    for (const char *at = variable + length + 1; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._,-", *at) == NULL) {
            return false;
        }
    }
    return true;
}

/* What the server adds: the slot, and a part of the processors under MPS. */
enum { KEY_ROOM = 16 + sizeof TOW_PENDING_CONN_PERCENT + 16 };

/* What it says of itself: which worker it needs, and what it asks for. */
static void take_hello(struct tows_pending_conn *conn, const struct tow_hello *hello)
{
    size_t used = 0;
    for (uint32_t i = 0; i < hello->env_count; i++) {
        size_t length = strlen(hello->env[i]);
        if (variable_allowed(hello->env[i]) && used + length + 2 < sizeof conn->key - KEY_ROOM) {
            memcpy(conn->key + used, hello->env[i], length);
            used += length;
            conn->key[used++] = '\n';
        }
    }
    if (hello->slot != TOW_SLOT_NONE && hello->slot > 0 && hello->slot < 16) {
        used +=
            (size_t)snprintf(conn->key + used, sizeof conn->key - used, "slot=%u\n", hello->slot);
    }
    conn->key[used] = '\0';
    conn->gpu_memory = hello->gpu_memory;
    conn->wish = hello->wish;
}

static bool is_percentage(const char *line)
{
    const size_t length = sizeof TOW_PENDING_CONN_PERCENT - 1;
    return strncmp(line, TOW_PENDING_CONN_PERCENT, length) == 0 &&
           strspn(line + length, "0123456789") == strlen(line + length);
}

bool tows_pending_conn_may_ask(const char *key)
{
    char line[TOW_WORKER_KEY_MAX];
    while (*key != '\0') {
        size_t length = strcspn(key, "\n");
        if (key[length] != '\n' || length >= sizeof line) {
            return false;
        }
        snprintf(line, sizeof line, "%.*s", (int)length, key);
        unsigned slot = 0;
        int end = 0;
        bool slotted = sscanf(line, "slot=%2u%n", &slot, &end) == 1 && line[end] == '\0' &&
                       slot > 0 && slot < 16 && key[length + 1] == '\0';
        if (!slotted && !is_percentage(line) && !variable_allowed(line)) {
            return false;
        }
        key += length + 1;
    }
    return true;
}

/* Whether a preface is a HELLO frame from end to end. */
static bool is_hello(const struct tow_preface *preface, struct tow_frame *ret_frame)
{
    char ignored[TOW_WHY_MAX];
    return tow_handshake_sniff(TOW_ROLE_SERVER, preface->bytes, preface->size, "", ignored,
                               sizeof ignored) == 0 &&
           tow_frame_read(preface->bytes, ret_frame) == 0 && ret_frame->kind == TOW_CONTROL_HELLO &&
           ret_frame->length == preface->size;
}

/* A request for shared memory shows the hello, which tells which worker will do. That one gets it
 * once more and judges it: a HELLO that cannot be read here is no reason to go. */
static void look_at_request(struct tows_pending_conn *conn, const uint8_t *bytes, size_t n)
{
    char why[TOW_WHY_MAX];
    struct tow_preface preface = {0};
    struct tow_frame frame;
    struct tow_hello hello;
    int error = tow_shm_read_request(bytes, n, &preface, why, sizeof why);
    if (error == -EAGAIN) {
        return;
    }
    if (error == 0 && preface.size > 0 && !is_hello(&preface, &frame)) {
        snprintf(why, sizeof why, "what comes with its request for shared memory is not a HELLO");
        error = -EPROTO;
    }
    if (error == 0) {
        if (preface.size > 0 && tow_hello_decode(preface.bytes, &frame, &hello) == 0) {
            take_hello(conn, &hello);
        }
        become_program(conn, true);
        return;
    }
    conn_complain(conn, "%s: %s: the connection was closed", conn->peer, why);
    conn->state = TOW_CONN_GONE;
    if (error == -EPROTONOSUPPORT) {
        conn->shared = true;
        tows_pending_conn_refuse(conn, TOW_REFUSE_PROTOCOL, why);
    }
}

/* Takes bytes that were looked at off the socket. */
static bool take_bytes(struct tows_pending_conn *conn, size_t n)
{
    static uint8_t bytes[PEEK_MAX];
    return n <= sizeof bytes && recv(conn->fd, bytes, n, MSG_DONTWAIT) == (ssize_t)n;
}

/* As ask_for_patience: a few bytes into an empty socket. */
static bool send_bytes(struct tows_pending_conn *conn, const uint8_t *bytes, size_t n)
{
    return send(conn->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* Takes the first frame, of `size` bytes, off the socket and sends CHALLENGE. */
static void ask_for_proof(struct tows_pending_conn *conn, size_t size)
{
    struct tow_challenge challenge;
    uint8_t out[128];
    uint32_t length = 0;
    if (getrandom(challenge.nonce, sizeof challenge.nonce, GRND_NONBLOCK) !=
            (ssize_t)sizeof challenge.nonce ||
        !take_bytes(conn, size) || tow_challenge_encode(&challenge, out, sizeof out, &length) < 0 ||
        !send_bytes(conn, out, length)) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    memcpy(conn->said.server_nonce, challenge.nonce, sizeof challenge.nonce);
    conn->state = TOW_CONN_LOGIN; /* within the time of a stranger */
    conn->partial = false;
}

/* A line of a session that was cut, over a network. */
static void look_at_resume(struct tows_pending_conn *conn, const uint8_t *bytes,
                           const struct tow_frame *frame)
{
    struct tow_resume resume;
    if (!tow_transport_kind_lasts(conn->kind) || tow_resume_decode(bytes, frame, &resume) < 0) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->resumes = true;
    conn->session = resume.session;
    conn->line = resume.line;
    tow_login_first(bytes, frame->length, conn->bound ? conn->shaken.binding : NULL,
                    conn->said.first);
    ask_for_proof(conn, frame->length);
}

void tows_pending_conn_await(struct tows_pending_conn *conn, int64_t until_ns)
{
    conn->deadline_ns = conn->until_ns = until_ns;
}

/* Looks at a whole first frame. Returns false while bytes are missing. */
static bool look_at_frame(struct tows_pending_conn *conn, const uint8_t *bytes, size_t n)
{
    struct tow_frame frame;
    tow_frame_read(bytes, &frame);
    if (frame.length > n && n < PEEK_MAX) {
        return false;
    }
    if (frame.kind == TOW_CONTROL_STATUS) {
        struct tow_status status;
        if (frame.length > n || tow_status_decode(bytes, &frame, &status) < 0) {
            conn_complain(conn, "%s sent a STATUS that cannot be read", conn->peer);
            conn->state = TOW_CONN_GONE;
            return true;
        }
        conn->at_hand = (status.topics & TOW_STATUS_AT_HAND) != 0;
        conn->present = (status.topics & TOW_STATUS_PRESENT) != 0;
        conn->orders = status.topics & (TOW_STATUS_OF_SESSION | TOW_STATUS_DRAIN);
        conn->session = status.session;
        conn->limit_ms = status.limit_ms;
        move_on(conn, TOW_CONN_ASKED, ANSWER_NS);
        return true;
    }
    if (frame.kind == TOW_CONTROL_LANE) {
        struct tow_lane lane;
        if (frame.length > n || tow_lane_decode(bytes, &frame, &lane) < 0) {
            conn->state = TOW_CONN_GONE;
            return true;
        }
        conn->session = lane.session;
        move_on(conn, conn->bound ? TOW_CONN_GONE : TOW_CONN_LANE, ANSWER_NS);
        return true;
    }
    if (frame.kind == TOW_CONTROL_RESUME) {
        if (frame.length <= n) {
            look_at_resume(conn, bytes, &frame);
        } else {
            conn->state = TOW_CONN_GONE;
        }
        return true;
    }
    /* A hello that is too long to be seen whole, or wrong, is for the worker to judge. */
    struct tow_hello hello;
    if (frame.length <= n && tow_hello_decode(bytes, &frame, &hello) == 0) {
        take_hello(conn, &hello);
    }
    become_program(conn, false);
    return true;
}

/* ---- logging in ---- */

/* The longest PROOF that is taken: a newer client may have more to say. */
enum { PROOF_MAX = 1024 };

/* Whether a whole first frame is of somebody who can log in, and must. */
static bool can_log_in(const uint8_t *bytes, const struct tow_frame *frame)
{
    struct tow_hello hello;
    struct tow_status status;
    if (frame->kind == TOW_CONTROL_STATUS) {
        return tow_status_decode(bytes, frame, &status) == 0 &&
               (status.topics & TOW_STATUS_LOGIN) != 0 && (status.topics & TOW_STATUS_PRESENT) == 0;
    }
    return frame->kind == TOW_CONTROL_HELLO && tow_hello_decode(bytes, frame, &hello) == 0 &&
           (hello.capabilities & TOW_CAN_LOGIN) != 0;
}

/* The first frame of one who must log in, or of one who has. False: it is as good as any. */
static bool look_at_login(struct tows_pending_conn *conn, const uint8_t *bytes, size_t n)
{
    struct tow_frame frame;
    uint8_t first[TOW_LOGIN_SIZE];
    if (!conn->demands_token || tow_frame_read(bytes, &frame) < 0) {
        return false;
    }
    bool whole = frame.length <= n;
    if (!whole && n < PEEK_MAX) {
        return true;
    }
    memset(first, 0, sizeof first);
    if (whole) {
        tow_login_first(bytes, frame.length, conn->bound ? conn->shaken.binding : NULL, first);
    }
    if (conn->who.kind == TOW_WHO_TOKEN) {
        if (tow_hash_equal(first, conn->said.first)) {
            return false;
        }
        conn_complain(conn,
                      "%s logged in for something else than it wants: the connection was closed",
                      conn->peer);
        conn->state = TOW_CONN_GONE;
        return true;
    }
    if (!whole || !can_log_in(bytes, &frame)) {
        return false;
    }
    memcpy(conn->said.first, first, sizeof first);
    ask_for_proof(conn, frame.length);
    return true;
}

static void look_at_proof(struct tows_pending_conn *conn)
{
    static _Alignas(8) uint8_t bytes[PROOF_MAX];
    struct tow_frame frame;
    struct tow_proof proof;
    ssize_t got = recv(conn->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        conn->partial = false;
        return;
    }
    conn->partial = true;
    conn->look_ns = tow_time_deadline(PARTIAL_NS);
    if (got > 0 && got < (ssize_t)TOW_FRAME_HEADER) {
        return;
    }
    if (got > 0 && tow_frame_read(bytes, &frame) == 0 && frame.kind == TOW_CONTROL_PROOF &&
        frame.length <= PROOF_MAX) {
        if ((size_t)got < frame.length) {
            return;
        }
        if (tow_proof_decode(bytes, &frame, &proof) == 0 && take_bytes(conn, frame.length)) {
            conn->said.id = proof.id;
            memcpy(conn->said.client_nonce, proof.nonce, sizeof proof.nonce);
            memcpy(conn->proof, proof.proof, sizeof proof.proof);
            move_on(conn, TOW_CONN_PROOF, ANSWER_NS);
            return;
        }
    }
    conn_complain(conn, "%s was asked for %s and %s: the connection was closed", conn->peer,
                  conn->resumes ? "its session's secret" : "a token",
                  got > 0 ? "sent something else" : "went");
    conn->state = TOW_CONN_GONE;
}

bool tows_pending_conn_welcome_back(struct tows_pending_conn *conn,
                                    const uint8_t answer[TOW_LOGIN_SIZE])
{
    struct tow_proved proved;
    uint8_t bytes[128];
    uint32_t length = 0;
    memcpy(proved.answer, answer, sizeof proved.answer);
    return tow_proved_encode(&proved, bytes, sizeof bytes, &length) == 0 &&
           send_bytes(conn, bytes, length);
}

void tows_pending_conn_part(struct tows_pending_conn *conn, const uint8_t answer[TOW_LOGIN_SIZE])
{
    struct tow_proved proved;
    uint8_t *at;
    uint32_t length;
    memcpy(proved.answer, answer, sizeof proved.answer);
    tow_buf_clear(&conn->out);
    if (tow_buf_extend(&conn->out, 128, &at) < 0 ||
        tow_proved_encode(&proved, at, conn->out.size, &length) < 0) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->out.size = length;
    move_on(conn, TOW_CONN_ANSWERED, ANSWER_NS);
}

void tows_pending_conn_prove(struct tows_pending_conn *conn, const uint8_t answer[TOW_LOGIN_SIZE])
{
    if (!tows_pending_conn_welcome_back(conn, answer)) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->partial = false;
    move_on(conn, TOW_CONN_STRANGER, STRANGER_NS);
}

void tows_pending_conn_deny(struct tows_pending_conn *conn, const char *sentence, int64_t delay_ns)
{
    conn->refusal = sentence;
    move_on(conn, TOW_CONN_DENIED, delay_ns);
}

/* ---- handshakes ---- */

/* The first bytes on a port of TLS: whose handshake it is tells who gets the connection. */
static void look_at_handshake(struct tows_pending_conn *conn, const uint8_t *bytes, size_t n)
{
    bool names = false;
    int error = tow_tls_hello_read(bytes, n, &names, conn->grant_id);
    if (error == -EAGAIN) {
        return;
    }
    if (error == 0) {
        move_on(conn, names ? TOW_CONN_GRANTED : TOW_CONN_SHAKE, STRANGER_NS);
        return;
    }
    conn_complain(conn, "%s was refused: it speaks without TLS on a port for TLS", conn->peer);
    tows_pending_conn_refuse(conn, TOW_REFUSE_PROTOCOL,
                             "this port is for TLS; write tls://HOST:PORT instead of tcp://");
}

void tows_pending_conn_shakes(struct tows_pending_conn *conn, int plain)
{
    conn->outer = conn->fd;
    conn->fd = plain;
    conn->encrypted = false;
    conn->partial = false;
    move_on(conn, TOW_CONN_SHAKING, 2 * STRANGER_NS); /* the other process has half of that */
}

/* The other process says that it has done it, or ends and has said why not. */
static void look_at_shaken(struct tows_pending_conn *conn)
{
    struct tows_shaken *shaken = &conn->shaken;
    ssize_t got = recv(conn->fd, shaken, sizeof *shaken, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got != (ssize_t)sizeof *shaken) { /* one write of a unix socket */
        conn->state = TOW_CONN_GONE;
        return;
    }
    close(conn->outer);
    conn->outer = -1;
    conn->bound = true;
    shaken->cert.name[sizeof shaken->cert.name - 1] = '\0';
    shaken->cert.doubt[sizeof shaken->cert.doubt - 1] = '\0';
    bool shown = shaken->cert.state != TOW_TLS_CERT_NONE;
    move_on(conn, shown ? TOW_CONN_SHOWN : TOW_CONN_STRANGER, STRANGER_NS);
}

void tows_pending_conn_go_on(struct tows_pending_conn *conn, const char *refusal)
{
    conn->refusal = refusal;
    conn->demands_token = false; /* it has logged in by its certificate, or is refused */
    move_on(conn, TOW_CONN_STRANGER, STRANGER_NS);
}

static void conn_look(struct tows_pending_conn *conn)
{
    static _Alignas(8) uint8_t bytes[PEEK_MAX];
    ssize_t got = recv(conn->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        conn->partial = false;
        return;
    }
    if (got <= 0) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    size_t n = (size_t)got;
    conn->partial = true;
    conn->look_ns = tow_time_deadline(PARTIAL_NS);
    if (conn->encrypted) {
        look_at_handshake(conn, bytes, n);
        return;
    }
    if (!conn->demands_token && !conn->bound && n >= TOW_SHM_MAGIC_SIZE &&
        memcmp(bytes, TOW_SHM_MAGIC, TOW_SHM_MAGIC_SIZE) == 0) {
        look_at_request(conn, bytes, n);
        return;
    }
    char why[TOW_WHY_MAX];
    int error = tow_handshake_sniff(TOW_ROLE_SERVER, bytes, n, conn->peer, why, sizeof why);
    if (error == -EAGAIN) {
        return;
    }
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s: the connection was closed", why);
        conn->state = TOW_CONN_GONE;
        return;
    }
    if (!look_at_login(conn, bytes, n)) {
        look_at_frame(conn, bytes, n);
    }
}

static void conn_flush(struct tows_pending_conn *conn)
{
    while (conn->sent < conn->out.size) {
        ssize_t n = send(conn->fd, conn->out.data + conn->sent, conn->out.size - conn->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0) {
            conn->state = TOW_CONN_GONE;
            return;
        }
        conn->sent += (size_t)n;
    }
    /* Closing with the peer's bytes unread would make TCP throw away what we sent. */
    shutdown(conn->fd, SHUT_WR);
    move_on(conn, TOW_CONN_LEAVING, LEAVE_NS);
}

static void conn_drain(struct tows_pending_conn *conn)
{
    static uint8_t bytes[PEEK_MAX];
    ssize_t n = recv(conn->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        conn->state = TOW_CONN_GONE;
    }
}

void tows_pending_conn_step(struct tows_pending_conn *conn, short events)
{
    bool again = conn->partial && tow_time_passed(conn->look_ns);
    if (conn->held_ns != 0) {
        if (!tow_time_passed(conn->held_ns)) {
            conn->state = events != 0 ? TOW_CONN_GONE : conn->state;
            return;
        }
        conn->held_ns = 0;
        again = true;
    }
    if (tows_pending_conn_reads(conn) && (events != 0 || again)) {
        bool ended = (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        if (conn->state == TOW_CONN_LOGIN) {
            look_at_proof(conn);
        } else {
            conn_look(conn);
        }
        if (ended && tows_pending_conn_reads(conn)) {
            if (conn->partial) {
                conn_complain(conn, "%s went before it had said all of its first words",
                              conn->peer);
            }
            conn->state = TOW_CONN_GONE;
        }
    } else if (conn->state == TOW_CONN_SHAKING && events != 0) {
        look_at_shaken(conn);
    } else if ((conn->state == TOW_CONN_PROGRAM || conn->state == TOW_CONN_ASKED ||
                conn->state == TOW_CONN_SHAKE) &&
               events != 0) {
        conn->state = TOW_CONN_GONE;
    } else if (conn->state == TOW_CONN_DENIED && events != 0) {
        conn->state = TOW_CONN_GONE; /* nobody is there for the answer */
    } else if (conn->state == TOW_CONN_ANSWERED && events != 0) {
        conn_flush(conn);
    } else if (conn->state == TOW_CONN_LEAVING && events != 0) {
        conn_drain(conn);
    }
    if (conn->state == TOW_CONN_PROGRAM && tow_time_passed(conn->deadline_ns) &&
        !tow_time_passed(conn->until_ns)) {
        ask_for_patience(conn);
    }
    if (conn->state == TOW_CONN_DENIED && tow_time_passed(conn->deadline_ns)) {
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, conn->refusal);
    }
    if (conn->state != TOW_CONN_GONE && tow_time_passed(conn->deadline_ns)) {
        if (tows_pending_conn_reads(conn)) {
            conn_complain(conn, "%s said nothing that can be understood for %d s: closed",
                          conn->peer, (int)(STRANGER_NS / TOW_TIME_S));
        }
        if (conn->state == TOW_CONN_SHAKE) {
            conn_complain(conn, "%s was refused: the process for TLS handshakes is busy",
                          conn->peer);
        }
        if (conn->state == TOW_CONN_PROGRAM) {
            tows_pending_conn_refuse(
                conn, TOW_REFUSE_FAILED,
                "the server could not start a worker in time; look at its log");
        } else {
            conn->state = TOW_CONN_GONE;
        }
    }
}
