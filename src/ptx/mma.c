/* mma.sync and wmma.mma: fragments are gathered into plain matrices, multiplied, scattered again.
 *
 * One rule gives nearly every fragment of mma.sync. With g = lane / 4, t = lane % 4, E elements in
 * a register, r the register and e the element in it: A: row g + 8 (r % 2), column t E + e + 4 E (r
 * / 2)      (m = 8: one register, r = 0) B: row t E + e + 4 E r, column g C: element i: row g + 8
 * (i / 2), column 2 t + i % 2 Only m8n8k4 of f16 (four independent products, one per quad pair) is
 * different. wmma fragments have no documented layout: ours is linear, see tow_wmma_element. */
#include "ptx/mma.h"
#include "ptx/num_bits.h"

#include <errno.h>

#define M_MAX 32
#define N_MAX 32
#define K_MAX 256

static unsigned type_bits(enum tow_mma_type type)
{
    switch (type) {
    case TOW_MMA_F64:
        return 64;
    case TOW_MMA_F32:
    case TOW_MMA_TF32:
    case TOW_MMA_S32:
        return 32;
    case TOW_MMA_F16:
    case TOW_MMA_BF16:
        return 16;
    case TOW_MMA_S4:
    case TOW_MMA_U4:
        return 4;
    case TOW_MMA_B1:
        return 1;
    default:
        return 8;
    }
}

static bool is_small_float(enum tow_mma_type t)
{
    return t == TOW_MMA_E4M3 || t == TOW_MMA_E5M2;
}

static bool is_int8(enum tow_mma_type t)
{
    return t == TOW_MMA_S8 || t == TOW_MMA_U8;
}

static bool is_int4(enum tow_mma_type t)
{
    return t == TOW_MMA_S4 || t == TOW_MMA_U4;
}

/* ---- where elements are
 * --------------------------------------------------------------------------------- */

static bool is_volta(const struct tow_mma_desc *d)
{
    return !d->wmma && d->m == 8 && d->n == 8 && d->k == 4 && d->a == TOW_MMA_F16;
}

/* m8n8k4 of f16: row and column within the 8x8 product of the lane's quad pair. */
static void volta_element(const struct tow_mma_desc *d, enum tow_mma_matrix matrix,
                          enum tow_mma_type type, unsigned lane, unsigned i, unsigned *row,
                          unsigned *col)
{
    unsigned half = lane < 16 ? 0 : 4;
    switch (matrix) {
    case TOW_MMA_A:
        *row = (d->a_col ? i : lane % 4) + half;
        *col = d->a_col ? lane % 4 : i;
        break;
    case TOW_MMA_B:
        *row = d->b_row ? lane % 4 : i;
        *col = (d->b_row ? i : lane % 4) + half;
        break;
    default:
        if (type == TOW_MMA_F16) {
            *row = lane % 4 + half;
            *col = i;
        } else {
            *row = (lane & 1) + (i & 2) + half;
            *col = (i & 4) + (lane & 2) + (i & 1);
        }
        break;
    }
}

static void wmma_position(enum tow_mma_matrix matrix, unsigned rows, unsigned cols,
                          unsigned elements, unsigned lane, unsigned e, unsigned *row,
                          unsigned *col)
{
    unsigned index = (lane * elements + e) % (rows * cols);
    if (matrix == TOW_MMA_B) {
        *col = index / rows;
        *row = index % rows;
    } else {
        *row = index / cols;
        *col = index % cols;
    }
}

