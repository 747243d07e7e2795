/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's side of the process that answers over HTTP (server/web): starts it, and takes the
 * connections over which it asks. Only the listener's one thread uses this. */
#ifndef TOW_SERVER_BESIDE_WEB_HOST_H
#define TOW_SERVER_BESIDE_WEB_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/config/config.h"
#include "server/door/pending_conn.h"
#include "server/pool/starter.h"
#include "transport/transport.h"

struct tows_web_host {
    struct tows_starter *starter;        /* borrowed: who starts it */
    const struct tow_listener *listener; /* borrowed: where it accepts; NULL: nowhere */
    int control;                         /* owned: to the process; 0: there is none */
    uint64_t number;                     /* of the process, for the starter */
    int64_t again_ns;                    /* there is none: when another is started */
};

/* Opens the socket for `http`, "PORT" or "HOST:PORT"; NULL if it is not set. With a sentence. */
int tows_web_host_listen(const struct tows_config *config, struct tow_listener **ret_listener,
                         char *why, size_t why_size);

/* "HOST:PORT". */
const char *tows_web_host_place(const struct tow_listener *listener);

/* Forks it: `user` as in tows_shaker_fork. 0 with its process, which waits for the socket that it
 * accepts from. */
int tows_web_host_fork(const struct tows_config *config, uint32_t user, int *ret_control,
                       pid_t *ret_pid);

/* Starts it if there is none and it is to be, and the last one did not begin just now. */
void tows_web_host_tend(struct tows_web_host *host, const struct tows_config *config);
/* When that is to be done next. */
int64_t tows_web_host_moment(const struct tows_web_host *host);
void tows_web_host_stop(struct tows_web_host *host);

/* What to poll; -1: nothing. */
int tows_web_host_fd(const struct tows_web_host *host);
/* The next connection over which it asks; NULL: there is no more now. It may have ended. */
struct tows_pending_conn *tows_web_host_take(struct tows_web_host *host);

/* Whether a connection of its is of somebody who sees and ends all sessions: `http-admins`. */
bool tows_web_host_is_ruled_by(const struct tows_config *config,
                               const struct tows_pending_conn *conn);

#endif
