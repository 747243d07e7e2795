/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the Mandelbrot set: a kernel in PTX counts the steps of each point, the program makes
 * colours of them, writes a PNG and, on a terminal, draws it there. Some lines are computed on the
 * CPU, too, and must be equal to the bit. Needs no CUDA toolkit: `cc mandelbrot.c -lcuda -lm`.
 *
 *     mandelbrot [FILE.png] */
#include <cuda.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH = 720, HEIGHT = 540, STEPS = 160, SIDE = 16, COLUMNS_MAX = 100 };

/* The part of the plane that is drawn. */
static const float left = -2.25f, top = -1.2f, scale = 3.2f / WIDTH;

/* Each thread takes one point. Every operation says how it rounds, so that all GPUs, and the CPU
 * below, agree. */
static const char kernel_text[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry mandelbrot(\n"
    "    .param .u64 counts, .param .u32 width, .param .u32 height, .param .u32 most,\n"
    "    .param .f32 left, .param .f32 top, .param .f32 scale)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %x, %y, %size, %thread, %width, %height, %most, %n;\n"
    "    .reg .b64 %counts, %offset;\n"
    "    .reg .f32 %cx, %cy, %zx, %zy, %left, %top, %scale, %far, %minus, %t;\n"
    "    mov.u32 %x, %ctaid.x;\n"
    "    mov.u32 %size, %ntid.x;\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    mad.lo.u32 %x, %x, %size, %thread;\n"
    "    mov.u32 %y, %ctaid.y;\n"
    "    mov.u32 %size, %ntid.y;\n"
    "    mov.u32 %thread, %tid.y;\n"
    "    mad.lo.u32 %y, %y, %size, %thread;\n"
    "    ld.param.u32 %width, [width];\n"
    "    ld.param.u32 %height, [height];\n"
    "    setp.ge.u32 %p, %x, %width;\n"
    "    @%p bra done;\n"
    "    setp.ge.u32 %p, %y, %height;\n"
    "    @%p bra done;\n"
    "    ld.param.f32 %left, [left];\n"
    "    ld.param.f32 %top, [top];\n"
    "    ld.param.f32 %scale, [scale];\n"
    "    ld.param.u32 %most, [most];\n"
    "    cvt.rn.f32.u32 %cx, %x;\n"
    "    cvt.rn.f32.u32 %cy, %y;\n"
    "    fma.rn.f32 %cx, %cx, %scale, %left;\n"
    "    fma.rn.f32 %cy, %cy, %scale, %top;\n"
    "    mov.f32 %zx, 0f00000000;\n"
    "    mov.f32 %zy, 0f00000000;\n"
    "    mov.u32 %n, 0;\n"
    "step:\n"
    "    mul.rn.f32 %t, %zy, %zy;\n"
    "    fma.rn.f32 %far, %zx, %zx, %t;\n"
    "    setp.gt.f32 %p, %far, 0f40800000;\n"
    "    @%p bra store;\n"
    "    neg.f32 %minus, %zy;\n"
    "    fma.rn.f32 %t, %minus, %zy, %cx;\n"
    "    add.rn.f32 %minus, %zx, %zx;\n"
    "    fma.rn.f32 %zy, %minus, %zy, %cy;\n"
    "    fma.rn.f32 %zx, %zx, %zx, %t;\n"
    "    add.u32 %n, %n, 1;\n"
    "    setp.lt.u32 %p, %n, %most;\n"
    "    @%p bra step;\n"
    "store:\n"
    "    ld.param.u64 %counts, [counts];\n"
    "    cvta.to.global.u64 %counts, %counts;\n"
    "    mad.lo.u32 %y, %y, %width, %x;\n"
    "    mul.wide.u32 %offset, %y, 4;\n"
    "    add.s64 %counts, %counts, %offset;\n"
    "    st.global.u32 [%counts], %n;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        const char *name = "unknown error";
        cuGetErrorName(result, &name);
        fprintf(stderr, "mandelbrot: %s: %s\n", what, name);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

/* The same as the kernel, in the same order. */
static unsigned count_steps(unsigned x, unsigned y)
{
    float cx = fmaf((float)x, scale, left), cy = fmaf((float)y, scale, top), zx = 0, zy = 0;
    unsigned n = 0;
    while (n < STEPS && !(fmaf(zx, zx, zy * zy) > 4)) {
        float t = fmaf(-zy, zy, cx);
        zy = fmaf(zx + zx, zy, cy);
        zx = fmaf(zx, zx, t);
        n++;
    }
    return n;
}

static void colour(unsigned n, uint8_t *ret_rgb)
{
    float t = n == STEPS ? 0 : sqrtf((float)n / STEPS);
    ret_rgb[0] = (uint8_t)(255 * 9 * (1 - t) * t * t * t);
    ret_rgb[1] = (uint8_t)(255 * 15 * (1 - t) * (1 - t) * t * t);
    ret_rgb[2] = (uint8_t)(255 * 8.5f * (1 - t) * (1 - t) * (1 - t) * t);
}

/* ---- the PNG: rows as they are, in blocks that say that nothing is compressed ---- */

static uint32_t crc(uint32_t value, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        value ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
        }
    }
    return value;
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static void write_chunk(FILE *file, const char *kind, const uint8_t *bytes, size_t size)
{
    uint8_t word[4];
    put32(word, (uint32_t)size);
    fwrite(word, 1, 4, file);
    fwrite(kind, 1, 4, file);
    fwrite(bytes, 1, size, file);
    put32(word, ~crc(crc(~0u, (const uint8_t *)kind, 4), bytes, size));
    fwrite(word, 1, 4, file);
}

static int write_png(const char *path, const uint8_t *rgb)
{
    enum { ROW = 1 + 3 * WIDTH }; /* the first byte: no filter */
    static uint8_t data[2 + HEIGHT * (5 + ROW) + 4];
    uint8_t head[13] = {0};
    uint32_t low = 1, high = 0; /* Adler's sum of all rows */
    uint8_t *at = data;
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    *at++ = 0x78;
    *at++ = 0x01;
    for (unsigned y = 0; y < HEIGHT; y++) {
        const uint8_t block[5] = {y == HEIGHT - 1, ROW & 0xff, ROW >> 8, ~ROW & 0xff,
                                  ~ROW >> 8 & 0xff};
        memcpy(at, block, sizeof block);
        at += sizeof block;
        at[0] = 0;
        memcpy(at + 1, rgb + (size_t)3 * WIDTH * y, ROW - 1);
        for (unsigned i = 0; i < ROW; i++) {
            low = (low + at[i]) % 65521;
            high = (high + low) % 65521;
        }
        at += ROW;
    }
    put32(at, high << 16 | low);
    put32(head, WIDTH);
    put32(head + 4, HEIGHT);
    head[8] = 8; /* bits of each of */
    head[9] = 2; /* red, green and blue */
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, file);
    write_chunk(file, "IHDR", head, sizeof head);
    write_chunk(file, "IDAT", data, sizeof data);
    write_chunk(file, "IEND", NULL, 0);
    if (fclose(file) != 0) {
        perror(path);
        return 1;
    }
    return 0;
}

