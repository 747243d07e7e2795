/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions: the element positions are written out here per shape, as the instruction set
 * manual gives them, and the product is formed in the plainest way. */
#include "num_lib.h"

#include "ptx/num/mma.h"

#include <errno.h>
#include <math.h>

#define REGS 8
static uint64_t ra[REGS][32], rb[REGS][32], rc[REGS][32], rd[REGS][32]; /* wide enough for f64 */
static const void *pa[REGS], *pb[REGS], *pc[REGS];
static void *pd[REGS];

static void point_rows(void)
{
    for (int i = 0; i < REGS; i++) {
        pa[i] = ra[i];
        pb[i] = rb[i];
        pc[i] = rc[i];
        pd[i] = rd[i];
    }
    memset(ra, 0, sizeof ra);
    memset(rb, 0, sizeof rb);
    memset(rc, 0, sizeof rc);
    memset(rd, 0xee, sizeof rd);
}

static void put(uint64_t regs[REGS][32], unsigned bits, unsigned lane, unsigned i, uint64_t v)
{
    if (bits == 64) {
        regs[i][lane] = v;
        return;
    }
    unsigned per = 32 / bits;
    uint32_t *row = (uint32_t *)regs[i / per];
    uint32_t mask = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
    row[lane] |= (uint32_t)(v & mask) << (bits * (i % per));
}

static uint64_t get(uint64_t regs[REGS][32], unsigned bits, unsigned lane, unsigned i)
{
    if (bits == 64) {
        return regs[i][lane];
    }
    unsigned per = 32 / bits;
    const uint32_t *row = (const uint32_t *)regs[i / per];
    uint32_t mask = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
    return row[lane] >> (bits * (i % per)) & mask;
}

struct kind {
    enum tow_mma_type ab, cd;
    unsigned m, k, bits;
};

/* Positions of A as the manual lists them, by number of bits and k. */
static void a_position(const struct kind *s, unsigned lane, unsigned i, unsigned *row,
                       unsigned *col)
{
    unsigned group = lane >> 2, thread = lane % 4;
    *row = group;
    switch (s->bits) {
    case 64:
        *col = thread;
        if (s->m == 16) {
            *row = i % 2 == 0 ? group : group + 8;
            *col = i % 2 == 0 ? i * 2 + thread : i * 2 - 2 + thread;
        }
        return;
    case 32: /* a0: (g, t), a1: (g + 8, t), a2: (g, t + 4), a3: (g + 8, t + 4) */
        *row = i == 0 || i == 2 ? group : group + 8;
        *col = i < 2 ? thread : thread + 4;
        return;
    case 16:
        if (s->k == 8) {
            *row = i < 2 ? group : group + 8;
            *col = thread * 2 + (i & 1);
        } else {
            *row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
            *col = thread * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        }
        return;
    case 8:
        if (s->m == 8) {
            *col = thread * 4 + i;
        } else if (s->k == 16) {
            *row = i < 4 ? group : group + 8;
            *col = thread * 4 + (i & 3);
        } else {
            *row = (i < 4 || (i >= 8 && i < 12)) ? group : group + 8;
            *col = thread * 4 + (i & 3) + (i >= 8 ? 16 : 0);
        }
        return;
    default: /* 4 */
        if (s->m == 8) {
            *col = thread * 8 + i;
        } else if (s->k == 32) {
            *row = i < 8 ? group : group + 8;
            *col = thread * 8 + (i & 7);
        } else {
            *row = (i < 8 || (i >= 16 && i < 24)) ? group : group + 8;
            *col = thread * 8 + (i & 7) + (i >= 16 ? 32 : 0);
        }
        return;
    }
}

