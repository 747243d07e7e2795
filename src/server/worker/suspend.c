/* SPDX-License-Identifier: Apache-2.0 */
/* A thread for each order. */
#include "server/worker/suspend.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/run/suspend.h"
#include "server/session/session.h"
#include "server/worker/worker_msg.h"

struct order {
    struct tows_session *session; /* borrowed */
    bool out;
    int64_t limit_ns;
    char by[128];
};

static _Atomic uint32_t phase; /* enum tows_phase */
static atomic_int memory = -1; /* owned: what the GPU's memory held, while it is put out */

/* Nobody waits for it longer than the listener lives. */
static void suspend_answer(int error, const char *why)
{
    struct tows_worker_msg head = {.what = TOW_WORKER_MSG_SUSPENDED,
                                   .failed = error < 0 ? 1 : 0,
                                   .text_size = error < 0 ? (uint32_t)strlen(why) : 0};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)why, head.text_size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    while (sendmsg(TOW_WORKER_MSG_FD, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
}

static int put_out(const struct order *order, char *why, size_t size)
{
    uint64_t bytes = 0;
    int file = memfd_create("towline-suspend", MFD_CLOEXEC);
    if (file < 0) {
        snprintf(why, size, "there is nowhere to keep its memory: %s", strerror(errno));
        return -EMFILE;
    }
    int error =
        tows_suspend_out(order->session, order->limit_ns, file, order->by, &bytes, why, size);
    if (error < 0) {
        close(file);
    } else {
        atomic_store(&memory, file);
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "suspended: %.1f MiB of GPU memory are put out",
                (double)bytes / (1 << 20));
    }
    return error;
}

static int take_in(const struct order *order, char *why, size_t size)
{
    int file = atomic_exchange(&memory, -1);
    int error = tows_suspend_in(order->session, file, why, size);
    close(file);
    if (error == 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "resumed");
    }
    return error;
}

static void *suspend_run(void *arg)
{
    struct order *order = arg;
    char why[256] = "";
    int error = order->out ? put_out(order, why, sizeof why) : take_in(order, why, sizeof why);
    atomic_store(&phase, order->out && error == 0 ? TOW_PHASE_OUT : TOW_PHASE_IN);
    suspend_answer(error, why);
    if (error == -EIO) {
        tows_suspend_lose(order->session, why);
    }
    free(order);
    return NULL;
}

void tows_worker_suspend(struct tows_session *session, const struct tows_worker_msg *msg)
{
    pthread_t thread;
    if (session == NULL) {
        suspend_answer(-EAGAIN, "its program has just come; try again");
        return;
    }
    struct order *order = calloc(1, sizeof *order);
    if (order == NULL) {
        suspend_answer(-ENOMEM, "its worker has no memory");
        return;
    }
    order->session = session;
    order->out = msg->what == TOW_WORKER_MSG_SUSPEND;
    order->limit_ns = (int64_t)msg->limit_ms * TOW_TIME_MS;
    snprintf(order->by, sizeof order->by, "%.*s", (int)sizeof msg->peer - 1, msg->peer);
    uint32_t before = atomic_exchange(&phase, order->out ? TOW_PHASE_LEAVES : TOW_PHASE_RETURNS);
    int error = tow_thread_start("tow-suspend", suspend_run, order, &thread);
    if (error < 0) {
        atomic_store(&phase, before);
        free(order);
        suspend_answer(error, "its worker can start no thread");
    } else {
        pthread_detach(thread);
    }
}

uint32_t tows_worker_suspend_phase(void)
{
    return atomic_load(&phase);
}
