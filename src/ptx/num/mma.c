/* SPDX-License-Identifier: Apache-2.0 */
/* mma.sync and wmma.mma: fragments are gathered into plain matrices, multiplied, scattered again.
 *
 * One rule gives nearly every fragment of mma.sync. With g = lane / 4, t = lane % 4, E elements in
 * a register, r the register and e the element in it: A: row g + 8 (r % 2), column t E + e + 4 E (r
 * / 2)      (m = 8: one register, r = 0) B: row t E + e + 4 E r, column g C: element i: row g + 8
 * (i / 2), column 2 t + i % 2 Only m8n8k4 of f16 (four independent products, one per quad pair) is
 * different. wmma fragments have no documented layout: ours is linear, see tow_wmma_element. */
#include "ptx/num/mma.h"
#include "ptx/num/num_bits.h"

#include <errno.h>

#define MATRIX_MAX 1024 /* elements: 16 x 64 */
#define ELEMENTS_MAX 64 /* of one lane */
#define N_MAX 32

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

/* ---- where elements are --------------------------------------------------------------- */

static bool is_volta(const struct tow_mma_desc *d)
{
    return !d->wmma && d->m == 8 && d->n == 8 && d->k == 4 && d->a == TOW_MMA_F16;
}

static unsigned per_register(enum tow_mma_type type)
{
    unsigned bits = type_bits(type);
    return bits < 32 ? 32 / bits : 1;
}

/* Element i of lane l is at lane[l] + element[i] of the matrix, row by row. */
struct place {
    unsigned elements; /* of a lane */
    uint16_t lane[32], element[ELEMENTS_MAX];
};

/* wmma: element e of lane l is number (l * elements + e) of the matrix, A and C counted row by row,
 * B column by column; where there are more than the matrix has, they begin again. */
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

/* A lane's elements never run over the end of a row (of B: a column) unless they begin at one, so a
 * sum of two parts says where each is in wmma fragments, too. */
static void find_place(const struct tow_mma_op *op, enum tow_mma_matrix matrix,
                       enum tow_mma_type type, unsigned regs, struct place *p)
{
    const struct tow_mma_desc *d = &op->desc;
    unsigned per = per_register(type);
    unsigned rows = matrix == TOW_MMA_B ? d->k : d->m, cols = matrix == TOW_MMA_A ? d->k : d->n;
    p->elements = regs * per;
    for (unsigned l = 0; l < 32; l++) {
        unsigned g = l / 4, t = l % 4, row, col;
        if (d->wmma) {
            wmma_position(matrix, rows, cols, p->elements, l, 0, &row, &col);
        } else {
            row = matrix == TOW_MMA_B ? t * per : g;
            col = matrix == TOW_MMA_A ? t * per : matrix == TOW_MMA_B ? g : 2 * t;
        }
        p->lane[l] = (uint16_t)(row * cols + col);
    }
    for (unsigned i = 0; i < p->elements; i++) {
        unsigned r = i / per, e = i % per, row, col;
        if (d->wmma) {
            wmma_position(matrix, rows, cols, p->elements, 0, i, &row, &col);
        } else if (matrix == TOW_MMA_A) {
            row = d->m == 8 ? 0 : 8 * (r % 2);
            col = e + 4 * per * (d->m == 8 ? r : r / 2);
        } else if (matrix == TOW_MMA_B) {
            row = e + 4 * per * r;
            col = 0;
        } else {
            row = 8 * (i / 2);
            col = i % 2;
        }
        p->element[i] = (uint16_t)(row * cols + col);
    }
}

/* ---- values --------------------------------------------------------------------------- */

static float small_float(enum tow_mma_type type, uint32_t code)
{
    unsigned eb = type == TOW_MMA_E4M3 ? 4 : 5, mb = type == TOW_MMA_E4M3 ? 3 : 2;
    int bias = type == TOW_MMA_E4M3 ? 7 : 15;
    uint32_t man = code & ((1u << mb) - 1), exp = (code >> mb) & ((1u << eb) - 1);
    float v;
    if (type == TOW_MMA_E4M3 && (code & 0x7f) == 0x7f) {
        return NAN;
    }
    if (type == TOW_MMA_E5M2 && exp == 31) {
        v = man ? NAN : INFINITY;
    } else if (exp == 0) {
        v = __builtin_ldexpf((float)man, 1 - bias - (int)mb);
    } else {
        v = __builtin_ldexpf((float)(man + (1u << mb)), (int)exp - bias - (int)mb);
    }
    return (code >> 7) & 1 ? -v : v;
}

