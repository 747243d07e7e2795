/* SPDX-License-Identifier: Apache-2.0 */
/* A tiled tensor map's description on its way to the driver that encodes it. */
#ifndef TOW_WIRE_TENSOR_H
#define TOW_WIRE_TENSOR_H

#include "wire/cursor.h"

enum {
    TOW_TENSOR_RANK_MAX = 5,
    TOW_TENSOR_MAP_SIZE = 128,
    TOW_TENSOR_WIRE_SIZE = 8 * (1 + 2 * TOW_TENSOR_RANK_MAX) + 4 * (2 * TOW_TENSOR_RANK_MAX + 6),
};

/* What is beyond the rank is 0. No padding: it is compared as bytes. */
struct tow_tensor_tiled {
    uint64_t address;
    uint64_t dim[TOW_TENSOR_RANK_MAX];
    uint64_t stride[TOW_TENSOR_RANK_MAX]; /* rank - 1 of them */
    uint32_t box[TOW_TENSOR_RANK_MAX];
    uint32_t step[TOW_TENSOR_RANK_MAX];
    uint32_t type, rank, interleave, swizzle, promotion, fill;
};

static inline void tow_tensor_put(struct tow_enc *enc, const struct tow_tensor_tiled *t)
{
    tow_enc_u64(enc, t->address);
    for (int i = 0; i < TOW_TENSOR_RANK_MAX; i++) {
        tow_enc_u64(enc, t->dim[i]);
        tow_enc_u64(enc, t->stride[i]);
    }
    for (int i = 0; i < TOW_TENSOR_RANK_MAX; i++) {
        tow_enc_u32(enc, t->box[i]);
        tow_enc_u32(enc, t->step[i]);
    }
    tow_enc_u32(enc, t->type);
    tow_enc_u32(enc, t->rank);
    tow_enc_u32(enc, t->interleave);
    tow_enc_u32(enc, t->swizzle);
    tow_enc_u32(enc, t->promotion);
    tow_enc_u32(enc, t->fill);
}

static inline void tow_tensor_get(struct tow_dec *dec, struct tow_tensor_tiled *t)
{
    t->address = tow_dec_u64(dec);
    for (int i = 0; i < TOW_TENSOR_RANK_MAX; i++) {
        t->dim[i] = tow_dec_u64(dec);
        t->stride[i] = tow_dec_u64(dec);
    }
    for (int i = 0; i < TOW_TENSOR_RANK_MAX; i++) {
        t->box[i] = tow_dec_u32(dec);
        t->step[i] = tow_dec_u32(dec);
    }
    t->type = tow_dec_u32(dec);
    t->rank = tow_dec_u32(dec);
    t->interleave = tow_dec_u32(dec);
    t->swizzle = tow_dec_u32(dec);
    t->promotion = tow_dec_u32(dec);
    t->fill = tow_dec_u32(dec);
}

#endif
