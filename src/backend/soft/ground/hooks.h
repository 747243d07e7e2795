/* SPDX-License-Identifier: Apache-2.0 */
/* Calls from a room into one above it. */
#ifndef TOW_SOFT_GROUND_HOOKS_H
#define TOW_SOFT_GROUND_HOOKS_H

#include "backend/soft/ground/handle.h"

struct tow_soft_work_ops;

/* What a room calls of one above it; filled in entry/hooks.c. */
struct tow_soft_hooks {
    /* Pages that begin at `base` are given back. */
    void (*pages_gone)(uint64_t base);
    /* The context's streams are gone, its objects not yet. */
    void (*ctx_ends)(struct tow_soft_ctx *ctx);
    /* A kernel sets a graph's condition; takes the lock. -1 if the context has none of that handle.
     */
    int (*condition_set)(const struct tow_soft_ctx *ctx, uint64_t handle, uint32_t value);
    /* By kind of work: those that engine/work.c does not know itself. */
    const struct tow_soft_work_ops *const *work;
    /* Destroys an object that dies with its context. */
    void (*ends[TOW_SOFT_KINDS])(struct tow_soft_object *object);
};

#endif
