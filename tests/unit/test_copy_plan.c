/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of copies against the same choice written as chains of questions: for every word of
 * facts that can be, and whatever was tried before. */
#include "client/copy/plan.h"

#include "cmocka_all.h"

enum {
    UP = TOW_FACT_UP,
    DOWN = TOW_FACT_DOWN,
    WAIT = TOW_FACT_WAIT,
    FLAT = TOW_FACT_FLAT,
    ELSEWHERE = TOW_FACT_ELSEWHERE,
    CAPTURES = TOW_FACT_CAPTURES,
    BAD = TOW_FACT_BAD,
    SHARED = TOW_FACT_SHARED,
    PARTLY = TOW_FACT_PARTLY,
    PINNED = TOW_FACT_PINNED,
    MIRRORED = TOW_FACT_MIRRORED,
    SEEN = TOW_FACT_SEEN,
    MIRRORS = TOW_FACT_MIRRORS,
    EXPECTED = TOW_FACT_EXPECTED,
    FUNCTIONS = TOW_FACT_FUNCTIONS,
    ROOM = TOW_FACT_ROOM,
    LARGE = TOW_FACT_LARGE,
    STAGING = TOW_FACT_STAGING,
    SMALL = TOW_FACT_SMALL,
    LONG = TOW_FACT_LONG,
};

/* What may be tried and leave the copy to another way. */
static const enum towc_copy_way leaving[] = {
    TOW_WAY_PUSH,  TOW_WAY_WAIT_SOURCE, TOW_WAY_WAIT_TURN, TOW_WAY_DEFERRED,
    TOW_WAY_ASYNC, TOW_WAY_TURN,        TOW_WAY_FETCHED,   TOW_WAY_STAGED,
};
enum { LEAVING = sizeof leaving / sizeof *leaving };

static unsigned tried_of(unsigned index)
{
    unsigned tried = 0;
    for (unsigned i = 0; i < LEAVING; i++) {
        tried |= index >> i & 1 ? 1u << leaving[i] : 0;
    }
    return tried;
}

static bool was(unsigned tried, enum towc_copy_way way)
{
    return (tried >> way & 1) != 0;
}

/* ---- the choice in other words ---- */

static bool waits_for_its_turn(unsigned f, unsigned tried)
{
    return (f & WAIT) && (f & FUNCTIONS) && (f & PINNED) && !was(tried, TOW_WAY_WAIT_TURN);
}

static enum towc_copy_way upload(unsigned f, unsigned tried)
{
    if ((f & STAGING) && !(f & SMALL) && !was(tried, TOW_WAY_STAGED)) {
        return TOW_WAY_STAGED;
    }
    return TOW_WAY_LINE;
}

static enum towc_copy_way download(unsigned f, unsigned tried)
{
    if ((f & STAGING) && (f & SMALL)) {
        return was(tried, TOW_WAY_FETCHED) ? TOW_WAY_LINE : TOW_WAY_FETCHED;
    }
    return upload(f, tried);
}

static enum towc_copy_way flat_up(unsigned f, unsigned tried)
{
    if (f & EXPECTED && !was(tried, TOW_WAY_WAIT_SOURCE)) {
        return TOW_WAY_WAIT_SOURCE;
    }
    if (f & MIRRORED) {
        return TOW_WAY_NAMED;
    }
    if (waits_for_its_turn(f, tried)) {
        return TOW_WAY_WAIT_TURN;
    }
    bool behind = !(f & WAIT) && (f & FUNCTIONS) && (f & PINNED);
    if (behind && !was(tried, TOW_WAY_DEFERRED)) {
        return TOW_WAY_DEFERRED;
    }
    return behind && !was(tried, TOW_WAY_TURN) ? TOW_WAY_TURN : upload(f, tried);
}

static enum towc_copy_way flat_down(unsigned f, unsigned tried)
{
    bool later = !(f & MIRRORED) && !(f & WAIT) && (f & PINNED);
    if (later && (f & ROOM) && !was(tried, TOW_WAY_ASYNC)) {
        return TOW_WAY_ASYNC;
    }
    if (later && (f & LARGE) && (f & FUNCTIONS) && !was(tried, TOW_WAY_TURN)) {
        return TOW_WAY_TURN;
    }
    return f & MIRRORED ? TOW_WAY_NAMED : download(f, tried);
}

static enum towc_copy_way flat(unsigned f, unsigned tried)
{
    if (f & ELSEWHERE) {
        return TOW_WAY_PEER;
    }
    bool up = f & UP, down = f & DOWN;
    if (up && down) {
        return TOW_WAY_MEMMOVE;
    }
    if ((up || down) && (f & CAPTURES)) {
        return TOW_WAY_CAPTURED;
    }
    if ((up || down) && (f & PARTLY)) {
        return TOW_WAY_SPLIT;
    }
    if ((f & SEEN) && (f & MIRRORS) && !was(tried, TOW_WAY_PUSH)) {
        return TOW_WAY_PUSH;
    }
    if (!up && !down) {
        return TOW_WAY_DEVICE;
    }
    if (f & SHARED) {
        return TOW_WAY_SHARED;
    }
    return up ? flat_up(f, tried) : flat_down(f, tried);
}

