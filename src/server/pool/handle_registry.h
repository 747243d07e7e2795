/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of cuIpc that sessions have made, known by tokens.
 *
 * NVIDIA's driver opens such a handle for whoever has its 64 bytes, whatever his user. So these
 * stay with the listener: a client gets a token, and only a session of the same peer (who.h) gets
 * the bytes back. The same bytes of one session have the same token, as programs compare handles.
 *
 * The listener has one such table. What a session has made goes with it. Only one thread calls
 * this.
 */
#ifndef TOW_SERVER_HANDLE_REGISTRY_H
#define TOW_SERVER_HANDLE_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "server/login/who.h"
#include "server/session/session.h"

enum {
    /* Of one session; then the oldest goes. Nobody says when the driver's is good no more, and a
     * program that frees and exports again makes new ones for ever. */
    TOW_HANDLES_SESSION_MAX = 8192,
    TOW_HANDLES_BUCKETS = 1024,
    TOW_HANDLES_KEY_SIZE = 32,
};

struct tows_handle;

/* A session, as the one who makes handles. All zero: it has made none. */
struct tows_handle_owner {
    struct tows_handle *first, *last; /* borrowed from the table: the oldest, the newest */
    unsigned count;
};

struct tows_handle_registry {
    struct tows_handle *buckets[TOW_HANDLES_BUCKETS]; /* owned */
    uint8_t key[TOW_HANDLES_KEY_SIZE];                /* random: nobody guesses a token */
    bool keyed;
};

/* The token for a session's handle. `session` is its number, `who` whose it is; both stay the same
 * for an owner. -EIO, -ENOMEM. */
int tows_handle_registry_add(struct tows_handle_registry *handles, struct tows_handle_owner *owner,
                             uint64_t session, const struct tows_who *who,
                             const struct tows_ipc_handle *handle, struct tow_token *ret_token);
/* The handle, for a session of `who`, and who has made it: -ENOENT if there is none, or it is
 * another's. */
int tows_handle_registry_find(const struct tows_handle_registry *handles,
                              const struct tow_token *token, const struct tows_who *who,
                              struct tows_ipc_handle *ret_handle,
                              const struct tows_handle_owner **ret_owner);
/* Forgets all that a session has made. */
void tows_handle_registry_end(struct tows_handle_registry *handles,
                              struct tows_handle_owner *owner);

#endif
