/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and removes records, makes the sockets of workers, and takes their answers. */
#include "server/pool/meeting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/config/config.h"
#include "server/pool/machine.h"
#include "server/pool/worker_pool.h"
#include "server/worker/rejoin_msg.h"
#include "server/worker/worker_msg.h"

const char *tows_meeting_name(uint64_t session, const char *kind, char ret_name[TOW_MEETING_NAME])
{
    snprintf(ret_name, TOW_MEETING_NAME, "%" PRIu64 "%s", session, kind);
    return ret_name;
}

void tows_meeting_remove(const struct tows_meeting *meeting, uint64_t session)
{
    char name[TOW_MEETING_NAME];
    unlinkat(meeting->folder, tows_meeting_name(session, ".record", name), 0);
    unlinkat(meeting->folder, tows_meeting_name(session, ".socket", name), 0);
}

/* By the folder's descriptor: its own path may be too long. */
void tows_meeting_address(const struct tows_meeting *meeting, uint64_t session,
                          struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ret_address->sun_path, sizeof ret_address->sun_path,
             "/proc/self/fd/%d/%" PRIu64 ".socket", meeting->folder, session);
}

/* ---- the folder ---- */

/* Who owns a folder may give it to a group that he is in: no other right is needed. */
static int give_folder(int folder, uint32_t group)
{
    gid_t own = getegid();
    int error =
        setegid(group) != 0 || fchown(folder, (uid_t)-1, group) != 0 || fchmod(folder, 0770) != 0
            ? -errno
            : 0;
    if (setegid(own) != 0) {
        _exit(1);
    }
    return error;
}

static int open_folder(const char *path, uint32_t group, char *why, size_t why_size)
{
    struct stat status;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        int error = -errno;
        snprintf(why, why_size, "restart-dir: %s cannot be made: %s", path, strerror(-error));
        return error;
    }
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 || fstat(folder, &status) != 0) {
        int error = -errno;
        snprintf(why, why_size, "restart-dir: %s: %s", path, strerror(-error));
        return error;
    }
    const bool given = group != 0 && status.st_gid == group && (status.st_mode & 0777) == 0770;
    if (status.st_uid != geteuid() || ((status.st_mode & 077) != 0 && !given)) {
        snprintf(why, why_size,
                 "restart-dir: %s must be this server's user's, and open to nobody else (0700)",
                 path);
        close(folder);
        return -EPERM;
    }
    int error = group == 0 || given ? 0 : give_folder(folder, group);
    if (error < 0) {
        snprintf(why, why_size, "restart-dir: %s cannot be given to the group %u: %s", path, group,
                 strerror(-error));
        close(folder);
        return error;
    }
    return folder;
}

/* A lock that no child inherits, and that ends with this process. */
static int take_lock(int folder, const char *path, char *why, size_t why_size)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0) {
        return fd;
    }
    int error = -errno;
    bool taken = fd >= 0 && (error == -EACCES || error == -EAGAIN);
    if (taken) {
        snprintf(why, why_size, "restart-dir: another towlined has %s", path);
    } else {
        snprintf(why, why_size, "restart-dir: %s/lock: %s", path, strerror(-error));
    }
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

int tows_meeting_open(struct tows_meeting *meeting, const struct tows_config *config,
                      uint32_t group, char *why, size_t why_size)
{
    *meeting = (struct tows_meeting){.folder = -1, .lock = -1};
    if (config->restart_dir[0] == '\0') {
        return 0;
    }
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (process < 0) {
        snprintf(why, why_size, "restart-dir needs descriptors of processes (Linux 5.3): %s",
                 strerror(errno));
        return -ENOSYS;
    }
    close(process);
    int folder = open_folder(config->restart_dir, group, why, why_size);
    int lock = folder < 0 ? folder : take_lock(folder, config->restart_dir, why, why_size);
    if (lock < 0) {
        if (folder >= 0) {
            close(folder);
        }
        return lock;
    }
    *meeting = (struct tows_meeting){.folder = folder, .lock = lock};
    return 0;
}

void tows_meeting_close(struct tows_meeting *meeting)
{
    if (meeting->folder >= 0) {
        close(meeting->folder);
        close(meeting->lock);
    }
    *meeting = (struct tows_meeting){.folder = -1, .lock = -1};
}

/* ---- a session's record ---- */

