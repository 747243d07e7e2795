/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that sessions have exported, known by tokens: see wire/token.h.
 *
 * The listener has one such table for all its workers; the server inside a program has its own. A
 * descriptor stays until the session that exported it forgets it or ends. Only one thread at a time
 * may call this.
 */
#ifndef TOW_SERVER_EXPORT_REGISTRY_H
#define TOW_SERVER_EXPORT_REGISTRY_H

#include "wire/token.h"

enum {
    /* PyTorch exports its memory in pieces of 20 MiB: this is all of an H200 and some. */
    TOW_EXPORTS_SESSION_MAX = 8192,
    TOW_EXPORTS_BUCKETS = 1024,
};

struct tows_export;

struct tows_export_registry {
    struct tows_export *buckets[TOW_EXPORTS_BUCKETS]; /* owned */
    unsigned count, max;                              /* of all sessions */
};

/* Room for half of the descriptors that this process may have: the others are for connections. */
void tows_export_registry_init(struct tows_export_registry *exports);
/* Takes the descriptor, also when it fails: -EMFILE if there are too many. `owner` names the
 * session, `*count` are those it has. */
int tows_export_registry_add(struct tows_export_registry *exports, const void *owner,
                             unsigned *count, int fd, struct tow_token *ret_token);
/* The descriptor, borrowed; -ENOENT. */
int tows_export_registry_find(const struct tows_export_registry *exports,
                              const struct tow_token *token);
/* Who has exported it; NULL: nobody. */
const void *tows_export_registry_owner(const struct tows_export_registry *exports,
                                       const struct tow_token *token);
/* Closes what the owner had under the token, if anything. */
void tows_export_registry_forget(struct tows_export_registry *exports, const void *owner,
                                 unsigned *count, const struct tow_token *token);
/* Closes all that the owner had. */
void tows_export_registry_end(struct tows_export_registry *exports, const void *owner,
                              unsigned *count);

#endif