static enum towc_copy_way rows(unsigned f, unsigned tried)
{
    if (f & ELSEWHERE) {
        return TOW_WAY_PEER;
    }
    if ((f & MIRRORS) && !was(tried, TOW_WAY_PUSH)) {
        return TOW_WAY_PUSH;
    }
    bool up = f & UP, down = f & DOWN;
    if ((up || down) && (f & CAPTURES)) {
        return TOW_WAY_CAPTURED;
    }
    if (up == down) {
        return up ? TOW_WAY_MEMMOVE : TOW_WAY_DEVICE;
    }
    bool named = (f & SHARED) || (f & MIRRORED);
    bool later = down && !(f & WAIT) && !named && (f & PINNED) && (f & ROOM);
    if (named) {
        return TOW_WAY_NAMED;
    }
    if (later) {
        return TOW_WAY_ASYNC;
    }
    if (up && waits_for_its_turn(f, tried)) {
        return TOW_WAY_WAIT_TURN;
    }
    if (!(f & WAIT) && (f & PINNED) && (f & FUNCTIONS) && !was(tried, TOW_WAY_TURN)) {
        return TOW_WAY_TURN;
    }
    if (up && (f & EXPECTED) && !was(tried, TOW_WAY_WAIT_SOURCE)) {
        return TOW_WAY_WAIT_SOURCE;
    }
    return up ? upload(f, tried) : download(f, tried);
}

/* False for facts that client/copy/look.c never finds together, or what no loop leaves behind. */
static bool can_be(unsigned f, unsigned tried)
{
    bool up = f & UP, down = f & DOWN;
    return !((f & SHARED) && (f & PARTLY)) && !((f & EXPECTED) && !up) &&
           !((f & CAPTURES) && ((f & WAIT) || !(up || down))) &&
           !((f & CAPTURES) && (f & FLAT) && up && down) &&
           !((f & (SHARED | PARTLY | MIRRORED)) && up == down) && !((f & BAD) && !(f & FLAT)) &&
           !((f & ROOM) && (up || !down || !(f & PINNED) || (f & (WAIT | SHARED)))) &&
           !((f & LONG) && (!up || ((f & FLAT) && (f & STAGING)))) &&
           !(!(f & FLAT) && was(tried, TOW_WAY_ASYNC)) && f < TOW_FACT_END;
}

static enum towc_copy_way oracle(unsigned f, unsigned tried)
{
    return f & FLAT ? flat(f, tried) : rows(f, tried);
}

/* The table without one of its rules. */
static enum towc_copy_way without(size_t skipped, unsigned facts, unsigned tried)
{
    for (size_t i = 0; i < towc_copy_rule_count; i++) {
        const struct towc_copy_rule *rule = &towc_copy_rules[i];
        if (i != skipped && (facts & rule->all) == rule->all && (facts & rule->none) == 0 &&
            !was(tried, rule->way)) {
            return rule->way;
        }
    }
    return TOW_WAY_COUNT;
}

/* ---- tests ---- */

static void rules_say_what_the_questions_say(void **state)
{
    (void)state;
    unsigned compared = 0;
    for (unsigned f = 0; f < TOW_FACT_END; f++) {
        /* Few: what nothing else is asked of, or the rules do not ask for. */
        unsigned few = f & (ELSEWHERE | CAPTURES | BAD | LONG) ? 2 : 1u << LEAVING;
        for (unsigned t = 0; t < few; t++) {
            unsigned tried = tried_of(t);
            if (can_be(f, tried)) {
                compared++;
                if (towc_copy_plan(f, tried) != oracle(f, tried)) {
                    fail_msg("facts %#x, tried %#x: %d, not %d", f, tried,
                             (int)towc_copy_plan(f, tried), (int)oracle(f, tried));
                }
            }
        }
    }
    assert_true(compared > 1000000);
}

static void loop_ends(void **state)
{
    (void)state;
    /* Even if all that may decline does, the line is reached, and no way is asked twice. */
    for (unsigned f = 0; f < TOW_FACT_END; f++) {
        unsigned tried = 0;
        enum towc_copy_way way = towc_copy_plan(f, tried);
        for (unsigned rounds = 0; way != TOW_WAY_LINE; rounds++) {
            bool leaves = false;
            for (unsigned i = 0; i < LEAVING; i++) {
                leaves = leaves || leaving[i] == way;
            }
            if (!leaves) {
                break;
            }
            assert_false(was(tried, way));
            assert_true(rounds < LEAVING);
            tried |= 1u << way;
            way = towc_copy_plan(f, tried);
        }
    }
}

