/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of copies. */
#include "client/copy/plan.h"

enum {
    UP = TOW_FACT_UP,
    DOWN = TOW_FACT_DOWN,
    WAIT = TOW_FACT_WAIT,
    FLAT = TOW_FACT_FLAT,
    PINNED = TOW_FACT_PINNED,
    MIRRORS = TOW_FACT_MIRRORS,
    EXPECTED = TOW_FACT_EXPECTED,
    FUNCTIONS = TOW_FACT_FUNCTIONS,
};

const struct towc_copy_rule towc_copy_rules[] = {
    /* One GPU does not reach the other's memory. */
    {TOW_WAY_PEER, TOW_FACT_ELSEWHERE, 0},

    /* What is pushed after a copy would overwrite what that brought. Of rows it is not asked
     * whether any of them are mirrored. */
    {TOW_WAY_PUSH, MIRRORS, FLAT},

    /* The graph reads and writes the program's memory at every launch. */
    {TOW_WAY_CAPTURED, TOW_FACT_CAPTURES, 0},
    {TOW_WAY_MEMMOVE, UP | DOWN, 0},

    /* Of registered memory the ends are not shared. Rows are copied as one piece. */
    {TOW_WAY_SPLIT, FLAT | TOW_FACT_PARTLY, 0},
    {TOW_WAY_PUSH, MIRRORS | TOW_FACT_SEEN, 0},
    {TOW_WAY_DEVICE, 0, UP | DOWN},
    {TOW_WAY_SHARED, FLAT | TOW_FACT_SHARED, 0},

    /* The source must be whole; of rows that are named the worker's copy counts. */
    {TOW_WAY_WAIT_SOURCE, FLAT | UP | EXPECTED, 0},

    /* Kernels before and behind it use the worker's copy. */
    {TOW_WAY_NAMED, TOW_FACT_MIRRORED, 0},
    {TOW_WAY_NAMED, TOW_FACT_SHARED, 0},

    /* Page-locked memory is read and written in the stream's order. */
    {TOW_WAY_WAIT_TURN, UP | PINNED | FUNCTIONS | WAIT, 0},
    {TOW_WAY_DEFERRED, FLAT | UP | PINNED | FUNCTIONS, WAIT},
    {TOW_WAY_ASYNC, DOWN | PINNED | TOW_FACT_ROOM, WAIT},

    /* That of large copies and of rows, too, where host functions take part in that order. A mirror
     * costs every launch from then on. */
    {TOW_WAY_TURN, UP | PINNED | FUNCTIONS, WAIT},
    {TOW_WAY_TURN, DOWN | PINNED | FUNCTIONS, WAIT | FLAT},
    {TOW_WAY_TURN, DOWN | PINNED | FUNCTIONS | TOW_FACT_LARGE, WAIT},
    {TOW_WAY_WAIT_SOURCE, UP | EXPECTED, 0},

    /* Ten times as fast as a line; but what is small is there sooner in its command. */
    {TOW_WAY_FETCHED, DOWN | TOW_FACT_STAGING | TOW_FACT_SMALL, 0},
    {TOW_WAY_STAGED, TOW_FACT_STAGING, TOW_FACT_SMALL},
    {TOW_WAY_LINE, 0, 0},
};
const size_t towc_copy_rule_count = sizeof towc_copy_rules / sizeof *towc_copy_rules;

enum towc_copy_way towc_copy_plan(unsigned facts, unsigned tried)
{
    const struct towc_copy_rule *rule = towc_copy_rules;
    while ((facts & rule->all) != rule->all || (facts & rule->none) != 0 ||
           (tried >> rule->way & 1) != 0) {
        rule++;
    }
    return rule->way;
}

bool towc_copy_awaits(unsigned facts, enum towc_copy_way way)
{
    switch (way) {
    case TOW_WAY_DEVICE:
        return (facts & TOW_FACT_SEEN) != 0;
    case TOW_WAY_NAMED:
        return true;
    /* Pageable memory has been read when it is sent. */
    case TOW_WAY_STAGED:
        return (facts & UP) && (facts & (PINNED | TOW_FACT_SEEN));
    case TOW_WAY_LINE:
        return (facts & UP) && (facts & (PINNED | TOW_FACT_SEEN | TOW_FACT_LONG));
    default:
        return false;
    }
}
