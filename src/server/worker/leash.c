/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that polls the client's connections. */
#include "server/worker/leash.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "transport/silence.h"

/* A living client whose leash was ended for it makes another one at once. */
#define DEAD_NS (500 * TOW_TIME_MS)
/* A client that is cut off before it had a leash: it may as well have ended. */
#define YOUNG_NS (5 * TOW_TIME_S)

static struct {
    struct tow_mutex lock; /* guards the four below */
    int renewed, taken;    /* owned: connections that the thread has not seen yet; -1: none */
    bool released;
    int64_t limit_ns; /* 0: the line does not last */
    int event;        /* owned: something changed */
} news = {.lock = TOW_MUTEX(SERVER_LEASH), .renewed = -1, .taken = -1, .event = -1};

/* The thread's own. Times are of the clock that goes on while the machine sleeps; 0: it was not. */
static struct {
    struct tows_leash_setup setup;
    int fd, leash; /* owned; -1: it has ended */
    bool held;     /* there was a leash */
    bool released;
    int64_t limit_ns;
    int64_t ended_ns, dead_ns; /* the connection has ended, the leash says that the client has */
    int64_t gone_ns;           /* the session was told so */
    struct tow_silence silence;
} watch;

static int64_t boot_now_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * TOW_TIME_S + now.tv_nsec;
}

/* ---- news for the thread ---- */

static void leash_wake(void)
{
    const uint64_t one = 1;
    if (write(news.event, &one, sizeof one) < 0) {
        return; /* it is awake already */
    }
}

static void leash_put(int *place, int fd)
{
    tow_mutex_lock(&news.lock);
    if (*place >= 0) {
        close(*place);
    }
    *place = fd;
    tow_mutex_unlock(&news.lock);
    leash_wake();
}

void tows_leash_renew(int fd)
{
    leash_put(&news.renewed, fd);
}

void tows_leash_take(int fd)
{
    leash_put(&news.taken, fd);
}

void tows_leash_last(int64_t limit_ns)
{
    tow_mutex_lock(&news.lock);
    news.limit_ns = limit_ns;
    tow_mutex_unlock(&news.lock);
    leash_wake();
}

void tows_leash_release(void)
{
    tow_mutex_lock(&news.lock);
    news.released = true;
    tow_mutex_unlock(&news.lock);
    leash_wake();
}

static void replace_fd(int *fd, int *by)
{
    if (*by >= 0) {
        if (*fd >= 0) {
            close(*fd);
        }
        *fd = *by;
        *by = -1;
    }
}

static void take_news(void)
{
    uint64_t count;
    bool renewed, taken;
    if (read(news.event, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR) {
        return;
    }
    tow_mutex_lock(&news.lock);
    renewed = news.renewed >= 0;
    taken = news.taken >= 0;
    replace_fd(&watch.fd, &news.renewed);
    replace_fd(&watch.leash, &news.taken);
    watch.limit_ns = news.limit_ns;
    watch.released = news.released;
    tow_mutex_unlock(&news.lock);
    if (renewed) {
        watch.ended_ns = 0;
        watch.silence = (struct tow_silence){0};
        atomic_store(&watch.setup.stats->detached_ns, 0);
    }
    if (taken) {
        watch.held = true;
        watch.dead_ns = 0;
    }
}

/* ---- what the thread sees ---- */

static void connection_ended(void)
{
    close(watch.fd);
    watch.fd = -1;
    watch.ended_ns = boot_now_ns();
    if (watch.limit_ns > 0) {
        atomic_store(&watch.setup.stats->detached_ns, tow_time_now_ns());
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the client's connection was cut");
    }
}

/* By RST. A program that is killed as soon as it has asked for the leash sends that before the
 * answer: then the answer was told of it, and the socket is only closed. */
static bool was_reset(int fd)
{
    int why = 0;
    struct tcp_info info;
    socklen_t size = sizeof why, info_size = sizeof info;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) != 0 || why != 0) {
        return why == ECONNRESET;
    }
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_size) == 0 &&
           info.tcpi_state == TCP_CLOSE;
}