/* Element e of a register, in all lanes. */
TOW_HOT static void float_row(enum tow_mma_type type, const void *row, unsigned e, double *v)
{
    const uint32_t *r = row;
    unsigned shift = 16 * e;
    switch (type) {
    case TOW_MMA_F16:
        TOW_EACH_LANE
        {
            v[l] = tow_h2f((r[l] >> shift) & 0xffffu);
        }
        break;
    case TOW_MMA_BF16:
        TOW_EACH_LANE
        {
            v[l] = tow_bf2f((r[l] >> shift) & 0xffffu);
        }
        break;
    case TOW_MMA_TF32: /* hardware reads the upper 19 bits */
        TOW_EACH_LANE
        {
            v[l] = tow_f32(r[l] & ~0x1fffu);
        }
        break;
    case TOW_MMA_F32:
        TOW_EACH_LANE
        {
            v[l] = tow_f32(r[l]);
        }
        break;
    case TOW_MMA_F64:
        memcpy(v, row, 32 * sizeof *v);
        break;
    default:
        for (unsigned l = 0; l < 32; l++) {
            v[l] = small_float(type, (r[l] >> (8 * e)) & 0xffu);
        }
        break;
    }
}

static void int_row(enum tow_mma_type type, const void *row, unsigned e, int32_t *v)
{
    const uint32_t *r = row;
    bool is_unsigned = type == TOW_MMA_U8 || type == TOW_MMA_U4;
    unsigned bits = type_bits(type), up = 32 - bits * (e + 1), down = 32 - bits;
    TOW_EACH_LANE
    {
        uint32_t x = r[l] << up;
        v[l] = is_unsigned ? (int32_t)(x >> down) : (int32_t)x >> down;
    }
}

static void load_floats(const struct tow_mma_op *op, enum tow_mma_matrix matrix,
                        enum tow_mma_type type, unsigned regs, const void *const *rows, double *to)
{
    struct place p;
    unsigned per = per_register(type);
    find_place(op, matrix, type, regs, &p);
    for (unsigned i = 0; i < p.elements; i++) {
        double v[32], *at = to + p.element[i];
        float_row(type, rows[i / per], i % per, v);
        for (unsigned l = 0; l < 32; l++) {
            at[p.lane[l]] = v[l];
        }
    }
}

static void load_ints(const struct tow_mma_op *op, enum tow_mma_matrix matrix,
                      enum tow_mma_type type, unsigned regs, const void *const *rows, int32_t *to)
{
    struct place p;
    unsigned per = per_register(type);
    find_place(op, matrix, type, regs, &p);
    for (unsigned i = 0; i < p.elements; i++) {
        int32_t v[32], *at = to + p.element[i];
        int_row(type, rows[i / per], i % per, v);
        for (unsigned l = 0; l < 32; l++) {
            at[p.lane[l]] = v[l];
        }
    }
}

static uint32_t mma_narrow(double v, enum tow_mma_type type)
{
    if (type == TOW_MMA_F16) {
        return tow_f2h(tow_d2f_odd(v));
    }
    return tow_f32_canon(tow_f32_bits((float)v));
}

static void store_floats(const struct tow_mma_op *op, const double *from, void *const *d)
{
    struct place p;
    enum tow_mma_type type = op->desc.d;
    unsigned per = per_register(type);
    find_place(op, TOW_MMA_C, type, op->d_regs, &p);
    for (unsigned r = 0; r < op->d_regs; r++) {
        uint32_t *row = d[r];
        for (unsigned l = 0; l < 32; l++) {
            const double *at = from + p.lane[l];
            uint32_t v = mma_narrow(at[p.element[r * per]], type);
            row[l] = per == 1 ? v : v | mma_narrow(at[p.element[r * per + 1]], type) << 16;
        }
    }
}

/* ---- products ------------------------------------------------------------------------- */

/* c + a * b. The products are exact in double, so whether they are fused makes no difference. */
TOW_INLINE void multiply_by(unsigned m, const unsigned n, unsigned k, const double *a,
                            const double *b, double *c)
{
    for (unsigned i = 0; i < m; i++) {
        double sum[N_MAX];
        for (unsigned l = 0; l < n; l++) {
            sum[l] = c[i * n + l];
        }
        for (unsigned j = 0; j < k; j++) {
            double x = a[i * k + j];
            for (unsigned l = 0; l < n; l++) {
#ifdef __FP_FAST_FMA
                sum[l] = __builtin_fma(x, b[j * n + l], sum[l]);
#else
                sum[l] += x * b[j * n + l];
#endif
            }
        }
        for (unsigned l = 0; l < n; l++) {
            c[i * n + l] = sum[l];
        }
    }
}

