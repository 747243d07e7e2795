/* SPDX-License-Identifier: Apache-2.0 */
/* Gives places to newcomers and takes them from those who need them least. */
#include "server/door/door.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define BURST_NS (2 * TOW_TIME_S) /* so much of a peer's rate may be used at once */
#define HELD_NS (4 * TOW_TIME_S)  /* how long a connection may wait until it is looked at */

void tows_door_init(struct tows_door *door)
{
    *door = (struct tows_door){0};
    door->end = &door->conns;
}

static struct tows_caller *find_caller(struct tows_door *door, const struct tows_who *who)
{
    struct tows_caller *caller = door->callers;
    while (caller != NULL && !tows_who_same(&caller->who, who)) {
        caller = caller->next;
    }
    if (caller == NULL) {
        caller = calloc(1, sizeof *caller);
        if (caller != NULL) {
            caller->who = *who;
            caller->next = door->callers;
            door->callers = caller;
        }
    }
    return caller;
}

static void forget_caller(struct tows_door *door, struct tows_caller *caller)
{
    struct tows_caller **at = &door->callers;
    while (*at != caller) {
        at = &(*at)->next;
    }
    *at = caller->next;
    free(caller);
}

/* It has used more than half of what may come at once: were it forgotten, it could begin anew. */
static bool is_hasty(const struct tows_caller *caller)
{
    return caller->paced_ns > tow_time_now_ns() - BURST_NS / 2;
}

/* Takes the connection at `at` out of the list and frees it. */
static void door_remove(struct tows_door *door, struct tows_pending_conn **at)
{
    struct tows_pending_conn *conn = *at;
    *at = conn->next;
    if (door->end == &conn->next) {
        door->end = at;
    }
    door->count--;
    if (--conn->caller->places == 0 && !is_hasty(conn->caller)) {
        forget_caller(door, conn->caller);
    }
    tows_pending_conn_destroy(conn);
}

/* The lower, the sooner it goes; a program that waits for its worker never does. */
enum { RANK_GONE, RANK_LEAVING, RANK_ANSWERED, RANK_STRANGER, RANK_ASKED, RANK_STAYS };

static int door_rank(const struct tows_pending_conn *conn)
{
    switch (conn->state) {
    case TOW_CONN_GONE:
        return RANK_GONE;
    case TOW_CONN_LEAVING:
        return RANK_LEAVING;
    case TOW_CONN_ANSWERED:
    case TOW_CONN_DENIED:
        return RANK_ANSWERED;
    case TOW_CONN_STRANGER:
    case TOW_CONN_SHAKE:
    case TOW_CONN_SHAKING:
    case TOW_CONN_LOGIN:
        return RANK_STRANGER;
    case TOW_CONN_ASKED:
        return RANK_ASKED;
    default:
        return RANK_STAYS;
    }
}

/* The oldest of those with the lowest rank, below `limit`, of one peer or (NULL) of all. */
static struct tows_pending_conn **find_least(struct tows_door *door,
                                             const struct tows_caller *caller, int limit)
{
    struct tows_pending_conn **least = NULL;
    int lowest = limit;
    for (struct tows_pending_conn **at = &door->conns; *at != NULL; at = &(*at)->next) {
        int rank = door_rank(*at);
        if (rank < lowest && (caller == NULL || (*at)->caller == caller)) {
            lowest = rank;
            least = at;
        }
    }
    return least;
}

static struct tows_caller *door_greediest(struct tows_door *door)
{
    struct tows_caller *most = door->callers;
    for (struct tows_caller *caller = most; caller != NULL; caller = caller->next) {
        most = caller->places > most->places ? caller : most;
    }
    return most;
}

bool tows_door_make_room(struct tows_door *door)
{
    struct tows_pending_conn **least = find_least(door, NULL, RANK_STRANGER);
    struct tows_caller *most = door_greediest(door);
    if (least == NULL && most != NULL) {
        least = find_least(door, most, RANK_STAYS);
    }
    if (least == NULL) {
        least = find_least(door, NULL, RANK_STAYS);
    }
    if (least == NULL) {
        return false;
    }
    door_remove(door, least);
    return true;
}

static void tell_once(struct tows_caller *caller, uint64_t most)
{
    char text[TOW_WHO_TEXT_MAX];
    if (!caller->told) {
        caller->told = true;
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "%s has taken all of the %llu places that it may have before it is served: each "
                "further connection takes the place of one of its own",
                tows_who_text(&caller->who, text), (unsigned long long)most);
    }
}

