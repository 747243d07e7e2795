/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records, and tells the workers that they name who serves them now. */
#include "server/pool/fetch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/pool/meeting.h"
#include "server/pool/worker_pool.h"
#include "server/worker/rejoin_msg.h"

#define ANSWER_NS                                                                                  \
    (2 * TOW_TIME_S)              /* how long no client is heard for workers that do not answer    \
                                   */
#define JOIN_NS (30 * TOW_TIME_S) /* after which such a one is killed */

static int read_record(const struct tows_meeting *meeting, const char *name,
                       struct tows_meeting_record *ret_record)
{
    memset(ret_record, 0, sizeof *ret_record);
    int fd = openat(meeting->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ssize_t got = read(fd, ret_record, sizeof *ret_record);
    close(fd);
    char wanted[TOW_MEETING_NAME];
    bool known = got >= (ssize_t)offsetof(struct tows_meeting_record, size) &&
                 ret_record->magic == TOW_REJOIN_MAGIC &&
                 strcmp(tows_meeting_name(ret_record->session, ".record", wanted), name) == 0;
    if (!known) {
        return -EINVAL;
    }
    bool ours = ret_record->version == TOW_REJOIN_VERSION &&
                ret_record->layout == TOW_REJOIN_LAYOUT && got == sizeof *ret_record &&
                ret_record->size == sizeof *ret_record;
    return ours ? 0 : -EPROTO;
}

/* Says it to a worker where that listens: the connection, or -Exxx. */
static int say_to(const struct tows_meeting *meeting, uint64_t session, enum tows_rejoin_what what)
{
    const struct tows_rejoin_msg msg = {.magic = TOW_REJOIN_MAGIC,
                                        .version = TOW_REJOIN_VERSION,
                                        .what = what,
                                        .layout = TOW_REJOIN_LAYOUT,
                                        .session = session};
    struct sockaddr_un address;
    struct ucred who;
    socklen_t size = sizeof who;
    tows_meeting_address(meeting, session, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? -errno : 0;
    if (error == 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        error = -errno;
    }
    /* Whoever made the socket: the server before. */
    if (error == 0 &&
        (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid())) {
        error = -EPERM;
    }
    if (error == 0 && send(fd, &msg, sizeof msg, MSG_NOSIGNAL) != sizeof msg) {
        error = -errno;
    }
    if (error == 0 && fcntl(fd, F_SETFL, 0) != 0) {
        error = -errno;
    }
    if (error < 0 && fd >= 0) {
        close(fd);
    }
    return error < 0 ? error : fd;
}

static void *empty_stats(void)
{
    void *at = mmap(NULL, sizeof(struct tows_session_stats), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static struct tows_worker *worker_of(const struct tows_meeting_record *record)
{
    struct tows_worker *worker = calloc(1, sizeof *worker);
    struct tows_session_stats *stats = empty_stats();
    if (worker == NULL || stats == NULL) {
        free(worker);
        return NULL;
    }
    worker->stats = stats;
    worker->stats->device = -1;
    worker->stats->lasts = record->lasting; /* or its client would be sent away */
    worker->state = TOW_WORKER_BUSY;
    worker->pid = (pid_t)record->pid;
    worker->control = worker->client = worker->refused = -1;
    worker->tells_refused = true; /* none is left of the server before */
    worker->session = record->session;
    worker->who = record->who;
    worker->origin = record->origin;
    worker->limits = record->limits;
    worker->secret = record->secret;
    worker->grant = record->grant;
    worker->lasting = record->lasting != 0;
    worker->granted = record->granted != 0;
    worker->user = record->user;
    worker->suspend.wanted = record->suspend != 0;
    worker->suspend.swapped = record->suspend == 2;
    worker->since_ns = record->since_ns;
    worker->began_ns = record->began_ns;
    worker->waited_ns = record->waited_ns;
    snprintf(worker->peer, sizeof worker->peer, "%s", record->peer);
    snprintf(worker->key, sizeof worker->key, "%s", record->key);
    snprintf(worker->suspend.by, sizeof worker->suspend.by, "%s", record->by);
    worker->kept = true;
    return worker;
}

static void take_session(struct tows_worker_pool *pool, const struct tows_meeting_record *record)
{
    struct tows_worker *worker = worker_of(record);
    if (worker == NULL) {
        return; /* it waits, and ends by itself */
    }
    int error = tows_starter_take(&pool->starter, worker->pid, record->born, &worker->number);
    if (error < 0) {
        if (error != -ESRCH) {
            snprintf(worker->why, sizeof worker->why, "its worker cannot be taken over: %s",
                     strerror(-error));
        }
        tows_worker_pool_lost(pool, worker);
        return;
    }
    worker->next = pool->workers;
    pool->workers = worker;
    worker->control = say_to(&pool->meeting, record->session, TOW_REJOIN_JOIN);
    worker->join_ns = tow_time_deadline(JOIN_NS);
    if (worker->control < 0) {
        error = worker->control;
        worker->control = -1;
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "session %" PRIu64 ": its worker does not listen: %s", record->session,
                strerror(-error));
        worker->join_ns = tow_time_now_ns();
    }
}

/* One that this version cannot read. */
static void send_away(const struct tows_meeting *meeting, const struct tows_meeting_record *record)
{
    int fd = say_to(meeting, record->session, TOW_REJOIN_LEAVE);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
            "session %" PRIu64 " is of another version of this server, which cannot go on with it: "
            "%s",
            record->session, fd >= 0 ? "its program is told so" : "its worker has gone");
    if (fd >= 0) {
        close(fd);
    }
    tows_meeting_remove(meeting, record->session);
}

static void find_one(struct tows_worker_pool *pool, const char *name)
{
    static struct tows_meeting_record record;
    int error = read_record(&pool->meeting, name, &record);
    if (error == 0) {
        take_session(pool, &record);
    } else if (error == -EPROTO) {
        send_away(&pool->meeting, &record);
    } else {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "restart-dir: %s is no record of a session", name);
        unlinkat(pool->meeting.folder, name, 0);
    }
    if (error != -EINVAL && record.session >= pool->next_session) {
        pool->next_session = record.session + 1;
    }
    explicit_bzero(&record, sizeof record);
}

static void await_answers(struct tows_worker_pool *pool)
{
    int64_t deadline = tow_time_deadline(ANSWER_NS);
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        while (worker->join_ns != 0 && worker->control >= 0 && !tow_time_passed(deadline)) {
            struct pollfd answer = {.fd = worker->control, .events = POLLIN};
            int64_t left_ms = tow_time_left(deadline) / TOW_TIME_MS + 1;
            if (poll(&answer, 1, (int)left_ms) > 0) {
                tows_worker_pool_hear(pool, worker);
            }
        }
    }
}

