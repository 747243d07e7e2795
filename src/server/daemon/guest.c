/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a newcomer's first frame without blocking and decides what it wants. */
#include "server/daemon/guest.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/shm.h"
#include "wire/handshake.h"

#define STRANGER_NS (10 * TOW_TIME_S)
/* The real driver may take a while to start; a client that has had enough goes by itself. */
#define PROGRAM_NS (60 * TOW_TIME_S)
/* So often it is told that this is a server, which has no worker ready yet: it waits 4 s only for
 * somebody who says nothing. */
#define PATIENCE_NS (2 * TOW_TIME_S)
#define ANSWER_NS (5 * TOW_TIME_S)
#define LEAVE_NS (2 * TOW_TIME_S)
/* How soon one with a few bytes is looked at again: whatever else happens, not more often. */
#define PARTIAL_NS (20 * TOW_TIME_MS)

/* How much of a hello is looked at. It stays in the socket: the worker reads it again. */
enum { PEEK_MAX = 64 << 10 };
_Static_assert(TOW_SHM_REFUSAL_MAX <= TOW_SENTENCE_MAX + 64, "both forms of a refusal fit");
_Static_assert(PEEK_MAX >= TOW_PREFACE_MAX + 64, "a request for shared memory is seen whole");

struct tows_guest *tows_guest_create(int fd, enum tow_transport_kind kind, const char *peer)
{
    struct tows_guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL) {
        close(fd);
        return NULL;
    }
    guest->fd = fd;
    guest->kind = kind;
    guest->who = tows_who_of(fd);
    guest->deadline_ns = tow_time_deadline(STRANGER_NS);
    snprintf(guest->peer, sizeof guest->peer, "%s", peer);
    tow_buf_init(&guest->out, TOW_FRAME_MAX);
    return guest;
}

void tows_guest_destroy(struct tows_guest *guest)
{
    if (guest == NULL) {
        return;
    }
    close(guest->fd);
    tow_buf_fini(&guest->out);
    free(guest);
}

short tows_guest_events(const struct tows_guest *guest)
{
    switch (guest->state) {
    case TOW_GUEST_STRANGER:
        return guest->partial ? POLLRDHUP : POLLIN;
    case TOW_GUEST_ANSWERED:
        return POLLOUT;
    case TOW_GUEST_LEAVING:
        return POLLIN;
    case TOW_GUEST_PROGRAM:
        return POLLRDHUP;
    default:
        return 0;
    }
}

static void move_on(struct tows_guest *guest, enum tows_guest_state state, int64_t timeout_ns)
{
    guest->state = state;
    guest->deadline_ns = tow_time_deadline(timeout_ns);
}

static void become_program(struct tows_guest *guest, bool shared)
{
    move_on(guest, TOW_GUEST_PROGRAM, PATIENCE_NS);
    guest->until_ns = tow_time_deadline(PROGRAM_NS);
    guest->shared = shared;
}

