/* SPDX-License-Identifier: Apache-2.0 */
/* For `towline check`: what kernels and calls do wrong, told as lines of JSON on a pipe. Nothing
 * here does anything unless the software GPU was opened with a pipe. */
#ifndef TOW_SOFT_GROUND_CHECK_H
#define TOW_SOFT_GROUND_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "ptx/ptx.h"

struct tow_soft_alloc;
struct tow_soft_ctx;

enum {
    TOW_SOFT_FINDINGS_MAX = 64, /* different ones of a launch */
    TOW_SOFT_CHECK_TOOLS = 4,
};

struct tow_soft_finding {
    struct tow_ptx_fault fault; /* of the first block and thread */
    uint64_t threads;           /* how many times it was found */
};
/* What a launch does wrong, each instruction once. */
struct tow_soft_findings {
    const uint8_t *code; /* borrowed: the digest of what runs, TOW_SHA256_SIZE bytes */
    struct tow_soft_finding list[TOW_SOFT_FINDINGS_MAX];
    unsigned count;
    bool wrong;                            /* one that is more than told */
    uint64_t missed[TOW_SOFT_CHECK_TOOLS]; /* no room in the list */
};

/* `order` is "TOOL[,TOOL]:PATH", PATH that of a pipe. -Exxx with a sentence. */
int tow_soft_check_open(const char *order, char *why, size_t why_size);
void tow_soft_check_close(void);
/* The least memory that control groups leave, whose names are in the file `list` and which are
 * mounted at `root`; UINT64_MAX: they say nothing. */
uint64_t tow_soft_check_group_memory(const char *list, const char *root);
bool tow_soft_checked(void);
bool tow_soft_checks_memory(void);
unsigned tow_soft_checks(void); /* TOW_PTX_CHECK_... */

/* For tow_ptx_launch.found; `findings` is a struct tow_soft_findings. */
void tow_soft_check_found(void *findings, const struct tow_ptx_fault *fault);
/* At the end of the launch: tells them. Takes the lock. */
void tow_soft_check_tell(const struct tow_soft_findings *findings);

/* With the lock held: memory is freed; an address is given to `call` that cannot be freed, or is
 * being freed (`twice`); a
 * context ends, and with it what nobody freed. */
void tow_soft_check_freed(const struct tow_soft_alloc *alloc);
void tow_soft_check_bad_free(uint64_t address, const char *call, bool twice);
void tow_soft_check_leaks(const struct tow_soft_ctx *ctx);
/* A session begins or ends: told, too. When the program has left, all contexts end. Takes the
 * lock. */
void tow_soft_check_session(enum tow_backend_session what);

#endif
