/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives bytes with descriptors over unix sockets. */
#include "base/clock.h"
#include "transport/sock.h"
#include "transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union fds_control {
    char bytes[CMSG_SPACE(TOW_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

/* How many bytes went, and with them the descriptors. */
static ssize_t send_once(int sock, const void *bytes, size_t n, const int *fds, int count,
                         int flags)
{
    if (n == 0 || count < 0 || count > TOW_FDS_MAX) {
        return -EINVAL;
    }
    union fds_control control;
    memset(&control, 0, sizeof control);
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(sock, &message, MSG_NOSIGNAL | flags);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

int tow_fds_try_send(int sock, const void *bytes, size_t n, const int *fds, int count)
{
    ssize_t sent = send_once(sock, bytes, n, fds, count, MSG_DONTWAIT);
    return sent < 0 ? (int)sent : (size_t)sent < n ? -EAGAIN : 0;
}

int tow_fds_send(int sock, const void *bytes, size_t n, const int *fds, int count)
{
    ssize_t sent = send_once(sock, bytes, n, fds, count, 0);
    if (sent < 0) {
        return (int)sent;
    }
    /* The descriptors went with the first byte; the rest is plain. */
    if ((size_t)sent < n) {
        return tow_sock_send_all(sock, (const uint8_t *)bytes + sent, n - (size_t)sent,
                                 TOW_TIME_FOREVER);
    }
    return 0;
}

int tow_fds_recv(int sock, void *bytes, size_t n, int64_t deadline_ns, int *ret_fds, int max,
                 int *ret_count)
{
    union fds_control control;
    struct iovec iov = {.iov_base = bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got;
    for (;;) {
        int error = tow_sock_poll(sock, POLLIN, deadline_ns);
        if (error < 0) {
            return error;
        }
        got = recvmsg(sock, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got >= 0) {
            break;
        }
        if (errno != EINTR && errno != EAGAIN) {
            return -errno;
        }
    }
    int fds[TOW_FDS_MAX + 1];
    int count = 0;
    int error = got == 0 ? -ECONNRESET : 0;
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        error = -EPROTO;
    }
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head != NULL;
         head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (count < max && count < TOW_FDS_MAX) {
                fds[count++] = fd;
            } else {
                close(fd);
                error = -EPROTO;
            }
        }
    }
    if (error == 0 && (size_t)got < n) {
        error = tow_sock_recv_all(sock, (uint8_t *)bytes + got, n - (size_t)got, deadline_ns);
    }
    if (error < 0) {
        for (int i = 0; i < count; i++) {
            close(fds[i]);
        }
        return error;
    }
    memcpy(ret_fds, fds, (size_t)count * sizeof *fds);
    *ret_count = count;
    return 0;
}
