/* SPDX-License-Identifier: Apache-2.0 */
/* Whose GPU memory is there and whose is put out, where programs may have more of it together than
 * there is (overcommit = swap). All of it is decided here, from what the caller counts and from the
 * time that it says: nothing here knows a worker, a GPU or a clock. */
#ifndef TOW_SERVER_LOGIN_ROOM_H
#define TOW_SERVER_LOGIN_ROOM_H

#include <stdbool.h>
#include <stdint.h>

enum { TOW_ROOM_GPUS = 16 };

/* A session is idle when its program has wanted nothing for this part of a quantum. */
#define TOW_ROOM_IDLE_PART 10

enum tows_room_state {
    TOW_ROOM_IN,
    TOW_ROOM_LEAVES, /* its memory is on its way out */
    TOW_ROOM_OUT,
    TOW_ROOM_RETURNS,
};

enum tows_room_verdict {
    TOW_ROOM_STAYS,      /* as it is; whoever waits goes on waiting */
    TOW_ROOM_GETS,       /* it may have what it asks for */
    TOW_ROOM_REFUSED,    /* it never can, as far as is known */
    TOW_ROOM_GOES_OUT,   /* its memory is to be put out */
    TOW_ROOM_COMES_BACK, /* there is room for all that it has */
};

/* A session. */
struct tows_room_claim {
    void *owner; /* the caller's */
    enum tows_room_state state;
    bool detached;               /* its program's connection is cut */
    bool fixed;                  /* it cannot be put out just now */
    bool stuck;                  /* nor has it been possible before */
    uint64_t has[TOW_ROOM_GPUS]; /* of each GPU; OUT: what it needs to be there again */
    uint64_t more;               /* it asks for so much more */
    unsigned gpu;                /* of that one */
    bool back;                   /* OUT: its program waits for it */
    int64_t asked_ns;            /* since when it waits, for more or to be back */
    int64_t moved_ns;            /* when its program last did something */
    int64_t came_ns;             /* since when its memory is there */
    uint64_t kept;               /* host memory that it takes, or would take, while it is out */

    enum tows_room_verdict verdict;
};

/* The server. */
struct tows_room {
    uint64_t card; /* of each GPU, for all sessions that are there; 0: not known, all have room */
    int64_t quantum_ns;
    uint64_t host; /* host memory for those that are out */
};

/* Decides about all at once. The order of `claims` changes. */
void tows_room_decide(const struct tows_room *by, struct tows_room_claim *claims, unsigned count,
                      int64_t now_ns);

/* Whether somebody waits: then it is to be decided again soon. */
bool tows_room_is_wanted(const struct tows_room_claim *claims, unsigned count);

/* How long a session must have wanted nothing to be idle. */
int64_t tows_room_idle_ns(const struct tows_room *by);

#endif
