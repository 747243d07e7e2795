/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the parent, one question at a time. */
#include "server/pool/parent_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/transport.h"

void tows_parent_line_init(struct tows_parent_line *line, int fd)
{
    *line = (struct tows_parent_line){.fd = fd};
}

void tows_parent_line_fini(struct tows_parent_line *line)
{
    if (line->fd >= 0) {
        close(line->fd);
    }
    free(line->ended);
    *line = (struct tows_parent_line){.fd = -1};
}

static _Noreturn void line_is_dead(const char *why)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "the process that starts workers is gone: %s", why);
    tow_log_flush(true);
    _exit(1);
}

/* What the kernel has put there is the receiver's, wanted or not. */
static int take_descriptors(struct msghdr *message, int ret_fds[TOW_PARENT_FDS_MAX])
{
    int count = 0;
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(ret_fds, CMSG_DATA(head), (size_t)count * sizeof(int));
    }
    return count;
}

/* 1: something came; 0: nothing is there (MSG_DONTWAIT). */
static int line_receive(const struct tows_parent_line *line, int flags,
                        struct tows_parent_news *ret_news, int ret_fds[TOW_PARENT_FDS_MAX])
{
    union {
        char bytes[CMSG_SPACE(TOW_PARENT_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } fds;
    struct iovec iov = {ret_news, sizeof *ret_news};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &fds, .msg_controllen = sizeof fds};
    ssize_t got;
    do {
        got = recvmsg(line->fd, &message, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) {
        return 0;
    }
    if (got != (ssize_t)sizeof *ret_news) {
        line_is_dead(got < 0 ? strerror(errno) : "it has closed its end");
    }
    for (int i = 0; i < TOW_PARENT_FDS_MAX; i++) {
        ret_fds[i] = -1;
    }
    take_descriptors(&message, ret_fds);
    ret_news->text[sizeof ret_news->text - 1] = '\0';
    return 1;
}

static void line_keep(struct tows_parent_line *line, const struct tows_parent_news *news)
{
    if (news->say == TOW_PARENT_SIGNALS) {
        line->signals |= (uint32_t)news->status;
        return;
    }
    if (news->say != TOW_PARENT_ENDED) {
        return;
    }
    if (line->count == line->room) {
        unsigned room = line->room == 0 ? 16 : 2 * line->room;
        struct tows_parent_news *more = realloc(line->ended, room * sizeof *more);
        if (more == NULL) {
            line_is_dead("no memory is left for what it says"); /* a worker would never be missed */
        }
        line->ended = more;
        line->room = room;
    }
    line->ended[line->count++] = *news;
}

int tows_parent_line_ask(struct tows_parent_line *line, const struct tows_parent_msg *msg,
                         const int *fds, int count, struct tows_parent_news *ret_answer,
                         int ret_fds[TOW_PARENT_FDS_MAX])
{
    int error = tow_fds_send(line->fd, msg, sizeof *msg, fds, count);
    for (int i = 0; i < TOW_PARENT_FDS_MAX; i++) {
        ret_fds[i] = -1;
    }
    if (error == -EPIPE || error == -ECONNRESET) {
        line_is_dead(strerror(-error));
    }
    while (error == 0) {
        line_receive(line, 0, ret_answer, ret_fds);
        if (ret_answer->say == TOW_PARENT_ANSWER) {
            return ret_answer->error;
        }
        line_keep(line, ret_answer);
    }
    return error;
}

void tows_parent_line_hear(struct tows_parent_line *line)
{
    struct tows_parent_news news;
    int fds[TOW_PARENT_FDS_MAX];
    while (line_receive(line, MSG_DONTWAIT, &news, fds) > 0) {
        line_keep(line, &news);
    }
}

bool tows_parent_line_has_news(const struct tows_parent_line *line)
{
    return line->count > 0 || line->signals != 0;
}

int tows_parent_line_next(struct tows_parent_line *line, struct tows_parent_news *ret_ended)
{
    if (line->count == 0) {
        return 0;
    }
    *ret_ended = line->ended[0];
    line->count--;
    memmove(line->ended, line->ended + 1, line->count * sizeof *line->ended);
    return 1;
}

uint32_t tows_parent_line_signals(struct tows_parent_line *line)
{
    uint32_t signals = line->signals;
    line->signals = 0;
    return signals;
}