/* A few bytes into an empty socket: they go at once, or the client is beyond help. */
static void ask_for_patience(struct tows_guest *guest)
{
    uint8_t bytes[256];
    uint32_t size = TOW_SHM_ANSWER_SIZE;
    if (guest->shared) {
        tow_shm_write_patience(bytes);
    } else {
        struct tow_notice notice = {.topic = TOW_NOTICE_PATIENCE, .text = ""};
        if (tow_notice_encode(&notice, bytes, sizeof bytes, &size) < 0) {
            return;
        }
    }
    if (send(guest->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size) {
        guest->state = TOW_GUEST_GONE;
        return;
    }
    guest->deadline_ns = tow_time_deadline(PATIENCE_NS);
}

bool tows_guest_has_gone(const struct tows_guest *guest)
{
    struct pollfd poll_fd = {.fd = guest->fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) == 1;
}

void tows_guest_refuse(struct tows_guest *guest, uint32_t code, const char *sentence)
{
    struct tow_refuse refuse = {.code = code, .sentence = sentence};
    uint8_t *at;
    uint32_t length;
    tow_buf_clear(&guest->out);
    if (tow_buf_extend(&guest->out, TOW_SENTENCE_MAX + 64, &at) < 0) {
        guest->state = TOW_GUEST_GONE;
        return;
    }
    if (guest->shared) {
        length = (uint32_t)tow_shm_write_refusal(sentence, code == TOW_REFUSE_BUSY, at);
    } else if (tow_refuse_encode(&refuse, at, guest->out.size, &length) < 0) {
        guest->state = TOW_GUEST_GONE;
        return;
    }
    guest->out.size = length;
    move_on(guest, TOW_GUEST_ANSWERED, ANSWER_NS);
}

void tows_guest_report(struct tows_guest *guest, const char *json, size_t size)
{
    struct tow_report report = {.size = (uint32_t)size, .text = json};
    uint8_t *at;
    uint32_t length;
    tow_buf_clear(&guest->out);
    if (size > TOW_FRAME_MAX - 64 || tow_buf_extend(&guest->out, size + 64, &at) < 0 ||
        tow_report_encode(&report, at, guest->out.size, &length) < 0) {
        tows_guest_refuse(guest, TOW_REFUSE_FAILED, "the report is too long to be sent");
        return;
    }
    guest->out.size = length;
    move_on(guest, TOW_GUEST_ANSWERED, ANSWER_NS);
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
    if (!known || strlen(variable + length) > 64) {
        return false;
    }
    for (const char *at = variable + length + 1; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._,-", *at) == NULL) {
            return false;
        }
    }
    return true;
}

static void make_key(struct tows_guest *guest, const struct tow_hello *hello)
{
    size_t used = 0;
    for (uint32_t i = 0; i < hello->env_count; i++) {
        size_t length = strlen(hello->env[i]);
        if (variable_allowed(hello->env[i]) && used + length + 2 < sizeof guest->key - 16) {
            memcpy(guest->key + used, hello->env[i], length);
            used += length;
            guest->key[used++] = '\n';
        }
    }
    if (hello->slot != TOW_SLOT_NONE && hello->slot > 0 && hello->slot < 16) {
        used +=
            (size_t)snprintf(guest->key + used, sizeof guest->key - used, "slot=%u\n", hello->slot);
    }
    guest->key[used] = '\0';
}

/* Whether a preface is a HELLO frame from end to end. */
static bool is_hello(const struct tow_preface *preface, struct tow_frame *ret_frame)
{
    char ignored[TOW_WHY_MAX];
    return tow_handshake_sniff(TOW_SIDE_SERVER, preface->bytes, preface->size, "", ignored,
                               sizeof ignored) == 0 &&
           tow_frame_read(preface->bytes, ret_frame) == 0 && ret_frame->kind == TOW_CONTROL_HELLO &&
           ret_frame->length == preface->size;
}

/* A request for shared memory shows the hello, which tells which worker will do. That one gets it
 * once more and judges it: a HELLO that cannot be read here is no reason to go. */
static void look_at_request(struct tows_guest *guest, const uint8_t *bytes, size_t n)
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
            make_key(guest, &hello);
        }
        become_program(guest, true);
        return;
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s: %s: the connection was closed", guest->peer, why);
    guest->state = TOW_GUEST_GONE;
    if (error == -EPROTONOSUPPORT) {
        guest->shared = true;
        tows_guest_refuse(guest, TOW_REFUSE_PROTOCOL, why);
    }
}

/* Looks at a whole first frame. Returns false while bytes are missing. */
static bool look_at_frame(struct tows_guest *guest, const uint8_t *bytes, size_t n)
{
    struct tow_frame frame;
    tow_frame_read(bytes, &frame);
    if (frame.length > n && n < PEEK_MAX) {
        return false;
    }
    if (frame.kind == TOW_CONTROL_STATUS) {
        struct tow_status status;
        if (frame.length > n || tow_status_decode(bytes, &frame, &status) < 0) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s sent a STATUS that cannot be read",
                    guest->peer);
            guest->state = TOW_GUEST_GONE;
            return true;
        }
        guest->at_hand = (status.topics & TOW_STATUS_AT_HAND) != 0;
        guest->present = (status.topics & TOW_STATUS_PRESENT) != 0;
        move_on(guest, TOW_GUEST_ASKED, ANSWER_NS);
        return true;
    }
    if (frame.kind == TOW_CONTROL_LANE) {
        struct tow_lane lane;
        if (frame.length > n || tow_lane_decode(bytes, &frame, &lane) < 0) {
            guest->state = TOW_GUEST_GONE;
            return true;
        }
        guest->session = lane.session;
        move_on(guest, TOW_GUEST_LANE, ANSWER_NS);
        return true;
    }
    /* A hello that is too long to be seen whole, or wrong, is for the worker to judge. */
    struct tow_hello hello;
    if (frame.length <= n && tow_hello_decode(bytes, &frame, &hello) == 0) {
        make_key(guest, &hello);
    }
    become_program(guest, false);
    return true;
}