/* Element i (counted over all registers) of a lane. */
static void element(const struct tow_mma_op *op, enum tow_mma_matrix matrix, enum tow_mma_type type,
                    unsigned lane, unsigned i, unsigned *row, unsigned *col)
{
    const struct tow_mma_desc *d = &op->desc;
    unsigned per = 32 / type_bits(type);
    per = per ? per : 1; /* f64 */
    if (d->wmma) {
        unsigned regs = matrix == TOW_MMA_A   ? op->a_regs
                        : matrix == TOW_MMA_B ? op->b_regs
                                              : (type == d->c ? op->c_regs : op->d_regs);
        unsigned rows = matrix == TOW_MMA_B ? d->k : d->m;
        unsigned cols = matrix == TOW_MMA_A ? d->k : d->n;
        wmma_position(matrix, rows, cols, regs * per, lane, i, row, col);
        return;
    }
    if (is_volta(d)) {
        volta_element(d, matrix, type, lane, i, row, col);
        return;
    }
    unsigned g = lane / 4, t = lane % 4, r = i / per, e = i % per;
    switch (matrix) {
    case TOW_MMA_A:
        if (d->m == 8) {
            *row = g;
            *col = t * per + e + 4 * per * r;
        } else {
            *row = g + 8 * (r % 2);
            *col = t * per + e + 4 * per * (r / 2);
        }
        break;
    case TOW_MMA_B:
        *row = t * per + e + 4 * per * r;
        *col = g;
        break;
    default:
        *row = g + 8 * (i / 2);
        *col = 2 * t + i % 2;
        break;
    }
}

/* ---- values
 * ---------------------------------------------------------------------------------------------------
 */

static double small_float(enum tow_mma_type type, uint32_t code)
{
    static const struct {
        uint8_t exp, man;
        int8_t bias;
    } formats[] = {
        [TOW_MMA_E4M3] = {4, 3, 7},
        [TOW_MMA_E5M2] = {5, 2, 15},
    };
    unsigned eb = formats[type].exp, mb = formats[type].man;
    int bias = formats[type].bias;
    uint32_t man = code & ((1u << mb) - 1), exp = (code >> mb) & ((1u << eb) - 1);
    double v;
    if (type == TOW_MMA_E4M3 && (code & 0x7f) == 0x7f) {
        return NAN;
    }
    if (type == TOW_MMA_E5M2 && exp == 31) {
        v = man ? NAN : INFINITY;
    } else if (exp == 0) {
        v = __builtin_ldexp(man, 1 - bias - (int)mb);
    } else {
        v = __builtin_ldexp(man + (1u << mb), (int)exp - bias - (int)mb);
    }
    return (code >> (eb + mb)) & 1 ? -v : v;
}

static double float_of(enum tow_mma_type type, const void *row, unsigned lane, unsigned e)
{
    const uint32_t *r = row;
    switch (type) {
    case TOW_MMA_F16:
        return tow_h2f((r[lane] >> (16 * e)) & 0xffffu);
    case TOW_MMA_BF16:
        return tow_bf2f((r[lane] >> (16 * e)) & 0xffffu);
    case TOW_MMA_TF32:
        return tow_f32(r[lane] & ~0x1fffu); /* hardware reads the upper 19 bits */
    case TOW_MMA_F32:
        return tow_f32(r[lane]);
    case TOW_MMA_F64:
        return tow_f64(((const uint64_t *)row)[lane]);
    default:
        return small_float(type, (r[lane] >> (8 * e)) & 0xffu);
    }
}

static int32_t int_of(enum tow_mma_type type, const void *row, unsigned lane, unsigned e)
{
    uint32_t r = ((const uint32_t *)row)[lane];
    switch (type) {
    case TOW_MMA_S8:
        return (int8_t)(r >> (8 * e));
    case TOW_MMA_U8:
        return (uint8_t)(r >> (8 * e));
    case TOW_MMA_S4:
        return (int32_t)((r >> (4 * e)) << 28) >> 28;
    case TOW_MMA_U4:
        return (int32_t)((r >> (4 * e)) & 15);
    default:
        return (int32_t)r;
    }
}

static void load_floats(const struct tow_mma_op *op, enum tow_mma_matrix matrix,
                        enum tow_mma_type type, unsigned regs, const void *const *rows,
                        unsigned width, unsigned first, unsigned last, double *to)
{
    unsigned per = 32 / type_bits(type);
    per = per ? per : 1;
    for (unsigned lane = first; lane < last; lane++) {
        for (unsigned i = 0; i < regs * per; i++) {
            unsigned row, col;
            element(op, matrix, type, lane, i, &row, &col);
            to[row * width + col] = float_of(type, rows[i / per], lane, i % per);
        }
    }
}

