/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions over a warp: mma.sync, mma.sp, wmma, ldmatrix, stmatrix, movmatrix.
 *
 * Fragments are arrays of pointers to rows of 32 lanes, one row per register as the instruction
 * lists them: uint32_t[32], or uint64_t[32] for f64 registers. Destination rows may be the same as
 * source rows. All 32 lanes take part (PTX demands it); the executor refuses anything else.
 *
 * Memory is the executor's business: ldmatrix and stmatrix work on a block of 32 x 16 bytes that it
 * reads or writes, wmma.load and wmma.store tell which element of the matrix each register holds.
 *
 * Refused by the finders: mma.sp, the 6- and 4-bit floats and block scaling of sm_100 and later.
 *
 * Float accumulation: products are exact, the sum of one k-block is formed in double precision and
 * rounded once to the type of d. Hardware truncates partial sums, so its results differ from ours
 * by at most 2^-21 (f32; 2^-10 for f16) of the sum of the magnitudes of all terms. Integers are
 * exact.
 */
#ifndef TOW_PTX_MMA_H
#define TOW_PTX_MMA_H

#include <stdbool.h>
#include <stdint.h>

enum tow_mma_type {
    TOW_MMA_NONE,
    TOW_MMA_F16,
    TOW_MMA_BF16,
    TOW_MMA_TF32,
    TOW_MMA_F32,
    TOW_MMA_F64,
    TOW_MMA_S32,
    TOW_MMA_S8,
    TOW_MMA_U8,
    TOW_MMA_S4,
    TOW_MMA_U4,
    TOW_MMA_B1,
    TOW_MMA_E4M3,
    TOW_MMA_E5M2,
};

enum tow_mma_bitop {
    TOW_MMA_BIT_NONE,
    TOW_MMA_XOR_POPC,
    TOW_MMA_AND_POPC,
};

struct tow_mma_desc {
    bool wmma;
    uint16_t m, n, k;
    enum tow_mma_type a, b, c, d;
    bool a_col,
        b_row;      /* layout words that differ from the usual a.row b.col; m8n8k4.f16 and wmma */
    bool satfinite; /* integers: clamp instead of wrap */
    enum tow_mma_bitop bitop;
    uint8_t round; /* f64: enum tow_num_round, 0 for nearest */
    bool sparse;   /* mma.sp: a holds k/2 columns, metadata picks them */
};

enum tow_mma_matrix {
    TOW_MMA_A,
    TOW_MMA_B,
    TOW_MMA_C, /* also d */
};

struct tow_mma_op;
typedef void tow_mma_fn(const struct tow_mma_op *op, void *const *d, const void *const *a,
                        const void *const *b, const void *const *c, const uint32_t *metadata);

struct tow_mma_op {
    struct tow_mma_desc desc;
    tow_mma_fn *run;
    uint8_t a_regs, b_regs, c_regs, d_regs; /* how many rows each operand has */
    uint8_t selector;                       /* mma.sp: set by the executor from the immediate */
};

/* 0, or -EINVAL if PTX has no such shape and types. */
int tow_mma_find(const struct tow_mma_desc *desc, struct tow_mma_op *ret_op);

/* ---- wmma.load, wmma.store ------------------------------------------------------------ */

/* How one wmma fragment lies in registers. Element e of a lane is bits [e * bits, (e + 1) * bits)
 * of register e * bits / 32 (for f64: register e). Which element of the matrix that is:
 * tow_wmma_element. */
struct tow_wmma_fragment {
    enum tow_mma_matrix matrix;
    enum tow_mma_type type;
    uint16_t rows, cols;
    uint8_t registers;
    uint8_t element_bits; /* in registers and in memory: 64, 32, 16, 8, 4 or 1 */
    uint8_t elements;     /* per lane; 4- and 1-bit ones are moved 32 bits at a time, see below */
};
/* 0, or -EINVAL. For C and D pass `type` f16, f32, s32 or f64. */
int tow_wmma_fragment_find(uint16_t m, uint16_t n, uint16_t k, enum tow_mma_matrix matrix,
                           enum tow_mma_type type, struct tow_wmma_fragment *ret_fragment);
/* Row and column of element e of a lane. Some fragments hold each element in two lanes: store both,
 * they are equal. The offset in memory is (row * stride + col) elements for the row layout and
 * (col * stride + row) for col; of sub-byte types that is a whole number of 32-bit words for e = 0.
 */
void tow_wmma_element(const struct tow_wmma_fragment *fragment, unsigned lane, unsigned e,
                      uint16_t *ret_row, uint16_t *ret_col);

/* ---- ldmatrix, stmatrix, movmatrix ---------------------------------------------------- */

enum tow_matrix_shape {
    TOW_MATRIX_M8N8_B16,
    TOW_MATRIX_M16N16_B8, /* ldmatrix .trans only */
};
struct tow_matrix_form {
    enum tow_matrix_shape shape;
    uint8_t count; /* x1 x2 x4 */
    bool trans;
};
struct tow_matrix_layout {
    uint8_t registers; /* rows of d (ldmatrix) or of sources (stmatrix) */
    uint8_t addresses; /* lanes 0 .. addresses-1 give the address of a matrix row */
    uint8_t row_bytes; /* aligned to this in memory (16 for the padded ones) */
};
/* 0, or -EINVAL if PTX has no such form. */
int tow_matrix_find(const struct tow_matrix_form *form, bool store,
                    struct tow_matrix_layout *ret_layout);
/* rows[l] is the matrix row that lane l's address points at. */
void tow_matrix_load(const struct tow_matrix_form *form, const uint8_t rows[32][16],
                     void *const *d);
void tow_matrix_store(const struct tow_matrix_form *form, const void *const *a,
                      uint8_t ret_rows[32][16]);
/* movmatrix.trans.m8n8.b16 */
void tow_matrix_move(uint32_t *d, const uint32_t *a);

#endif
