/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the PTX machine is: BlackScholes, matrixMul and n-body on one and on two host threads,
 * against the same loops in C.  ptx_speed [PTX-FILE]   Exit 1 when results are wrong, or, with
 * TOWLINE_BENCH_CHECK=1, when slower than 12x of C or under 1.5x on two threads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "ptx_speed.h"

#define OPTIONS 262144
#define MATRIX 320
#define BODIES 2048
#define ROUNDS 5

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float noise(unsigned *seed, float low, float high)
{
    *seed = *seed * 1664525u + 1013904223u;
    return low + (high - low) * (float)(*seed >> 8) / 16777216.0f;
}

static uint64_t float_arg(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

struct work {
    const char *name, *kernel;
    uint32_t grid[3], block[3];
    uint64_t args[8];
    unsigned arg_count;
    float *got, *want;
    size_t count;
    void (*in_c)(struct work *work);
    void *inputs[3], *out2;
};

static void run_black_scholes(struct work *w)
{
    c_black_scholes(w->want, w->out2, w->inputs[0], w->inputs[1], w->inputs[2], 0.02f, 0.3f,
                    OPTIONS);
}
static void run_matrix_mul(struct work *w)
{
    c_matrix_mul(w->want, w->inputs[0], w->inputs[1], MATRIX);
}
static void run_nbody(struct work *w)
{
    c_nbody(w->want, w->inputs[0], BODIES);
}

static float *filled(struct machine *m, size_t count, float low, float high, unsigned seed)
{
    float *at = machine_alloc(m, count * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        at[i] = noise(&seed, low, high);
    }
    return at;
}

static double best_of(struct machine *m, struct work *work, unsigned threads)
{
    double best = 1e9;
    m->threads = threads;
    for (unsigned i = 0; i < ROUNDS; i++) {
        double start = now();
        if (machine_run(m, work->kernel, work->grid, work->block, work->args, work->arg_count)) {
            fprintf(stderr, "%s: line %u: %s\n", work->name, m->fault.line, m->fault.message);
            exit(1);
        }
        double took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static struct machine m;
    const char *path = argc > 1 ? argv[1] : PTX_FILE;
    const char *check = getenv("TOWLINE_BENCH_CHECK");
    bool strict = check && *check == '1', bad = false;
    FILE *file = fopen(path, "rb");
    static char text[1 << 20];
    if (!file || fread(text, 1, sizeof text - 1, file) == 0) {
        perror(path);
        return 1;
    }
    fclose(file);
    machine_load(&m, text, true);

    float *price = filled(&m, OPTIONS, 5, 30, 1), *strike = filled(&m, OPTIONS, 1, 100, 2);
    float *years = filled(&m, OPTIONS, 0.25f, 10, 3);
    float *a = filled(&m, MATRIX * MATRIX, -1, 1, 4), *b = filled(&m, MATRIX * MATRIX, -1, 1, 5);
    float *body = filled(&m, BODIES * 4, -1, 1, 6);
    float *call = filled(&m, OPTIONS, 0, 0, 0), *put = filled(&m, OPTIONS, 0, 0, 0);
    float *product = filled(&m, MATRIX * MATRIX, 0, 0, 0), *force = filled(&m, BODIES * 4, 0, 0, 0);
    struct work works[] = {
        {.name = "BlackScholes",
         .kernel = "black_scholes",
         .grid = {64, 1, 1},
         .block = {128, 1, 1},
         .args = {ARG(call), ARG(put), ARG(price), ARG(strike), ARG(years), float_arg(0.02f),
                  float_arg(0.3f), OPTIONS},
         .arg_count = 8,
         .got = call,
         .count = OPTIONS,
         .in_c = run_black_scholes,
         .inputs = {price, strike, years}},
        {.name = "matrixMul",
         .kernel = "matrix_mul",
         .grid = {MATRIX / 16, MATRIX / 16, 1},
         .block = {16, 16, 1},
         .args = {ARG(product), ARG(a), ARG(b), MATRIX},
         .arg_count = 4,
         .got = product,
         .count = MATRIX * MATRIX,
         .in_c = run_matrix_mul,
         .inputs = {a, b}},
        {.name = "n-body",
         .kernel = "nbody",
         .grid = {BODIES / 128, 1, 1},
         .block = {128, 1, 1},
         .args = {ARG(force), ARG(body), BODIES},
         .arg_count = 3,
         .got = force,
         .count = BODIES * 4,
         .in_c = run_nbody,
         .inputs = {body}},
    };
    printf("%-14s %10s %10s %10s %8s %8s\n", "", "C (ms)", "1 thread", "2 threads", "x of C",
           "1 / 2");
    for (unsigned i = 0; i < sizeof works / sizeof works[0]; i++) {
        struct work *work = &works[i];
        work->want = calloc(work->count, sizeof *work->want);
        work->out2 = calloc(work->count, sizeof *work->want);
        double in_c = 1e9;
        for (unsigned k = 0; k < ROUNDS; k++) {
            double start = now();
            work->in_c(work);
            double took = now() - start;
            in_c = took < in_c ? took : in_c;
        }
        double one = best_of(&m, work, 1), two = best_of(&m, work, 2);
        double worst = 0, scale = 1e-30;
        for (size_t k = 0; k < work->count; k++) {
            double difference = fabs((double)work->got[k] - (double)work->want[k]);
            worst = difference > worst ? difference : worst;
            scale = fabs((double)work->want[k]) > scale ? fabs((double)work->want[k]) : scale;
        }
        printf("%-14s %10.2f %10.2f %10.2f %7.1fx %7.2fx\n", work->name, in_c * 1e3, one * 1e3,
               two * 1e3, one / in_c, one / two);
        if (!(worst / scale < 1e-4)) {
            printf("%s is wrong: off by %g of %g\n", work->name, worst, scale);
            bad = true;
        }
        if (strict && (one / in_c > 12 || (one / two < 1.5 && sysconf(_SC_NPROCESSORS_ONLN) > 1))) {
            printf("%s is too slow\n", work->name);
            bad = true;
        }
        free(work->want);
        free(work->out2);
    }
    machine_unload(&m);
    return bad;
}
