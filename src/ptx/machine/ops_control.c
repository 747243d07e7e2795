/* SPDX-License-Identifier: Apache-2.0 */
/* Branches, exits, guards, traps. */
#include <string.h>

#include "ptx/machine/control.h"

/* An operation under a guard that does not itself move threads about. */
const struct tow_ptx_op *tow_ptx_guarded(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    uint32_t p = tow_ptx_pred(w, o->guard & ~3u);
    p = o->guard & 1u ? ~p : p;
    uint32_t m = w->mask & p;
    if (m == w->mask) {
        return o->body(w, o);
    }
    if (!m) {
        return o + 1;
    }
    tow_ptx_set_exec(w, m);
    const struct tow_ptx_op *next = o->body(w, o);
    tow_ptx_set_exec(w, w->mask);
    return next;
}

/* The same for operations that move threads: those that skip it become a group of their own. */
const struct tow_ptx_op *tow_ptx_guarded_control(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    uint32_t p = tow_ptx_pred(w, o->guard & ~3u);
    p = o->guard & 1u ? ~p : p;
    uint32_t m = w->mask & p;
    if (m == w->mask) {
        return o->body(w, o);
    }
    if (!m) {
        return o + 1;
    }
    tow_ptx_split(w, w->mask & ~m, o + 1);
    const struct tow_ptx_op *next = o->body(w, o);
    if (next != HALT) {
        w->groups[w->current].pc = next;
    }
    return HALT;
}

static inline const struct tow_ptx_op *
ops_control_jump(struct tow_ptx_warp *w, const struct tow_ptx_op *o, const struct tow_ptx_op *to)
{
    if (to <= o && --w->budget <= 0) {
        return tow_ptx_yield(w, to);
    }
    return to;
}

const struct tow_ptx_op *tow_ptx_bra(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    return ops_control_jump(w, o, o->target);
}

const struct tow_ptx_op *tow_ptx_bra_if(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    uint32_t p = tow_ptx_pred(w, o->guard & ~3u);
    p = o->guard & 1u ? ~p : p;
    uint32_t taken = w->mask & p;
    if (taken == w->mask) {
        return ops_control_jump(w, o, o->target);
    }
    if (!taken) {
        return o + 1;
    }
    return tow_ptx_fork(w, o, taken);
}

/* brx.idx: each lane picks a label out of a table. */
const struct tow_ptx_op *tow_ptx_brx(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    const uint32_t *index = tow_ptx_row(w, o->a);
    const struct tow_ptx_op *const *targets = o->ext;
    uint32_t left = w->mask;
    FOR_LANES(l, left)
    {
        if (index[l] >= (uint32_t)o->imm) {
            return tow_ptx_fault(w, o, TOW_PTX_FAULT_INSTRUCTION, l, index[l],
                                 "brx.idx picks entry %u of a table of %u", index[l],
                                 (uint32_t)o->imm);
        }
    }
    for (;;) {
        uint32_t pick = index[__builtin_ctz(left)], same = 0;
        FOR_LANES(l, left)
        {
            same |= (uint32_t)(index[l] == pick) << l;
        }
        left &= ~same;
        if (!left) {
            if (w->groups_used == 1) {
                return ops_control_jump(w, o, targets[pick]);
            }
            w->groups[w->current].pc = targets[pick];
            if (targets[pick] <= o && --w->budget <= 0) {
                w->yielded = true;
            }
            return HALT;
        }
        tow_ptx_split(w, same, targets[pick]);
    }
}

const struct tow_ptx_op *tow_ptx_exit_op(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    (void)o;
    return tow_ptx_exit(w, w->exec);
}

const struct tow_ptx_op *tow_ptx_trap(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    return tow_ptx_fault(w, o, TOW_PTX_FAULT_TRAP, (unsigned)__builtin_ctz(w->exec), 0, "%s",
                         o->imm ? "breakpoint" : "the kernel executed trap");
}

/* Stands behind the last instruction of each function. */
const struct tow_ptx_op *tow_ptx_fell_off(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    return tow_ptx_fault(w, o, TOW_PTX_FAULT_TRAP, (unsigned)__builtin_ctz(w->exec), 0,
                         "control runs off the end of a function");
}

const struct tow_ptx_op *tow_ptx_not_run(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    return tow_ptx_fault(w, o, TOW_PTX_FAULT_INSTRUCTION, (unsigned)__builtin_ctz(w->exec), 0,
                         "the instruction '%.120s' is not supported by the software GPU",
                         (const char *)o->ext);
}