static uint32_t narrow(double v, enum tow_mma_type type)
{
    if (type == TOW_MMA_F16) {
        return tow_f2h(tow_d2f_odd(v));
    }
    return tow_f32_canon(tow_f32_bits((float)v));
}

/* d and c of one product, of the lanes that `take` names (m8n8k4: a quad pair). */
static void store_floats(const struct tow_mma_op *op, const double *from, unsigned first,
                         unsigned last, uint32_t out[8][32])
{
    unsigned per = op->desc.d == TOW_MMA_F16 ? 2 : 1;
    for (unsigned lane = first; lane < last; lane++) {
        for (unsigned i = 0; i < op->d_regs * per; i++) {
            unsigned row, col;
            element(op, TOW_MMA_C, op->desc.d, lane, i, &row, &col);
            uint32_t v = narrow(from[row * op->desc.n + col], op->desc.d);
            uint32_t *at = &out[i / per][lane];
            *at = i % per ? *at | v << 16 : v;
        }
    }
}

static void multiply(unsigned m, unsigned n, unsigned k, const double *a, const double *b,
                     double *c)
{
    for (unsigned i = 0; i < m; i++) {
        for (unsigned j = 0; j < k; j++) {
            double x = a[i * k + j];
            for (unsigned l = 0; l < n; l++) {
                c[i * n + l] += x * b[j * n + l];
            }
        }
    }
}

static void run_float(const struct tow_mma_op *op, void *const *d, const void *const *a,
                      const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    double ma[M_MAX * 32], mb[32 * N_MAX], mc[M_MAX * N_MAX];
    uint32_t out[8][32];
    /* m8n8k4: lanes 4q to 4q+3 and 16 more make product q; else all lanes make one */
    unsigned groups = is_volta(s) ? 4 : 1;
    for (unsigned q = 0; q < groups; q++) {
        for (unsigned half = 0; half < (groups > 1 ? 2u : 1u); half++) {
            unsigned first = groups > 1 ? 4 * q + 16 * half : 0;
            unsigned last = groups > 1 ? first + 4 : 32;
            load_floats(op, TOW_MMA_A, s->a, op->a_regs, a, s->k, first, last, ma);
            load_floats(op, TOW_MMA_B, s->b, op->b_regs, b, s->n, first, last, mb);
            load_floats(op, TOW_MMA_C, s->c, op->c_regs, c, s->n, first, last, mc);
        }
        multiply(s->m, s->n, s->k, ma, mb, mc);
        for (unsigned half = 0; half < (groups > 1 ? 2u : 1u); half++) {
            unsigned first = groups > 1 ? 4 * q + 16 * half : 0;
            unsigned last = groups > 1 ? first + 4 : 32;
            store_floats(op, mc, first, last, out);
        }
    }
    for (unsigned r = 0; r < op->d_regs; r++) {
        memcpy(d[r], out[r], sizeof out[r]);
    }
}

/* f64: a chain of fused multiply-adds in the order of k. */
static void run_f64(const struct tow_mma_op *op, void *const *d, const void *const *a,
                    const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    double ma[16 * 16], mb[16 * 8], mc[16 * 8];
    load_floats(op, TOW_MMA_A, TOW_MMA_F64, op->a_regs, a, s->k, 0, 32, ma);
    load_floats(op, TOW_MMA_B, TOW_MMA_F64, op->b_regs, b, s->n, 0, 32, mb);
    load_floats(op, TOW_MMA_C, TOW_MMA_F64, op->c_regs, c, s->n, 0, 32, mc);
    for (unsigned i = 0; i < s->m; i++) {
        for (unsigned j = 0; j < s->n; j++) {
            double v = mc[i * s->n + j];
            for (unsigned l = 0; l < s->k; l++) {
                v = __builtin_fma(ma[i * s->k + l], mb[l * s->n + j], v);
            }
            mc[i * s->n + j] = v;
        }
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < op->d_regs; i++) {
            unsigned row, col;
            element(op, TOW_MMA_C, TOW_MMA_F64, lane, i, &row, &col);
            uint64_t v = tow_f64_bits(mc[row * s->n + col]);
            ((uint64_t *)d[i])[lane] = tow_f64_isnan(v) ? TOW_NUM_NAN_F64 : v;
        }
    }
}

