/* SPDX-License-Identifier: Apache-2.0 */
/* From a form to the function that computes it. */
#include "ptx/num/num_bits.h"

tow_num_fn *tow_num_find(const struct tow_num_form *form)
{
    if (form->type <= TOW_NUM_NONE || form->type >= TOW_NUM_TYPE_COUNT ||
        form->src >= TOW_NUM_TYPE_COUNT) {
        return NULL;
    }
    if (form->op == TOW_NUM_CVT || form->op == TOW_NUM_CVT_PACK) {
        tow_num_fn *fn = tow_num_find_cvt(form);
        return fn ? fn : tow_num_find_cvt_small(form);
    }
    switch (form->type) {
    case TOW_NUM_F16:
    case TOW_NUM_BF16:
    case TOW_NUM_F16X2:
    case TOW_NUM_BF16X2:
        return tow_num_find_half(form);
    case TOW_NUM_F32:
    case TOW_NUM_F32X2: {
        tow_num_fn *fn = tow_num_find_f32(form);
        return fn ? fn : tow_num_find_approx(form);
    }
    case TOW_NUM_F64: {
        tow_num_fn *fn = tow_num_find_f64(form);
        return fn ? fn : tow_num_find_approx(form);
    }
    default:
        return NULL;
    }
}
