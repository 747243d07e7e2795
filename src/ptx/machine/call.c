/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and returns. Parameters of device functions live in the local frame; a call copies them
 * from the caller's frame to the callee's, a return copies the results back. */
#include <string.h>

#include "ptx/machine/control.h"

static uint8_t *local_of(const struct tow_ptx_warp *w, unsigned lane, uint64_t offset)
{
    return w->local + (uint64_t)lane * w->local_stride + offset;
}

static void store_row(struct tow_ptx_warp *w, uint32_t ref, uint8_t *base, uint32_t bytes,
                      bool wide, uint32_t mask)
{
    const uint8_t *row = tow_ptx_row(w, ref);
    unsigned stride = wide ? 8 : 4;
    FOR_LANES(l, mask)
    {
        memcpy(base + (uint64_t)l * w->local_stride, row + l * stride,
               bytes < stride ? bytes : stride);
    }
}

static void load_row(struct tow_ptx_warp *w, uint32_t ref, const uint8_t *base, uint32_t bytes,
                     bool wide, uint32_t mask)
{
    uint8_t *row = tow_ptx_row(w, ref);
    unsigned stride = wide ? 8 : 4;
    FOR_LANES(l, mask)
    {
        uint64_t value = 0;
        memcpy(&value, base + (uint64_t)l * w->local_stride, bytes < 8 ? bytes : 8);
        memcpy(row + l * stride, &value, stride);
    }
}

/* Moves one argument (or result) between a caller's place and a formal of the callee. */
static void call_pass(struct tow_ptx_warp *w, const struct tow_ptx_arg *arg,
                      const struct tow_ptx_var *formal, struct tow_ptx_frame *caller,
                      struct tow_ptx_frame *callee, bool into, uint32_t mask)
{
    bool reg_formal = formal->space == SP_REG;
    uint32_t formal_ref = reg_formal ? formal->reg : 0;
    bool formal_wide = reg_formal && tow_ptx_type_bytes(formal->type) == 8;
    uint32_t size = (uint32_t)formal->size;
    uint8_t *inside = local_of(w, 0, callee->local_base + formal->offset);
    uint8_t *outside = local_of(w, 0, caller->local_base + arg->offset);
    if (arg->is_imm) {
        FOR_LANES(l, mask)
        {
            if (reg_formal) {
                tow_ptx_set_base(w, BASE_FRAME, callee->regs);
                memcpy((uint8_t *)tow_ptx_row(w, formal_ref) + l * (formal_wide ? 8 : 4),
                       &arg->bits, formal_wide ? 8 : 4);
            } else {
                memcpy(inside + (uint64_t)l * w->local_stride, &arg->bits, size < 8 ? size : 8);
            }
        }
    } else if (arg->ref != PTX_NO_SLOT && reg_formal) {
        tow_ptx_set_base(w, BASE_FRAME, caller->regs);
        uint8_t *out = tow_ptx_row(w, arg->ref);
        tow_ptx_set_base(w, BASE_FRAME, callee->regs);
        uint8_t *in = tow_ptx_row(w, formal_ref);
        unsigned inner = formal_wide ? 8 : 4, outer = arg->wide ? 8 : 4;
        FOR_LANES(l, mask)
        {
            uint64_t value = 0; /* the two need not be of one width */
            memcpy(&value, into ? out + l * outer : in + l * inner, into ? outer : inner);
            memcpy(into ? in + l * inner : out + l * outer, &value, into ? inner : outer);
        }
    } else if (arg->ref != PTX_NO_SLOT) {
        tow_ptx_set_base(w, BASE_FRAME, caller->regs);
        if (into) {
            store_row(w, arg->ref, inside, size, arg->wide, mask);
        } else {
            load_row(w, arg->ref, inside, size, arg->wide, mask);
        }
    } else if (reg_formal) {
        tow_ptx_set_base(w, BASE_FRAME, callee->regs);
        if (into) {
            load_row(w, formal_ref, outside, arg->bytes, formal_wide, mask);
        } else {
            store_row(w, formal_ref, outside, arg->bytes, formal_wide, mask);
        }
    } else {
        uint32_t bytes = size < arg->bytes ? size : arg->bytes;
        FOR_LANES(l, mask)
        {
            uint64_t lane = (uint64_t)l * w->local_stride;
            memcpy((into ? inside : outside) + lane, (into ? outside : inside) + lane, bytes);
        }
    }
}