static void b_position(const struct kind *s, unsigned lane, unsigned i, unsigned *row,
                       unsigned *col)
{
    unsigned group = lane >> 2, thread = lane % 4;
    *col = group;
    switch (s->bits) {
    case 64:
    case 32:
        *row = thread + i * 4;
        return;
    case 16:
        *row = i < 2 ? thread * 2 + i : thread * 2 + (i & 1) + 8;
        return;
    case 8:
        *row = i < 4 ? thread * 4 + i : thread * 4 + (i & 3) + 16;
        return;
    default:
        *row = i < 8 ? thread * 8 + i : thread * 8 + (i & 7) + 32;
        return;
    }
}

static void c_position(unsigned lane, unsigned i, unsigned *row, unsigned *col)
{
    *row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
    *col = lane % 4 * 2 + (i & 1);
}

/* Small integers, exact in every type, as bits of the type. */
static uint64_t encode(enum tow_mma_type type, int v)
{
    switch (type) {
    case TOW_MMA_F16:
        return tow_f32_to_f16(tow_f32_bits((float)v));
    case TOW_MMA_BF16:
        return tow_f32_to_bf16(tow_f32_bits((float)v));
    case TOW_MMA_TF32:
    case TOW_MMA_F32:
        return tow_f32_bits((float)v);
    case TOW_MMA_F64:
        return tow_f64_bits((double)v);
    case TOW_MMA_E4M3: {
        static const uint8_t codes[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50};
        return v < 0 ? codes[-v] | 0x80 : codes[v];
    }
    case TOW_MMA_E5M2: { /* 0 to 4, 6 and 8 alone are used */
        static const uint8_t codes[] = {0x00, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48};
        return v < 0 ? codes[-v] | 0x80 : codes[v];
    }
    default:
        return (uint64_t)(int64_t)v;
    }
}

static int pick(enum tow_mma_type type)
{
    int r = (int)(test_random() % 1000);
    switch (type) {
    case TOW_MMA_U8:
        return r % 256;
    case TOW_MMA_S8:
        return r % 256 - 128;
    case TOW_MMA_U4:
        return r % 16;
    case TOW_MMA_S4:
        return r % 16 - 8;
    case TOW_MMA_E4M3:
        return r % 17 - 8;
    case TOW_MMA_E5M2:
        return r % 9 - 4;
    default:
        return r % 17 - 8;
    }
}

static double decode(enum tow_mma_type type, uint64_t v)
{
    switch (type) {
    case TOW_MMA_F16:
        return tow_f32(tow_f16_to_f32((uint32_t)v));
    case TOW_MMA_F32:
        return tow_f32((uint32_t)v);
    case TOW_MMA_F64:
        return tow_f64(v);
    default:
        return (int32_t)v;
    }
}

static void check(const struct kind *s, enum tow_mma_type b_type)
{
    struct tow_mma_desc desc = {.m = (uint16_t)s->m,
                                .n = 8,
                                .k = (uint16_t)s->k,
                                .a = s->ab,
                                .b = b_type,
                                .c = s->cd,
                                .d = s->cd};
    struct tow_mma_op op;
    assert_int_equal(tow_mma_find(&desc, &op), 0);
    int a[16][64] = {{0}}, b[64][8] = {{0}}, c[16][8] = {{0}};
    point_rows();
    unsigned cbits = s->cd == TOW_MMA_F16 ? 16 : s->cd == TOW_MMA_F64 ? 64 : 32;
    unsigned per_lane_a = s->m * s->k / 32, per_lane_b = s->k * 8 / 32, per_lane_c = s->m * 8 / 32;
    unsigned row, col;
    assert_int_equal(op.a_regs, s->bits == 64 ? per_lane_a : per_lane_a * s->bits / 32);
    assert_int_equal(op.b_regs, s->bits == 64 ? per_lane_b : per_lane_b * s->bits / 32);
    assert_int_equal(op.d_regs, cbits == 64 ? per_lane_c : per_lane_c * cbits / 32);
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < per_lane_a; i++) {
            a_position(s, lane, i, &row, &col);
            a[row][col] = pick(s->ab);
            put(ra, s->bits, lane, i, encode(s->ab, a[row][col]));
        }
        for (unsigned i = 0; i < per_lane_b; i++) {
            b_position(s, lane, i, &row, &col);
            b[row][col] = pick(b_type);
            put(rb, s->bits, lane, i, encode(b_type, b[row][col]));
        }
        for (unsigned i = 0; i < per_lane_c; i++) {
            c_position(lane, i, &row, &col);
            c[row][col] = (int)(test_random() % 200) - 100;
            put(rc, cbits, lane, i, encode(s->cd, c[row][col]));
        }
    }
    op.run(&op, pd, pa, pb, pc, NULL);
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < per_lane_c; i++) {
            c_position(lane, i, &row, &col);
            int64_t want = c[row][col];
            for (unsigned k = 0; k < s->k; k++) {
                want += (int64_t)a[row][k] * b[k][col];
            }
            double got = decode(s->cd, get(rd, cbits, lane, i));
            if (s->cd == TOW_MMA_F16) {
                want = (int64_t)tow_f32(tow_f16_to_f32(tow_f32_to_f16(tow_f32_bits((float)want))));
            }
            if (got != (double)want) {
                fail_msg("type %d m%u k%u: (%u, %u) is %g, want %lld", s->ab, s->m, s->k, row, col,
                         got, (long long)want);
            }
        }
    }
}

