/* SPDX-License-Identifier: Apache-2.0 */
/* How an operation over 32 lanes is written: one macro line an operation.
 *
 * When every lane that lives takes part, the loop is plain and the compiler vectorises it; else
 * results are blended in under the mask. Lanes that do not take part may hold anything, so an
 * expression must be harmless for all inputs. */
#ifndef TOW_PTX_LANES_H
#define TOW_PTX_LANES_H

#include "ptx/machine/machine.h"
#include "ptx/num/num_bits.h"

#define OP(fn)                                                                                     \
    TOW_HOT static const struct tow_ptx_op *fn(struct tow_ptx_warp *w, const struct tow_ptx_op *o)

#define LANE_LOOP _Pragma("GCC ivdep") for (unsigned l = 0; l < LANES; l++)

/* D, A, B, C: element types as the lanes see them; EXPR over a, b, c. Rows of D must be 4 or 8
 * bytes wide. */
#define LANE_BODY(D, SETUP, EXPR)                                                                  \
    D *d = tow_ptx_row(w, o->d);                                                                   \
    if (w->whole) {                                                                                \
        LANE_LOOP                                                                                  \
        {                                                                                          \
            SETUP d[l] = (D)(EXPR);                                                                \
        }                                                                                          \
    } else {                                                                                       \
        uint32_t active_ = w->exec;                                                                \
        LANE_LOOP                                                                                  \
        {                                                                                          \
            SETUP D r = (D)(EXPR);                                                                 \
            d[l] = active_ & tow_ptx_lane_bit[l] ? r : d[l];                                       \
        }                                                                                          \
    }                                                                                              \
    return o + 1;

#define OP1(fn, D, A, EXPR)                                                                        \
    OP(fn)                                                                                         \
    {                                                                                              \
        const A *pa = tow_ptx_row(w, o->a);                                                        \
        LANE_BODY(D, A a = pa[l];, EXPR)                                                           \
    }
#define OP2(fn, D, A, B, EXPR)                                                                     \
    OP(fn)                                                                                         \
    {                                                                                              \
        const A *pa = tow_ptx_row(w, o->a);                                                        \
        const B *pb = tow_ptx_row(w, o->b);                                                        \
        LANE_BODY(D, A a = pa[l]; B b = pb[l];, EXPR)                                              \
    }
#define OP3(fn, D, A, B, C, EXPR)                                                                  \
    OP(fn)                                                                                         \
    {                                                                                              \
        const A *pa = tow_ptx_row(w, o->a);                                                        \
        const B *pb = tow_ptx_row(w, o->b);                                                        \
        const C *pc = tow_ptx_row(w, o->c);                                                        \
        LANE_BODY(D, A a = pa[l]; B b = pb[l]; C c = pc[l];, EXPR)                                 \
    }

/* One line of an operation table. `keys` are instruction names separated by blanks; `sig` has one
 * letter an operand, destination first:
 *   w 32-bit row, h 16-bit value in a 32-bit row, l 64-bit row, f/d the same with a floating
 *   immediate, p predicate, i an immediate that goes into o->imm */
struct tow_ptx_entry {
    const char *keys, *sig;
    tow_ptx_fn *fn;
};
extern const struct tow_ptx_entry tow_ptx_ops_int[], tow_ptx_ops_float[], tow_ptx_ops_warp[];

#endif
