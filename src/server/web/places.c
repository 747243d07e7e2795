/* SPDX-License-Identifier: Apache-2.0 */
/* A list of who has which place: it is short, and walked. */
#include "server/web/places.h"

#include <string.h>

struct tows_who tows_places_who(const struct sockaddr *address)
{
    struct tows_who who = tows_who_at(address);
    if (who.kind == TOW_WHO_IPV4 && who.address[0] == 127) {
        memset(who.address + 1, 0, sizeof who.address - 1);
    }
    return who;
}

bool tows_places_take(struct tows_places *places, const struct tows_who *who)
{
    unsigned own = 0, at = places->most;
    tow_mutex_lock(&places->lock);
    for (unsigned i = 0; i < places->most; i++) {
        own += tows_who_same(&places->of[i], who);
        at = places->of[i].kind == TOW_WHO_NOBODY ? i : at;
    }
    bool taken = at < places->most && own < places->each && who->kind != TOW_WHO_NOBODY;
    if (taken) {
        places->of[at] = *who;
    }
    tow_mutex_unlock(&places->lock);
    return taken;
}

void tows_places_give(struct tows_places *places, const struct tows_who *who)
{
    tow_mutex_lock(&places->lock);
    for (unsigned i = 0; i < places->most; i++) {
        if (tows_who_same(&places->of[i], who)) {
            memset(&places->of[i], 0, sizeof places->of[i]);
            break;
        }
    }
    tow_mutex_unlock(&places->lock);
}
