/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of ptx_speed: their inputs and launches. */
#include "ptx_speed.h"

#include <string.h>

#include "machine.h"
#include "ptx/num/texture.h"

/* Numbers that are the same everywhere. */
static unsigned noise(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static float noise_float(unsigned *seed, float low, float high)
{
    return low + (high - low) * (float)noise(seed) / 16777216.0f;
}

static uint64_t float_arg(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static float *floats(struct machine *m, size_t count, float low, float high, unsigned seed)
{
    float *at = machine_alloc(m, count * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        at[i] = noise_float(&seed, low, high);
    }
    return at;
}

static double *doubles(struct machine *m, size_t count, unsigned seed)
{
    double *at = machine_alloc(m, count * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        at[i] = (double)noise_float(&seed, -1, 1);
    }
    return at;
}

/* Halves from 0.5 to 2 of both signs, which need no rounding. */
static uint16_t *halves(struct machine *m, size_t count, unsigned seed)
{
    uint16_t *at = machine_alloc(m, count * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        at[i] = (uint16_t)(0x3800 + noise(&seed) % 0x800 + (noise(&seed) & 1 ? 0x8000 : 0));
    }
    return at;
}

static unsigned *words(struct machine *m, size_t count, unsigned seed)
{
    unsigned *at = machine_alloc(m, count * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        at[i] = noise(&seed) ^ noise(&seed) << 16;
    }
    return at;
}

static unsigned char *letters(struct machine *m, size_t count, unsigned seed)
{
    unsigned char *at = machine_alloc(m, count);
    for (size_t i = 0; i < count; i++) {
        at[i] = (unsigned char)"ACGT"[noise(&seed) / 7 % 4];
    }
    return at;
}

static void output(struct machine *m, struct speed_kind *kind, enum speed_type type, size_t count)
{
    size_t bytes = count * (type == SPEED_DOUBLE ? 8 : 4);
    kind->type = type;
    kind->data.count = count;
    kind->data.out = machine_alloc(m, bytes);
    kind->data.want = machine_alloc(m, bytes);
    kind->data.spare = machine_alloc(m, bytes);
}

static struct speed_step *step(struct speed_kind *kind, const char *kernel, uint32_t grid_x,
                               uint32_t grid_y, uint32_t block_x, uint32_t block_y)
{
    struct speed_step *at = &kind->steps[kind->step_count++];
    *at = (struct speed_step){
        .kernel = kernel, .grid = {grid_x, grid_y, 1}, .block = {block_x, block_y, 1}};
    return at;
}

static void arg(struct speed_step *at, uint64_t value)
{
    at->args[at->arg_count++] = value;
}

static void make_vector_add(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 20;
    data->in[0] = floats(m, (size_t)data->n, -1, 1, 1);
    data->in[1] = floats(m, (size_t)data->n, -1, 1, 2);
    output(m, kind, SPEED_FLOAT, (size_t)data->n);
    struct speed_step *at = step(kind, "vector_add", (uint32_t)data->n / 256, 1, 256, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, ARG(data->in[1]));
    arg(at, (uint64_t)data->n);
}

static void make_saxpy(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 20;
    data->in[0] = floats(m, (size_t)data->n, -1, 1, 3);
    output(m, kind, SPEED_FLOAT, (size_t)data->n);
    struct speed_step *at = step(kind, "saxpy", 64, 1, 256, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, float_arg(1.5f));
    arg(at, (uint64_t)data->n);
}

static void make_reduce(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 20;
    data->in[0] = doubles(m, (size_t)data->n, 4);
    data->in[1] = machine_alloc(m, 64 * sizeof(double));
    output(m, kind, SPEED_DOUBLE, 1);
    struct speed_step *at = step(kind, "reduce", 64, 1, 256, 1);
    arg(at, ARG(data->in[1]));
    arg(at, ARG(data->in[0]));
    arg(at, (uint64_t)data->n);
    at = step(kind, "reduce", 1, 1, 256, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[1]));
    arg(at, 64);
}

/* Sums of `count` words, of 2048 each block. */
static void add_scan(struct speed_kind *kind, void *out, void *in, void *totals, unsigned count)
{
    unsigned blocks = (count + 2047) / 2048;
    struct speed_step *at = step(kind, "scan", blocks, 1, 256, 1);
    arg(at, ARG(out));
    arg(at, ARG(in));
    arg(at, blocks > 1 ? ARG(totals) : 0);
    arg(at, count);
    if (blocks > 1) {
        at = step(kind, "scan", 1, 1, 256, 1);
        arg(at, ARG(totals));
        arg(at, ARG(totals));
        arg(at, 0);
        arg(at, blocks);
        at = step(kind, "scan_add", blocks, 1, 256, 1);
        arg(at, ARG(out));
        arg(at, ARG(totals));
        arg(at, count);
    }
}

static void make_scan(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 20;
    data->in[0] = words(m, (size_t)data->n, 5);
    data->in[1] = machine_alloc(m, 2048 * 4);
    output(m, kind, SPEED_WORD, (size_t)data->n);
    add_scan(kind, data->out, data->in[0], data->in[1], (unsigned)data->n);
}

static void add_product(struct speed_kind *kind, const char *kernel)
{
    struct speed_data *data = &kind->data;
    uint32_t tiles = (uint32_t)data->n / 16;
    struct speed_step *at = step(kind, kernel, tiles, tiles, 16, 16);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, ARG(data->in[1]));
    arg(at, (uint64_t)data->n);
}

