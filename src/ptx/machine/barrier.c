/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers of a block (bar, barrier) and of a cluster. */
#include <string.h>

#include "ptx/machine/barrier.h"

/* Threads that count as arrived. A warp all of whose living threads have come counts as a whole
 * one, because that is how counts in programs are written. */
static uint32_t barrier_counted(const struct tow_ptx_block *block,
                                const struct tow_ptx_barrier *barrier)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < block->warp_count; i++) {
        uint32_t lanes = barrier->warps[i];
        if (!lanes) {
            continue;
        }
        total +=
            (lanes | block->warps[i].dead) == FULL ? LANES : (uint32_t)__builtin_popcount(lanes);
    }
    return total;
}

void tow_ptx_barrier_check(struct tow_ptx_block *block, unsigned number)
{
    struct tow_ptx_barrier *barrier = &block->barriers[number];
    if (!(block->barriers_used >> number & 1u)) {
        return;
    }
    if (barrier->expected ? barrier_counted(block, barrier) < barrier->expected
                          : barrier->arrived + block->exited < block->threads) {
        return;
    }
    uint32_t popc = barrier->red_popc, all = barrier->red_and, any = barrier->red_or;
    for (uint32_t i = 0; i < block->warp_count && barrier->waiting; i++) {
        struct tow_ptx_warp *w = &block->warps[i];
        for (uint32_t g = 0; g < w->groups_used; g++) {
            struct tow_ptx_group *group = &w->groups[g];
            if (group->state != GROUP_BARRIER || group->barrier != number) {
                continue;
            }
            group->state = GROUP_RUN;
            const struct tow_ptx_op *o = group->pc - 1;
            if (o->e) { /* bar.red: the result goes to the rows of the waiting group's frame */
                uint32_t *d = (uint32_t *)(group->frame->regs + (o->d & ~3u));
                if (o->e == BAR_POPC) {
                    FOR_LANES(l, group->mask)
                    {
                        d[l] = popc;
                    }
                } else {
                    bool value = o->e == BAR_AND ? all : any;
                    *d = value ? *d | group->mask : *d & ~group->mask;
                }
            }
        }
    }
    memset(barrier, 0, sizeof *barrier);
    block->barriers_used &= ~(1u << number);
}

/* Operand rows: a barrier number, b thread count (PTX_NO_SLOT without), c predicate; f: BAR_ARRIVE;
 * e: kind of reduction, 0 without. */
const struct tow_ptx_op *tow_ptx_bar(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    unsigned first = (unsigned)__builtin_ctz(w->exec);
    uint32_t number = ((const uint32_t *)tow_ptx_row(w, o->a))[first];
    uint32_t count = o->b == PTX_NO_SLOT ? 0 : ((const uint32_t *)tow_ptx_row(w, o->b))[first];
    if (number >= BARRIERS || count > 1024 + LANES) {
        return tow_ptx_fault(w, o, TOW_PTX_FAULT_INSTRUCTION, first, number,
                             "barrier %u with %u threads does not exist", number, count);
    }
    struct tow_ptx_barrier *barrier = &w->block->barriers[number];
    if (!(w->block->barriers_used >> number & 1u)) {
        w->block->barriers_used |= 1u << number;
        barrier->expected = count;
        barrier->red_and = 1;
    } else if (count > barrier->expected && barrier->expected) {
        barrier->expected = count;
    }
    uint32_t mask = w->exec, threads = tow_ptx_lanes_in(mask);
    barrier->warps[w->index] |= mask;
    barrier->arrived += threads;
    if (o->e) {
        uint32_t p = tow_ptx_pred(w, o->c) & mask;
        barrier->red_popc += (uint32_t)__builtin_popcount(p);
        barrier->red_or |= p != 0;
        barrier->red_and &= p == mask;
    }
    if (o->f == BAR_ARRIVE) {
        tow_ptx_barrier_check(w->block, number);
        return o + 1;
    }
    barrier->waiting++;
    w->groups[w->current].barrier = (uint8_t)number;
    tow_ptx_park(w, o + 1, GROUP_BARRIER);
    tow_ptx_barrier_check(w->block, number);
    if (w->groups_used == 1 && w->groups[0].state == GROUP_RUN) {
        return o + 1;
    }
    return HALT;
}

/* bar.warp.sync with a mask that is known: o->b. */
const struct tow_ptx_op *tow_ptx_bar_warp_fixed(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    if (!(o->b & ~w->dead & ~w->exec)) {
        return o + 1;
    }
    w->groups[w->current].members = o->b;
    return tow_ptx_park(w, o + 1, GROUP_WARPBAR);
}

/* bar.warp.sync: tiles of a warp may come together, each with its own mask. */
const struct tow_ptx_op *tow_ptx_bar_warp(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    const uint32_t *masks = tow_ptx_row(w, o->a);
    uint32_t members = 0;
    FOR_LANES(l, w->exec)
    {
        members |= masks[l];
    }
    if (!(members & ~w->dead & ~w->exec)) {
        return o + 1;
    }
    w->groups[w->current].members = members;
    return tow_ptx_park(w, o + 1, GROUP_WARPBAR);
}

void tow_ptx_cluster_check(struct tow_ptx_cluster *cluster)
{
    if (!cluster->waiting && !cluster->arrived) {
        return;
    }
    if (cluster->arrived < cluster->threads) {
        return;
    }
    cluster->arrived = 0;
    cluster->waiting = 0;
    cluster->phase++;
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct tow_ptx_block *block = cluster->blocks[b];
        for (uint32_t i = 0; i < block->warp_count; i++) {
            struct tow_ptx_warp *w = &block->warps[i];
            for (uint32_t g = 0; g < w->groups_used; g++) {
                if (w->groups[g].state == GROUP_CLUSTER) {
                    w->groups[g].state = GROUP_RUN;
                }
            }
            w->cluster_arrived = 0;
        }
    }
}

const struct tow_ptx_op *tow_ptx_cluster_arrive(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_cluster *cluster = w->block->cluster;
    if (cluster) {
        cluster->arrived += (uint32_t)__builtin_popcount(w->exec & ~w->cluster_arrived);
        w->cluster_arrived |= w->exec;
        tow_ptx_cluster_check(cluster);
    }
    return o + 1;
}

const struct tow_ptx_op *tow_ptx_cluster_wait(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_cluster *cluster = w->block->cluster;
    if (!cluster || !(w->cluster_arrived & w->exec)) {
        return o + 1; /* the phase that was arrived at is already complete */
    }
    cluster->waiting++;
    return tow_ptx_park(w, o + 1, GROUP_CLUSTER);
}