TOW_HOT static void mma_multiply(unsigned m, unsigned n, unsigned k, const double *restrict a,
                                 const double *restrict b, double *restrict c)
{
    if (n == 8) {
        multiply_by(m, 8, k, a, b, c);
    } else if (n == 16) {
        multiply_by(m, 16, k, a, b, c);
    } else {
        multiply_by(m, n, k, a, b, c);
    }
}

static void run_float(const struct tow_mma_op *op, void *const *d, const void *const *a,
                      const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    double ma[MATRIX_MAX], mb[MATRIX_MAX], mc[MATRIX_MAX];
    load_floats(op, TOW_MMA_A, s->a, op->a_regs, a, ma);
    load_floats(op, TOW_MMA_B, s->b, op->b_regs, b, mb);
    load_floats(op, TOW_MMA_C, s->c, op->c_regs, c, mc);
    mma_multiply(s->m, s->n, s->k, ma, mb, mc);
    store_floats(op, mc, d);
}

/* A chain of fused multiply-adds in the order of k, 32 elements at a time; m * n is a multiple of
 * that. */
static void multiply_f64(const struct tow_mma_desc *s, const double *a, const double *b, double *c)
{
    struct tow_num_form form = {
        .op = TOW_NUM_FMA, .type = TOW_NUM_F64, .round = (enum tow_num_round)s->round};
    tow_num_fn *fma_row = tow_num_find(&form);
    for (unsigned first = 0; first < (unsigned)s->m * s->n; first += TOW_NUM_LANES) {
        for (unsigned l = 0; l < s->k; l++) {
            double x[TOW_NUM_LANES], y[TOW_NUM_LANES], sum[TOW_NUM_LANES];
            for (unsigned e = 0; e < TOW_NUM_LANES; e++) {
                x[e] = a[(first + e) / s->n * s->k + l];
                y[e] = b[l * s->n + (first + e) % s->n];
            }
            fma_row(&form, sum, x, y, &c[first]);
            memcpy(&c[first], sum, sizeof sum);
        }
    }
}

static void run_f64(const struct tow_mma_op *op, void *const *d, const void *const *a,
                    const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    double ma[16 * 16], mb[16 * 8], mc[16 * 8];
    struct place p;
    load_floats(op, TOW_MMA_A, TOW_MMA_F64, op->a_regs, a, ma);
    load_floats(op, TOW_MMA_B, TOW_MMA_F64, op->b_regs, b, mb);
    load_floats(op, TOW_MMA_C, TOW_MMA_F64, op->c_regs, c, mc);
    multiply_f64(s, ma, mb, mc);
    find_place(op, TOW_MMA_C, TOW_MMA_F64, op->d_regs, &p);
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < op->d_regs; i++) {
            memcpy((uint64_t *)d[i] + lane, &mc[p.lane[lane] + p.element[i]], 8);
        }
    }
}

/* d = c + sums, wrapping or saturating. */
static void finish_ints(const struct tow_mma_op *op, const int32_t *sums, const int32_t *c,
                        void *const *d)
{
    struct place p;
    find_place(op, TOW_MMA_C, TOW_MMA_S32, op->d_regs, &p);
    for (unsigned i = 0; i < op->d_regs; i++) {
        uint32_t *row = d[i];
        for (unsigned l = 0; l < 32; l++) {
            unsigned at = p.lane[l] + p.element[i];
            int64_t v = (int64_t)c[at] + sums[at];
            if (op->desc.satfinite) {
                v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
            }
            row[l] = (uint32_t)v;
        }
    }
}

TOW_INLINE void multiply_ints_by(unsigned m, const unsigned n, unsigned k, const int32_t *a,
                                 const int32_t *b, int32_t *c)
{
    for (unsigned i = 0; i < m; i++) {
        int32_t sum[N_MAX] = {0};
        for (unsigned j = 0; j < k; j++) {
            int32_t x = a[i * k + j];
            for (unsigned l = 0; l < n; l++) {
                sum[l] += x * b[j * n + l];
            }
        }
        memcpy(&c[i * n], sum, n * sizeof sum[0]);
    }
}

static void run_int(const struct tow_mma_op *op, void *const *d, const void *const *a,
                    const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    int32_t ma[MATRIX_MAX], mb[MATRIX_MAX], mc[MATRIX_MAX];
    int32_t sums[MATRIX_MAX]; /* at most 64 products of 16 bits each */
    load_ints(op, TOW_MMA_A, s->a, op->a_regs, a, ma);
    load_ints(op, TOW_MMA_B, s->b, op->b_regs, b, mb);
    load_ints(op, TOW_MMA_C, TOW_MMA_S32, op->c_regs, c, mc);
    if (s->n == 8) {
        multiply_ints_by(s->m, 8, s->k, ma, mb, sums);
    } else {
        multiply_ints_by(s->m, s->n, s->k, ma, mb, sums);
    }
    finish_ints(op, sums, mc, d);
}

