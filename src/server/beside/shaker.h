/* SPDX-License-Identifier: Apache-2.0 */
/* The process that has the server's key and shakes hands with it. It has no rights: no files, no
 * network, no GPU; where root starts the server, a user of its own. What it decrypts goes to the
 * listener over a socket, and what the listener says there goes to the client; a session's own
 * lines do not pass through it.
 *
 * Only the listener's one thread uses this.
 */
#ifndef TOW_SERVER_BESIDE_SHAKER_H
#define TOW_SERVER_BESIDE_SHAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/config/config.h"
#include "server/door/door.h"
#include "server/door/pending_conn.h"
#include "server/pool/worker_pool.h"
#include "transport/tls_cert.h"

struct tows_shaker {
    struct tows_starter *starter; /* borrowed: who starts it */
    int control;                  /* owned: a socket to the process; 0: there is none */
    uint64_t number;              /* of the process, for the starter */
    int64_t began_ns;
    bool starting;   /* it has not said yet that it has the key; what it is given waits there */
    int64_t full_ns; /* since when it takes nothing; 0: it does */
    struct tow_tls_print print;           /* of its key */
    uint8_t authorities[TOW_SHA256_SIZE]; /* which it has for clients: of their file */
};

/* The process itself (towlined --shaker). */
int tows_shaker_main(const struct tows_config *config);

/* Forks it. The other end of its socket is the caller's. `user`: whose it becomes when it has the
 * key; 0: it keeps this process's. 0 with its process, or -Exxx with a sentence. */
int tows_shaker_fork(const struct tows_config *config, bool make, uint32_t user, int *ret_control,
                     pid_t *ret_pid, char *why, size_t why_size);

/* Starts it, with the key of the settings; where they name none, and the server starts for the
 * `first` time, it makes one of its own. With a sentence. */
int tows_shaker_start(struct tows_shaker *shaker, const struct tows_config *config, bool first,
                      char *why, size_t why_size);
void tows_shaker_stop(struct tows_shaker *shaker);

/* Its control socket, to poll; -1: there is none. */
int tows_shaker_fd(const struct tows_shaker *shaker);
/* Something came there, or it is `starting` and the listener looks at what comes from it. The log
 * says if it has not started. */
void tows_shaker_hear(struct tows_shaker *shaker);

/* The same, if one of the addresses is of TLS; the log says which key it has. */
int tows_shaker_begin(struct tows_shaker *shaker, const struct tows_config *config,
                      struct tow_listener *const *listeners, unsigned count, bool first, char *why,
                      size_t why_size);

/* A handshake that names a grant (GRANTED) goes to that session. */
void tows_shaker_lead(struct tows_worker_pool *pool, struct tows_pending_conn *conn);
/* Those that wait in the door (SHAKE) go to the process, as many as it takes now: few are on their
 * way to it, so that a peer who has many keeps nobody else's waiting behind them. */
void tows_shaker_meet(struct tows_shaker *shaker, const struct tows_config *config,
                      struct tows_door *door);
/* While somebody waits for it to take something: when it is replaced. Else TOW_TIME_FOREVER. */
int64_t tows_shaker_full(const struct tows_shaker *shaker, struct tows_door *door);

/* Gives a program of TLS a worker: a grant, with which the worker's own lines are to be made. */
int tows_shaker_grant(struct tows_worker_pool *pool, struct tows_worker *worker,
                      struct tows_pending_conn *conn);

/* Has it shake hands with the client at `fd`, which stays the caller's. `ret_plain` is the
 * listener's end: first a tows_shaken when that is done, then what the client says. It ends if
 * the handshake fails, and the log says why. A process that has ended, or that takes nothing for
 * long, is replaced; nobody waits for the new one. -EAGAIN: it has to do first. */
int tows_shaker_give(struct tows_shaker *shaker, const struct tows_config *config, int fd,
                     const char *peer, int *ret_plain);

#endif