static void every_rule_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i + 1 < towc_copy_rule_count; i++) {
        bool needed = false;
        for (unsigned f = 0; f < TOW_FACT_END && !needed; f++) {
            for (unsigned t = 0; t < 1u << LEAVING && !needed; t++) {
                unsigned tried = tried_of(t);
                needed = can_be(f, tried) && without(i, f, tried) != oracle(f, tried);
            }
        }
        if (!needed) {
            fail_msg("rule %zu changes nothing", i);
        }
    }
    const struct towc_copy_rule *last = &towc_copy_rules[towc_copy_rule_count - 1];
    assert_int_equal(last->way, TOW_WAY_LINE);
    assert_int_equal(last->all | last->none, 0);
}

static void synchronous_copies_are_awaited(void **state)
{
    (void)state;
    for (unsigned f = 0; f < TOW_FACT_END; f++) {
        if (!(f & WAIT) || !can_be(f, 0)) {
            continue;
        }
        for (enum towc_copy_way way = 0; way < TOW_WAY_COUNT; way++) {
            bool up = f & UP, seen = f & SEEN, pinned = f & PINNED, lasts = f & LONG;
            bool waits = way == TOW_WAY_NAMED    ? true
                         : way == TOW_WAY_DEVICE ? seen
                         : way == TOW_WAY_STAGED ? up && (seen || pinned)
                         : way == TOW_WAY_LINE   ? up && (seen || pinned || lasts)
                                                 : false;
            assert_int_equal(towc_copy_awaits(f, way), waits);
        }
    }
}

/* Some that a reader expects, without the chains. */
static void known_copies_go_their_way(void **state)
{
    (void)state;
    const struct {
        unsigned facts, tried;
        enum towc_copy_way way;
    } known[] = {
        {FLAT | UP, 0, TOW_WAY_LINE},
        {FLAT | UP | STAGING, 0, TOW_WAY_STAGED},
        {FLAT | UP | STAGING, 1u << TOW_WAY_STAGED, TOW_WAY_LINE},
        {FLAT | UP | STAGING | SMALL, 0, TOW_WAY_LINE},
        {FLAT | DOWN | STAGING | SMALL | WAIT, 0, TOW_WAY_FETCHED},
        {FLAT | DOWN | PINNED | ROOM, 0, TOW_WAY_ASYNC},
        {FLAT | DOWN | PINNED | ROOM | WAIT, 0, TOW_WAY_LINE},
        {FLAT | UP | PINNED | SHARED | STAGING, 0, TOW_WAY_SHARED},
        {UP | PINNED | SHARED | STAGING, 0, TOW_WAY_NAMED},
        {FLAT | UP | PINNED | PARTLY | STAGING, 0, TOW_WAY_SPLIT},
        {UP | PINNED | PARTLY | STAGING, 0, TOW_WAY_STAGED},
        {FLAT | UP | PINNED | FUNCTIONS, 0, TOW_WAY_DEFERRED},
        {UP | PINNED | FUNCTIONS, 0, TOW_WAY_TURN},
        {FLAT | UP | PINNED | FUNCTIONS | WAIT, 0, TOW_WAY_WAIT_TURN},
        {UP | PINNED | FUNCTIONS | WAIT, 0, TOW_WAY_WAIT_TURN},
        {FLAT | UP | PINNED | FUNCTIONS | WAIT, 1u << TOW_WAY_WAIT_TURN, TOW_WAY_LINE},
        {FLAT | UP | FUNCTIONS | WAIT, 0, TOW_WAY_LINE},
        {FLAT | UP | EXPECTED | MIRRORED, 0, TOW_WAY_WAIT_SOURCE},
        {UP | EXPECTED | MIRRORED, 0, TOW_WAY_NAMED},
        {FLAT | SEEN | MIRRORS, 0, TOW_WAY_PUSH},
        {FLAT | SEEN | MIRRORS, 1u << TOW_WAY_PUSH, TOW_WAY_DEVICE},
        {FLAT | UP | DOWN | MIRRORS, 0, TOW_WAY_MEMMOVE},
        {UP | DOWN | CAPTURES, 0, TOW_WAY_CAPTURED},
        {FLAT | UP | ELSEWHERE, 0, TOW_WAY_PEER},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(towc_copy_plan(known[i].facts, known[i].tried), known[i].way);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_copies_go_their_way),
        cmocka_unit_test(rules_say_what_the_questions_say),
        cmocka_unit_test(loop_ends),
        cmocka_unit_test(every_rule_is_needed),
        cmocka_unit_test(synchronous_copies_are_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
