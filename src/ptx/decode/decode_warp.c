/* SPDX-License-Identifier: Apache-2.0 */
/* What threads of a warp do together: shuffles, votes, matches, reductions. */
#include "ptx/decode/decode.h"

#include <string.h>

#include "ptx/num/num.h"

const struct tow_ptx_entry tow_ptx_ops_warp[] = {{NULL, NULL, NULL}};

/* Mostly there is one mask for all. */
TOW_INLINE bool all_equal(const uint32_t *row)
{
    uint32_t different = 0;
    for (unsigned l = 0; l < LANES; l++) {
        different |= row[l] ^ row[0];
    }
    return !different;
}

/* Whom the lanes of a .sync instruction wait for. Parts of a warp (the tiles of cooperative groups)
 * may come together, each with a member mask of its own. */
TOW_INLINE uint32_t members_of(const struct tow_ptx_warp *w, uint32_t ref)
{
    const uint32_t *masks = tow_ptx_row(w, ref);
    if (all_equal(masks)) {
        return masks[0];
    }
    uint32_t all = masks[__builtin_ctz(w->exec)];
    FOR_LANES(l, w->exec)
    {
        all |= masks[l];
    }
    return all;
}

/* Runs `body` once for each different member mask among the lanes, for those lanes alone. */
TOW_INLINE const struct tow_ptx_op *
by_mask(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t ref,
        const struct tow_ptx_op *(*body)(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                         uint32_t members))
{
    const uint32_t *masks = tow_ptx_row(w, ref);
    if (all_equal(masks)) {
        return body(w, o, masks[0]);
    }
    const uint32_t exec = w->exec;
    const bool whole = w->whole;
    for (uint32_t left = exec; left != 0;) {
        uint32_t members = masks[__builtin_ctz(left)], same = 0;
        FOR_LANES(l, left)
        {
            same |= (uint32_t)(masks[l] == members) << l;
        }
        w->exec = same;
        w->whole = whole && same == exec;
        body(w, o, members);
        left &= ~same;
    }
    w->exec = exec;
    w->whole = whole;
    return o + 1;
}

#define MASKED_OP(fn)                                                                              \
    TOW_INLINE const struct tow_ptx_op *fn(struct tow_ptx_warp *w, const struct tow_ptx_op *o,     \
                                           uint32_t members)

/* ---- shfl: rows a value, b lane or delta, c clamp and segment mask; e members or PTX_NO_SLOT; f
 * predicate */

enum {
    SHFL_UP,
    SHFL_DOWN,
    SHFL_BFLY,
    SHFL_IDX,
};

/* From where each lane reads, for one mode: a loop without branches. */
TOW_INLINE uint32_t shfl_from(unsigned mode, const uint32_t *b, const uint32_t *c,
                              uint32_t *ret_from)
{
    uint32_t in = 0;
    for (uint32_t l = 0; l < LANES; l++) {
        uint32_t lane = b[l] & 31, clamp = c[l] & 31, segment = c[l] >> 8 & 31;
        uint32_t high = (l & segment) | (clamp & ~segment), low = l & segment, from;
        bool ok;
        switch (mode) {
        case SHFL_UP:
            from = l - lane;
            ok = (int32_t)from >= (int32_t)high;
            break;
        case SHFL_DOWN:
            from = l + lane;
            ok = from <= high;
            break;
        case SHFL_BFLY:
            from = l ^ lane;
            ok = from <= high;
            break;
        default:
            from = low | (lane & ~segment);
            ok = from <= high;
            break;
        }
        ret_from[l] = (ok ? from : l) & 31;
        in |= (uint32_t)ok << l;
    }
    return in;
}

OP(decode_warp_shfl)
{
    if (o->e != PTX_NO_SLOT && !tow_ptx_gather(w, o, members_of(w, o->e))) {
        return HALT;
    }
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c);
    uint32_t result[LANES], from[LANES];
    uint32_t in = o->imm == SHFL_UP     ? shfl_from(SHFL_UP, b, c, from)
                  : o->imm == SHFL_DOWN ? shfl_from(SHFL_DOWN, b, c, from)
                  : o->imm == SHFL_BFLY ? shfl_from(SHFL_BFLY, b, c, from)
                                        : shfl_from(SHFL_IDX, b, c, from);
    for (unsigned l = 0; l < LANES; l++) {
        result[l] = a[from[l]];
    }
    tow_ptx_blend32(w, tow_ptx_row(w, o->d), result);
    if (o->f != PTX_NO_SLOT) {
        tow_ptx_set_pred(w, o->f, in);
    }
    return o + 1;
}