static void store_ints(const struct tow_mma_op *op, const int64_t *from, void *const *d)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < op->d_regs; i++) {
            unsigned row, col;
            element(op, TOW_MMA_C, TOW_MMA_S32, lane, i, &row, &col);
            int64_t v = from[row * op->desc.n + col];
            if (op->desc.satfinite) {
                v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
            }
            ((uint32_t *)d[i])[lane] = (uint32_t)v;
        }
    }
}

static void load_c(const struct tow_mma_op *op, const void *const *c, int64_t *to)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < op->c_regs; i++) {
            unsigned row, col;
            element(op, TOW_MMA_C, TOW_MMA_S32, lane, i, &row, &col);
            to[row * op->desc.n + col] = int_of(TOW_MMA_S32, c[i], lane, 0);
        }
    }
}

static void run_int(const struct tow_mma_op *op, void *const *d, const void *const *a,
                    const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    int32_t ma[32 * 64], mb[64 * 32];
    int64_t mc[M_MAX * N_MAX];
    unsigned per = 32 / type_bits(s->a);
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned row, col;
        for (unsigned i = 0; i < op->a_regs * per; i++) {
            element(op, TOW_MMA_A, s->a, lane, i, &row, &col);
            ma[row * s->k + col] = int_of(s->a, a[i / per], lane, i % per);
        }
        for (unsigned i = 0; i < op->b_regs * per; i++) {
            element(op, TOW_MMA_B, s->b, lane, i, &row, &col);
            mb[row * s->n + col] = int_of(s->b, b[i / per], lane, i % per);
        }
    }
    load_c(op, c, mc);
    for (unsigned i = 0; i < s->m; i++) {
        int32_t sum[N_MAX] = {0}; /* at most 64 products of 16 bits */
        for (unsigned j = 0; j < s->k; j++) {
            int32_t x = ma[i * s->k + j];
            for (unsigned l = 0; l < s->n; l++) {
                sum[l] += x * mb[j * s->n + l];
            }
        }
        for (unsigned l = 0; l < s->n; l++) {
            mc[i * s->n + l] += sum[l];
        }
    }
    store_ints(op, mc, d);
}

/* Bits: a word of 32 at a time; words take the place of elements in the fragment rule. */
static void run_bits(const struct tow_mma_op *op, void *const *d, const void *const *a,
                     const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    unsigned words = s->k / 32;
    uint32_t ma[16 * 8], mb[8 * 8];
    int64_t mc[M_MAX * N_MAX];
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned row, col;
        for (unsigned r = 0; r < op->a_regs; r++) {
            element(op, TOW_MMA_A, TOW_MMA_B1, lane, r * 32, &row, &col);
            ma[row * words + col / 32] = ((const uint32_t *)a[r])[lane];
        }
        for (unsigned r = 0; r < op->b_regs; r++) {
            element(op, TOW_MMA_B, TOW_MMA_B1, lane, r * 32, &row, &col);
            mb[col * words + row / 32] = ((const uint32_t *)b[r])[lane];
        }
    }
    load_c(op, c, mc);
    for (unsigned i = 0; i < s->m; i++) {
        for (unsigned j = 0; j < s->n; j++) {
            int sum = 0;
            for (unsigned w = 0; w < words; w++) {
                uint32_t x = ma[i * words + w], y = mb[j * words + w];
                sum += __builtin_popcount(s->bitop == TOW_MMA_XOR_POPC ? x ^ y : x & y);
            }
            mc[i * s->n + j] += sum;
        }
    }
    store_ints(op, mc, d);
}

/* ---- what exists
 * ------------------------------------------------------------------------------------------------
 */

