/* SPDX-License-Identifier: Apache-2.0 */
/* Counts GPU time and gives turns. */
#include "server/login/turns.h"

#include <errno.h>
#include <stddef.h>

#include "base/clock.h"

int tows_turns_add(struct tows_turns *turns, struct tows_turn *turn)
{
    if (turns->count == TOW_TURNS_MAX) {
        return -ENOSPC;
    }
    turn->passed = turns->passed;
    turn->allowance = (double)TOW_TURNS_WINDOW_NS * turn->percent / 100;
    turns->all[turns->count++] = turn;
    return 0;
}

void tows_turns_remove(struct tows_turns *turns, struct tows_turn *turn)
{
    for (unsigned i = 0; i < turns->count; i++) {
        if (turns->all[i] == turn) {
            turns->all[i] = turns->all[--turns->count];
            return;
        }
    }
}

/* ---- counting ---- */

/* Whether the GPU may be at work for it. */
static bool turn_is_on(const struct tows_turn *turn)
{
    return turn->works || (turn->may && turn->wants);
}

/* Those that are on the GPU at the same time have it in equal parts, as its hardware does it. */
void tows_turns_count(struct tows_turns *turns, int64_t now_ns)
{
    int64_t passed = turns->now_ns != 0 && now_ns > turns->now_ns ? now_ns - turns->now_ns : 0;
    unsigned on = 0;
    for (unsigned i = 0; i < turns->count; i++) {
        on += turn_is_on(turns->all[i]);
    }
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        double most = (double)TOW_TURNS_WINDOW_NS * turn->percent / 100;
        turn->allowance += (double)passed * turn->percent / 100;
        if (turn_is_on(turn)) {
            double part = (double)passed / on;
            turn->used_ns += (uint64_t)part;
            turn->passed += part / (turn->weight != 0 ? turn->weight : 1);
            turn->allowance -= part;
        } else if (turn->wants) {
            turn->waited_ns += (uint64_t)passed;
        }
        turn->allowance = turn->allowance < most ? turn->allowance : most;
    }
    turns->now_ns = now_ns;
}

/* Who was away for long has saved nothing; a debt stays. */
static void meet_newcomers(struct tows_turns *turns)
{
    bool some = false;
    double least = 0;
    for (unsigned i = 0; i < turns->count; i++) {
        const struct tows_turn *turn = turns->all[i];
        if (turn->there && (!some || turn->passed < least)) {
            least = turn->passed;
            some = true;
        }
    }
    least = some ? least : turns->passed;
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        bool there = turn->wants || turn->works;
        if (there && !turn->there && turn->passed < least) {
            turn->passed = least;
        }
        turn->left_ns = there ? turns->now_ns : turn->left_ns;
        turn->there = there || (turn->there && turns->now_ns - turn->left_ns < TOW_TURNS_AWAY_NS);
        if (!turn->wants || turn->may) {
            turn->waits_ns = 0;
        } else if (turn->waits_ns == 0) {
            turn->waits_ns = turns->now_ns;
        }
    }
}

/* ---- choosing ---- */

static bool turn_may_have(const struct tows_turn *turn)
{
    return turn->wants && (turn->percent == 0 || turn->allowance > 0);
}

static bool turns_together(const struct tows_turn *one, const struct tows_turn *other)
{
    return one == other || (one->group != 0 && one->group == other->group);
}

static bool turn_starves(const struct tows_turns *turns, const struct tows_turn *turn)
{
    return turn->waits_ns != 0 && turns->now_ns - turn->waits_ns >= TOW_TURNS_STARVES_NS;
}

static bool comes_sooner(const struct tows_turns *turns, const struct tows_turn *one,
                         const struct tows_turn *other)
{
    bool left = turn_starves(turns, one), right = turn_starves(turns, other);
    if (left != right) {
        return left;
    }
    if (!left && one->priority != other->priority) {
        return one->priority > other->priority;
    }
    return one->passed < other->passed;
}

/* The next one; NULL: nobody wants it. */
static struct tows_turn *choose_next(const struct tows_turns *turns)
{
    struct tows_turn *next = NULL;
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        if (turn_may_have(turn) && (next == NULL || comes_sooner(turns, turn, next))) {
            next = turn;
        }
    }
    return next;
}

static struct tows_turn *find_holder(const struct tows_turns *turns)
{
    for (unsigned i = 0; i < turns->count; i++) {
        if (turns->all[i]->may) {
            return turns->all[i];
        }
    }
    return NULL;
}