static void make_matrix_mul(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 240;
    data->in[0] = floats(m, 240 * 240, -1, 1, 6);
    data->in[1] = floats(m, 240 * 240, -1, 1, 7);
    output(m, kind, SPEED_FLOAT, 240 * 240);
    add_product(kind, "matrix_mul");
}

static void make_matrix_mul_double(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 240;
    data->in[0] = doubles(m, 240 * 240, 8);
    data->in[1] = doubles(m, 240 * 240, 9);
    output(m, kind, SPEED_DOUBLE, 240 * 240);
    add_product(kind, "matrix_mul_double");
}

static void make_matrix_mul_half(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 240;
    data->in[0] = halves(m, 240 * 240, 10);
    data->in[1] = halves(m, 240 * 240, 11);
    output(m, kind, SPEED_FLOAT, 240 * 240);
    add_product(kind, "matrix_mul_half");
}

static void make_tensor(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 256;
    data->in[0] = halves(m, 256 * 256, 12);
    data->in[1] = halves(m, 256 * 256, 13);
    output(m, kind, SPEED_FLOAT, 256 * 256);
    struct speed_step *at = step(kind, "tensor", 64, 1, 128, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, ARG(data->in[1]));
    arg(at, 256);
}

static void make_nbody(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1024;
    data->in[0] = floats(m, 4096, -1, 1, 14);
    output(m, kind, SPEED_FLOAT, 4096);
    struct speed_step *at = step(kind, "nbody", 8, 1, 128, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, 1024);
}

static void make_black_scholes(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 17;
    data->in[0] = floats(m, (size_t)data->n, 5, 30, 15);
    data->in[1] = floats(m, (size_t)data->n, 1, 100, 16);
    data->in[2] = floats(m, (size_t)data->n, 0.25f, 10, 17);
    output(m, kind, SPEED_FLOAT, (size_t)data->n);
    data->out2 = machine_alloc(m, (size_t)data->n * 4);
    data->want2 = machine_alloc(m, (size_t)data->n * 4);
    struct speed_step *at = step(kind, "black_scholes", 64, 1, 128, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->out2));
    for (unsigned i = 0; i < 3; i++) {
        arg(at, ARG(data->in[i]));
    }
    arg(at, float_arg(0.02f));
    arg(at, float_arg(0.3f));
    arg(at, (uint64_t)data->n);
}

static void make_mandelbrot(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->width = data->height = 256;
    data->n = 200;
    output(m, kind, SPEED_WORD, 256 * 256);
    struct speed_step *at = step(kind, "mandelbrot", 16, 16, 16, 16);
    arg(at, ARG(data->out));
    arg(at, 256);
    arg(at, 256);
    arg(at, (uint64_t)data->n);
}

static void make_histogram(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 19;
    data->in[0] = words(m, (size_t)data->n, 18);
    output(m, kind, SPEED_WORD, 256);
    struct speed_step *at = step(kind, "histogram", 32, 1, 256, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, (uint64_t)data->n);
}

static void make_stencil(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->width = data->height = 1024;
    data->in[0] = floats(m, 1 << 20, -1, 1, 19);
    output(m, kind, SPEED_FLOAT, 1 << 20);
    struct speed_step *at = step(kind, "stencil", 32, 128, 32, 8);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, 1024);
    arg(at, 1024);
}

static void make_radix_sort(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 16;
    uint32_t blocks = (uint32_t)data->n / 256;
    data->in[0] = words(m, (size_t)data->n, 20);
    data->in[1] = machine_alloc(m, (size_t)data->n * 4);
    data->in[2] = machine_alloc(m, blocks * 16 * 4);
    data->in[3] = machine_alloc(m, blocks * 16 * 4);
    data->in[4] = machine_alloc(m, 2048 * 4);
    output(m, kind, SPEED_WORD, (size_t)data->n);
    void *from = data->in[0], *to = data->in[1], *other = data->out;
    for (unsigned shift = 0; shift < 32; shift += 4) {
        struct speed_step *at = step(kind, "sort_count", blocks, 1, 256, 1);
        arg(at, ARG(data->in[2]));
        arg(at, ARG(from));
        arg(at, shift);
        add_scan(kind, data->in[3], data->in[2], data->in[4], blocks * 16);
        at = step(kind, "sort_place", blocks, 1, 256, 1);
        arg(at, ARG(to));
        arg(at, ARG(from));
        arg(at, ARG(data->in[2]));
        arg(at, ARG(data->in[3]));
        arg(at, shift);
        from = to;
        to = other;
        other = from;
    }
}