static const struct tow_ptx_op *call_enter(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                           const struct tow_ptx_call *call,
                                           const struct tow_ptx_func *func)
{
    struct tow_ptx_group *group = &w->groups[w->current];
    struct tow_ptx_frame *caller = group->frame;
    unsigned first = (unsigned)__builtin_ctz(w->exec);
    if (func->param_count != call->arg_count || func->return_count < call->return_count) {
        return tow_ptx_fault(w, o, TOW_PTX_FAULT_INSTRUCTION, first, 0,
                             "'%s' takes %u parameters and is called with %u", func->name,
                             func->param_count, call->arg_count);
    }
    uint64_t top = (uint64_t)caller->local_top + ((func->local_bytes + 15u) & ~15u);
    if (top > w->local_stride || caller->depth + 1 >= CALL_DEPTH_MAX) {
        return tow_ptx_fault(w, o, TOW_PTX_FAULT_STACK, first, 0,
                             "the stack of a thread (%u bytes, %u calls) is used up in '%s'",
                             w->local_stride, CALL_DEPTH_MAX, func->name);
    }
    struct tow_ptx_frame *frame = tow_ptx_frame_take(w->runner, func);
    if (!frame) {
        return tow_ptx_fault(w, o, TOW_PTX_FAULT_STACK, first, 0,
                             "no memory left for the registers of a call of '%s'", func->name);
    }
    frame->up = caller;
    frame->return_to = o + 1;
    frame->call = call;
    frame->lanes = w->mask;
    frame->depth = caller->depth + 1;
    frame->local_base = caller->local_top;
    frame->local_top = (uint32_t)top;
    for (uint32_t i = 0; i < call->arg_count; i++) {
        call_pass(w, &call->args[i], func->params[i], caller, frame, true, w->mask);
    }
    group->frame = frame;
    tow_ptx_set_base(w, BASE_FRAME, frame->regs);
    if (--w->budget <= 0) {
        return tow_ptx_yield(w, func->code);
    }
    if (w->groups_used > 1) {
        group->pc = func->code;
        return HALT;
    }
    return func->code;
}

static void call_undefined(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                           const struct tow_ptx_func *func)
{
    tow_ptx_fault(w, o, TOW_PTX_FAULT_UNDEFINED, (unsigned)__builtin_ctz(w->exec), 0,
                  "function '%.150s' is called but no text defines it", func->name);
}

int tow_ptx_call_undefined(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                           const struct tow_ptx_call *call)
{
    call_undefined(w, o, call->func);
    return -1;
}

const struct tow_ptx_op *tow_ptx_call_op(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    const struct tow_ptx_call *call = o->ext;
    if (call->func) {
        return call_enter(w, o, call, call->func);
    }
    const struct tow_ptx_module *module = w->launch->instance->module;
    const uint64_t *target = tow_ptx_row(w, call->target);
    unsigned first = (unsigned)__builtin_ctz(w->mask);
    uint64_t handle = target[first], index = (handle - WINDOW_FUNCTION) / FUNCTION_STRIDE;
    uint32_t same = 0;
    FOR_LANES(l, w->mask)
    {
        same |= (uint32_t)(target[l] == handle) << l;
    }
    if (same != w->mask) {
        tow_ptx_split(w, w->mask & ~same, o); /* the others make their own call */
    }
    bool is_function = handle >= WINDOW_FUNCTION && index < module->func_count &&
                       handle == WINDOW_FUNCTION + index * FUNCTION_STRIDE;
    if (is_function && !module->funcs[index]->defined) {
        call_undefined(w, o, module->funcs[index]);
        return HALT;
    }
    if (!is_function || !module->funcs[index]->code || module->funcs[index]->entry) {
        return tow_ptx_fault(w, o, TOW_PTX_FAULT_INSTRUCTION, first, handle,
                             "indirect call to 0x%llx, which is no function of this module",
                             (unsigned long long)handle);
    }
    return call_enter(w, o, call, module->funcs[index]);
}

const struct tow_ptx_op *tow_ptx_ret_op(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_group *group = &w->groups[w->current];
    struct tow_ptx_frame *frame = group->frame, *caller = frame->up;
    if (!caller) {
        return tow_ptx_exit(w, w->mask);
    }
    for (uint32_t i = 0; i < frame->call->return_count; i++) {
        call_pass(w, &frame->call->returns[i], frame->func->returns[i], caller, frame, false,
                  w->mask);
    }
    const struct tow_ptx_op *next = frame->return_to;
    group->frame = caller;
    tow_ptx_set_base(w, BASE_FRAME, caller->regs);
    frame->lanes &= ~w->mask;
    if (!frame->lanes) {
        tow_ptx_frame_give(w->runner, frame);
    }
    (void)o;
    if (w->groups_used > 1) {
        group->pc = next;
        return HALT;
    }
    return next;
}

const struct tow_ptx_op *tow_ptx_syscall_op(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    const struct tow_ptx_call *call = o->ext;
    return call->syscall(w, o, call) < 0 ? HALT : o + 1;
}