static void leash_ended(void)
{
    if (was_reset(watch.leash)) {
        watch.dead_ns = boot_now_ns();
    }
    close(watch.leash);
    watch.leash = -1;
}

/* When the client is not waited for any more; 0: it is here. */
static int64_t wait_until(void)
{
    if (watch.released) {
        return 1;
    }
    if (watch.ended_ns == 0) {
        return 0;
    }
    if (watch.limit_ns == 0) {
        return 1;
    }
    int64_t limit_ns = !watch.held && watch.limit_ns > YOUNG_NS ? YOUNG_NS : watch.limit_ns;
    int64_t until = watch.ended_ns + limit_ns;
    int64_t dead = watch.dead_ns == 0 ? until : watch.dead_ns + DEAD_NS;
    return dead < until ? dead : until;
}

/* How long to sleep; -1: until something happens. */
static int64_t next_ns(void)
{
    int64_t now = boot_now_ns(), until = wait_until(), next = -1;
    if (watch.gone_ns != 0) {
        next = watch.gone_ns + watch.setup.grace_ns - now;
    } else if (until != 0) {
        next = until - now;
    } else if (watch.setup.network && watch.setup.silence_ns > 0) {
        return watch.setup.silence_ns / TOW_SILENCE_LOOKS;
    }
    return next < 0 && (watch.gone_ns != 0 || until != 0) ? 0 : next;
}

static void see_times(void)
{
    int64_t now = boot_now_ns(), until = wait_until();
    if (watch.gone_ns == 0 && until != 0 && now >= until) {
        watch.gone_ns = now;
        if (!watch.released) {
            watch.setup.gone();
        }
    } else if (watch.gone_ns != 0 && now >= watch.gone_ns + watch.setup.grace_ns) {
        watch.setup.give_up(false);
    }
}

static void *watch_run(void *arg)
{
    struct tows_leash_setup *setup = arg;
    for (;;) {
        see_times();
        struct pollfd watched[] = {{.fd = watch.fd, .events = POLLRDHUP},
                                   {.fd = setup->control, .events = POLLRDHUP},
                                   {.fd = news.event, .events = POLLIN},
                                   {.fd = watch.leash, .events = POLLRDHUP}};
        int64_t sleep_ns = next_ns();
        struct timespec time = {.tv_sec = sleep_ns / TOW_TIME_S, .tv_nsec = sleep_ns % TOW_TIME_S};
        int ready = ppoll(watched, 4, sleep_ns < 0 ? NULL : &time, NULL);
        if (ready <= 0) {
            /* Who serves the session may stand in the driver, and look at nothing. */
            if (watch.fd >= 0 && setup->network &&
                tow_silence_look(&watch.silence, watch.fd, setup->silence_ns, ready < 0)) {
                tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                        "the client's machine has said nothing for too long");
                shutdown(watch.fd, SHUT_RDWR);
            }
            continue;
        }
        if (watched[1].revents != 0) {
            setup->dismiss();
            tow_time_sleep(setup->grace_ns);
            setup->give_up(true);
        }
        if (watched[3].revents != 0) {
            leash_ended();
        }
        if (watched[0].revents != 0) {
            connection_ended();
        }
        if (watched[2].revents != 0) {
            take_news(); /* behind the others: what is new has not ended */
        }
    }
    return NULL;
}

int tows_leash_start(const struct tows_leash_setup *setup)
{
    pthread_t thread;
    watch.setup = *setup;
    watch.leash = -1;
    watch.fd = dup(setup->fd);
    news.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = watch.fd < 0 || news.event < 0
                    ? -errno
                    : tow_thread_start("tow-watch", watch_run, &watch.setup, &thread);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}
