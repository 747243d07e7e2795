/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the PTX machine is: each kind of ptx_speed_kinds.c on one and on two host threads,
 * against the same loops in C (ptx_speed_c.c), least of several runs, with equal results.
 *
 *   ptx_speed [--only TEXT[,TEXT...]] [--rounds N] [--count] [PTX-FILE]
 *
 * --count runs the kernels once on one thread and nothing else: for `valgrind --tool=callgrind`.
 * C and one thread are measured in time of the processor, which other programs hardly change; two
 * threads against one in time of the clock.
 *
 * Exit 1 when results are wrong, or, with TOWLINE_BENCH_CHECK=1, when slower than the limits below.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "ptx_speed.h"

#define KINDS_MAX 64
/* What TOWLINE_BENCH_CHECK=1 refuses: generous, for machines of all kinds. */
#define SLOWEST 40.0
#define MEDIAN 8.0
#define THREADS 1.5 /* half of the kinds gain less by a second thread */

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void least(double *best, double value)
{
    *best = value < *best ? value : *best;
}

static void run_kernels(struct machine *m, const struct speed_kind *kind, unsigned threads)
{
    m->threads = threads;
    for (unsigned i = 0; i < kind->step_count; i++) {
        const struct speed_step *step = &kind->steps[i];
        if (machine_run(m, step->kernel, step->grid, step->block, step->args, step->arg_count)) {
            fprintf(stderr, "%s: line %u: %s\n", kind->name, m->fault.line, m->fault.message);
            exit(1);
        }
    }
}

static double element(const void *values, enum speed_type type, size_t index)
{
    return type == SPEED_DOUBLE ? ((const double *)values)[index]
                                : (double)((const float *)values)[index];
}

/* Integers are equal; sums of floating point may be added in another order. */
static int same(const struct speed_kind *kind, const void *got, const void *want)
{
    if (kind->type == SPEED_WORD) {
        return memcmp(got, want, kind->data.count * 4) == 0;
    }
    double worst = 0, scale = 1e-30;
    for (size_t i = 0; i < kind->data.count; i++) {
        double g = element(got, kind->type, i), w = element(want, kind->type, i);
        if (!(fabs(g - w) <= worst)) { /* also what is no number */
            worst = fabs(g - w);
        }
        scale = fabs(w) > scale ? fabs(w) : scale;
    }
    return worst / scale < (kind->type == SPEED_DOUBLE ? 1e-10 : 1e-4);
}

struct result {
    double o2, o3, one, one_clock, two_clock;
    int right;
};

static struct result measure(struct machine *m, struct speed_kind *kind, unsigned rounds)
{
    struct result result = {1e9, 1e9, 1e9, 1e9, 1e9, 1};
    for (unsigned i = 0; i < rounds; i++) {
        speed_kind_reset(kind);
        double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        kind->o3(&kind->data);
        least(&result.o3, seconds(CLOCK_THREAD_CPUTIME_ID) - start);
        speed_kind_reset(kind);
        start = seconds(CLOCK_THREAD_CPUTIME_ID);
        kind->o2(&kind->data);
        least(&result.o2, seconds(CLOCK_THREAD_CPUTIME_ID) - start);
        double clock = seconds(CLOCK_MONOTONIC);
        start = seconds(CLOCK_THREAD_CPUTIME_ID);
        run_kernels(m, kind, 1);
        least(&result.one, seconds(CLOCK_THREAD_CPUTIME_ID) - start);
        least(&result.one_clock, seconds(CLOCK_MONOTONIC) - clock);
        result.right &= same(kind, kind->data.out, kind->data.want);
        if (kind->data.out2) {
            result.right &= same(kind, kind->data.out2, kind->data.want2);
        }
        memset(kind->data.out, 0, kind->data.count * (kind->type == SPEED_DOUBLE ? 8 : 4));
        clock = seconds(CLOCK_MONOTONIC);
        run_kernels(m, kind, 2);
        least(&result.two_clock, seconds(CLOCK_MONOTONIC) - clock);
        result.right &= same(kind, kind->data.out, kind->data.want);
    }
    return result;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts them. */
static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static int chosen(const char *only, const char *name)
{
    while (only && *only) {
        size_t length = strcspn(only, ",");
        char part[64] = {0};
        memcpy(part, only, length < sizeof part ? length : sizeof part - 1);
        if (length && strstr(name, part)) {
            return 1;
        }
        only += length + (only[length] == ',');
    }
    return !only;
}

static int load(struct machine *m, const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file || fread(text, 1, sizeof text - 1, file) == 0) {
        perror(path);
        return -1;
    }
    fclose(file);
    return machine_load(m, text, true);
}

int main(int argc, char **argv)
{
    static struct machine m;
    static struct speed_kind kind;
    const char *path = PTX_FILE, *only = NULL, *check = getenv("TOWLINE_BENCH_CHECK");
    unsigned rounds = 5, done = 0;
    int count = 0, bad = 0, strict = check && *check == '1';
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            rounds = (unsigned)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--count") == 0) {
            count = 1;
        } else if (argv[i][0] != '-') {
            path = argv[i];
        } else {
            fprintf(stderr, "usage: ptx_speed [--only TEXT[,TEXT...]] [--rounds N] [--count] "
                            "[PTX-FILE]\n");
            return 2;
        }
    }
    double ratios[KINDS_MAX], gains[KINDS_MAX];
    if (!count) {
        printf("%-18s %9s %9s %9s %9s %8s %8s %8s\n", "milliseconds", "C -O2", "C -O3", "1 thread",
               "2 threads", "x of -O2", "x of -O3", "1 / 2");
    }
    for (unsigned i = 0; speed_kind_name(i); i++) {
        if (!chosen(only, speed_kind_name(i))) {
            continue;
        }
        if (load(&m, path) != 0) {
            return 1;
        }
        speed_kind_make(&m, i, &kind);
        if (count) {
            run_kernels(&m, &kind, 1);
            done++;
        } else {
            struct result r = measure(&m, &kind, rounds);
            ratios[done] = r.one / r.o2;
            gains[done++] = r.one_clock / r.two_clock;
            printf("%-18s %9.2f %9.2f %9.2f %9.2f %7.1fx %7.1fx %7.2fx\n", kind.name, r.o2 * 1e3,
                   r.o3 * 1e3, r.one * 1e3, r.two_clock * 1e3, r.one / r.o2, r.one / r.o3,
                   r.one_clock / r.two_clock);
            fflush(stdout);
            if (!r.right) {
                printf("%s is wrong\n", kind.name);
                bad = 1;
            }
            if (strict && r.one / r.o2 > SLOWEST) {
                printf("%s is too slow: %.1f times of C\n", kind.name, r.one / r.o2);
                bad = 1;
            }
        }
        machine_unload(&m);
    }
    if (!done) {
        fprintf(stderr, "no kind has a name with '%s' in it\n", only);
        return 2;
    }
    if (!count) {
        double middle = median(ratios, done), gain = median(gains, done);
        printf("median %.1fx of -O2, slowest %.1fx; two threads: median %.2fx\n", middle,
               ratios[done - 1], gain);
        if (strict && middle > MEDIAN) {
            printf("the median is too slow\n");
            bad = 1;
        }
        if (strict && gain < THREADS && sysconf(_SC_NPROCESSORS_ONLN) > 1) {
            printf("two threads are too slow\n");
            bad = 1;
        }
    }
    return bad;
}