static void make_sha256(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 14;
    data->in[0] = words(m, (size_t)data->n * 16, 21);
    output(m, kind, SPEED_WORD, (size_t)data->n * 8);
    struct speed_step *at = step(kind, "sha256", (uint32_t)data->n / 128, 1, 128, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, (uint64_t)data->n);
}

static void make_sparse(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    unsigned seed = 22, count = 0;
    data->n = 1 << 15;
    int *rows = machine_alloc(m, ((size_t)data->n + 1) * 4);
    for (int i = 0; i < data->n; i++) {
        count += 12 + noise(&seed) % 9;
        rows[i + 1] = (int)count;
    }
    int *columns = machine_alloc(m, (size_t)count * 4);
    for (unsigned i = 0; i < count; i++) {
        columns[i] = (int)(noise(&seed) % (unsigned)data->n);
    }
    data->in[0] = rows;
    data->in[1] = columns;
    data->in[2] = floats(m, count, -1, 1, 23);
    data->in[3] = floats(m, (size_t)data->n, -1, 1, 24);
    output(m, kind, SPEED_FLOAT, (size_t)data->n);
    struct speed_step *at = step(kind, "sparse", (uint32_t)data->n / 128, 1, 128, 1);
    arg(at, ARG(data->out));
    for (unsigned i = 0; i < 4; i++) {
        arg(at, ARG(data->in[i]));
    }
    arg(at, (uint64_t)data->n);
}

static void make_alignment(struct machine *m, struct speed_kind *kind)
{
    struct speed_data *data = &kind->data;
    data->n = 1 << 12;
    data->in[0] = letters(m, (size_t)data->n * 16, 25);
    data->in[1] = letters(m, (size_t)data->n * 64, 26);
    output(m, kind, SPEED_WORD, (size_t)data->n);
    struct speed_step *at = step(kind, "alignment", (uint32_t)data->n / 128, 1, 128, 1);
    arg(at, ARG(data->out));
    arg(at, ARG(data->in[0]));
    arg(at, ARG(data->in[1]));
    arg(at, (uint64_t)data->n);
}

static void make_texture(struct machine *m, struct speed_kind *kind)
{
    static struct tow_ptx_texture texture;
    struct speed_data *data = &kind->data;
    data->width = data->height = 512;
    data->in[0] = floats(m, 512 * 512, -1, 1, 27);
    output(m, kind, SPEED_FLOAT, 512 * 512);
    texture = (struct tow_ptx_texture){
        .kind = TOW_PTX_TEX_2D,
        .format = TOW_PTX_TEX_F32,
        .channels = 1,
        .layers = 1,
        .level_count = 1,
        .filter = TOW_PTX_TEX_LINEAR,
        .address = {TOW_PTX_TEX_CLAMP, TOW_PTX_TEX_CLAMP, TOW_PTX_TEX_CLAMP}};
    texture.level[0] = (struct tow_ptx_tex_level){.data = data->in[0],
                                                  .width = 512,
                                                  .height = 512,
                                                  .depth = 1,
                                                  .row_pitch = 512 * 4,
                                                  .slice_pitch = 512 * 512 * 4};
    m->texture = &texture;
    struct speed_step *at = step(kind, "texture_fetch", 16, 64, 32, 8);
    arg(at, ARG(data->out));
    arg(at, 1);
    arg(at, 512);
}

static const struct {
    const char *name;
    void (*make)(struct machine *m, struct speed_kind *kind);
    void (*o2)(struct speed_data *data), (*o3)(struct speed_data *data);
} kinds[] = {
#define SPEED_ROW(name) {#name, make_##name, speed_##name##_o2, speed_##name##_o3},
    SPEED_KINDS(SPEED_ROW)};

const char *speed_kind_name(unsigned index)
{
    return index < sizeof kinds / sizeof kinds[0] ? kinds[index].name : NULL;
}

void speed_kind_make(struct machine *m, unsigned index, struct speed_kind *ret_kind)
{
    memset(ret_kind, 0, sizeof *ret_kind);
    ret_kind->name = kinds[index].name;
    ret_kind->o2 = kinds[index].o2;
    ret_kind->o3 = kinds[index].o3;
    kinds[index].make(m, ret_kind);
}

void speed_kind_reset(struct speed_kind *kind)
{
    size_t bytes = kind->data.count * (kind->type == SPEED_DOUBLE ? 8 : 4);
    memset(kind->data.out, 0, bytes);
    memset(kind->data.want, 0, bytes);
}
