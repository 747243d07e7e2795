/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the processes of workers, signals and limits them, and learns how they ended.
 *
 * All that takes rights over workers is here, and who accepts connections uses nothing else for it:
 * it names a process by the number that it was given at the start, never by one of the kernel's.
 * A listener that has no rights of its own has a line to its parent, which has a starter with them
 * (parent.h): then each of these asks there. Only one thread calls this.
 */
#ifndef TOW_SERVER_STARTER_H
#define TOW_SERVER_STARTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "server/config/config.h"
#include "server/pool/cgroup.h"
#include "server/pool/parent_line.h"

/* What a client's environment asks of its worker: "" for the ordinary one, else one NAME=VALUE per
 * line. A worker serves only a client that asks for the same. */
enum { TOW_WORKER_KEY_MAX = 1024 };

struct tows_started; /* a process that has not been reaped */

struct tows_starter {
    const struct tows_config *config; /* borrowed */
    struct tows_cgroups groups;       /* of workers, where they have some */
    int watch;                        /* owned: readable when one of `taken` has ended; else -1 */
    struct rlimit files;              /* how many descriptors a worker may have */
    struct tows_started *started;     /* owned */
    unsigned count, taken;            /* of them; and of those that another server has started */
    uint64_t next;                    /* number of the next process; none has 0 */
    /* Whether another server's process may be taken over; NULL: each. */
    bool (*may_take)(const struct tows_config *config, pid_t pid);
    struct tows_parent_line *line; /* borrowed: to who does all this; NULL: this process does */
};

void tows_starter_init(struct tows_starter *starter, const struct tows_config *config);
/* Forgets processes that were not reaped. */
void tows_starter_fini(struct tows_starter *starter);

/* How many descriptors a worker may have. */
struct rlimit tows_starter_files(const struct tows_starter *starter);

/* What a worker and who has it started share: the caller's, who closes both. */
struct tows_shared {
    int control; /* the other end of its control socket */
    int stats;   /* a tows_session_stats in memory whose size nobody can change */
};

/* Starts a worker, which may write `lines` to the log at first. 0 with its number and process, or
 * -Exxx. */
int tows_starter_start(struct tows_starter *starter, const char *key, uint32_t lines,
                       struct tows_shared *ret_shared, uint64_t *ret_number, pid_t *ret_pid);

/* Where there is a line: the same for the process that shakes hands (shaker.h), with the other end
 * of its control socket; with a sentence. */
int tows_starter_shaker(struct tows_starter *starter, int *ret_control, uint64_t *ret_number,
                        char *why, size_t why_size);
/* The same for the process that answers over HTTP (web_host.h). */
int tows_starter_web(struct tows_starter *starter, int *ret_control, uint64_t *ret_number);
/* Where there is none: a child of this process is one of those that were started from now on. */
int tows_starter_adopt(struct tows_starter *starter, pid_t pid, uint64_t *ret_number);

/* A process that another server has started, and that began then (machine.h): it is one of these
 * from now on. -ESRCH: it has ended; -EPERM: it may not be taken; -EEXIST: it was. */
int tows_starter_take(struct tows_starter *starter, pid_t pid, uint64_t born, uint64_t *ret_number);

/* The nice value of workers that yield to nobody. */
int tows_starter_nice(const struct tows_starter *starter);

/* SIGKILL or SIGCONT, for a process that was started here and has not been reaped. */
int tows_starter_signal(struct tows_starter *starter, uint64_t number, int signal);
/* SIGKILL for all that were started here. */
void tows_starter_kill(const struct tows_starter *starter);
/* The most that it may have from now on, where it has a control group: bytes of memory, threads. */
int tows_starter_limit(struct tows_starter *starter, uint64_t number, uint64_t memory,
                       uint64_t threads);
/* Its part of the processors, where 100 is an ordinary one. False: it has none of its own. */
bool tows_starter_weigh(struct tows_starter *starter, uint64_t number, unsigned weight);
/* All its threads get this nice value: less time, never more than this process has. */
int tows_starter_yield(struct tows_starter *starter, uint64_t number, int nice);

struct tows_ended {
    uint64_t number; /* 0: another child of this process */
    pid_t pid;
    int status;   /* as waitpid has it */
    bool unknown; /* it was no child of this process, and nobody knows the status */
    bool full;    /* the kernel has killed it for the memory of its control group */
};

/* What has ended: 1, or 0 when there is nothing more (SIGCHLD says when there is). */
int tows_starter_reap(struct tows_starter *starter, struct tows_ended *ret_ended);

#endif