static void every_shape_multiplies(void **state)
{
    static const struct kind kinds[] = {
        {TOW_MMA_F16, TOW_MMA_F32, 16, 8, 16},  {TOW_MMA_F16, TOW_MMA_F16, 16, 8, 16},
        {TOW_MMA_F16, TOW_MMA_F32, 16, 16, 16}, {TOW_MMA_F16, TOW_MMA_F16, 16, 16, 16},
        {TOW_MMA_BF16, TOW_MMA_F32, 16, 8, 16}, {TOW_MMA_BF16, TOW_MMA_F32, 16, 16, 16},
        {TOW_MMA_TF32, TOW_MMA_F32, 16, 4, 32}, {TOW_MMA_TF32, TOW_MMA_F32, 16, 8, 32},
        {TOW_MMA_F64, TOW_MMA_F64, 8, 4, 64},   {TOW_MMA_F64, TOW_MMA_F64, 16, 4, 64},
        {TOW_MMA_F64, TOW_MMA_F64, 16, 8, 64},  {TOW_MMA_F64, TOW_MMA_F64, 16, 16, 64},
        {TOW_MMA_S8, TOW_MMA_S32, 8, 16, 8},    {TOW_MMA_S8, TOW_MMA_S32, 16, 16, 8},
        {TOW_MMA_S8, TOW_MMA_S32, 16, 32, 8},   {TOW_MMA_U8, TOW_MMA_S32, 16, 32, 8},
        {TOW_MMA_S4, TOW_MMA_S32, 8, 32, 4},    {TOW_MMA_S4, TOW_MMA_S32, 16, 32, 4},
        {TOW_MMA_U4, TOW_MMA_S32, 16, 64, 4},   {TOW_MMA_E4M3, TOW_MMA_F32, 16, 32, 8},
        {TOW_MMA_E5M2, TOW_MMA_F32, 16, 32, 8}, {TOW_MMA_E4M3, TOW_MMA_F16, 16, 32, 8},
        {TOW_MMA_E5M2, TOW_MMA_F32, 16, 16, 8},
    };
    for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
        check(&kinds[i], kinds[i].ab);
    }
    check(&kinds[14], TOW_MMA_U8); /* mixed signs */
    check(&kinds[15], TOW_MMA_S8);
    check(&kinds[18], TOW_MMA_S4);
    check(&kinds[19], TOW_MMA_E5M2);
}

