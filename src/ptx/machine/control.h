/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that move threads about; the decoder picks among them. */
#ifndef TOW_PTX_CONTROL_H
#define TOW_PTX_CONTROL_H

#include "ptx/machine/lanes.h"

tow_ptx_fn tow_ptx_guarded, tow_ptx_guarded_control, tow_ptx_bra, tow_ptx_bra_if, tow_ptx_brx,
    tow_ptx_exit_op, tow_ptx_trap, tow_ptx_fell_off, tow_ptx_not_run;
tow_ptx_fn tow_ptx_call_op, tow_ptx_ret_op, tow_ptx_syscall_op;

/* syscall.c: what the machine itself provides to device code. */
struct tow_ptx_syscall {
    const char *name;
    unsigned arg_count;
    int (*run)(struct tow_ptx_warp *w, const struct tow_ptx_op *o, const struct tow_ptx_call *call);
};
/* What a call of a function that no text defines does: it is a fault. */
int tow_ptx_call_undefined(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                           const struct tow_ptx_call *call);
/* NULL if there is no such function. */
const struct tow_ptx_syscall *tow_ptx_syscall_find(const char *name);

#endif