/* ---- the terminal: two points above each other are one character ---- */

static const uint8_t *point(const uint8_t *rgb, unsigned column, unsigned row, unsigned columns,
                            unsigned rows)
{
    unsigned x = (2 * column + 1) * WIDTH / (2 * columns), y = (2 * row + 1) * HEIGHT / (2 * rows);
    return rgb + (size_t)3 * (y * WIDTH + x);
}

static void draw(const uint8_t *rgb)
{
    struct winsize window = {.ws_col = 80};
    const char *plain = getenv("NO_COLOR"), *kind = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || (plain != NULL && plain[0] != '\0') || kind == NULL ||
        strcmp(kind, "dumb") == 0) {
        return;
    }
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
    unsigned columns = window.ws_col < 20            ? 20
                       : window.ws_col > COLUMNS_MAX ? (unsigned)COLUMNS_MAX
                                                     : window.ws_col;
    unsigned rows = columns * HEIGHT / WIDTH / 2 * 2;
    for (unsigned row = 0; row < rows; row += 2) {
        for (unsigned column = 0; column < columns; column++) {
            const uint8_t *upper = point(rgb, column, row, columns, rows);
            const uint8_t *lower = point(rgb, column, row + 1, columns, rows);
            printf("\033[38;2;%u;%u;%u;48;2;%u;%u;%um\u2580", upper[0], upper[1], upper[2],
                   lower[0], lower[1], lower[2]);
        }
        printf("\033[0m\n");
    }
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "mandelbrot.png";
    static uint32_t counts[WIDTH * HEIGHT];
    static uint8_t rgb[3 * WIDTH * HEIGHT];
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    char name[128];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernel_text));
    CHECK(cuModuleGetFunction(&function, module, "mandelbrot"));
    CHECK(cuMemAlloc(&memory, sizeof counts));

    unsigned width = WIDTH, height = HEIGHT, most = STEPS;
    float where[] = {left, top, scale};
    void *arguments[] = {&memory, &width, &height, &most, &where[0], &where[1], &where[2]};
    CHECK(cuLaunchKernel(function, (WIDTH + SIDE - 1) / SIDE, (HEIGHT + SIDE - 1) / SIDE, 1, SIDE,
                         SIDE, 1, 0, NULL, arguments, NULL));
    CHECK(cuMemcpyDtoH(counts, memory, sizeof counts));
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));

    for (unsigned y = 0; y < HEIGHT; y += 60) {
        for (unsigned x = 0; x < WIDTH; x++) {
            if (counts[y * WIDTH + x] != count_steps(x, y)) {
                fprintf(stderr, "mandelbrot: the point %u, %u took %u steps, not %u\n", x, y,
                        counts[y * WIDTH + x], count_steps(x, y));
                return 1;
            }
        }
    }
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++) {
        colour(counts[i], rgb + 3 * i);
    }
    if (write_png(path, rgb) != 0) {
        return 1;
    }
    draw(rgb);
    printf("mandelbrot: %d points, computed on %s, are in %s\nOK\n", WIDTH * HEIGHT, name, path);
    return 0;
}