/* m8n8k4: four quad pairs, each its own 8x8x4 product. */
static void volta_makes_four_products(void **state)
{
    for (int mode = 0; mode < 16; mode++) {
        bool a_col = mode & 1, b_row = mode & 2;
        enum tow_mma_type ct = mode & 4 ? TOW_MMA_F32 : TOW_MMA_F16;
        enum tow_mma_type dt = mode & 8 ? TOW_MMA_F32 : TOW_MMA_F16;
        struct tow_mma_desc desc = {.m = 8,
                                    .n = 8,
                                    .k = 4,
                                    .a = TOW_MMA_F16,
                                    .b = TOW_MMA_F16,
                                    .c = ct,
                                    .d = dt,
                                    .a_col = a_col,
                                    .b_row = b_row};
        struct tow_mma_op op;
        assert_int_equal(tow_mma_find(&desc, &op), 0);
        int a[4][8][4], b[4][4][8], c[4][8][8];
        point_rows();
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned q = lane / 4 % 4, in = lane % 4, up = lane < 16 ? 0 : 4;
            for (unsigned i = 0; i < 4; i++) {
                int va = pick(TOW_MMA_F16), vb = pick(TOW_MMA_F16);
                put(ra, 16, lane, i, encode(TOW_MMA_F16, va));
                put(rb, 16, lane, i, encode(TOW_MMA_F16, vb));
                if (a_col) {
                    a[q][i + up][in] = va;
                } else {
                    a[q][in + up][i] = va;
                }
                if (b_row) {
                    b[q][in][i + up] = vb;
                } else {
                    b[q][i][in + up] = vb;
                }
            }
            for (unsigned i = 0; i < 8; i++) {
                int vc = pick(TOW_MMA_F16);
                put(rc, ct == TOW_MMA_F16 ? 16 : 32, lane, i, encode(ct, vc));
                if (ct == TOW_MMA_F16) {
                    c[q][in + up][i] = vc;
                } else {
                    c[q][(lane & 1) + (i & 2) + up][(i & 4) + (lane & 2) + (i & 1)] = vc;
                }
            }
        }
        op.run(&op, pd, pa, pb, pc, NULL);
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned q = lane / 4 % 4, in = lane % 4, up = lane < 16 ? 0 : 4;
            for (unsigned i = 0; i < 8; i++) {
                unsigned row = in + up, col = i;
                if (dt == TOW_MMA_F32) {
                    row = (lane & 1) + (i & 2) + up;
                    col = (i & 4) + (lane & 2) + (i & 1);
                }
                int want = c[q][row][col];
                for (int k = 0; k < 4; k++) {
                    want += a[q][row][k] * b[q][k][col];
                }
                double got = decode(dt, get(rd, dt == TOW_MMA_F16 ? 16 : 32, lane, i));
                assert_true(got == want);
            }
        }
    }
}

static void bits_are_counted(void **state)
{
    for (int mode = 0; mode < 6; mode++) {
        unsigned m = mode < 2 ? 8 : 16, k = mode < 4 ? 128 : 256;
        bool xor = mode & 1;
        struct tow_mma_desc desc = {.m = (uint16_t)m,
                                    .n = 8,
                                    .k = (uint16_t)k,
                                    .a = TOW_MMA_B1,
                                    .b = TOW_MMA_B1,
                                    .c = TOW_MMA_S32,
                                    .d = TOW_MMA_S32,
                                    .bitop = xor? TOW_MMA_XOR_POPC : TOW_MMA_AND_POPC};
        struct tow_mma_op op;
        assert_int_equal(tow_mma_find(&desc, &op), 0);
        assert_int_equal(op.a_regs, m * k / 1024);
        uint32_t a[16][8], b[8][8];
        point_rows();
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned r = 0; r < m * k / 1024; r++) {
                unsigned row = lane / 4 + (m == 16 && r % 2 ? 8 : 0);
                unsigned word = lane % 4 + (r / 2) * 4;
                a[row][word] = (uint32_t)test_random();
                put(ra, 32, lane, r, a[row][word]);
            }
            for (unsigned r = 0; r < k / 128; r++) {
                b[lane / 4][lane % 4 + 4 * r] = (uint32_t)test_random();
                put(rb, 32, lane, r, b[lane / 4][lane % 4 + 4 * r]);
            }
        }
        op.run(&op, pd, pa, pb, pc, NULL);
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned i = 0; i < m / 4; i++) {
                unsigned row, col;
                c_position(lane, i, &row, &col);
                int want = 0;
                for (unsigned w = 0; w < k / 32; w++) {
                    want += __builtin_popcount(xor? a[row][w] ^ b[col][w] : a[row][w] & b[col][w]);
                }
                assert_int_equal(get(rd, 32, lane, i), want);
            }
        }
    }
}

