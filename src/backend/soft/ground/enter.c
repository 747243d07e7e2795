/* SPDX-License-Identifier: Apache-2.0 */
/* The way in and out of every entry point: the lock, the calling thread's contexts, what kernels
 * printed. */
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "base/mutex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_MAX 256 /* contexts of a thread */

/* The calling thread's contexts, by handle: a destroyed one is noticed, not followed. */
static _Thread_local struct {
    uint64_t handles[STACK_MAX];
    unsigned depth;
} stack;

uint64_t tow_soft_stack_top(void)
{
    return stack.depth != 0 ? stack.handles[stack.depth - 1] : 0;
}

bool tow_soft_stack_is_full(void)
{
    return stack.depth == STACK_MAX;
}

bool tow_soft_stack_push(uint64_t handle)
{
    if (tow_soft_stack_is_full()) {
        return false;
    }
    stack.handles[stack.depth++] = handle;
    return true;
}

uint64_t tow_soft_stack_pop(void)
{
    return stack.depth != 0 ? stack.handles[--stack.depth] : 0;
}

void tow_soft_stack_replace(uint64_t handle)
{
    stack.depth += stack.depth == 0;
    stack.handles[stack.depth - 1] = handle;
}

void tow_soft_hold(void)
{
    while (tow_soft.held) {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    tow_soft.held = tow_soft.strict;
}

void tow_soft_let_go(void)
{
    if (tow_soft.held) {
        tow_soft.held = false;
        pthread_cond_broadcast(&tow_soft.changed);
    }
}

void tow_soft_enter_anyway(void)
{
    bool called = false;
    tow_mutex_lock(&tow_soft.lock);
    while (tow_soft.held || tow_soft.away) {
        if (tow_soft.away && tow_soft.called != NULL && !called) {
            called = true;
            tow_mutex_unlock(&tow_soft.lock);
            tow_soft.called();
            tow_mutex_lock(&tow_soft.lock);
        } else {
            tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
        }
    }
    tow_soft.inside++;
}

CUresult tow_soft_enter_any(void)
{
    tow_soft_enter_anyway();
    if (!tow_soft.initialised) {
        return tow_soft_leave(CUDA_ERROR_NOT_INITIALIZED);
    }
    return CUDA_SUCCESS;
}

CUresult tow_soft_leave(CUresult result)
{
    if (--tow_soft.inside == 0 && tow_soft.awaited) {
        pthread_cond_broadcast(&tow_soft.changed);
    }
    tow_mutex_unlock(&tow_soft.lock);
    return result;
}

CUresult tow_soft_leave_printed(uint64_t ctx_handle, CUresult result)
{
    struct tow_soft_ctx *ctx = tow_soft_lookup(TOW_SOFT_CTX, ctx_handle);
    if (ctx == NULL) {
        return tow_soft_leave(result);
    }
    ctx->pins++;
    tow_mutex_unlock(&tow_soft.lock);
    tow_soft_print_flush(ctx);
    tow_mutex_lock(&tow_soft.lock);
    if (--ctx->pins == 0 && ctx->dying) {
        pthread_cond_broadcast(&tow_soft.changed);
    }
    return tow_soft_leave(result);
}

struct tow_soft_ctx *tow_soft_current(void)
{
    return tow_soft_stack_top() != 0 ? tow_soft_lookup(TOW_SOFT_CTX, tow_soft_stack_top()) : NULL;
}

CUresult tow_soft_enter(struct tow_soft_ctx **ret_ctx)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (tow_soft_stack_top() == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    struct tow_soft_ctx *ctx = tow_soft_current();
    if (ctx == NULL || !ctx->alive) {
        return tow_soft_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    if (ctx->error != CUDA_SUCCESS) {
        return tow_soft_leave(ctx->error);
    }
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

/* ---- printf
 * ---------------------------------------------------------------------------------------- */

void tow_soft_print_add(struct tow_soft_ctx *ctx, const char *text, size_t length)
{
    tow_mutex_lock(&ctx->print_lock);
    size_t limit = ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE];
    if (length <= limit && ctx->print_size <= limit - length) {
        if (ctx->print_size + length > ctx->print_capacity) {
            size_t capacity = ctx->print_capacity == 0 ? 4096 : ctx->print_capacity * 2;
            while (capacity < ctx->print_size + length) {
                capacity *= 2;
            }
            char *grown = realloc(ctx->print, capacity);
            if (grown == NULL) {
                tow_mutex_unlock(&ctx->print_lock);
                return;
            }
            ctx->print = grown;
            ctx->print_capacity = capacity;
        }
        memcpy(ctx->print + ctx->print_size, text, length);
        ctx->print_size += length;
    }
    tow_mutex_unlock(&ctx->print_lock);
}

void tow_soft_print_flush(struct tow_soft_ctx *ctx)
{
    tow_mutex_lock(&ctx->print_lock);
    char *text = ctx->print;
    size_t size = ctx->print_size;
    ctx->print = NULL;
    ctx->print_size = 0;
    ctx->print_capacity = 0;
    tow_mutex_unlock(&ctx->print_lock);
    if (size != 0) {
        if (tow_soft.print != NULL) {
            tow_soft.print(tow_soft.print_user, text, size);
        } else {
            fwrite(text, 1, size, stdout);
            fflush(stdout);
        }
    }
    free(text);
}