/* A file of a session that had no record yet, or none any more. */
static void remove_left(struct tows_worker_pool *pool, const char *name)
{
    const char *kind = strrchr(name, '.');
    bool socket = kind != NULL && strcmp(kind, ".socket") == 0;
    if ((socket && tows_worker_pool_find(pool, strtoull(name, NULL, 10)) == NULL) ||
        (kind != NULL && strcmp(kind, ".new") == 0)) {
        unlinkat(pool->meeting.folder, name, 0);
    }
}

unsigned tows_fetch_sessions(struct tows_worker_pool *pool)
{
    struct tows_meeting *meeting = &pool->meeting;
    uint64_t next = 0;
    unsigned found = 0;
    int again =
        meeting->folder < 0 ? -1 : openat(meeting->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    if (folder == NULL) {
        return 0;
    }
    if (pread(meeting->lock, &next, sizeof next, 0) == sizeof next && next > pool->next_session) {
        pool->next_session = next;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *kind = strrchr(entry->d_name, '.');
        if (kind != NULL && strcmp(kind, ".record") == 0) {
            find_one(pool, entry->d_name);
        }
    }
    rewinddir(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        remove_left(pool, entry->d_name);
    }
    closedir(folder);
    await_answers(pool);
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        found++;
    }
    if (found > 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "serves %u session%s of the server before on", found,
                found == 1 ? "" : "s");
    }
    return found;
}
