/* SPDX-License-Identifier: Apache-2.0 */
/* A warp: groups of threads that are at the same place, which of them runs, where they meet again.
 *
 * A warp that has not diverged is one group and pays nothing. When a branch divides it, the group
 * deepest in calls and, among those, lowest in the code runs first, and stops where another one
 * waits (`limit`), so that groups meet again at the join of an if and at the end of a loop. Whoever
 * loops for long must let the others run (`rotate`): threads of one warp may wait for each other.
 */
#include "ptx/machine/check.h"
#include "ptx/machine/machine.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_UNIFORM 4000
#define SLICE_DIVERGED 1500

static unsigned size_class(uint32_t bytes)
{
    unsigned class = 0;
    while (class < 15 && (1024u << class) < bytes) {
        class ++;
    }
    return class;
}

struct tow_ptx_frame *tow_ptx_frame_take(struct tow_ptx_runner *runner,
                                         const struct tow_ptx_func *func)
{
    unsigned class = size_class(func->frame_bytes);
    uint32_t capacity = 1024u << class;
    struct tow_ptx_frame *frame = runner->free_frames[class];
    if (frame && frame->capacity >= func->frame_bytes) {
        runner->free_frames[class] = frame->up;
    } else {
        if (capacity < func->frame_bytes) {
            capacity = func->frame_bytes;
        }
        size_t head = (sizeof *frame + 127) & ~(size_t)127;
        if (runner->frame_bytes + capacity > FRAMES_BYTES_MAX) {
            return NULL;
        }
        frame = aligned_alloc(128, (head + capacity + 127) & ~(size_t)127);
        if (!frame) {
            return NULL;
        }
        memset(frame, 0, head + capacity);
        frame->regs = (uint8_t *)frame + head;
        frame->capacity = capacity;
        runner->frame_bytes += capacity;
    }
    PTX_ONLY_FIRST(frame->regs, func->frame_bytes, frame->capacity);
    frame->func = func;
    return frame;
}

void tow_ptx_frame_give(struct tow_ptx_runner *runner, struct tow_ptx_frame *frame)
{
    unsigned class = size_class(frame->capacity);
    frame->up = runner->free_frames[class];
    runner->free_frames[class] = frame;
}

void tow_ptx_warp_start(struct tow_ptx_warp *w, const struct tow_ptx_func *func, uint32_t lanes)
{
    w->dead = ~lanes;
    w->groups_used = 1;
    w->current = 0;
    w->favour = -1;
    w->turn = 0;
    struct tow_ptx_frame *frame = tow_ptx_frame_take(w->runner, func);
    if (!frame) {
        w->groups_used = 0;
        tow_ptx_fault(w, NULL, TOW_PTX_FAULT_MEMORY, 0, 0, "out of host memory for registers");
        return;
    }
    frame->up = NULL;
    frame->return_to = NULL;
    frame->call = NULL;
    frame->lanes = lanes;
    frame->depth = 0;
    frame->local_base = 0;
    frame->local_top = (func->local_bytes + 15u) & ~15u;
    w->groups[0] =
        (struct tow_ptx_group){.pc = func->code, .frame = frame, .mask = lanes, .state = GROUP_RUN};
}

void tow_ptx_split(struct tow_ptx_warp *w, uint32_t mask, const struct tow_ptx_op *pc)
{
    struct tow_ptx_group *current = &w->groups[w->current];
    struct tow_ptx_group *other = &w->groups[w->groups_used++];
    *other =
        (struct tow_ptx_group){.pc = pc, .frame = current->frame, .mask = mask, .state = GROUP_RUN};
    current->mask &= ~mask;
    w->mask = current->mask;
    tow_ptx_set_exec(w, w->mask);
}

const struct tow_ptx_op *tow_ptx_fork(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                      uint32_t taken)
{
    struct tow_ptx_group *current = &w->groups[w->current], *others = NULL;
    bool back = o->target <= o;
    const struct tow_ptx_op *low = back ? o->target : o + 1, *high = back ? o + 1 : o->target;
    uint32_t stay = back ? taken : w->mask & ~taken;
    for (uint32_t i = 0; i < w->groups_used && !others; i++) {
        struct tow_ptx_group *group = &w->groups[i];
        bool there = group->pc == high && group->frame == current->frame;
        others = there && group != current && group->state == GROUP_RUN ? group : NULL;
    }
    if (w->groups_used == 1 && w->budget > SLICE_DIVERGED) {
        w->budget = SLICE_DIVERGED;
    }
    if (others) {
        others->mask |= w->mask & ~stay;
        current->mask = w->mask = stay;
        tow_ptx_set_exec(w, stay);
    } else {
        tow_ptx_split(w, w->mask & ~stay, high);
    }
    w->limit = high < w->limit ? high : w->limit;
    if (back && --w->budget <= 0) {
        return tow_ptx_yield(w, low);
    }
    if (w->favour >= 0) { /* it may be among those who wait */
        current->pc = low;
        return HALT;
    }
    return low;
}

