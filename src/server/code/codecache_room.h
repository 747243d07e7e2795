/* SPDX-License-Identifier: Apache-2.0 */
/* How full the folder of code images is, whose files fill it, and which go.
 *
 * The names say it: HASH is an image, HASH.KEY what is known of it where there is one tenant, and
 * HASH.KEY.TENANT what belongs to one of several. A tenant is charged for its files, and for each
 * image that it has sent (KEY is TOW_CODECACHE_SENT), whoever else has sent the same.
 */
#ifndef TOW_SERVER_CODECACHE_ROOM_H
#define TOW_SERVER_CODECACHE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/mutex.h"

enum {
    TOW_CODECACHE_HASH_DIGITS = 2 * TOW_SHA256_SIZE,
    TOW_CODECACHE_WORD_DIGITS = 16,
    /* HASH.KEY.TENANT and its end. */
    TOW_CODECACHE_NAME_SIZE = TOW_CODECACHE_HASH_DIGITS + 2 * (1 + TOW_CODECACHE_WORD_DIGITS) + 1,
};

struct tows_codecache_peer {
    uint64_t tenant, used;
};

struct tows_codecache_room {
    const char *folder; /* borrowed */
    uint64_t max;
    uint64_t peer_max;     /* of one tenant; 0: all of it */
    struct tow_mutex lock; /* guards the rest, and keeps two evictions of ours apart */
    uint64_t used;         /* as of the last look, plus what was written since */
    uint64_t written;      /* since the last look */
    bool looked;
    struct tows_codecache_peer *peers; /* owned */
    size_t peer_count, peer_room;
};

void tows_codecache_room_init(struct tows_codecache_room *room, const char *folder, uint64_t max,
                              uint64_t peer_max);
void tows_codecache_room_fini(struct tows_codecache_room *room);

/* What a tenant is called in names of files; 0: there is one. */
uint64_t tows_codecache_tenant(const char *tenant);

/* Whether a file of so many bytes is none of more than a limit. */
bool tows_codecache_room_fits(const struct tows_codecache_room *room, uint64_t tenant,
                              uint64_t size);
/* Room for a file of so many bytes, which the caller writes then, for a tenant. Others write to the
 * same folder: who writes much looks often, so that all together stay near the limits. */
int tows_codecache_room_make(struct tows_codecache_room *room, uint64_t tenant, uint64_t size);
/* Another process is about to write as much. */
void tows_codecache_room_count(struct tows_codecache_room *room, uint64_t tenant, uint64_t size);

/* Disk that all files take, and what a tenant is charged; 0 before the first look. */
uint64_t tows_codecache_room_used(struct tows_codecache_room *room);
uint64_t tows_codecache_room_used_by(struct tows_codecache_room *room, uint64_t tenant);

#endif
