/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: their life. */
#ifndef TOW_SOFT_STREAM_CONTEXT_H
#define TOW_SOFT_STREAM_CONTEXT_H

#include <stdbool.h>

struct tow_soft_ctx;
struct tow_soft_device;

int tow_soft_ctx_create(struct tow_soft_device *device, unsigned flags, bool primary,
                        struct tow_soft_ctx **ret_ctx);
void tow_soft_ctx_destroy_contents(struct tow_soft_ctx *ctx);
void tow_soft_ctx_free(struct tow_soft_ctx *ctx);
void tow_soft_contexts_destroy_all(void);

#endif