/* The same with everything but the values known: from where each lane reads, who has a source. */
struct shfl_fixed {
    uint32_t from[LANES];
    uint32_t in, members;
};

#if defined(__GNUC__) && !defined(__clang__)
typedef uint32_t half_row __attribute__((vector_size(64), aligned(4)));
TOW_INLINE void shfl_take(uint32_t *d, const uint32_t *a, const uint32_t *from)
{
    half_row low, high, first, second;
    memcpy(&low, a, sizeof low);
    memcpy(&high, a + 16, sizeof high);
    memcpy(&first, from, sizeof first);
    memcpy(&second, from + 16, sizeof second);
    first = __builtin_shuffle(low, high, first);
    second = __builtin_shuffle(low, high, second);
    memcpy(d, &first, sizeof first);
    memcpy(d + 16, &second, sizeof second);
}
#else
TOW_INLINE void shfl_take(uint32_t *d, const uint32_t *a, const uint32_t *from)
{
    uint32_t result[LANES];
    for (unsigned l = 0; l < LANES; l++) {
        result[l] = a[from[l]];
    }
    memcpy(d, result, sizeof result);
}
#endif

OP(decode_warp_shfl_fixed)
{
    const struct shfl_fixed *fixed = o->ext;
    if (o->e != PTX_NO_SLOT && !tow_ptx_gather(w, o, fixed->members)) {
        return HALT;
    }
    uint32_t *d = tow_ptx_row(w, o->d);
    if (w->whole) {
        shfl_take(d, tow_ptx_row(w, o->a), fixed->from);
    } else {
        uint32_t result[LANES];
        shfl_take(result, tow_ptx_row(w, o->a), fixed->from);
        tow_ptx_blend32(w, d, result);
    }
    if (o->f != PTX_NO_SLOT) {
        tow_ptx_set_pred(w, o->f, fixed->in);
    }
    return o + 1;
}

static int shfl_fix(struct tow_ptx_decoder *dec, struct tow_ptx_op *op)
{
    uint32_t b[LANES], c[LANES], members = 0, lane, clamp;
    if (!tow_ptx_const_known(dec, op->b, &lane) || !tow_ptx_const_known(dec, op->c, &clamp) ||
        (op->e != PTX_NO_SLOT && !tow_ptx_const_known(dec, op->e, &members))) {
        return 0;
    }
    struct shfl_fixed *fixed = tow_ptx_keep(dec, sizeof *fixed);
    if (!fixed) {
        return tow_ptx_dec_no_memory(dec);
    }
    for (unsigned l = 0; l < LANES; l++) {
        b[l] = lane;
        c[l] = clamp;
    }
    fixed->in = op->imm == SHFL_UP     ? shfl_from(SHFL_UP, b, c, fixed->from)
                : op->imm == SHFL_DOWN ? shfl_from(SHFL_DOWN, b, c, fixed->from)
                : op->imm == SHFL_BFLY ? shfl_from(SHFL_BFLY, b, c, fixed->from)
                                       : shfl_from(SHFL_IDX, b, c, fixed->from);
    fixed->members = members;
    op->run = decode_warp_shfl_fixed;
    op->ext = fixed;
    return 0;
}