static void integers_wrap_or_saturate(void **state)
{
    struct tow_mma_desc desc = {.m = 8,
                                .n = 8,
                                .k = 16,
                                .a = TOW_MMA_U8,
                                .b = TOW_MMA_U8,
                                .c = TOW_MMA_S32,
                                .d = TOW_MMA_S32};
    struct tow_mma_op op;
    point_rows();
    memset(ra, 0xff, sizeof ra);
    memset(rb, 0xff, sizeof rb);
    for (int i = 0; i < 2; i++) {
        for (unsigned lane = 0; lane < 32; lane++) {
            put(rc, 32, lane, (unsigned)i, 0x7fffffff);
        }
    }
    assert_int_equal(tow_mma_find(&desc, &op), 0);
    op.run(&op, pd, pa, pb, pc, NULL);
    assert_int_equal(get(rd, 32, 5, 1), (uint32_t)(0x7fffffffu + 16u * 255 * 255));
    desc.satfinite = true;
    assert_int_equal(tow_mma_find(&desc, &op), 0);
    op.run(&op, pd, pa, pb, pc, NULL);
    assert_int_equal(get(rd, 32, 5, 1), 0x7fffffff);
}

static void wmma_fragments_multiply(void **state)
{
    static const struct {
        enum tow_mma_type ab, c, d;
        uint16_t m, n, k;
        uint8_t a_regs, b_regs, c_regs;
    } kinds[] = {
        {TOW_MMA_F16, TOW_MMA_F32, TOW_MMA_F32, 16, 16, 16, 8, 8, 8},
        {TOW_MMA_F16, TOW_MMA_F16, TOW_MMA_F32, 8, 32, 16, 8, 8, 4},
        {TOW_MMA_F16, TOW_MMA_F32, TOW_MMA_F32, 32, 8, 16, 8, 8, 8},
        {TOW_MMA_BF16, TOW_MMA_F32, TOW_MMA_F32, 16, 16, 16, 4, 4, 8},
        {TOW_MMA_BF16, TOW_MMA_F32, TOW_MMA_F32, 8, 32, 16, 2, 8, 8},
        {TOW_MMA_BF16, TOW_MMA_F32, TOW_MMA_F32, 32, 8, 16, 8, 2, 8},
        {TOW_MMA_TF32, TOW_MMA_F32, TOW_MMA_F32, 16, 16, 8, 4, 4, 8},
        {TOW_MMA_F64, TOW_MMA_F64, TOW_MMA_F64, 8, 8, 4, 1, 1, 2},
        {TOW_MMA_S8, TOW_MMA_S32, TOW_MMA_S32, 16, 16, 16, 2, 2, 8},
        {TOW_MMA_U8, TOW_MMA_S32, TOW_MMA_S32, 8, 32, 16, 1, 4, 8},
        {TOW_MMA_S8, TOW_MMA_S32, TOW_MMA_S32, 32, 8, 16, 4, 1, 8},
        {TOW_MMA_S4, TOW_MMA_S32, TOW_MMA_S32, 8, 8, 32, 1, 1, 2},
        {TOW_MMA_U4, TOW_MMA_S32, TOW_MMA_S32, 8, 8, 32, 1, 1, 2},
    };
    for (size_t n = 0; n < TEST_COUNT(kinds); n++) {
        struct tow_mma_desc desc = {.wmma = true,
                                    .m = kinds[n].m,
                                    .n = kinds[n].n,
                                    .k = kinds[n].k,
                                    .a = kinds[n].ab,
                                    .b = kinds[n].ab,
                                    .c = kinds[n].c,
                                    .d = kinds[n].d};
        struct tow_mma_op op;
        assert_int_equal(tow_mma_find(&desc, &op), 0);
        assert_int_equal(op.a_regs, kinds[n].a_regs);
        assert_int_equal(op.b_regs, kinds[n].b_regs);
        assert_int_equal(op.c_regs, kinds[n].c_regs);
        int mat[3][32][32] = {{{0}}};
        bool seen[3][32][32] = {{{0}}};
        point_rows();
        for (int w = 0; w < 3; w++) {
            enum tow_mma_type type = w == 2 ? kinds[n].c : kinds[n].ab;
            struct tow_wmma_fragment f;
            assert_int_equal(
                tow_wmma_fragment_find(desc.m, desc.n, desc.k, (enum tow_mma_matrix)w, type, &f),
                0);
            assert_int_equal(f.registers, w == 0 ? op.a_regs : w == 1 ? op.b_regs : op.c_regs);
            unsigned count = 0;
            for (unsigned lane = 0; lane < 32; lane++) {
                for (unsigned e = 0; e < f.elements; e++) {
                    uint16_t row, col;
                    tow_wmma_element(&f, lane, e, &row, &col);
                    assert_true(row < f.rows && col < f.cols);
                    if (!seen[w][row][col]) {
                        seen[w][row][col] = true;
                        mat[w][row][col] = pick(w == 2 ? TOW_MMA_S32 : kinds[n].ab);
                        count++;
                    }
                    put(w == 0   ? ra
                        : w == 1 ? rb
                                 : rc,
                        f.element_bits, lane, e, encode(type, mat[w][row][col]));
                }
            }
            assert_int_equal(count, f.rows * f.cols);
        }
        op.run(&op, pd, pa, pb, pc, NULL);
        struct tow_wmma_fragment f;
        assert_int_equal(tow_wmma_fragment_find(desc.m, desc.n, desc.k, TOW_MMA_C, kinds[n].d, &f),
                         0);
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned e = 0; e < f.elements; e++) {
                uint16_t row, col;
                tow_wmma_element(&f, lane, e, &row, &col);
                int want = mat[2][row][col];
                for (unsigned k = 0; k < desc.k; k++) {
                    want += mat[0][row][k] * mat[1][k][col];
                }
                assert_true(decode(kinds[n].d, get(rd, f.element_bits, lane, e)) == want);
            }
        }
    }
}

