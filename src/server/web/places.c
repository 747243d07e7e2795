/* SPDX-License-Identifier: Apache-2.0 */
/* A list of who has which place: it is short, and walked. */
#include "server/web/places.h"

#include <string.h>
#include <sys/socket.h>

struct tows_who tows_places_who(const struct sockaddr *address)
{
    struct tows_who who = tows_who_at(address);
    if (who.kind == TOW_WHO_IPV4 && who.address[0] == 127) {
        memset(who.address + 1, 0, sizeof who.address - 1);
    }
    return who;
}

/* With the lock. The place that a newcomer gets; `most`: none. */
static unsigned places_find(const struct tows_places *places, const struct tows_who *who, bool slow)
{
    unsigned own = 0, at = places->most;
    for (unsigned i = 0; i < places->most; i++) {
        own += tows_who_same(&places->of[i], who);
        at = places->of[i].kind == TOW_WHO_NOBODY ? i : at;
    }
    if (who->kind == TOW_WHO_NOBODY) {
        return places->most;
    }
    bool full = own >= places->each;
    if (!slow || (at < places->most && !full)) {
        return full ? places->most : at;
    }
    at = places->most;
    for (unsigned i = 0; i < places->most; i++) {
        if (places->slow[i] != 0 && (!full || tows_who_same(&places->of[i], who)) &&
            (at == places->most || places->since[i] < places->since[at])) {
            at = i;
        }
    }
    return at;
}

bool tows_places_take(struct tows_places *places, const struct tows_who *who)
{
    tow_mutex_lock(&places->lock);
    unsigned at = places_find(places, who, false);
    if (at < places->most) {
        places->of[at] = *who;
        places->slow[at] = 0;
    }
    tow_mutex_unlock(&places->lock);
    return at < places->most;
}

bool tows_places_enter(struct tows_places *places, const struct tows_who *who, int fd)
{
    tow_mutex_lock(&places->lock);
    unsigned at = places_find(places, who, true);
    if (at < places->most) {
        if (places->slow[at] != 0) {
            shutdown(places->slow[at], SHUT_RDWR); /* its thread sees that, and closes it */
        }
        places->of[at] = *who;
        places->slow[at] = fd;
        places->since[at] = ++places->taken;
    }
    tow_mutex_unlock(&places->lock);
    return at < places->most;
}

/* With the lock: the place of who has not asked yet. */
static unsigned places_of(const struct tows_places *places, int fd)
{
    unsigned at = 0;
    while (at < places->most && places->slow[at] != fd) {
        at++;
    }
    return at;
}

bool tows_places_heard(struct tows_places *places, int fd)
{
    tow_mutex_lock(&places->lock);
    unsigned at = places_of(places, fd);
    if (at < places->most) {
        places->slow[at] = 0;
    }
    tow_mutex_unlock(&places->lock);
    return at < places->most;
}

void tows_places_leave(struct tows_places *places, int fd)
{
    tow_mutex_lock(&places->lock);
    unsigned at = places_of(places, fd);
    if (at < places->most) {
        places->slow[at] = 0;
        memset(&places->of[at], 0, sizeof places->of[at]);
    }
    tow_mutex_unlock(&places->lock);
}

void tows_places_give(struct tows_places *places, const struct tows_who *who)
{
    tow_mutex_lock(&places->lock);
    for (unsigned i = 0; i < places->most; i++) {
        if (tows_who_same(&places->of[i], who) && places->slow[i] == 0) {
            memset(&places->of[i], 0, sizeof places->of[i]);
            break;
        }
    }
    tow_mutex_unlock(&places->lock);
}
