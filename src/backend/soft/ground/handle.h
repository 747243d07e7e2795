/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, and what everything has that is named by one. tow_soft.lock guards all of it. */
#ifndef TOW_SOFT_GROUND_HANDLE_H
#define TOW_SOFT_GROUND_HANDLE_H

#include <stdint.h>

struct tow_soft_ctx;

enum tow_soft_kind {
    TOW_SOFT_NONE,
    TOW_SOFT_CTX,
    TOW_SOFT_STREAM,
    TOW_SOFT_EVENT,
    TOW_SOFT_MODULE,
    TOW_SOFT_FUNCTION,
    TOW_SOFT_LIBRARY,
    TOW_SOFT_KERNEL,
    TOW_SOFT_LINK,
    TOW_SOFT_ARRAY,
    TOW_SOFT_MIPMAP,
    TOW_SOFT_TEXTURE,
    TOW_SOFT_SURFACE,
    TOW_SOFT_POOL,
    TOW_SOFT_MEMORY, /* a CUmemGenericAllocationHandle */
    TOW_SOFT_GRAPH,
    TOW_SOFT_NODE,
    TOW_SOFT_EXEC,
    TOW_SOFT_USER_OBJECT,
    TOW_SOFT_GREEN,
    TOW_SOFT_RESOURCES,
    TOW_SOFT_CONDITION, /* a CUgraphConditionalHandle */
    TOW_SOFT_KINDS
};

/* First member of everything that has a handle. */
struct tow_soft_object {
    uint64_t handle;
    enum tow_soft_kind kind;
    struct tow_soft_ctx
        *ctx; /* borrowed: objects die with their context; NULL for device-wide ones */
    struct tow_soft_object *prev, *next; /* in ctx->objects */
};

/* Gives the object a handle and puts it into the context's list (ctx may be NULL). */
int tow_soft_object_add(struct tow_soft_object *object, enum tow_soft_kind kind,
                        struct tow_soft_ctx *ctx);
/* The handle becomes invalid, the object leaves its context; the memory stays. Harmless twice. */
void tow_soft_object_remove(struct tow_soft_object *object);
/* The same in two steps. Until the second nothing else gets that handle's place. */
uint64_t tow_soft_object_hide(struct tow_soft_object *object);
void tow_soft_handle_give_back(uint64_t handle);
/* NULL for a stale or foreign handle. */
void *tow_soft_lookup(enum tow_soft_kind kind, uint64_t handle);
enum tow_soft_kind tow_soft_handle_kind(uint64_t handle);
void tow_soft_handles_fini(void);
/* Handles travel as pointers. */
#define TOW_SOFT_HANDLE(pointer) ((uint64_t)(uintptr_t)(pointer))
#define TOW_SOFT_POINTER(handle) ((void *)(uintptr_t)(handle))

#endif
