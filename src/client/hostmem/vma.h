/* SPDX-License-Identifier: Apache-2.0 */
/* What the system says of this process's mappings (/proc/self/maps). */
#ifndef TOW_CLIENT_VMA_H
#define TOW_CLIENT_VMA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct towc_vma {
    uint64_t low, high;
    char access[5]; /* as "rw-p" */
    uint64_t offset;
    dev_t device;
    ino_t inode;      /* 0: no file */
    const char *path; /* borrowed for the visit; may be cut off when it is very long */
};

/* Parses one line, without its end; false if it is none. `ret_vma` borrows from it. */
bool towc_vma_parse(const char *line, struct towc_vma *ret_vma);
/* All mappings, from low to high addresses, until `visit` says no. A negative errno if they cannot
 * be read. */
int towc_vma_visit(bool (*visit)(const struct towc_vma *vma, void *user), void *user);

/* The file of a shared mapping, to read and write: as the system has it, if we may, or by its name,
 * or as the program holds it open. -1 if there is no way. */
int towc_vma_open(const struct towc_vma *vma);

#endif
