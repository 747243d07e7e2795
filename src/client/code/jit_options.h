/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the JIT compiler and linker: they travel by value, logs come back. */
#ifndef TOW_CLIENT_JIT_OPTIONS_H
#define TOW_CLIENT_JIT_OPTIONS_H

#include "gen/cuda_types.h"
#include "wire/cursor.h"

struct towc_jit {
    unsigned count;
    const CUjit_option *options; /* borrowed from the program */
    void **values;               /* borrowed from the program; outputs are written here */
};

/* CUDA_ERROR_INVALID_VALUE for options that cannot be. */
CUresult towc_jit_check(const struct towc_jit *jit);
/* The most bytes that towc_jit_encode writes. */
size_t towc_jit_size(const struct towc_jit *jit);
void towc_jit_encode(struct tow_enc *enc, const struct towc_jit *jit);
/* Takes logs, their sizes and times from a reply into the program's memory. `log_rooms`: the sizes
 * that the program gave for its info and error log, from towc_jit_log_rooms before the first reply.
 */
void towc_jit_log_rooms(const struct towc_jit *jit, size_t ret_rooms[2]);
void towc_jit_decode(struct tow_dec *dec, const struct towc_jit *jit, const size_t log_rooms[2]);

#endif
