/* SPDX-License-Identifier: Apache-2.0 */
/* A control group (cgroup v2) for each worker, where the kernel has them and this server may make
 * them: what a worker that was taken over says of itself does not count there.
 *
 * The group that the server was started in gets a folder for the listener and its helpers,
 * listener-P, and one for each worker, worker-P-N; P is the process that was started. A group with
 * children that are limited may have no processes of its own, so the listener moves. Only the
 * listener's one thread calls this.
 */
#ifndef TOW_SERVER_CGROUP_H
#define TOW_SERVER_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tows_config;

enum { TOW_CGROUP_STAYS_MAX = 64 }; /* groups that were not empty yet when their worker had gone */

struct tows_cgroups {
    bool on;    /* workers have groups: what is below holds */
    bool cpu;   /* they share processors, too */
    int folder; /* owned: of the group that the server was started in */
    pid_t listener;
    char enabled[32]; /* controllers that this server has switched on there: "-memory -pids" */
    unsigned next;    /* number of the next worker's group */
    unsigned stays[TOW_CGROUP_STAYS_MAX];
    unsigned stay_count;
    struct tows_cgroup_other *others; /* owned */
};

/* A group that a server before has made, and that has a number here. */
struct tows_cgroup_other {
    struct tows_cgroup_other *next;
    unsigned number, theirs;
    pid_t listener; /* theirs */
};

/* Once, before the first worker and all helpers: moves the listener. `ret_said` is a line for the
 * log, of a server that serves: whether workers have groups, or what is missing; "": neither. */
void tows_cgroups_open(struct tows_cgroups *groups, const struct tows_config *config,
                       char *ret_said, size_t size);
/* The same for the group at `path`: 0, or an error with a sentence without an end. */
int tows_cgroups_open_at(struct tows_cgroups *groups, const char *path, char *why, size_t size);
/* The tree is as it was, but for groups of workers that outlive the server, without their limits:
 * with these nobody could start the next one there. */
void tows_cgroups_close(struct tows_cgroups *groups);

/* A group for a worker that is to start: its number. 0: it gets none, and nothing below does
 * anything for it. */
unsigned tows_cgroup_make(struct tows_cgroups *groups);
/* The group that a server before has made for its worker `pid`: its number here; 0: none. */
unsigned tows_cgroup_find(struct tows_cgroups *groups, pid_t pid);
/* The child between fork and exec: goes into it. */
void tows_cgroup_enter(const struct tows_cgroups *groups, unsigned number);
/* The most that its worker may have from now on: bytes of memory, threads. */
void tows_cgroup_limit(const struct tows_cgroups *groups, unsigned number, uint64_t memory,
                       uint64_t threads);
/* Its part of the processors, where 100 is an ordinary one. False: it has none of its own. */
bool tows_cgroup_weigh(const struct tows_cgroups *groups, unsigned number, unsigned weight);
/* Whether the kernel has killed its worker because it wanted more memory than it may have. */
bool tows_cgroup_was_full(const struct tows_cgroups *groups, unsigned number);
/* Its worker is gone. */
void tows_cgroup_remove(struct tows_cgroups *groups, unsigned number);

/* The memory.max of a session's group. What it may hold (session-memory) and a quarter more, 64 MiB
 * at least: the kernel counts page tables, buffers of sockets and files in memory, too. Memory of a
 * software GPU, or what a driver may lock for copies (TOW_PINNED_TOTAL). And what all sessions may
 * hold if its program is on this machine: what that lends to the GPU is counted as the worker's. */
uint64_t tows_cgroup_memory(const struct tows_config *config, uint64_t own, bool soft, bool local);
/* Its pids.max: session-threads, and those of the driver or the software GPU. */
uint64_t tows_cgroup_threads(const struct tows_config *config);

#endif
