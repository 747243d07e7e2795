/* SPDX-License-Identifier: Apache-2.0 */
/* Memory files that worker processes of one machine find each other's by. */
#ifndef TOW_BACKEND_SOFT_IPC_H
#define TOW_BACKEND_SOFT_IPC_H

#include <stdint.h>

/* Only handles carry it, and the file's name. */
struct tow_soft_token {
    uint8_t bytes[16];
};

/* A new, empty memfd with a token of its own; -1. */
int tow_soft_ipc_make(struct tow_soft_token *ret_token);
/* Descriptor `number` of that process, if it is the memfd of the token and has this size; else -1.
 */
int tow_soft_ipc_fetch(uint32_t pid, int32_t number, const struct tow_soft_token *token,
                       uint64_t size);

/* Pages that begin at `base` are given back: they are shared no more. */
void tow_soft_ipc_forget(uint64_t base);
void tow_soft_ipc_fini(void);

#endif