static void unknown_shapes_are_refused(void **state)
{
    struct tow_mma_op op;
    struct tow_mma_desc bad[] = {
        {.m = 16,
         .n = 8,
         .k = 32,
         .a = TOW_MMA_F16,
         .b = TOW_MMA_F16,
         .c = TOW_MMA_F32,
         .d = TOW_MMA_F32},
        {.m = 16,
         .n = 8,
         .k = 16,
         .a = TOW_MMA_F16,
         .b = TOW_MMA_BF16,
         .c = TOW_MMA_F32,
         .d = TOW_MMA_F32},
        {.m = 16,
         .n = 8,
         .k = 16,
         .a = TOW_MMA_BF16,
         .b = TOW_MMA_BF16,
         .c = TOW_MMA_F16,
         .d = TOW_MMA_F16},
        {.m = 16,
         .n = 8,
         .k = 32,
         .a = TOW_MMA_S8,
         .b = TOW_MMA_S4,
         .c = TOW_MMA_S32,
         .d = TOW_MMA_S32},
        {.m = 0xffff,
         .n = 8,
         .k = 16,
         .a = TOW_MMA_F16,
         .b = TOW_MMA_F16,
         .c = TOW_MMA_F32,
         .d = TOW_MMA_F32},
    };
    for (size_t i = 0; i < TEST_COUNT(bad); i++) {
        assert_int_equal(tow_mma_find(&bad[i], &op), -EINVAL);
    }
    struct tow_wmma_fragment f;
    assert_int_equal(tow_wmma_fragment_find(16, 16, 16, TOW_MMA_A, TOW_MMA_S4, &f), -EINVAL);
    struct tow_matrix_layout layout;
    struct tow_matrix_form form = {.shape = TOW_MATRIX_M8N8_B16, .count = 3};
    assert_int_equal(tow_matrix_find(&form, false, &layout), -EINVAL);
}

