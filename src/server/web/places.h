/* SPDX-License-Identifier: Apache-2.0 */
/* How many may be somewhere at once, in all and of one address. Any thread. */
#ifndef TOW_SERVER_WEB_PLACES_H
#define TOW_SERVER_WEB_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "server/login/who.h"

enum { TOW_WEB_PLACES_MAX = 64 };

struct tows_places {
    unsigned most, each; /* at most TOW_WEB_PLACES_MAX in all; of one address */
    struct tow_mutex lock;
    struct tows_who of[TOW_WEB_PLACES_MAX]; /* whose each is; of kind NOBODY: free */
    int slow[TOW_WEB_PLACES_MAX];           /* borrowed: who has it has not asked yet; 0: has */
    uint64_t since[TOW_WEB_PLACES_MAX];     /* the larger, the later it was taken */
    uint64_t taken;
};

/* Whom a request counts for. All addresses of the loopback are one: whoever has one has them all.
 */
struct tows_who tows_places_who(const struct sockaddr *address);

/* False: there is none for it. */
bool tows_places_take(struct tows_places *places, const struct tows_who *who);
void tows_places_give(struct tows_places *places, const struct tows_who *who);

/* The same for a connection that has not asked yet. Where its address has all its places, or nobody
 * is free, it gets that of who has not asked for longest: of its address, or of any. That
 * connection is shut, and its place is its own no more. */
bool tows_places_enter(struct tows_places *places, const struct tows_who *who, int fd);
/* It has asked: nobody takes its place any more. False: somebody has. */
bool tows_places_heard(struct tows_places *places, int fd);
/* One that has not asked goes, if its place is still its own. */
void tows_places_leave(struct tows_places *places, int fd);

#endif
