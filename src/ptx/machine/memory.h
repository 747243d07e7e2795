/* What the files about memory instructions share. */
#ifndef TOW_PTX_MEMORY_H
#define TOW_PTX_MEMORY_H

#include "ptx/decode/decode.h"

/* Reading memory that others write counts as this many loop rounds, so that threads which poll let
 * the polled ones run. */
#define POLL_COST 40

struct tow_ptx_access_form {
    tow_ptx_at_fn *at;
    uint32_t refs[8];
    uint32_t bytes;         /* of the whole access */
    uint8_t element, count; /* bytes of an element, how many */
    bool is_signed, wide, ordered;
};

enum tow_ptx_statespace tow_ptx_mod_space(const char *mod);
bool tow_ptx_mod_ignored(const char *mod);
int tow_ptx_decode_atom(struct tow_ptx_decoder *dec);
int tow_ptx_decode_remote(struct tow_ptx_decoder *dec); /* st.async, red.async */

/* 128-bit accesses that are one access (or behave so among us). */
__uint128_t tow_ptx_load128(void *at);
void tow_ptx_store128(void *at, __uint128_t value);
/* Returns what was there; stored only when it was `expected`. */
__uint128_t tow_ptx_cas128(void *at, __uint128_t expected, __uint128_t value);

#endif
