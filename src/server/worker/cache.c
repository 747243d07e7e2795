/* SPDX-License-Identifier: Apache-2.0 */
/* Gives code images to the listener as sealed memfds, one after the other, and facts as they come.
 */
#include "server/worker/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/worker/worker_msg.h"
#include "transport/transport.h"

/* How long an image may take to be hashed and written. */
#define STORE_NS (10 * TOW_TIME_S)

/* The process has one session. Where the answer to the last image comes; -1: none is awaited. */
static _Atomic int awaited = -1;

static void await_answer(int fd)
{
    struct tows_worker_msg_answer answer;
    int none = -1, count = 0;
    if (fd < 0) {
        return;
    }
    int error =
        tow_fds_recv(fd, &answer, sizeof answer, tow_time_deadline(STORE_NS), &none, 1, &count);
    error = error == 0 ? answer.error : error;
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "an image is not cached: %s", strerror(-error));
    }
    close(fd);
}

void tows_cache_wait(void)
{
    await_answer(atomic_exchange(&awaited, -1));
}

static int cache_memfd(const void *bytes, size_t size)
{
    int fd = memfd_create("towline-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    int error = tow_file_write_all(fd, bytes, size);
    if (error == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
        error = -errno;
    }
    if (error < 0) {
        close(fd);
        return error;
    }
    return fd;
}

/* The driver loads the image while it is written to the disk. */
static int cache_put(const uint8_t hash[TOW_SHA256_SIZE], const void *bytes, size_t size)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_STORE};
    int pair[2];
    tows_cache_wait();
    int fd = cache_memfd(bytes, size);
    if (fd < 0) {
        return fd;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    memcpy(msg.hash, hash, sizeof msg.hash);
    int fds[2] = {pair[1], fd};
    int error = tow_fds_send(TOW_WORKER_MSG_FD, &msg, sizeof msg, fds, 2);
    close(pair[1]);
    close(fd);
    if (error < 0) {
        close(pair[0]);
        return error;
    }
    await_answer(atomic_exchange(&awaited, pair[0])); /* of another thread's image */
    return 0;
}

static void cache_add_facts(const uint8_t hash[TOW_SHA256_SIZE], uint64_t key, const void *bytes,
                            size_t size)
{
    struct tows_worker_msg msg = {
        .what = TOW_WORKER_MSG_FACTS, .key = key, .text_size = (uint32_t)size};
    struct iovec parts[2] = {{&msg, sizeof msg}, {(void *)bytes, size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    memcpy(msg.hash, hash, sizeof msg.hash);
    if (size <= TOW_WORKER_MSG_TEXT_MAX) {
        sendmsg(TOW_WORKER_MSG_FD, &message, MSG_NOSIGNAL);
    }
}

/* One that the listener has no room for is lost. */
static void cache_use(const uint8_t hash[TOW_SHA256_SIZE], uint64_t key)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_USE, .key = key};
    memcpy(msg.hash, hash, sizeof msg.hash);
    send(TOW_WORKER_MSG_FD, &msg, sizeof msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

const struct tows_cache_ops *tows_cache_ops(void)
{
    static const struct tows_cache_ops ops = {cache_put, cache_add_facts, cache_use};
    return &ops;
}