/* Whether somebody of another unit could have the turn. */
static bool somebody_else_wants(const struct tows_turns *turns, const struct tows_turn *unit)
{
    for (unsigned i = 0; i < turns->count; i++) {
        const struct tows_turn *turn = turns->all[i];
        if (turn_may_have(turn) && !turns_together(turn, unit)) {
            return true;
        }
    }
    return false;
}

static bool somebody_before(const struct tows_turns *turns, const struct tows_turn *unit)
{
    const struct tows_turn *next = choose_next(turns);
    return next != NULL && !turns_together(next, unit) && next->priority > unit->priority;
}

/* ---- turns ---- */

static void end_turn(struct tows_turns *turns)
{
    bool works = false;
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        turn->drains |= turn->may && turn->works;
        turn->may = false;
        works |= turn->drains;
    }
    turns->asked_ns = works ? turns->now_ns : 0;
    turns->slice_ns = TOW_TIME_FOREVER;
}

static void begin_turn(struct tows_turns *turns, const struct tows_turn *next)
{
    turns->firm = turn_starves(turns, next);
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        turn->drains = false; /* nobody is waited for twice */
        if (turns_together(turn, next) && (turn->percent == 0 || turn->allowance > 0)) {
            turn->may = true;
            turn->waits_ns = 0;
        }
    }
    turns->passed = next->passed;
    turns->asked_ns = 0;
    turns->slice_ns = TOW_TIME_FOREVER;
}

static bool turns_are_drained(struct tows_turns *turns)
{
    bool works = false;
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        turn->drains &= turn->works;
        works |= turn->drains;
    }
    return !works;
}

/* The unit that has the turn keeps it, or stops. */
static void look_at_holder(struct tows_turns *turns)
{
    const struct tows_turn *holder = find_holder(turns);
    if (holder == NULL) {
        return;
    }
    bool wants = false;
    for (unsigned i = 0; i < turns->count; i++) {
        struct tows_turn *turn = turns->all[i];
        turn->may &= turn->percent == 0 || turn->allowance > 0;
        turn->drains |= !turn->may && turn->works && turns_together(turn, holder);
        wants |= turn->may && (turn->wants || turn->works);
    }
    if (!wants || (!turns->firm && somebody_before(turns, holder))) {
        end_turn(turns);
    } else if (!somebody_else_wants(turns, holder)) {
        turns->slice_ns = TOW_TIME_FOREVER;
    } else if (turns->slice_ns == TOW_TIME_FOREVER) {
        turns->slice_ns = turns->now_ns + TOW_TURNS_SLICE_NS;
    } else if (turns->now_ns >= turns->slice_ns) {
        end_turn(turns);
    }
}

void tows_turns_decide(struct tows_turns *turns, int64_t now_ns)
{
    tows_turns_count(turns, now_ns);
    meet_newcomers(turns);
    look_at_holder(turns);
    bool drained = turns_are_drained(turns);
    turns->asked_ns = drained ? 0 : turns->asked_ns;
    bool overdue = turns->asked_ns != 0 && now_ns - turns->asked_ns >= TOW_TURNS_QUANTUM_NS;
    const struct tows_turn *next = find_holder(turns) == NULL ? choose_next(turns) : NULL;
    if (next != NULL && (drained || overdue || next->drains)) {
        begin_turn(turns, next);
        if (somebody_else_wants(turns, next)) {
            turns->slice_ns = now_ns + TOW_TURNS_SLICE_NS;
        }
    }
}

int64_t tows_turns_next(const struct tows_turns *turns)
{
    int64_t next = turns->slice_ns != 0 ? turns->slice_ns : TOW_TIME_FOREVER;
    int64_t quantum = turns->asked_ns + TOW_TURNS_QUANTUM_NS;
    next = turns->asked_ns != 0 && quantum > turns->now_ns && quantum < next ? quantum : next;
    for (unsigned i = 0; i < turns->count; i++) {
        const struct tows_turn *turn = turns->all[i];
        /* When its percentage is used up, or lets it have some again. */
        double used = turn->percent == 0 || !(turn->wants || turn->works) ? 0 : turn->allowance;
        int64_t moment = used > 0   ? turns->now_ns + (int64_t)used + 1
                         : used < 0 ? turns->now_ns + (int64_t)(-used * 100 / turn->percent) + 1
                                    : TOW_TIME_FOREVER;
        next = moment < next ? moment : next;
        if (turn->waits_ns != 0 && turn->waits_ns + TOW_TURNS_STARVES_NS > turns->now_ns &&
            turn->waits_ns + TOW_TURNS_STARVES_NS < next) {
            next = turn->waits_ns + TOW_TURNS_STARVES_NS;
        }
    }
    return next;
}
