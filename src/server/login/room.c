/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through those who wait, in the order in which they came. */
#include "server/login/room.h"

#include <stddef.h>
#include <stdlib.h>

/* While claims are gone through. */
struct tally {
    const struct tows_room *by;
    struct tows_room_claim *claims;
    unsigned count;
    int64_t now_ns;
    int64_t free[TOW_ROOM_GPUS];   /* less what is reserved for those before: may be negative */
    int64_t coming[TOW_ROOM_GPUS]; /* of those whose memory is on its way out */
    uint64_t kept;                 /* host memory of those that are out, or leave */
    bool shut; /* somebody has waited for so long that nobody behind may take what it needs */
};

int64_t tows_room_idle_ns(const struct tows_room *by)
{
    return by->quantum_ns / TOW_ROOM_IDLE_PART;
}

/* ---- who waits ---- */

static bool waits_for_all(const struct tows_room_claim *claim)
{
    return claim->state == TOW_ROOM_OUT && claim->back;
}

static bool waits_for_more(const struct tows_room_claim *claim)
{
    return claim->state == TOW_ROOM_IN && claim->more != 0;
}

bool tows_room_is_wanted(const struct tows_room_claim *claims, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (waits_for_all(&claims[i]) || claims[i].more != 0) {
            return true;
        }
    }
    return false;
}

/* By when they began to wait; those that wait for nothing come last. */
static int compare_claims(const void *one, const void *other)
{
    const struct tows_room_claim *a = one, *b = other;
    bool waits = waits_for_all(a) || waits_for_more(a);
    if (waits != (waits_for_all(b) || waits_for_more(b))) {
        return waits ? -1 : 1;
    }
    return (a->asked_ns > b->asked_ns) - (a->asked_ns < b->asked_ns);
}

/* What it needs of a GPU that is free. */
static int64_t need_of(const struct tows_room_claim *claim, unsigned gpu)
{
    uint64_t need = claim->state == TOW_ROOM_OUT ? claim->has[gpu] : 0;
    need += claim->gpu == gpu ? claim->more : 0;
    return need < INT64_MAX / 4 ? (int64_t)need : INT64_MAX / 4;
}

static bool has_room(const struct tally *tally, const struct tows_room_claim *claim, bool coming)
{
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        int64_t need = need_of(claim, i), room = tally->free[i] + (coming ? tally->coming[i] : 0);
        if (need > 0 && need > room) {
            return false;
        }
    }
    return true;
}

static void take_room(struct tally *tally, const struct tows_room_claim *claim)
{
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        tally->free[i] -= need_of(claim, i);
    }
}

/* ---- who makes room ---- */

static bool is_idle(const struct tally *tally, const struct tows_room_claim *claim)
{
    return claim->more == 0 &&
           (claim->detached || tally->now_ns - claim->moved_ns >= tows_room_idle_ns(tally->by));
}

static bool may_leave(const struct tally *tally, const struct tows_room_claim *claim)
{
    return claim->state == TOW_ROOM_IN && claim->verdict == TOW_ROOM_STAYS && !claim->fixed &&
           (is_idle(tally, claim) || tally->now_ns - claim->came_ns >= tally->by->quantum_ns);
}

/* Detached ones first, then those idle for longest, then those that have been there for longest. */
static bool leaves_before(const struct tally *tally, const struct tows_room_claim *one,
                          const struct tows_room_claim *other)
{
    if (one->detached != other->detached) {
        return one->detached;
    }
    bool idle = is_idle(tally, one);
    if (idle != is_idle(tally, other)) {
        return idle;
    }
    return idle ? one->moved_ns < other->moved_ns : one->came_ns < other->came_ns;
}

static bool has_something(const struct tows_room_claim *claim, const struct tows_room_claim *for_it)
{
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        if (claim->has[i] != 0 && need_of(for_it, i) > 0) {
            return true;
        }
    }
    return false;
}

static struct tows_room_claim *next_to_leave(struct tally *tally,
                                             const struct tows_room_claim *for_it)
{
    struct tows_room_claim *next = NULL;
    for (unsigned i = 0; i < tally->count; i++) {
        struct tows_room_claim *claim = &tally->claims[i];
        if (claim != for_it && may_leave(tally, claim) && has_something(claim, for_it) &&
            (next == NULL || leaves_before(tally, claim, next))) {
            next = claim;
        }
    }
    return next;
}

/* It goes, or (-1) stays after all. */
static void count_leaving(struct tally *tally, struct tows_room_claim *claim, int sign)
{
    claim->verdict = sign > 0 ? TOW_ROOM_GOES_OUT : TOW_ROOM_STAYS;
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        tally->coming[i] += sign * (int64_t)claim->has[i];
    }
    tally->kept += sign > 0 ? claim->kept : -claim->kept;
}

