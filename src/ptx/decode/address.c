/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of memory instructions: their words, their operands, who turns them into pointers. */
#include <string.h>

#include "ptx/decode/address.h"

enum tow_ptx_statespace tow_ptx_mod_space(const char *mod)
{
    static const struct {
        const char *name;
        enum tow_ptx_statespace space;
    } spaces[] = {{"global", SP_GLOBAL},      {"shared", SP_SHARED},
                  {"shared::cta", SP_SHARED}, {"shared::cluster", SP_SHARED},
                  {"local", SP_LOCAL},        {"const", SP_CONST},
                  {"param", SP_PARAM},        {"param::entry", SP_PARAM},
                  {"param::func", SP_FPARAM}};
    for (unsigned i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        if (strcmp(mod, spaces[i].name) == 0) {
            return spaces[i].space;
        }
    }
    return SP_NONE;
}

bool tow_ptx_mod_ignored(const char *mod)
{
    static const char *const words[] = {"weak",    "nc",   "ca",   "cg",    "cs",      "lu",  "cv",
                                        "wb",      "wt",   "mmio", "cta",   "cluster", "gpu", "sys",
                                        "relaxed", "coop", "uni",  "noftz", NULL};
    for (unsigned i = 0; words[i]; i++) {
        if (strcmp(mod, words[i]) == 0) {
            return true;
        }
    }
    return strncmp(mod, "L1::", 4) == 0 || strncmp(mod, "L2::", 4) == 0;
}

int tow_ptx_address(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                    enum tow_ptx_statespace *space, uint32_t *ret_ref, char *ret_kind,
                    int64_t *ret_offset)
{
    if (operand->kind != OPD_ADDRESS || operand->count < 1) {
        return tow_ptx_bad(dec, "an address in brackets is expected");
    }
    const struct tow_ptx_operand *base = &operand->children[0];
    struct tow_ptx_operand plain = *base;
    int64_t offset = 0;
    char wanted = 'l';
    if (base->kind == OPD_REG || base->kind == OPD_SYMBOL) {
        offset = (int64_t)base->bits;
        plain.bits = 0;
    }
    struct tow_ptx_symbol *symbol = base->kind == OPD_SYMBOL ? tow_ptx_resolve(base->symbol) : NULL;
    if (symbol && symbol->kind == SYM_VAR) {
        enum tow_ptx_statespace own = symbol->var->space;
        if (*space == SP_PARAM && own == SP_FPARAM) {
            *space = SP_FPARAM;
        }
        if (*space == SP_FPARAM && own == SP_LOCAL) {
            *space = SP_LOCAL;
        }
        if (*space == SP_NONE) {
            *space = own;
        } else if (*space != own && !(*space == SP_GLOBAL && own == SP_CONST)) {
            return tow_ptx_bad(dec, "'%s' is in another state space", symbol->var->name);
        }
        if (own == SP_SHARED && !symbol->var->unsized) { /* a number known now */
            *ret_kind = 'w';
            *ret_offset = 0;
            return tow_ptx_const32(dec, (uint32_t)(symbol->var->offset + (uint64_t)offset),
                                   ret_ref);
        }
        wanted = own == SP_SHARED ? 'w' : 'l';
    }
    int error = tow_ptx_any_source(dec, &plain, wanted, ret_ref, ret_kind);
    if (error == 0 && *ret_kind != 'w' && *ret_kind != 'l') {
        return tow_ptx_bad(dec, "an address must be a 32- or 64-bit register");
    }
    *ret_offset = offset;
    return error;
}

tow_ptx_at_fn *tow_ptx_plain_at_for(enum tow_ptx_statespace space, char kind)
{
    bool wide = kind == 'l';
    switch (space) {
    case SP_GLOBAL:
    case SP_CONST:
    case SP_PARAM:
        return wide ? tow_ptx_at_global : NULL;
    case SP_NONE:
        return wide ? tow_ptx_at_generic : NULL;
    case SP_SHARED:
    case SP_SHARED_CLUSTER:
        return wide ? tow_ptx_at_shared64 : tow_ptx_at_shared32;
    case SP_LOCAL:
    case SP_FPARAM:
        return wide ? tow_ptx_at_local64 : tow_ptx_at_local32;
    default:
        return NULL;
    }
}

static bool decode_looks(const struct tow_ptx_decoder *dec)
{
    return dec->checks & (TOW_PTX_CHECK_INIT | TOW_PTX_CHECK_RACE);
}

tow_ptx_at_fn *tow_ptx_at_for(const struct tow_ptx_decoder *dec, enum tow_ptx_statespace space,
                              char kind, enum tow_ptx_manner manner)
{
    tow_ptx_at_fn *at = tow_ptx_plain_at_for(space, kind);
    return decode_looks(dec) ? tow_ptx_looking_at(at, manner) : at;
}

tow_ptx_lane_fn *tow_ptx_lane_for(const struct tow_ptx_decoder *dec, enum tow_ptx_manner manner)
{
    return decode_looks(dec) ? tow_ptx_looking_lane(manner) : tow_ptx_at_lane;
}

tow_ptx_line_fn *tow_ptx_line_for(tow_ptx_at_fn *at)
{
    return at == tow_ptx_at_global     ? tow_ptx_line_global
           : at == tow_ptx_at_generic  ? tow_ptx_line_generic
           : at == tow_ptx_at_shared32 ? tow_ptx_line_shared32
           : at == tow_ptx_at_shared64 ? tow_ptx_line_shared64
                                       : NULL;
}
