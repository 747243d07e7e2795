/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a session: which calls made and changed the objects that there are.
 *
 * An object is known by names: its handle's id or its address, and those of its parts. A call is
 * kept with one object, and uses the objects whose names are in it. When an object has ended its
 * names mean nothing more, and its calls go, unless a call of another object uses it: an executable
 * graph needs the graph that it was made from, also if that is gone. Then all of them stay, its end
 * too. So the calls, in their order, make just the objects that there are.
 *
 * One thread at a time; whoever shares it has a lock (server/remake/take.h).
 */
#ifndef TOW_SERVER_REMAKE_RECORD_H
#define TOW_SERVER_REMAKE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/remake/rules.h"

enum {
    TOW_RECORD_MAX = 64 << 20, /* bytes: a graph of 100,000 nodes is some 40 MiB */
};

/* Its memory is somebody's. A refused claim loses the record. */
struct tows_record_room {
    bool (*claim)(void *user, uint64_t size);
    void (*unclaim)(void *user, uint64_t size);
    void *user;
};

struct tows_record_call {
    uint16_t fn, thread;
    uint32_t context; /* the number of the context in which it was carried out; 0: in none */
    uint32_t id_count;
    const uint64_t *ids;         /* handles that the call bound or answered */
    const uint8_t *body, *reply; /* as they travelled */
    uint32_t body_size, reply_size;
};

struct tows_record;

/* `room` is copied; NULL: memory is anybody's. NULL: there is no memory. */
struct tows_record *tows_record_create(const struct tows_record_room *room);
void tows_record_destroy(struct tows_record *record);

/* A call that succeeded, of a function with a rule. -EDQUOT: no room is left; -ENOENT: it is
 * about an object that nobody has seen made; -EPROTO: it has made nothing. All but 0 leave a record
 * that is not whole. */
int tows_record_take(struct tows_record *record, const struct tows_record_call *call);

/* A context has ended, and with it what is known only where handles are: ends all whose handles are
 * no more, and memory that was made in a context which is no more. */
void tows_record_sweep(struct tows_record *record, bool (*is_live)(void *user, uint64_t id),
                       void *user);

bool tows_record_knows(const struct tows_record *record, enum tows_name_kind kind, uint64_t value);

struct tows_record_size {
    uint64_t names, handles; /* that mean something; of those, handles' ids */
    uint64_t objects, calls; /* all that are kept */
    uint64_t bytes;
};
struct tows_record_size tows_record_size(const struct tows_record *record);

/* The calls, in their order. */
void tows_record_each(const struct tows_record *record,
                      void (*visit)(void *user, const struct tows_record_call *call), void *user);

#endif
