/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: what `towline bench` has measured. */
#ifndef TOW_CLI_BENCH_H
#define TOW_CLI_BENCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Figures: some 60 of towline-measure, and one of each example. */
enum { TOW_BENCH_FIGURES_MAX = 160, TOW_BENCH_ROUNDS_MAX = 64, TOW_BENCH_EXAMPLES_MAX = 64 };

enum tow_bench_driver { TOW_BENCH_REMOTE, TOW_BENCH_NATIVE, TOW_BENCH_DRIVERS };

/* One figure, over all rounds. */
struct tow_bench_figure {
    char name[40];
    char unit[8];
    char memory[16];            /* of copies: pageable, pinned, registered, rows */
    char direction[8];          /* of copies: h2d, d2h */
    uint64_t bytes;             /* of copies; else 0 */
    char program[NAME_MAX + 1]; /* of examples: the file's name */
    unsigned count[TOW_BENCH_DRIVERS];
    double value[TOW_BENCH_DRIVERS][TOW_BENCH_ROUNDS_MAX]; /* a round's median */
    double p99[TOW_BENCH_DRIVERS][TOW_BENCH_ROUNDS_MAX];   /* 0: it has none */
};

struct tow_bench {
    const char *server; /* borrowed; what was asked, for the heading */
    char date[32];      /* when it began, UTC */
    char device[TOW_BENCH_DRIVERS][128];
    bool native;
    unsigned rounds;
    unsigned figure_count;
    struct tow_bench_figure figures[TOW_BENCH_FIGURES_MAX];
};

/* The programs whose times are taken, by name. */
struct tow_bench_examples {
    char folder[PATH_MAX];
    unsigned count;
    char names[TOW_BENCH_EXAMPLES_MAX][NAME_MAX + 1];
};
/* Every executable file of the folder `asked`; NULL: of the one beside the tools, build/examples or
 * PREFIX/lib/towline/examples. Says what is wrong; that there are none is said and no error. */
int tow_bench_examples_find(const char *asked, const char *lib_dir,
                            struct tow_bench_examples *ret_examples);

double tow_bench_median(const double *values, unsigned count);
/* Median of Towline / native of each round; 0 if there is none. */
double tow_bench_ratio(const struct tow_bench_figure *figure);

void tow_bench_show(const struct tow_bench *bench, FILE *out);
int tow_bench_json(const struct tow_bench *bench, FILE *out);
/* Curves of bandwidth and time over the size of copies. */
int tow_bench_plot(const struct tow_bench *bench, FILE *out);

#endif
