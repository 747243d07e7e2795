/* SPDX-License-Identifier: Apache-2.0 */
/* What the files about memory instructions share. */
#ifndef TOW_PTX_ADDRESS_H
#define TOW_PTX_ADDRESS_H

#include "ptx/decode/decode.h"
#include "ptx/machine/check.h"

/* Reading memory that others write counts as this many loop rounds, so that threads which poll let
 * the polled ones run. */
#define POLL_COST 40

struct tow_ptx_access_form {
    tow_ptx_at_fn *at;
    tow_ptx_line_fn *line; /* NULL: there is none for this state space, or `at` also looks */
    uint32_t refs[8];
    uint32_t bytes;         /* of the whole access */
    uint8_t element, count; /* bytes of an element, how many */
    bool is_signed, wide, ordered;
};

/* [reg + offset], [symbol + offset], [number]: row, its kind, offset. `space` may be narrowed by
 * the symbol. */
int tow_ptx_address(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                    enum tow_ptx_statespace *space, uint32_t *ret_ref, char *ret_kind,
                    int64_t *ret_offset);
tow_ptx_at_fn *tow_ptx_at_for(const struct tow_ptx_decoder *dec, enum tow_ptx_statespace space,
                              char kind, enum tow_ptx_manner manner);
/* Where nobody looks on. */
tow_ptx_at_fn *tow_ptx_plain_at_for(enum tow_ptx_statespace space, char kind);
tow_ptx_lane_fn *tow_ptx_lane_for(const struct tow_ptx_decoder *dec, enum tow_ptx_manner manner);
tow_ptx_line_fn *tow_ptx_line_for(tow_ptx_at_fn *at);
enum tow_ptx_statespace tow_ptx_mod_space(const char *mod);
bool tow_ptx_mod_ignored(const char *mod);

/* atomics.c, decode_async.c */
int tow_ptx_decode_atom(struct tow_ptx_decoder *dec);
int tow_ptx_decode_remote(struct tow_ptx_decoder *dec); /* st.async, red.async */

/* 128-bit accesses that are one access (or behave so among us). */
__uint128_t tow_ptx_load128(void *at);
void tow_ptx_store128(void *at, __uint128_t value);
/* Returns what was there; stored only when it was `expected`. */
__uint128_t tow_ptx_cas128(void *at, __uint128_t expected, __uint128_t value);

#endif