static void matrices_load_store_and_transpose(void **state)
{
    uint8_t rows[32][16], back[32][16];
    for (int trans = 0; trans < 2; trans++) {
        for (unsigned i = 0; i < 32; i++) {
            for (unsigned j = 0; j < 8; j++) { /* halfword: matrix, row, column */
                rows[i][2 * j] = (uint8_t)(i % 8 * 16 + j);
                rows[i][2 * j + 1] = (uint8_t)(i / 8);
            }
        }
        struct tow_matrix_form form = {
            .shape = TOW_MATRIX_M8N8_B16, .count = 4, .trans = trans != 0};
        struct tow_matrix_layout layout;
        assert_int_equal(tow_matrix_find(&form, false, &layout), 0);
        assert_int_equal(layout.registers, 4);
        assert_int_equal(layout.addresses, 32);
        point_rows();
        tow_matrix_load(&form, (const uint8_t(*)[16])rows, pd);
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned m = 0; m < 4; m++) {
                unsigned r = lane / 4, c = lane % 4 * 2;
                uint32_t low = trans ? c * 16 + r : r * 16 + c;
                uint32_t high = trans ? (c + 1) * 16 + r : r * 16 + c + 1;
                uint32_t want = (m << 8 | low) | (m << 8 | high) << 16;
                assert_int_equal(((uint32_t *)rd[m])[lane], want);
            }
        }
        const void *from[4] = {rd[0], rd[1], rd[2], rd[3]};
        memset(back, 0, sizeof back);
        tow_matrix_store(&form, from, back);
        assert_memory_equal(rows, back, sizeof rows);
    }
    uint32_t a[32], d[32];
    for (uint32_t l = 0; l < 32; l++) { /* element (row, col) = row * 8 + col */
        uint32_t first = l / 4 * 8 + l % 4 * 2;
        a[l] = first | (first + 1) << 16;
    }
    tow_matrix_move(d, a);
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t r = l / 4, c = l % 4 * 2;
        assert_int_equal(d[l], (c * 8 + r) | ((c + 1) * 8 + r) << 16);
    }
}

static void special_floats_survive(void **state)
{
    struct tow_mma_desc desc = {.m = 16,
                                .n = 8,
                                .k = 8,
                                .a = TOW_MMA_F16,
                                .b = TOW_MMA_F16,
                                .c = TOW_MMA_F32,
                                .d = TOW_MMA_F32};
    struct tow_mma_op op;
    assert_int_equal(tow_mma_find(&desc, &op), 0);
    point_rows();
    put(ra, 16, 0, 0, 0x7c00); /* A(0,0) infinite, B(0,0) zero */
    op.run(&op, pd, pa, pb, pc, NULL);
    assert_int_equal(get(rd, 32, 0, 0), 0x7fffffff);
    assert_int_equal(get(rd, 32, 4, 0), 0);
    put(rb, 16, 0, 0, 0x3c00);
    op.run(&op, pd, pa, pb, pc, NULL);
    assert_int_equal(get(rd, 32, 0, 0), 0x7f800000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_multiplies),
        cmocka_unit_test(volta_makes_four_products),
        cmocka_unit_test(bits_are_counted),
        cmocka_unit_test(integers_wrap_or_saturate),
        cmocka_unit_test(wmma_fragments_multiply),
        cmocka_unit_test(unknown_shapes_are_refused),
        cmocka_unit_test(matrices_load_store_and_transpose),
        cmocka_unit_test(special_floats_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