static int write_record(const struct tows_meeting *meeting,
                        const struct tows_meeting_record *record)
{
    char name[TOW_MEETING_NAME], fresh[TOW_MEETING_NAME];
    tows_meeting_name(record->session, ".record", name);
    tows_meeting_name(record->session, ".new", fresh);
    int fd =
        openat(meeting->folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = fd < 0 ? -errno : tow_file_write_all(fd, record, sizeof *record);
    if (fd >= 0) {
        close(fd);
    }
    if (error == 0 && renameat(meeting->folder, fresh, meeting->folder, name) != 0) {
        error = -errno;
    }
    if (error < 0) {
        unlinkat(meeting->folder, fresh, 0);
    }
    return error;
}

static int record_session(const struct tows_meeting *meeting, const struct tows_worker *worker)
{
    static struct tows_meeting_record
        record; /* what a struct has between its fields is written, too */
    memset(&record, 0, sizeof record);
    record.magic = TOW_REJOIN_MAGIC;
    record.version = TOW_REJOIN_VERSION;
    record.layout = TOW_REJOIN_LAYOUT;
    record.pid = (uint32_t)worker->pid;
    record.session = worker->session;
    record.size = sizeof record;
    record.who = worker->who;
    record.origin = worker->origin;
    record.limits = worker->limits;
    record.secret = worker->secret;
    record.grant = worker->grant;
    record.lasting = worker->lasting;
    record.granted = worker->granted;
    record.user = worker->user;
    record.suspend = worker->suspend.wanted + (worker->suspend.wanted && worker->suspend.swapped);
    record.since_ns = worker->state == TOW_WORKER_BUSY ? worker->since_ns : tow_time_now_ns();
    record.began_ns = worker->began_ns;
    record.waited_ns = worker->waited_ns;
    memcpy(record.peer, worker->peer, sizeof record.peer);
    memcpy(record.key, worker->key, sizeof record.key);
    memcpy(record.by, worker->suspend.by, sizeof record.by);
    int error = tows_machine_born(worker->pid, &record.born);
    error = error < 0 ? error : write_record(meeting, &record);
    explicit_bzero(&record, sizeof record);
    return error;
}

/* Where its worker listens from now on. */
static int make_place(const struct tows_meeting *meeting, uint64_t session)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    tows_meeting_address(meeting, session, &address);
    unlink(address.sun_path);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(address.sun_path, 0600) != 0 || listen(fd, 4) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

/* Those over tls are numbered long before they are served. */
void tows_meeting_number(struct tows_meeting *meeting, uint64_t session)
{
    const uint64_t next = session + 1;
    if (meeting->folder >= 0 && pwrite(meeting->lock, &next, sizeof next, 0) == sizeof next) {
        meeting->next = next;
    }
}

int tows_meeting_begin(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    struct tows_meeting *meeting = &pool->meeting;
    if (meeting->folder < 0 || pool->config->restart_wait == 0) {
        return -1;
    }
    int error = worker->session < meeting->next ? 0 : -EIO; /* its number is not written down */
    int fd = error < 0 ? error : make_place(meeting, worker->session);
    error = fd < 0 ? fd : record_session(meeting, worker);
    if (error < 0 && !meeting->failed) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "session %" PRIu64 " cannot be kept in restart-dir, and ends with this server: %s",
                worker->session, strerror(-error));
    }
    meeting->failed = error < 0;
    if (error < 0) {
        tows_meeting_remove(meeting, worker->session);
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    worker->kept = true;
    return fd;
}

void tows_meeting_renew(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    if (worker->kept && record_session(&pool->meeting, worker) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "what has changed of session %" PRIu64 " cannot be kept in restart-dir",
                worker->session);
    }
}

void tows_meeting_end(struct tows_worker_pool *pool, const struct tows_worker *worker)
{
    if (worker->kept) {
        tows_meeting_remove(&pool->meeting, worker->session);
    }
}

/* ---- workers of the server before ---- */

/* It must stay as large as it is: whoever can shrink it can end this process. */
static struct tows_session_stats *map_stats(int fd)
{
    struct stat status;
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &status) != 0 ||
        status.st_size != sizeof(struct tows_session_stats)) {
        return NULL;
    }
    void *at =
        mmap(NULL, sizeof(struct tows_session_stats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* What it told the server before of its being suspended, or would have. Only one that was told to
 * be is: its memory does not count then, and a worker may be in its client's hands. */
static void take_phase(struct tows_worker *worker, uint32_t phase)
{
    static const enum tows_suspension phases[] = {
        [TOW_PHASE_IN] = TOW_SUSPENSION_NONE,
        [TOW_PHASE_LEAVES] = TOW_SUSPENSION_BEGINS,
        [TOW_PHASE_OUT] = TOW_SUSPENSION_AWAY,
        [TOW_PHASE_RETURNS] = TOW_SUSPENSION_ENDS,
    };
    if (worker->suspend.wanted && phase < sizeof phases / sizeof *phases) {
        worker->suspend.phase = phases[phase];
        worker->suspend.since_ns = tow_time_now_ns();
    }
}

void tows_meeting_hear(struct tows_worker_pool *pool, struct tows_worker *worker,
                       const struct tows_worker_msg *msg, int fds[2])
{
    struct tows_session_stats *stats = worker->join_ns != 0 ? map_stats(fds[0]) : NULL;
    if (stats == NULL) {
        return; /* it is killed when its time is over */
    }
    munmap(worker->stats, sizeof *worker->stats);
    worker->stats = stats;
    tow_log_give_back(worker->lines); /* for those of the empty ones */
    worker->lines = 0;
    worker->join_ns = 0;
    worker->client = fds[1];
    fds[1] = -1;
    take_phase(worker, msg->line);
    if (worker->end_ns != 0) {
        /* It was told to end before it could be told so. */
        snprintf(stats->farewell, sizeof stats->farewell, "%s", worker->why);
        shutdown(worker->control, SHUT_WR);
        return;
    }
    tows_gates_begin(pool, worker);
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "session %" PRIu64 " goes on: %s, worker %d",
            worker->session, worker->peer, (int)worker->pid);
}