static bool shape_is(const struct tow_mma_desc *d, unsigned m, unsigned n, unsigned k)
{
    return d->m == m && d->n == n && d->k == k;
}

static bool half_or_single(enum tow_mma_type t)
{
    return t == TOW_MMA_F16 || t == TOW_MMA_F32;
}

/* Whether mma.sync has these types in this shape. */
static bool mma_exists(const struct tow_mma_desc *d)
{
    bool usual = !d->a_col && !d->b_row;
    bool k_even = d->m == 16 && d->n == 8;
    if (d->satfinite && !is_int8(d->a) && !is_int4(d->a)) {
        return false;
    }
    if ((d->bitop != TOW_MMA_BIT_NONE) != (d->a == TOW_MMA_B1)) {
        return false;
    }
    if (d->a == TOW_MMA_F16 && d->b == TOW_MMA_F16) {
        if (shape_is(d, 8, 8, 4)) {
            return half_or_single(d->c) && half_or_single(d->d);
        }
        return usual && k_even && (d->k == 8 || d->k == 16) && half_or_single(d->c) && d->c == d->d;
    }
    if (!usual) {
        return false;
    }
    if (is_small_float(d->a) && is_small_float(d->b)) {
        return k_even && (d->k == 16 || d->k == 32) && half_or_single(d->c) && d->c == d->d;
    }
    if ((is_int8(d->a) && is_int8(d->b)) || (is_int4(d->a) && is_int4(d->b))) {
        unsigned k = is_int8(d->a) ? 16 : 32;
        bool shape = shape_is(d, 8, 8, k) || shape_is(d, 16, 8, k) || shape_is(d, 16, 8, 2 * k);
        return shape && d->c == TOW_MMA_S32 && d->d == TOW_MMA_S32;
    }
    if (d->a != d->b) {
        return false;
    }
    switch (d->a) {
    case TOW_MMA_BF16:
        return k_even && (d->k == 8 || d->k == 16) && d->c == TOW_MMA_F32 && d->d == TOW_MMA_F32;
    case TOW_MMA_TF32:
        return k_even && (d->k == 4 || d->k == 8) && d->c == TOW_MMA_F32 && d->d == TOW_MMA_F32;
    case TOW_MMA_F64:
        return (shape_is(d, 8, 8, 4) || (k_even && (d->k == 4 || d->k == 8 || d->k == 16))) &&
               d->c == TOW_MMA_F64 && d->d == TOW_MMA_F64;
    case TOW_MMA_B1:
        return (shape_is(d, 8, 8, 128) || (k_even && (d->k == 128 || d->k == 256))) &&
               d->c == TOW_MMA_S32 && d->d == TOW_MMA_S32;
    default:
        return false;
    }
}

/* The three shapes of 16x16x16 kind. */
static bool wide_shape(unsigned m, unsigned n, unsigned k)
{
    return k == 16 && ((m == 16 && n == 16) || (m == 8 && n == 32) || (m == 32 && n == 8));
}

static bool wmma_exists(const struct tow_mma_desc *d)
{
    if (d->satfinite && !is_int8(d->a) && !is_int4(d->a) && d->a != TOW_MMA_F16) {
        return false;
    }
    if ((d->bitop != TOW_MMA_BIT_NONE) != (d->a == TOW_MMA_B1) || d->a != d->b) {
        return false;
    }
    bool singles = d->c == TOW_MMA_F32 && d->d == TOW_MMA_F32;
    bool ints = d->c == TOW_MMA_S32 && d->d == TOW_MMA_S32;
    switch (d->a) {
    case TOW_MMA_F16:
        return wide_shape(d->m, d->n, d->k) && half_or_single(d->c) && half_or_single(d->d);
    case TOW_MMA_BF16:
        return wide_shape(d->m, d->n, d->k) && singles;
    case TOW_MMA_TF32:
        return shape_is(d, 16, 16, 8) && singles;
    case TOW_MMA_F64:
        return shape_is(d, 8, 8, 4) && d->c == TOW_MMA_F64 && d->d == TOW_MMA_F64;
    case TOW_MMA_S8:
    case TOW_MMA_U8:
        return wide_shape(d->m, d->n, d->k) && ints;
    case TOW_MMA_S4:
    case TOW_MMA_U4:
        return shape_is(d, 8, 8, 32) && ints;
    case TOW_MMA_B1:
        return shape_is(d, 8, 8, 128) && ints;
    default:
        return false;
    }
}