const struct tow_ptx_op *tow_ptx_yield(struct tow_ptx_warp *w, const struct tow_ptx_op *pc)
{
    w->groups[w->current].pc = pc;
    w->yielded = true;
    return HALT;
}

const struct tow_ptx_op *tow_ptx_park(struct tow_ptx_warp *w, const struct tow_ptx_op *pc,
                                      enum tow_ptx_group_state state)
{
    w->groups[w->current].pc = pc;
    w->groups[w->current].state = (uint8_t)state;
    return HALT;
}

/* Threads `mask` at `o` go on without others that `members` names: told where that is checked. */
static void warp_alone(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t mask,
                       uint32_t members)
{
    if (tow_ptx_checks_sync(w)) {
        uint32_t missing = members & ~w->dead & ~mask;
        tow_ptx_tell(w, o, TOW_PTX_FAULT_MASK_OTHER, (unsigned)__builtin_ctz(mask),
                     "lanes 0x%08x, which a mask 0x%08x names, are elsewhere and cannot come",
                     missing, members);
    }
}

bool tow_ptx_gather(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t members)
{
    struct tow_ptx_group *group = &w->groups[w->current];
    if (!(members & ~w->dead & ~w->mask)) {
        group->state = GROUP_RUN;
        return true;
    }
    if (group->state == GROUP_SYNC) { /* nobody else can come: go on with who is here */
        warp_alone(w, o, w->mask, members);
        group->state = GROUP_RUN;
        return true;
    }
    group->members = members;
    tow_ptx_park(w, o, GROUP_SYNC);
    return false;
}

static void remove_group(struct tow_ptx_warp *w, uint32_t index)
{
    if (index != --w->groups_used) { /* who has just been written is slow to read */
        w->groups[index] = w->groups[w->groups_used];
    }
    if (w->current == w->groups_used) {
        w->current = index;
    }
}

const struct tow_ptx_op *tow_ptx_exit(struct tow_ptx_warp *w, uint32_t mask)
{
    struct tow_ptx_group *group = &w->groups[w->current];
    w->dead |= mask;
    w->block->exited += tow_ptx_lanes_in(mask);
    /* exit inside a call leaves every frame on the way up */
    struct tow_ptx_frame *frame = group->frame;
    while (frame) {
        struct tow_ptx_frame *up = frame->up;
        frame->lanes &= ~mask;
        if (!frame->lanes) {
            tow_ptx_frame_give(w->runner, frame);
        }
        frame = up;
    }
    group->mask &= ~mask;
    if (!group->mask) {
        remove_group(w, w->current);
    }
    FOR_LANES(i, w->block->barriers_used)
    {
        tow_ptx_barrier_check(w->block, i);
    }
    if (w->block->cluster) {
        /* Gone threads no longer count, neither among those to come nor among those that came. */
        w->block->cluster->threads -= tow_ptx_lanes_in(mask);
        if (mask & w->cluster_arrived) { /* else what is read next is not just written */
            w->block->cluster->arrived -= tow_ptx_lanes_in(mask & w->cluster_arrived);
            w->cluster_arrived &= ~mask;
        }
        tow_ptx_cluster_check(w->block->cluster);
    }
    return HALT;
}

/* bar.warp.sync: lets go of those whose members are all there (or gone). */
static bool release_warp_barrier(struct tow_ptx_warp *w)
{
    uint32_t there = w->dead;
    bool any = false;
    for (uint32_t i = 0; i < w->groups_used; i++) {
        if (w->groups[i].state == GROUP_WARPBAR) {
            there |= w->groups[i].mask;
        }
    }
    for (uint32_t i = 0; i < w->groups_used; i++) {
        if (w->groups[i].state == GROUP_WARPBAR && !(w->groups[i].members & ~there)) {
            w->groups[i].state = GROUP_RUN;
            any = true;
        }
    }
    return any;
}

void tow_ptx_end_wrong(struct tow_ptx_warp *w)
{
    uint32_t wrong = w->wrong & w->groups[w->current].mask;
    w->wrong = 0;
    /* Whose lane was not its own ends as a whole, or it would begin again for ever. */
    tow_ptx_exit(w, wrong ? wrong : w->groups[w->current].mask);
}

