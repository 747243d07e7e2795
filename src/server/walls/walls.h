/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker gives up before it hears of a client: docs/security.md says what for.
 *
 * A wall that this kernel does not have is left out, and the listener's log says so once. `walls =
 * 0` leaves all of them out, for somebody who looks for a fault.
 */
#ifndef TOW_SERVER_WALLS_H
#define TOW_SERVER_WALLS_H

#include "server/config/config.h"

enum { TOW_WALLS_ENVIRONMENT_MAX = 256 };

/* Other processes of this one's user cannot read or write its memory, trace it or take its
 * descriptors: only root can. A child that shows itself again owns its files in /proc. */
void tows_walls_hide(void);
void tows_walls_show(void);

/* A build whose processes must stay dumpable, since a sanitizer looks into them. */
bool tows_walls_sanitized(void);

/* The listener, once it serves: says which walls its workers do not have. `owner`: the server's
 * user, who has them unless tenants have some. */
void tows_walls_tell(const struct tows_config *config, uid_t owner);

/* The parent of a listener that is another user's: what is left is the right to change users, to
 * signal and to slow down processes of all users. */
void tows_walls_raise_parent(void);
/* That listener: nothing is left. Below 0 it must not hear anybody. */
int tows_walls_raise_listener(uint32_t user, uint32_t group);

/* The child between fork and exec: every descriptor from `first` on is closed by exec. */
void tows_walls_close_from(int first);

/* The same for a child without an exec: they are closed at once. */
void tows_walls_close_now(int first);

/* What of the listener's environment a worker gets: pointers into `environment`, ended by NULL. */
void tows_walls_environment(char *const *environment,
                            char *ret_kept[TOW_WALLS_ENVIRONMENT_MAX + 1]);

/* The listener that is not root's: of this process's environment it keeps what a worker gets, and
 * what names places of systemd and of users. The bytes of all else are gone. */
void tows_walls_forget_environment(void);

/* The worker, before it opens a driver and while it has one thread. `code_cache`: see
 * tows_worker_code_cache. */
void tows_walls_raise(const struct tows_config *config, const char *code_cache);

/* The same for a process that opens no file any more. */
void tows_walls_raise_bare(const struct tows_config *config);

/* The listener, before it starts a worker: takes `tenant_users` away where workers cannot change
 * their user, and says why. */
void tows_walls_choose_users(struct tows_config *config);

/* The worker, when its tenant is known, with the number that the listener chose; 0: it keeps the
 * server's user. Below 0 it must not hear its client. */
int tows_walls_become(const struct tows_config *config, uint32_t user, const char *tenant);

/* Then, before it hears its client: all its threads lose the system calls that are not in
 * syscalls.def. Returns a descriptor for the listener (refused.h), which this
 * process must not keep: who has it could let itself pass. -1: there is none. */
int tows_walls_finish(const struct tows_config *config, bool accepts);

#endif