/* Registers of a fragment of rows x cols elements, each element in one lane. */
static unsigned registers(enum tow_mma_type type, unsigned rows, unsigned cols)
{
    unsigned bits = type_bits(type);
    return rows * cols * (bits == 64 ? 32 : bits) / 32 / 32;
}

int tow_wmma_fragment_find(uint16_t m, uint16_t n, uint16_t k, enum tow_mma_matrix matrix,
                           enum tow_mma_type type, struct tow_wmma_fragment *ret_fragment)
{
    bool c = matrix == TOW_MMA_C;
    unsigned bits = type_bits(type);
    struct tow_mma_desc d = {.wmma = true, .m = m, .n = n, .k = k};
    bool found = false;
    if (c) {
        bool narrow_shape = m == 8 && n == 8;
        bool wide = wide_shape(m, n, k) || shape_is(&d, 16, 16, 8);
        found = (type == TOW_MMA_F16 && wide_shape(m, n, k)) || (type == TOW_MMA_F32 && wide) ||
                (type == TOW_MMA_S32 &&
                 (wide_shape(m, n, k) || (narrow_shape && (k == 32 || k == 128)))) ||
                (type == TOW_MMA_F64 && narrow_shape && k == 4);
    } else {
        d.a = d.b = type;
        d.c = d.d = type == TOW_MMA_F64 ? TOW_MMA_F64
                    : type == TOW_MMA_F16 || type == TOW_MMA_BF16 || type == TOW_MMA_TF32
                        ? TOW_MMA_F32
                        : TOW_MMA_S32;
        d.bitop = type == TOW_MMA_B1 ? TOW_MMA_XOR_POPC : TOW_MMA_BIT_NONE;
        found = wmma_exists(&d);
    }
    if (!found) {
        return -EINVAL;
    }
    unsigned rows = matrix == TOW_MMA_B ? k : m, cols = matrix == TOW_MMA_A ? k : n;
    unsigned regs = !c && type == TOW_MMA_F16 ? 8 : registers(type, rows, cols);
    struct tow_wmma_fragment f = {
        .matrix = matrix,
        .type = type,
        .rows = (uint16_t)rows,
        .cols = (uint16_t)cols,
        .registers = (uint8_t)regs,
        .element_bits = (uint8_t)bits,
        .elements = (uint8_t)(bits == 64 ? regs : regs * (32 / bits)),
    };
    *ret_fragment = f;
    return 0;
}

void tow_wmma_element(const struct tow_wmma_fragment *fragment, unsigned lane, unsigned e,
                      uint16_t *ret_row, uint16_t *ret_col)
{
    unsigned row, col;
    wmma_position(fragment->matrix, fragment->rows, fragment->cols, fragment->elements, lane, e,
                  &row, &col);
    *ret_row = (uint16_t)row;
    *ret_col = (uint16_t)col;
}

int tow_mma_find(const struct tow_mma_desc *desc, struct tow_mma_op *ret_op)
{
    struct tow_mma_op op = {.desc = *desc};
    if (desc->sparse || !(desc->wmma ? wmma_exists(desc) : mma_exists(desc))) {
        return -EINVAL;
    }
    op.a_regs = (uint8_t)registers(desc->a, desc->m, desc->k);
    op.b_regs = (uint8_t)registers(desc->b, desc->k, desc->n);
    op.c_regs = (uint8_t)registers(desc->c, desc->m, desc->n);
    op.d_regs = (uint8_t)registers(desc->d, desc->m, desc->n);
    if (desc->wmma && desc->a == TOW_MMA_F16) {
        op.a_regs = op.b_regs = 8;
    }
    if (is_volta(desc)) { /* four products at once */
        op.a_regs = op.b_regs = 2;
        op.c_regs = desc->c == TOW_MMA_F16 ? 4 : 8;
        op.d_regs = desc->d == TOW_MMA_F16 ? 4 : 8;
    }
    switch (desc->a) {
    case TOW_MMA_B1:
        op.run = run_bits;
        break;
    case TOW_MMA_S8:
    case TOW_MMA_U8:
    case TOW_MMA_S4:
    case TOW_MMA_U4:
        op.run = run_int;
        break;
    case TOW_MMA_F64:
        op.run = run_f64;
        break;
    default:
        op.run = run_float;
        break;
    }
    *ret_op = op;
    return 0;
}