static bool runs_before(const struct tow_ptx_group *a, const struct tow_ptx_group *b)
{
    if (a->frame->depth != b->frame->depth) {
        return a->frame->depth > b->frame->depth;
    }
    return a->pc < b->pc;
}

/* Chooses the group to run, joins the others that are at the same place. False: none can run. */
static bool warp_choose(struct tow_ptx_warp *w)
{
    int best = -1;
    if (w->groups_used == 1 && w->groups[0].state == GROUP_RUN) {
        w->current = 0;
        w->limit = HALT;
        w->mask = w->groups[0].mask;
        tow_ptx_set_exec(w, w->mask);
        tow_ptx_set_base(w, BASE_FRAME, w->groups[0].frame->regs);
        return true;
    }
    for (uint32_t i = 0; i < w->groups_used; i++) {
        if (w->groups[i].state != GROUP_RUN) {
            continue;
        }
        if (w->favour >= 0 && (w->groups[i].mask >> w->favour) & 1u) {
            best = (int)i;
            break;
        }
        if (best < 0 || runs_before(&w->groups[i], &w->groups[best])) {
            best = (int)i;
        }
    }
    if (best < 0) {
        if (release_warp_barrier(w)) {
            return warp_choose(w);
        }
        bool held = false, release = w->release;
        w->release = false;
        for (uint32_t i = 0; i < w->groups_used; i++) {
            if (w->groups[i].state == GROUP_SYNC) {
                best = best < 0 || runs_before(&w->groups[i], &w->groups[best]) ? (int)i : best;
            } else if (w->groups[i].state == GROUP_WARPBAR && release) {
                w->groups[i].state = GROUP_RUN;
                w->current = i; /* whom it is about */
                warp_alone(w, w->groups[i].pc - 1, w->groups[i].mask, w->groups[i].members);
                return warp_choose(w);
            } else {
                held = true;
            }
        }
        /* With some threads at a barrier of the block, those may still come. */
        if (best < 0 || (held && !release)) {
            return false;
        }
    }
    struct tow_ptx_group *group = &w->groups[best];
    w->current = (uint32_t)best;
    w->limit = HALT;
    for (uint32_t i = 0; i < w->groups_used;) {
        struct tow_ptx_group *other = &w->groups[i];
        if (i == w->current || other->frame != group->frame ||
            (other->state != GROUP_RUN && other->state != GROUP_SYNC)) {
            i++;
            continue;
        }
        if (other->pc == group->pc) {
            group->mask |= other->mask;
            if (other->state == GROUP_SYNC || group->state == GROUP_SYNC) {
                group->state = GROUP_RUN; /* look again, now with more lanes */
            }
            remove_group(w, i);
            group = &w->groups[w->current];
            continue;
        }
        if (other->pc > group->pc && other->pc < w->limit) {
            w->limit = other->pc;
        }
        i++;
    }
    w->mask = group->mask;
    tow_ptx_set_exec(w, w->mask);
    tow_ptx_set_base(w, BASE_FRAME, group->frame->regs);
    return true;
}

/* After a slice: every other one goes to a group that the usual order would keep waiting. */
static void warp_rotate(struct tow_ptx_warp *w)
{
    int favour = -1;
    if (w->favour < 0 && w->groups_used > 1) {
        for (uint32_t i = 0; i < w->groups_used; i++) {
            struct tow_ptx_group *group = &w->groups[(w->turn + i) % w->groups_used];
            if (group != &w->groups[w->current] && group->state == GROUP_RUN) {
                favour = __builtin_ctz(group->mask);
                break;
            }
        }
        w->turn++;
    }
    w->favour = favour;
}

void tow_ptx_warp_run(struct tow_ptx_warp *w)
{
    w->budget = w->groups_used > 1 ? SLICE_DIVERGED : SLICE_UNIFORM;
    w->yielded = false;
    w->ran = false;
    while (w->groups_used && !w->runner->failed) {
        if (!warp_choose(w)) {
            return;
        }
        w->ran = true;
        const struct tow_ptx_op *op = w->groups[w->current].pc;
        while (op < w->limit) { /* which a branch may bring nearer */
            op = op->run(w, op);
        }
        if (op != HALT) {
            w->groups[w->current].pc = op;
        } else if (w->yielded) {
            if (w->wrong) {
                w->yielded = false;
                tow_ptx_end_wrong(w);
                continue;
            }
            if (tow_ptx_overdue(w)) {
                return;
            }
            warp_rotate(w);
            return;
        }
    }
}