int tows_door_admit(struct tows_door *door, struct tows_pending_conn *conn, uint64_t places,
                    uint64_t per_peer)
{
    struct tows_caller *caller = find_caller(door, &conn->who);
    if (caller == NULL) {
        tows_pending_conn_destroy(conn);
        return -ENOMEM;
    }
    /* It counts from here on, so that nobody forgets its peer meanwhile. */
    caller->places++;
    bool room = true;
    if (per_peer != 0 && caller->places > per_peer) {
        struct tows_pending_conn **least = find_least(door, caller, RANK_STAYS);
        tell_once(caller, per_peer);
        room = least != NULL;
        if (room) {
            door_remove(door, least);
        }
    }
    if (room && door->count >= places) {
        room = tows_door_make_room(door);
    }
    if (!room) {
        if (--caller->places == 0) {
            forget_caller(door, caller);
        }
        tows_pending_conn_destroy(conn);
        return -EBUSY;
    }
    conn->caller = caller;
    *door->end = conn;
    door->end = &conn->next;
    door->count++;
    return 0;
}

int tows_door_rename(struct tows_door *door, struct tows_pending_conn *conn,
                     const struct tows_who *who, uint64_t per_peer)
{
    struct tows_caller *before = conn->caller, *caller = find_caller(door, who);
    if (caller == NULL) {
        return -ENOMEM;
    }
    caller->places++;
    conn->caller = caller;
    conn->who = *who;
    if (per_peer != 0 && caller->places > per_peer) {
        struct tows_pending_conn **least = find_least(door, caller, RANK_STAYS);
        (least != NULL ? *least : conn)->state = TOW_CONN_GONE;
        tell_once(caller, per_peer);
    }
    if (--before->places == 0 && !is_hasty(before)) {
        forget_caller(door, before);
    }
    return 0;
}

struct tows_pending_conn *tows_door_next_shake(struct tows_door *door)
{
    struct tows_pending_conn *next = NULL;
    for (struct tows_pending_conn *conn = door->conns; conn != NULL; conn = conn->next) {
        if (conn->state == TOW_CONN_SHAKE &&
            (next == NULL || conn->caller->shook < next->caller->shook)) {
            next = conn;
        }
    }
    return next;
}

void tows_door_shook(struct tows_door *door, struct tows_pending_conn *conn)
{
    conn->caller->shook = ++door->shakes;
}

void tows_door_sweep(struct tows_door *door)
{
    for (struct tows_pending_conn **at = &door->conns; *at != NULL;) {
        if ((*at)->state == TOW_CONN_GONE) {
            door_remove(door, at);
        } else {
            at = &(*at)->next;
        }
    }
    for (struct tows_caller *caller = door->callers; caller != NULL;) {
        struct tows_caller *next = caller->next;
        if (caller->places == 0 && !is_hasty(caller)) {
            forget_caller(door, caller);
        }
        caller = next;
    }
}

/* ---- how often a peer comes ---- */

uint64_t tows_door_rate(const struct tows_caller *caller, uint64_t rate)
{
    int64_t ahead = caller->paced_ns - (tow_time_now_ns() - BURST_NS);
    return ahead <= 0 ? 0 : (uint64_t)ahead * rate / BURST_NS;
}

void tows_door_pace(struct tows_pending_conn *conn, uint64_t rate)
{
    struct tows_caller *caller = conn->caller;
    int64_t now = tow_time_now_ns();
    if (rate == 0) {
        return;
    }
    int64_t moment = caller->paced_ns > now - BURST_NS ? caller->paced_ns : now - BURST_NS;
    if (moment > now + HELD_NS) {
        conn->state = TOW_CONN_GONE;
        return;
    }
    caller->paced_ns = moment + TOW_TIME_S / (int64_t)rate;
    conn->held_ns = moment > now ? moment : 0;
    if (conn->held_ns != 0 && !caller->hasty) {
        char text[TOW_WHO_TEXT_MAX];
        caller->hasty = true;
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "%s makes more than %llu connections in a second (connections-per-second): they "
                "are looked at one after another",
                tows_who_text(&caller->who, text), (unsigned long long)rate);
    }
}

void tows_door_fini(struct tows_door *door)
{
    while (door->conns != NULL) {
        door_remove(door, &door->conns);
    }
    while (door->callers != NULL) {
        forget_caller(door, door->callers);
    }
}