/* ---- ldmatrix, stmatrix, movmatrix
 * -------------------------------------------------------------------------- */

int tow_matrix_find(const struct tow_matrix_form *form, bool store,
                    struct tow_matrix_layout *ret_layout)
{
    struct tow_matrix_layout layout = {.row_bytes = 16};
    if (form->count != 1 && form->count != 2 && form->count != 4) {
        return -EINVAL;
    }
    if (form->shape == TOW_MATRIX_M8N8_B16) {
        layout.registers = form->count;
        layout.addresses = 8 * form->count;
    } else if (form->shape == TOW_MATRIX_M16N16_B8 && !store && form->trans && form->count < 4) {
        layout.registers = 2 * form->count;
        layout.addresses = 16 * form->count;
    } else {
        return -EINVAL;
    }
    *ret_layout = layout;
    return 0;
}

static uint32_t read16(const uint8_t *row, unsigned col)
{
    return row[2 * col] | (uint32_t)row[2 * col + 1] << 8;
}

void tow_matrix_load(const struct tow_matrix_form *form, const uint8_t rows[32][16], void *const *d)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned g = lane / 4, t = lane % 4;
        if (form->shape == TOW_MATRIX_M8N8_B16) {
            for (unsigned i = 0; i < form->count; i++) {
                const uint8_t(*m)[16] = &rows[8 * i];
                uint32_t low = form->trans ? read16(m[2 * t], g) : read16(m[g], 2 * t);
                uint32_t high = form->trans ? read16(m[2 * t + 1], g) : read16(m[g], 2 * t + 1);
                ((uint32_t *)d[i])[lane] = low | high << 16;
            }
        } else { /* 16x16 bytes, transposed: two 8x16 halves of the result */
            for (unsigned r = 0; r < 2u * form->count; r++) {
                const uint8_t(*m)[16] = &rows[16 * (r / 2)];
                uint32_t v = 0;
                for (unsigned j = 0; j < 4; j++) {
                    v |= (uint32_t)m[4 * t + j][g + 8 * (r % 2)] << (8 * j);
                }
                ((uint32_t *)d[r])[lane] = v;
            }
        }
    }
}

void tow_matrix_store(const struct tow_matrix_form *form, const void *const *a,
                      uint8_t ret_rows[32][16])
{
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < form->count; i++) {
            uint32_t v = ((const uint32_t *)a[i])[lane];
            for (unsigned half = 0; half < 2; half++) {
                unsigned row = form->trans ? 2 * t + half : g;
                unsigned col = form->trans ? g : 2 * t + half;
                ret_rows[8 * i + row][2 * col] = (uint8_t)(v >> (16 * half));
                ret_rows[8 * i + row][2 * col + 1] = (uint8_t)(v >> (16 * half + 8));
            }
        }
    }
}

void tow_matrix_move(uint32_t *d, const uint32_t *a)
{
    uint32_t r[32];
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned g = lane / 4, t = lane % 4;
        /* element (i, j) is half j % 2 of lane 4 i + j / 2; lane gets (2t, g) and (2t + 1, g) */
        uint32_t low = a[4 * (2 * t) + g / 2] >> (16 * (g % 2)) & 0xffffu;
        uint32_t high = a[4 * (2 * t + 1) + g / 2] >> (16 * (g % 2)) & 0xffffu;
        r[lane] = low | high << 16;
    }
    memcpy(d, r, sizeof r);
}