static void guest_look(struct tows_guest *guest)
{
    static _Alignas(8) uint8_t bytes[PEEK_MAX];
    ssize_t got = recv(guest->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        guest->partial = false;
        return;
    }
    if (got <= 0) {
        guest->state = TOW_GUEST_GONE;
        return;
    }
    size_t n = (size_t)got;
    guest->partial = true;
    guest->look_ns = tow_time_deadline(PARTIAL_NS);
    if (n >= TOW_SHM_MAGIC_SIZE && memcmp(bytes, TOW_SHM_MAGIC, TOW_SHM_MAGIC_SIZE) == 0) {
        look_at_request(guest, bytes, n);
        return;
    }
    char why[TOW_WHY_MAX];
    int error = tow_handshake_sniff(TOW_SIDE_SERVER, bytes, n, guest->peer, why, sizeof why);
    if (error == -EAGAIN) {
        return;
    }
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s: the connection was closed", why);
        guest->state = TOW_GUEST_GONE;
        return;
    }
    look_at_frame(guest, bytes, n);
}

static void guest_flush(struct tows_guest *guest)
{
    while (guest->sent < guest->out.size) {
        ssize_t n = send(guest->fd, guest->out.data + guest->sent, guest->out.size - guest->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0) {
            guest->state = TOW_GUEST_GONE;
            return;
        }
        guest->sent += (size_t)n;
    }
    /* Closing with the peer's bytes unread would make TCP throw away what we sent. */
    shutdown(guest->fd, SHUT_WR);
    move_on(guest, TOW_GUEST_LEAVING, LEAVE_NS);
}

static void guest_drink(struct tows_guest *guest)
{
    static uint8_t bytes[PEEK_MAX];
    ssize_t n = recv(guest->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        guest->state = TOW_GUEST_GONE;
    }
}

void tows_guest_step(struct tows_guest *guest, short events)
{
    bool again = guest->partial && tow_time_passed(guest->look_ns);
    if (guest->state == TOW_GUEST_STRANGER && (events != 0 || again)) {
        bool ended = (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        guest_look(guest);
        if (ended && guest->state == TOW_GUEST_STRANGER) {
            if (guest->partial) {
                tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                        "%s went before it had said all of its first words", guest->peer);
            }
            guest->state = TOW_GUEST_GONE;
        }
    } else if ((guest->state == TOW_GUEST_PROGRAM || guest->state == TOW_GUEST_ASKED) &&
               events != 0) {
        guest->state = TOW_GUEST_GONE;
    } else if (guest->state == TOW_GUEST_ANSWERED && events != 0) {
        guest_flush(guest);
    } else if (guest->state == TOW_GUEST_LEAVING && events != 0) {
        guest_drink(guest);
    }
    if (guest->state == TOW_GUEST_PROGRAM && tow_time_passed(guest->deadline_ns) &&
        !tow_time_passed(guest->until_ns)) {
        ask_for_patience(guest);
    }
    if (guest->state != TOW_GUEST_GONE && tow_time_passed(guest->deadline_ns)) {
        if (guest->state == TOW_GUEST_STRANGER) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                    "%s said nothing that can be understood for %d s: closed", guest->peer,
                    (int)(STRANGER_NS / TOW_TIME_S));
        }
        if (guest->state == TOW_GUEST_PROGRAM) {
            tows_guest_refuse(guest, TOW_REFUSE_FAILED,
                              "the server could not start a worker in time; look at its log");
        } else {
            guest->state = TOW_GUEST_GONE;
        }
    }
}
