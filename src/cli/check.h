/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline check` collects: findings, as lines of JSON from the software GPU. */
#ifndef TOW_CLI_CHECK_H
#define TOW_CLI_CHECK_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { TOW_CHECK_SUPPRESS_MAX = 64 };

struct tow_check {
    const char *suppress[TOW_CHECK_SUPPRESS_MAX]; /* patterns; borrowed */
    unsigned suppress_count;
    bool leaks; /* leaks are findings */
    /* So far: */
    unsigned found, suppressed;
    unsigned unseen;     /* kernels of which not all was looked at */
    unsigned sessions;   /* that have begun and not ended */
    struct tow_buf json; /* owned: the findings, with commas between them */
};

void tow_check_init(struct tow_check *check);
void tow_check_fini(struct tow_check *check);
/* One line: prints it on stderr and keeps it, unless it is suppressed. What is no finding is
 * ignored. */
void tow_check_take(struct tow_check *check, const char *line, size_t size);
/* The last line, on stderr. */
void tow_check_sum_up(const struct tow_check *check);
/* -errno. */
int tow_check_write_json(const struct tow_check *check, const char *path, const char *tool,
                         char **program, int code);

#endif