/* Bits, a word of 32 at a time: lane 4 g + t has words t and t + 4 of row (column) g. */
static void run_bits(const struct tow_mma_op *op, void *const *d, const void *const *a,
                     const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    unsigned words = s->k / 32;
    uint32_t ma[16 * 8], mb[8 * 8];
    int32_t mc[MATRIX_MAX], sums[MATRIX_MAX];
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned g = lane / 4, t = lane % 4;
        for (unsigned r = 0; r < op->a_regs; r++) {
            unsigned row = s->m == 8 ? g : g + 8 * (r % 2), word = s->m == 8 ? r : r / 2;
            ma[row * words + t + 4 * word] = ((const uint32_t *)a[r])[lane];
        }
        for (unsigned r = 0; r < op->b_regs; r++) {
            mb[g * words + t + 4 * r] = ((const uint32_t *)b[r])[lane];
        }
    }
    load_ints(op, TOW_MMA_C, TOW_MMA_S32, op->c_regs, c, mc);
    for (unsigned i = 0; i < s->m; i++) {
        for (unsigned j = 0; j < s->n; j++) {
            int sum = 0;
            for (unsigned w = 0; w < words; w++) {
                uint32_t x = ma[i * words + w], y = mb[j * words + w];
                sum += __builtin_popcount(s->bitop == TOW_MMA_XOR_POPC ? x ^ y : x & y);
            }
            sums[i * s->n + j] = sum;
        }
    }
    finish_ints(op, sums, mc, d);
}

/* ---- m8n8k4 of f16: lanes 4q to 4q+3 and those 16 above make product q ---------------- */

static void volta_position(const struct tow_mma_desc *d, enum tow_mma_matrix matrix,
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

static void volta_load(const struct tow_mma_desc *s, enum tow_mma_matrix matrix,
                       enum tow_mma_type type, unsigned elements, const void *const *rows,
                       double to[4][64])
{
    unsigned per = per_register(type), cols = matrix == TOW_MMA_A ? 4 : 8;
    for (unsigned i = 0; i < elements; i++) {
        double v[32];
        float_row(type, rows[i / per], i % per, v);
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned row, col;
            volta_position(s, matrix, type, lane, i, &row, &col);
            to[lane / 4 % 4][row * cols + col] = v[lane];
        }
    }
}

static void run_volta(const struct tow_mma_op *op, void *const *d, const void *const *a,
                      const void *const *b, const void *const *c, const uint32_t *metadata)
{
    const struct tow_mma_desc *s = &op->desc;
    double ma[4][64], mb[4][64], mc[4][64];
    volta_load(s, TOW_MMA_A, s->a, 4, a, ma);
    volta_load(s, TOW_MMA_B, s->b, 4, b, mb);
    volta_load(s, TOW_MMA_C, s->c, 8, c, mc);
    for (unsigned q = 0; q < 4; q++) {
        mma_multiply(8, 8, 4, ma[q], mb[q], mc[q]);
    }
    unsigned per = per_register(s->d);
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned row, col;
            volta_position(s, TOW_MMA_C, s->d, lane, i, &row, &col);
            uint32_t v = mma_narrow(mc[lane / 4 % 4][row * 8 + col], s->d);
            uint32_t *at = (uint32_t *)d[i / per] + lane;
            *at = i % per ? *at | v << 16 : v;
        }
    }
}

/* ---- what exists ---------------------------------------------------------------------- */

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
static unsigned mma_registers(enum tow_mma_type type, unsigned rows, unsigned cols)
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
    unsigned regs = !c && type == TOW_MMA_F16 ? 8 : mma_registers(type, rows, cols);
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
    op.a_regs = (uint8_t)mma_registers(desc->a, desc->m, desc->k);
    op.b_regs = (uint8_t)mma_registers(desc->b, desc->k, desc->n);
    op.c_regs = (uint8_t)mma_registers(desc->c, desc->m, desc->n);
    op.d_regs = (uint8_t)mma_registers(desc->d, desc->m, desc->n);
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
        op.run = is_volta(desc) ? run_volta : run_float;
        break;
    }
    *ret_op = op;
    return 0;
}

/* ---- ldmatrix, stmatrix, movmatrix ---------------------------------------------------- */

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

static uint32_t mma_read16(const uint8_t *row, unsigned col)
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
                uint32_t low = form->trans ? mma_read16(m[2 * t], g) : mma_read16(m[g], 2 * t);
                uint32_t high =
                    form->trans ? mma_read16(m[2 * t + 1], g) : mma_read16(m[g], 2 * t + 1);
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
