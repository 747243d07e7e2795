/* SPDX-License-Identifier: Apache-2.0 */
/* How many may be somewhere at once, in all and of one address. Any thread. */
#ifndef TOW_SERVER_WEB_PLACES_H
#define TOW_SERVER_WEB_PLACES_H

#include <stdbool.h>

#include "base/mutex.h"
#include "server/login/who.h"

enum { TOW_WEB_PLACES_MAX = 64 };

struct tows_places {
    unsigned most, each; /* at most TOW_WEB_PLACES_MAX in all; of one address */
    struct tow_mutex lock;
    struct tows_who of[TOW_WEB_PLACES_MAX]; /* whose each is; of kind NOBODY: free */
};

/* Whom a request counts for. All addresses of the loopback are one: whoever has one has them all.
 */
struct tows_who tows_places_who(const struct sockaddr *address);

/* False: there is none for it. */
bool tows_places_take(struct tows_places *places, const struct tows_who *who);
void tows_places_give(struct tows_places *places, const struct tows_who *who);

#endif
