/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in front of barriers, of .sync instructions and of the end of threads in modules that
 * were loaded to be checked. It looks, tells, and changes nothing.
 *
 * Threads that have ended count as arrived, so a program may end threads in front of a barrier.
 * What is told is certain: two barriers that threads of one warp take for one; a thread that goes
 * around a barrier and on through code behind it, while others of its warp wait there; masks that
 * name not their own thread, or not alike. */
#include <stdlib.h>

#include "ptx/machine/check.h"
#include "ptx/machine/control.h"

/* ---- masks: row a ---- */

const struct tow_ptx_op *tow_ptx_check_mask(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    if (!tow_ptx_checks_sync(w)) {
        return o + 1;
    }
    const uint32_t *masks = tow_ptx_row(w, o->a);
    FOR_LANES(l, w->exec)
    {
        if (!(masks[l] >> l & 1u)) {
            tow_ptx_tell(w, o, TOW_PTX_FAULT_MASK_CALLER, l,
                         "a thread's mask 0x%08x does not name itself (lane %u)", masks[l], l);
        }
        FOR_LANES(k, masks[l] & w->exec)
        {
            if (masks[k] != masks[l]) {
                tow_ptx_tell(w, o, TOW_PTX_FAULT_MASK_OTHER, l,
                             "a thread's mask 0x%08x names lane %u, whose mask is 0x%08x", masks[l],
                             k, masks[k]);
                break;
            }
        }
    }
    return o + 1;
}

/* ---- aligned barriers: row a is the number ---- */

const struct tow_ptx_op *tow_ptx_check_bar(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    if (w->groups_used == 1 || !tow_ptx_checks_sync(w)) {
        return o + 1;
    }
    uint32_t number = ((const uint32_t *)tow_ptx_row(w, o->a))[__builtin_ctz(w->exec)];
    for (uint32_t i = 0; i < w->groups_used; i++) {
        const struct tow_ptx_group *group = &w->groups[i];
        /* The operation behind the barrier, which is behind this one. */
        if (group->state != GROUP_BARRIER || group->barrier != number || group->pc == o + 2 ||
            group->pc[-2].body != tow_ptx_check_bar) {
            continue;
        }
        tow_ptx_tell(w, group->pc - 1, TOW_PTX_FAULT_DIVERGED, (unsigned)__builtin_ctz(group->mask),
                     "threads wait at a barrier while others of their warp are at the one of line "
                     "%u of the PTX",
                     o->line);
    }
    return o + 1;
}

static bool ends_thread(const struct tow_ptx_op *o)
{
    return o->body == tow_ptx_exit_op || o->body == tow_ptx_ret_op;
}

static bool ends_all(const struct tow_ptx_op *o)
{
    return o->body == tow_ptx_trap || o->body == tow_ptx_fell_off || o->body == tow_ptx_not_run;
}

static bool moves_on(const struct tow_ptx_op *o)
{
    return o->body == tow_ptx_bra || o->body == tow_ptx_bra_if || o->body == tow_ptx_brx ||
           ends_thread(o) || ends_all(o);
}

/* Calls `visit` for each operation that may come next; false as soon as it is false. */
static bool each_next(const struct tow_ptx_op *o,
                      bool (*visit)(void *user, const struct tow_ptx_op *next), void *user)
{
    bool guarded = o->run != o->body;
    if (o->body == tow_ptx_brx) {
        const struct tow_ptx_op *const *targets = o->ext;
        for (int64_t i = 0; i < o->imm; i++) {
            if (!visit(user, targets[i])) {
                return false;
            }
        }
        return !guarded || visit(user, o + 1);
    }
    if (o->body == tow_ptx_bra || o->body == tow_ptx_bra_if) {
        return visit(user, o->target) && (o->body == tow_ptx_bra || visit(user, o + 1));
    }
    if (ends_thread(o) || ends_all(o)) {
        return !guarded || visit(user, o + 1);
    }
    return visit(user, o + 1);
}

static bool is_not(void *user, const struct tow_ptx_op *next)
{
    return next != user;
}

/* The first operation of the straight line that leads to `o`. */
static const struct tow_ptx_op *line_begin(const struct tow_ptx_func *func,
                                           const struct tow_ptx_op *o)
{
    while (o > func->code && !moves_on(o - 1) && o[-1].run != tow_ptx_guarded_control) {
        for (uint32_t i = 0; i < func->op_count; i++) {
            const struct tow_ptx_op *from = &func->code[i];
            if (moves_on(from) && !each_next(from, is_not, (void *)o)) {
                return o;
            }
        }
        o--;
    }
    return o;
}

struct search {
    const struct tow_ptx_func *func;
    const struct tow_ptx_op *without;
    uint8_t *seen;
    uint32_t *open;
    uint32_t count;
};

static bool search_visit(void *user, const struct tow_ptx_op *next)
{
    struct search *search = user;
    uint32_t at = (uint32_t)(next - search->func->code);
    if (next != search->without && !search->seen[at]) {
        search->seen[at] = 1;
        search->open[search->count++] = at;
    }
    return true;
}

/* Whether nobody who is at `from` can end without coming through `to`. */
static bool must_come_through(const struct tow_ptx_func *func, const struct tow_ptx_op *from,
                              const struct tow_ptx_op *to)
{
    struct search search = {.func = func,
                            .without = to,
                            .seen = calloc(func->op_count, 1),
                            .open = calloc(func->op_count, sizeof(uint32_t))};
    bool must = search.seen && search.open;
    if (must) {
        search_visit(&search, from);
    }
    while (must && search.count > 0) {
        const struct tow_ptx_op *o = &func->code[search.open[--search.count]];
        must = !ends_thread(o);
        each_next(o, search_visit, &search);
    }
    free(search.seen);
    free(search.open);
    return must;
}

/* Threads end here: have they gone around a barrier where others of their warp wait? */
const struct tow_ptx_op *tow_ptx_check_end(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    if (w->groups_used == 1 || !tow_ptx_checks_sync(w)) {
        return o + 1;
    }
    struct tow_ptx_frame *frame = w->groups[w->current].frame;
    const struct tow_ptx_op *begin = NULL;
    for (uint32_t i = 0; i < w->groups_used; i++) {
        const struct tow_ptx_group *group = &w->groups[i];
        if (group->state != GROUP_BARRIER || group->frame != frame ||
            group->pc[-2].body != tow_ptx_check_bar) {
            continue;
        }
        begin = begin ? begin : line_begin(frame->func, o);
        if (begin == o || !must_come_through(frame->func, group->pc, begin)) {
            continue; /* they do nothing that the others do behind the barrier */
        }
        tow_ptx_tell(w, group->pc - 1, TOW_PTX_FAULT_DIVERGED, (unsigned)__builtin_ctz(group->mask),
                     "threads wait at a barrier while others of their warp go around it");
    }
    return o + 1;
}
