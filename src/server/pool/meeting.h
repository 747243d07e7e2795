/* SPDX-License-Identifier: Apache-2.0 */
/* The folder where a server that is started again finds the sessions of the one before
 * (restart-dir). For each there is a socket, on which its worker listens, and a record of what only
 * the listener knows: a worker may be in its client's hands, and is not asked whose it is.
 *
 * One server has the folder, by a lock. Only the listener's one thread calls this.
 */
#ifndef TOW_SERVER_MEETING_H
#define TOW_SERVER_MEETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/login/policy.h"
#include "server/login/who.h"
#include "server/pool/starter.h"
#include "wire/control.h"
#include "wire/login.h"

struct sockaddr_un;
struct tows_config;
struct tows_worker;
struct tows_worker_msg;
struct tows_worker_pool;

struct tows_meeting {
    int folder;    /* owned; -1: there is none, and sessions end with this server */
    int lock;      /* owned: the file, which holds the number of the next session as well */
    uint64_t next; /* that number */
    bool failed;   /* the log has said that a session cannot be kept */
};

/* A file of it. The first five never change, so that every version can read them. */
struct tows_meeting_record {
    uint64_t magic;
    uint32_t version, pid;
    uint64_t layout;
    uint64_t born; /* of the process, as the kernel counts: another one may have its number */
    uint64_t session;

    uint64_t size; /* of all this */
    struct tows_who who, origin;
    struct tows_limits limits;
    struct tow_login_keys secret;
    struct tow_grant grant;
    uint32_t lasting, granted, user, suspend; /* 1: it may be suspended; 2: swapped */
    int64_t since_ns, began_ns, waited_ns;
    char peer[128], key[TOW_WORKER_KEY_MAX], by[96];
};

enum { TOW_MEETING_NAME = 32 };
/* The name of a session's file, with ".record" or ".socket"; the address of the latter, by the
 * folder's descriptor: its own path may be too long. Removes both. */
const char *tows_meeting_name(uint64_t session, const char *kind, char ret_name[TOW_MEETING_NAME]);
void tows_meeting_address(const struct tows_meeting *meeting, uint64_t session,
                          struct sockaddr_un *ret_address);
void tows_meeting_remove(const struct tows_meeting *meeting, uint64_t session);

/* Takes the folder that the settings name, if they do. `group`: it is for this process's children
 * that have this group, and for nobody else; 0: for this user. -Exxx with a sentence. */
int tows_meeting_open(struct tows_meeting *meeting, const struct tows_config *config,
                      uint32_t group, char *why, size_t why_size);
void tows_meeting_close(struct tows_meeting *meeting);

/* A worker that another listener has started (fetch.h) has answered, with the descriptors of HERE,
 * of which it takes what it needs. */
void tows_meeting_hear(struct tows_worker_pool *pool, struct tows_worker *worker,
                       const struct tows_worker_msg *msg, int fds[2]);

/* The next session has this number: no other one ever gets it, also of the next server. */
void tows_meeting_number(struct tows_meeting *meeting, uint64_t session);
/* A session, all of whose facts are known, is about to be given to its worker. The socket, which is
 * the caller's; -1: it ends with this server. */
int tows_meeting_begin(struct tows_worker_pool *pool, struct tows_worker *worker);
/* Its facts have changed. */
void tows_meeting_renew(struct tows_worker_pool *pool, struct tows_worker *worker);
/* It has ended. */
void tows_meeting_end(struct tows_worker_pool *pool, const struct tows_worker *worker);

#endif
