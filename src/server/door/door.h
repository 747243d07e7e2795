/* SPDX-License-Identifier: Apache-2.0 */
/* Places for connections that no worker has yet: so many in all, and so many for each peer.
 *
 * Whoever comes when all of its peer's places are taken gets the place of one of that peer's own;
 * when all places are taken, of one that was answered already, then of the peer that has most. So
 * a flood takes places from itself. Only the listener's one thread uses this.
 */
#ifndef TOW_SERVER_DOOR_H
#define TOW_SERVER_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "server/door/pending_conn.h"
#include "server/login/admission.h"
#include "server/login/who.h"

/* One peer, for as long as it has places, or has come too often lately. */
struct tows_caller {
    struct tows_caller *next; /* owned by the door */
    struct tows_who who;
    unsigned places;
    unsigned sessions;           /* the listener's: how many it has, see `round` */
    struct tows_claimant claims; /* the same, and its programs in line */
    unsigned round;              /* when these were counted */
    int64_t served_ns;           /* when a program of it last got a worker; 0: not since it came */
    uint64_t shook;              /* when its last handshake was begun: see tows_door_next_shake */
    int64_t paced_ns; /* when its next connection is looked at, or would have been: see pace */
    bool hasty;       /* the log has a line about how often it comes */
    bool told;        /* the log has a line about its places */
};

struct tows_door {
    struct tows_pending_conn *conns; /* owned; oldest first */
    struct tows_pending_conn **end;  /* where the next is put */
    unsigned count;
    struct tows_caller *callers; /* owned */
    uint64_t shakes;             /* handshakes that were begun */
};

void tows_door_init(struct tows_door *door);

/* Gives the connection, which it owns from now on, a place: at most `places` are taken then, at
 * most `per_peer` (0: as many as there are) by its peer. -EBUSY: none can be had, the connection is
 * gone. */
int tows_door_admit(struct tows_door *door, struct tows_pending_conn *conn, uint64_t places,
                    uint64_t per_peer);

/* Has a connection that was admitted wait if its peer makes more than `rate` (0: any number) in a
 * second; two seconds' worth may come at once. One that would wait for too long is gone. */
void tows_door_pace(struct tows_pending_conn *conn, uint64_t rate);
/* How many its peer has made in a second, of late. */
uint64_t tows_door_rate(const struct tows_caller *caller, uint64_t rate);

/* It is known now whose the connection is: its place is counted for them, who have at most
 * `per_peer`; else one of theirs is gone. -ENOMEM. */
int tows_door_rename(struct tows_door *door, struct tows_pending_conn *conn,
                     const struct tows_who *who, uint64_t per_peer);

/* Closes the connection that matters least; false if there is none but programs that wait. */
bool tows_door_make_room(struct tows_door *door);

/* Whose handshake is to begin: the oldest one's of the peer whose last one began before all
 * others'. NULL: nobody waits for that. */
struct tows_pending_conn *tows_door_next_shake(struct tows_door *door);
/* It has begun, or cannot. */
void tows_door_shook(struct tows_door *door, struct tows_pending_conn *conn);

/* Frees the connections that are gone. */
void tows_door_sweep(struct tows_door *door);
void tows_door_fini(struct tows_door *door);

#endif
