/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the conformance programs: cases that check themselves and print what they observe.
 *
 * A case is one behaviour. It prints lines `NAME: what was observed`, without times and addresses,
 * so that the text of two machines can be compared line by line, and last `NAME: ok` or `NAME:
 * FAILED`. The driver's and the runtime's cases (C and CUDA C++) share this file and conform.c. */
#ifndef TOW_CONFORM_H
#define TOW_CONFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct conform_case {
    const char *file; /* borrowed: file and line give the order */
    int line;
    int level;  /* for the set-up of the program */
    bool alone; /* needs a process of its own: it ruins or changes what others find */
    const char *name;
    const char *sentence; /* what must hold */
    void (*run)(void);
    struct conform_case *next; /* the list of all, unsorted */
};

enum { LEVEL_MAX = 3 };

/* Of the program: makes what its cases of this level find ready, when it was at level `from` (-1:
 * nothing at all). */
void conform_set_up(int from, int level);

/* Of the program: after a case, makes things as they were; false if the next case must not run in
 * this process. */
bool conform_tidy(int level);

/* Joins the list; called before main. */
void conform_add(struct conform_case *one);

/* One observation: a line. */
void conform_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The observation before was wrong; the case goes on. */
void conform_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The case cannot go on, for a reason that was said. */
void conform_stop(void) __attribute__((noreturn));

/* Prints a number that was observed, and whether it is the wanted one. */
void conform_number(const char *what, long long got);
void conform_equal(const char *what, long long got, long long wanted);

int conform_main(int argc, char **argv);

void conform_sleep_ms(int ms);

#ifdef __cplusplus
}
#endif

#define CASE_ENTRY(id, level_, alone_, sentence_)                                                  \
    static void case_##id(void);                                                                   \
    static struct conform_case entry_##id = {__FILE__, __LINE__,  level_,    alone_,               \
                                             #id,      sentence_, case_##id, NULL};                \
    __attribute__((constructor)) static void add_##id(void)                                        \
    {                                                                                              \
        conform_add(&entry_##id);                                                                  \
    }                                                                                              \
    static void case_##id(void)

#define CASE_AT(id, level, sentence) CASE_ENTRY(id, level, false, sentence)
/* For what leaves its process unlike it was: errors that stay, resets, contexts, settings. */
#define CASE_ALONE_AT(id, level, sentence) CASE_ENTRY(id, level, true, sentence)

/* The value, as it is; or: which must be this one. */
#define NUM(expression) conform_number(#expression, (long long)(expression))
#define EQ(expression, wanted)                                                                     \
    conform_equal(#expression, (long long)(expression), (long long)(wanted))
#define TRUE(expression) conform_equal(#expression, !!(expression), 1)

#endif