/* Those who leave so that there is room for it. False: that is not enough, and nobody does. */
static bool make_room(struct tally *tally, const struct tows_room_claim *claim)
{
    enum { MOST = 64 };
    struct tows_room_claim *chosen[MOST];
    unsigned count = 0;
    while (!has_room(tally, claim, true) && count < MOST) {
        struct tows_room_claim *next = next_to_leave(tally, claim);
        if (next == NULL) {
            break;
        }
        chosen[count++] = next;
        count_leaving(tally, next, 1);
    }
    bool enough = has_room(tally, claim, true);
    /* Small ones that were chosen before a large one need not go. */
    for (unsigned i = 0; enough && i < count; i++) {
        count_leaving(tally, chosen[i], -1);
        if (!has_room(tally, claim, true)) {
            count_leaving(tally, chosen[i], 1);
        }
    }
    /* What comes back leaves the host's memory. */
    uint64_t gone = claim->state == TOW_ROOM_OUT ? claim->kept : 0;
    enough = enough && tally->kept <= tally->by->host + gone;
    for (unsigned i = 0; i < count && !enough; i++) {
        if (chosen[i]->verdict == TOW_ROOM_GOES_OUT) {
            count_leaving(tally, chosen[i], -1);
        }
    }
    return enough;
}

/* ---- whether there ever can be room ---- */

static bool is_within(const struct tows_room_claim *claim, const int64_t room[TOW_ROOM_GPUS])
{
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        if (claim->has[i] > INT64_MAX || (int64_t)claim->has[i] > room[i]) {
            return false;
        }
    }
    return true;
}

static void take_from(int64_t room[TOW_ROOM_GPUS], const struct tows_room_claim *claim)
{
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        room[i] -= (int64_t)claim->has[i];
    }
}

/* Whether it could have what it asks for if all were out that can be, and the host's memory held
 * what must be. */
static bool can_be(const struct tally *tally, const struct tows_room_claim *claim)
{
    int64_t room[TOW_ROOM_GPUS];
    uint64_t kept = 0;
    bool *in = calloc(tally->count, sizeof *in);
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        room[i] = (int64_t)tally->by->card - (int64_t)(claim->gpu == i ? claim->more : 0);
    }
    for (unsigned i = 0; in != NULL && i < tally->count; i++) {
        const struct tows_room_claim *other = &tally->claims[i];
        in[i] = other == claim || (other->stuck && other->state != TOW_ROOM_OUT);
        if (in[i]) {
            take_from(room, other);
        } else {
            kept += other->kept;
        }
    }
    bool can = room[claim->gpu] >= 0;
    while (in != NULL && can && kept > tally->by->host) {
        unsigned best = tally->count;
        for (unsigned i = 0; i < tally->count; i++) {
            const struct tows_room_claim *other = &tally->claims[i];
            if (!in[i] && other->kept != 0 && is_within(other, room) &&
                (best == tally->count || other->kept > tally->claims[best].kept)) {
                best = i;
            }
        }
        can = best < tally->count;
        if (can) {
            in[best] = true;
            take_from(room, &tally->claims[best]);
            kept -= tally->claims[best].kept;
        }
    }
    free(in);
    return can;
}

/* ---- one who waits ---- */

static void judge_claim(struct tally *tally, struct tows_room_claim *claim)
{
    bool out = claim->state == TOW_ROOM_OUT;
    if (claim->verdict != TOW_ROOM_STAYS) {
        return; /* it makes room for somebody before it, and asks again then */
    }
    if (!out && tally->by->card != 0 && !can_be(tally, claim)) {
        claim->verdict = TOW_ROOM_REFUSED;
        return;
    }
    if (has_room(tally, claim, false) && !(tally->shut && out)) {
        claim->verdict = out ? TOW_ROOM_COMES_BACK : TOW_ROOM_GETS;
        take_room(tally, claim);
        return;
    }
    if (tally->shut) {
        return;
    }
    if (has_room(tally, claim, true) || make_room(tally, claim)) {
        take_room(tally, claim);
        return;
    }
    tally->shut = tally->now_ns - claim->asked_ns >= tally->by->quantum_ns;
}

void tows_room_decide(const struct tows_room *by, struct tows_room_claim *claims, unsigned count,
                      int64_t now_ns)
{
    struct tally tally = {.by = by, .claims = claims, .count = count, .now_ns = now_ns};
    for (unsigned g = 0; g < TOW_ROOM_GPUS; g++) {
        tally.free[g] = by->card != 0 ? (int64_t)by->card : INT64_MAX / 2;
    }
    if (count > 0) {
        qsort(claims, count, sizeof *claims, compare_claims);
    }
    for (unsigned i = 0; i < count; i++) {
        struct tows_room_claim *claim = &claims[i];
        claim->verdict = TOW_ROOM_STAYS;
        bool leaves = claim->state == TOW_ROOM_LEAVES, out = claim->state == TOW_ROOM_OUT;
        for (unsigned g = 0; g < TOW_ROOM_GPUS; g++) {
            tally.free[g] -= out ? 0 : (int64_t)claim->has[g];
            tally.coming[g] += leaves ? (int64_t)claim->has[g] : 0;
        }
        tally.kept += out || leaves ? claim->kept : 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (waits_for_all(&claims[i]) || waits_for_more(&claims[i])) {
            judge_claim(&tally, &claims[i]);
        }
    }
}
