/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a few frames. */
#include "server/web/asker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/transport.h"

#define ASK_NS (4 * TOW_TIME_S)

struct asker {
    int fd; /* owned */
    int64_t deadline_ns;
    struct tow_buf frame; /* the last that came */
    struct tow_frame head;
};

static int asker_wait(const struct asker *asker, short events)
{
    struct pollfd fd = {.fd = asker->fd, .events = events};
    int64_t left_ms = tow_time_left(asker->deadline_ns) / TOW_TIME_MS;
    int ready = poll(&fd, 1, (int)left_ms);
    return ready > 0 ? 0 : ready == 0 ? -ETIMEDOUT : errno == EINTR ? 0 : -errno;
}

static int asker_say(const struct asker *asker, const void *bytes, size_t n)
{
    /* A few bytes into an empty socket. */
    ssize_t sent = send(asker->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)n ? 0 : sent < 0 ? -errno : -EPIPE;
}

static int asker_fill(const struct asker *asker, uint8_t *at, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(asker->fd, at, n, MSG_DONTWAIT);
        if (got == 0) {
            return -EPIPE;
        }
        if (got > 0) {
            at += got;
            n -= (size_t)got;
            continue;
        }
        int error = errno == EAGAIN || errno == EINTR ? asker_wait(asker, POLLIN) : -errno;
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

static int asker_hear(struct asker *asker)
{
    uint8_t *at;
    tow_buf_clear(&asker->frame);
    int error = tow_buf_extend(&asker->frame, TOW_FRAME_HEADER, &at);
    error = error < 0 ? error : asker_fill(asker, at, TOW_FRAME_HEADER);
    error = error < 0 ? error : tow_frame_read(asker->frame.data, &asker->head);
    if (error == 0 && asker->head.length > TOW_FRAME_HEADER) {
        size_t rest = asker->head.length - TOW_FRAME_HEADER;
        error = tow_buf_extend(&asker->frame, rest, &at);
        error = error < 0 ? error : asker_fill(asker, at, rest);
    }
    return error;
}

/* Answers a CHALLENGE, and says `first` again. 1: it has. */
static int asker_log_in(struct asker *asker, const struct tow_login_token *token, const void *first,
                        size_t first_size)
{
    struct tow_challenge challenge;
    struct tow_login_said said = {.id = token->id};
    struct tow_proof proof = {.id = token->id};
    struct tow_proved proved;
    _Alignas(8) uint8_t bytes[128];
    uint32_t length = 0;
    int error = tow_challenge_decode(asker->frame.data, &asker->head, &challenge);
    if (error == 0 &&
        getrandom(proof.nonce, sizeof proof.nonce, 0) != (ssize_t)sizeof proof.nonce) {
        error = -EIO;
    }
    if (error < 0) {
        return error;
    }
    memcpy(said.server_nonce, challenge.nonce, sizeof challenge.nonce);
    memcpy(said.client_nonce, proof.nonce, sizeof proof.nonce);
    tow_login_first(first, first_size, NULL, said.first);
    tow_login_prove(token, &said, proof.proof);
    error = tow_proof_encode(&proof, bytes, sizeof bytes, &length);
    error = error < 0 ? error : asker_say(asker, bytes, length);
    error = error < 0 ? error : asker_hear(asker);
    if (error < 0 || asker->head.kind == TOW_CONTROL_REFUSE) {
        return error < 0 ? error : 0;
    }
    error = tow_proved_decode(asker->frame.data, &asker->head, &proved);
    if (error == 0 && !tow_login_trusts(token, &said, proved.answer)) {
        error = -EPROTO;
    }
    error = error < 0 ? error : asker_say(asker, first, first_size);
    error = error < 0 ? error : asker_hear(asker);
    return error < 0 ? error : 1;
}

static int asker_take(const struct asker *asker, bool logged_in, struct tow_buf *ret_report,
                      char *why, size_t why_size)
{
    struct tow_report report;
    struct tow_refuse refuse;
    if (tow_report_decode(asker->frame.data, &asker->head, &report) == 0) {
        return tow_buf_append(ret_report, report.text, report.size);
    }
    if (tow_refuse_decode(asker->frame.data, &asker->head, &refuse) == 0) {
        snprintf(why, why_size, "%s", refuse.sentence);
        return refuse.code != TOW_REFUSE_TOKEN ? -EAGAIN : logged_in ? -ENOENT : -EACCES;
    }
    return -EPROTO;
}

int tows_asker_ask(int control, const struct tows_web_ask *ask, const struct tow_login_token *token,
                   const struct tow_status *question, struct tow_buf *ret_report, char *why,
                   size_t why_size)
{
    int pair[2];
    struct tow_status asked = *question;
    _Alignas(8) uint8_t first[64];
    uint32_t length = 0;
    snprintf(why, why_size, "the server does not answer");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return -errno;
    }
    struct asker asker = {.fd = pair[0], .deadline_ns = tow_time_deadline(ASK_NS)};
    tow_buf_init(&asker.frame, TOW_FRAME_MAX);
    asked.topics |= token != NULL ? TOW_STATUS_LOGIN : 0;
    int error = tow_status_encode(&asked, first, sizeof first, &length);
    error = error < 0 ? error : tow_fds_try_send(control, ask, sizeof *ask, &pair[1], 1);
    close(pair[1]);
    error = error < 0 ? error : asker_say(&asker, first, length);
    error = error < 0 ? error : asker_hear(&asker);
    bool logged_in = false;
    if (error == 0 && token != NULL && asker.head.kind == TOW_CONTROL_CHALLENGE) {
        error = asker_log_in(&asker, token, first, length);
        logged_in = error > 0;
        error = error < 0 ? error : 0;
    }
    error = error < 0 ? error : asker_take(&asker, logged_in, ret_report, why, why_size);
    close(asker.fd);
    tow_buf_fini(&asker.frame);
    return error;
}
