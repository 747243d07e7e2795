/* SPDX-License-Identifier: Apache-2.0 */
/* What bench/ptx_speed measures: kernels of ptx_speed.cu, and the same in C. */
#ifndef BENCH_PTX_SPEED_H
#define BENCH_PTX_SPEED_H

#include <stddef.h>
#include <stdint.h>

/* The data of one kind. `out` is what the kernels leave, `want` what C leaves. */
struct speed_data {
    void *in[5];
    void *out, *want, *out2, *want2; /* the second ones may be NULL */
    void *spare;                     /* for C, as large as `out` */
    size_t count;                    /* of elements of `out` and of `out2` */
    int n, width, height;
};

/* C names, compiled as a user would compile them: -O2, and -O3 with vectors. */
#define SPEED_KINDS(X)                                                                             \
    X(vector_add)                                                                                  \
    X(saxpy)                                                                                       \
    X(reduce)                                                                                      \
    X(scan)                                                                                        \
    X(matrix_mul)                                                                                  \
    X(matrix_mul_double)                                                                           \
    X(matrix_mul_half)                                                                             \
    X(nbody)                                                                                       \
    X(black_scholes)                                                                               \
    X(mandelbrot)                                                                                  \
    X(histogram)                                                                                   \
    X(stencil)                                                                                     \
    X(radix_sort)                                                                                  \
    X(sha256)                                                                                      \
    X(sparse)                                                                                      \
    X(alignment)                                                                                   \
    X(texture)                                                                                     \
    X(tensor)
#define SPEED_DECLARE(name)                                                                        \
    void speed_##name##_o2(struct speed_data *data);                                               \
    void speed_##name##_o3(struct speed_data *data);
SPEED_KINDS(SPEED_DECLARE)

enum speed_type {
    SPEED_FLOAT,
    SPEED_DOUBLE,
    SPEED_WORD, /* 32-bit integers, which must be equal */
};

struct machine;
#define SPEED_STEPS_MAX 40
#define SPEED_ARGS_MAX 8

struct speed_kind {
    const char *name;
    void (*o2)(struct speed_data *data), (*o3)(struct speed_data *data);
    enum speed_type type;
    struct speed_data data;
    struct speed_step {
        const char *kernel;
        uint32_t grid[3], block[3];
        uint64_t args[SPEED_ARGS_MAX];
        unsigned arg_count;
    } steps[SPEED_STEPS_MAX];
    unsigned step_count;
};

/* NULL: there are not so many. */
const char *speed_kind_name(unsigned index);
/* Fills in the inputs and the launches of a kind. The memory is the machine's. */
void speed_kind_make(struct machine *m, unsigned index, struct speed_kind *ret_kind);
/* Before each run: what kernels add to is zero, what they change is as it was. */
void speed_kind_reset(struct speed_kind *kind);

#endif