/* shfl{.sync}.mode.b32 d|p, a, b, c{, membermask} */
static int decode_shfl(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    bool sync = tow_ptx_has_mod(dec, "sync");
    struct tow_ptx_op op = {.run = decode_warp_shfl, .imm = -1, .e = PTX_NO_SLOT, .f = PTX_NO_SLOT};
    for (unsigned i = 0; i < 4; i++) {
        op.imm = tow_ptx_has_mod(dec, modes[i]) ? (int64_t)i : op.imm;
    }
    if (op.imm < 0 || !tow_ptx_has_mod(dec, "b32")) {
        return tow_ptx_unsupported(dec);
    }
    int error = tow_ptx_want_operands(dec, sync ? 5 : 4, sync ? 5 : 4);
    const struct tow_ptx_operand *d = insn->operands;
    if (error || (error = tow_ptx_dest(dec, &d[0], 'w', &op.d)) ||
        (d[0].second && (error = tow_ptx_dest(dec, d[0].second, 'p', &op.f))) ||
        (error = tow_ptx_source(dec, &d[1], 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &d[2], 'w', &op.b)) ||
        (error = tow_ptx_source(dec, &d[3], 'w', &op.c)) ||
        (sync && (error = tow_ptx_source(dec, &d[4], 'w', &op.e))) ||
        (error = shfl_fix(dec, &op))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- vote, activemask, elect ---- */

enum {
    VOTE_ALL,
    VOTE_ANY,
    VOTE_UNI,
    VOTE_BALLOT,
};

MASKED_OP(vote_among)
{
    uint32_t among = w->exec & members;
    uint32_t p = tow_ptx_pred(w, o->a) & among;
    switch (o->imm) {
    case VOTE_ALL:
        tow_ptx_set_pred(w, o->d, p == among ? FULL : 0);
        return o + 1;
    case VOTE_ANY:
        tow_ptx_set_pred(w, o->d, p ? FULL : 0);
        return o + 1;
    case VOTE_UNI:
        tow_ptx_set_pred(w, o->d, p == among || !p ? FULL : 0);
        return o + 1;
    default: {
        LANE_BODY(uint32_t, , p)
    }
    }
}

/* With a member mask that is known: o->b. */
OP(decode_warp_vote_fixed)
{
    return tow_ptx_gather(w, o, o->b) ? vote_among(w, o, o->b) : HALT;
}

OP(decode_warp_vote)
{
    if (o->e == PTX_NO_SLOT) {
        return vote_among(w, o, FULL);
    }
    return tow_ptx_gather(w, o, members_of(w, o->e)) ? by_mask(w, o, o->e, vote_among) : HALT;
}

static int decode_vote(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    static const char *const modes[] = {"all", "any", "uni", "ballot"};
    bool sync = tow_ptx_has_mod(dec, "sync");
    struct tow_ptx_op op = {.run = decode_warp_vote, .imm = -1, .e = PTX_NO_SLOT};
    for (unsigned i = 0; i < 4; i++) {
        op.imm = tow_ptx_has_mod(dec, modes[i]) ? (int64_t)i : op.imm;
    }
    if (op.imm < 0) {
        return tow_ptx_unsupported(dec);
    }
    int error = tow_ptx_want_operands(dec, sync ? 3 : 2, sync ? 3 : 2);
    if (error ||
        (error = tow_ptx_dest(dec, &insn->operands[0], op.imm == VOTE_BALLOT ? 'w' : 'p', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'p', &op.a)) ||
        (sync && (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.e)))) {
        return error;
    }
    if (tow_ptx_const_known(dec, op.e, &op.b)) {
        op.run = decode_warp_vote_fixed;
    }
    return tow_ptx_emit(dec, &op);
}

OP(decode_warp_activemask)
{
    uint32_t value = w->exec;
    LANE_BODY(uint32_t, , value)
}
static int decode_activemask(struct tow_ptx_decoder *dec)
{
    return tow_ptx_by_signature(dec, "w", decode_warp_activemask, NULL);
}

/* elect.sync d|p, membermask: the lowest member */
MASKED_OP(elect_among)
{
    uint32_t among = w->exec & members;
    uint32_t leader = among ? (uint32_t)__builtin_ctz(among) : 0;
    tow_ptx_set_pred(w, o->f, 1u << leader);
    LANE_BODY(uint32_t, , leader)
}
OP(decode_warp_elect)
{
    return tow_ptx_gather(w, o, members_of(w, o->a)) ? by_mask(w, o, o->a, elect_among) : HALT;
}

static int decode_elect(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_ptx_op op = {.run = decode_warp_elect};
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error) {
        return error;
    }
    if (!insn->operands[0].second) {
        return tow_ptx_bad(dec, "the destination must be d|p");
    }
    if ((error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (error = tow_ptx_dest(dec, insn->operands[0].second, 'p', &op.f)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'w', &op.a))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- match ---- */

MASKED_OP(match_among)
{
    uint32_t among = w->exec & members, result[LANES] = {0}, same = 0;
    const void *row = tow_ptx_row(w, o->a);
    for (uint32_t l = 0; l < LANES; l++) {
        uint64_t mine = o->imm & 2 ? ((const uint64_t *)row)[l] : ((const uint32_t *)row)[l];
        uint32_t equal = 0;
        FOR_LANES(k, among)
        {
            uint64_t other = o->imm & 2 ? ((const uint64_t *)row)[k] : ((const uint32_t *)row)[k];
            equal |= (uint32_t)(mine == other) << k;
        }
        result[l] = equal;
        same |= (uint32_t)(equal == among) << l;
    }
    if (o->imm & 1) { /* all */
        bool all = (same & among) == among;
        for (unsigned l = 0; l < LANES; l++) {
            result[l] = all ? among : 0;
        }
        if (o->f != PTX_NO_SLOT) {
            tow_ptx_set_pred(w, o->f, all ? FULL : 0);
        }
    }
    tow_ptx_blend32(w, tow_ptx_row(w, o->d), result);
    return o + 1;
}

OP(decode_warp_match)
{
    return tow_ptx_gather(w, o, members_of(w, o->e)) ? by_mask(w, o, o->e, match_among) : HALT;
}

/* match.any.sync.b32 d, a, m   match.all.sync.b64 d|p, a, m */
static int decode_match(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    bool all = tow_ptx_has_mod(dec, "all"), wide = tow_ptx_has_mod(dec, "b64");
    struct tow_ptx_op op = {
        .run = decode_warp_match, .imm = (all ? 1 : 0) | (wide ? 2 : 0), .f = PTX_NO_SLOT};
    int error = tow_ptx_want_operands(dec, 3, 3);
    if (error || (error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (insn->operands[0].second &&
         (error = tow_ptx_dest(dec, insn->operands[0].second, 'p', &op.f))) ||
        (error = tow_ptx_source(dec, &insn->operands[1], wide ? 'l' : 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.e))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- redux ---- */

enum {
    RED_ADD,
    RED_MIN,
    RED_MAX,
    RED_AND,
    RED_OR,
    RED_XOR,
};
#define RED_SIGNED 16
#define RED_FLOAT 32
#define RED_ABS 64
#define RED_NAN 128

static uint32_t redux_float(uint32_t x, uint32_t y, int64_t how)
{
    if ((how & RED_NAN) && (tow_f32_isnan(x) || tow_f32_isnan(y))) {
        return TOW_NUM_NAN_F32;
    }
    return (how & 7) == RED_MIN ? tow_f32_min(x, y) : tow_f32_max(x, y);
}

MASKED_OP(redux_among)
{
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t among = w->exec & members, value = 0;
    bool first = true;
    FOR_LANES(l, among)
    {
        uint32_t x = a[l];
        if (o->imm & RED_ABS) {
            x &= 0x7fffffffu;
        }
        if (first) {
            value = o->imm & RED_FLOAT ? redux_float(x, x, o->imm) : x;
            first = false;
            continue;
        }
        if (o->imm & RED_FLOAT) {
            value = redux_float(value, x, o->imm);
            continue;
        }
        switch (o->imm & 7) {
        case RED_ADD:
            value += x;
            break;
        case RED_MIN:
            value = o->imm & RED_SIGNED ? ((int32_t)x < (int32_t)value ? x : value)
                                        : (x < value ? x : value);
            break;
        case RED_MAX:
            value = o->imm & RED_SIGNED ? ((int32_t)x > (int32_t)value ? x : value)
                                        : (x > value ? x : value);
            break;
        case RED_AND:
            value &= x;
            break;
        case RED_OR:
            value |= x;
            break;
        default:
            value ^= x;
            break;
        }
    }
    LANE_BODY(uint32_t, , value)
}

OP(decode_warp_redux)
{
    return tow_ptx_gather(w, o, members_of(w, o->e)) ? by_mask(w, o, o->e, redux_among) : HALT;
}

static int decode_redux(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    static const char *const ops[] = {"add", "min", "max", "and", "or", "xor"};
    struct tow_ptx_op op = {.run = decode_warp_redux, .imm = -1};
    for (unsigned i = 0; i < 6; i++) {
        op.imm = tow_ptx_has_mod(dec, ops[i]) ? (int64_t)i : op.imm;
    }
    bool is_float = tow_ptx_has_mod(dec, "f32");
    if (op.imm < 0 || !tow_ptx_has_mod(dec, "sync") ||
        (is_float && op.imm != RED_MIN && op.imm != RED_MAX)) {
        return tow_ptx_unsupported(dec);
    }
    op.imm |= tow_ptx_has_mod(dec, "s32") ? RED_SIGNED : 0;
    op.imm |= is_float ? RED_FLOAT : 0;
    op.imm |= tow_ptx_has_mod(dec, "abs") ? RED_ABS : 0;
    op.imm |= tow_ptx_has_mod(dec, "NaN") ? RED_NAN : 0;
    int error = tow_ptx_want_operands(dec, 3, 3);
    if (error || (error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.e))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

const struct tow_ptx_special tow_ptx_specials_warp[] = {
    {"shfl", decode_shfl},
    {"vote", decode_vote},
    {"activemask", decode_activemask},
    {"elect", decode_elect},
    {"match", decode_match},
    {"redux", decode_redux},
    {NULL, NULL},
};
