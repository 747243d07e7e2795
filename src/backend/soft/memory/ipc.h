/* SPDX-License-Identifier: Apache-2.0 */
/* Memory files that worker processes of one server give each other (backend.h, exchange). */
#ifndef TOW_BACKEND_SOFT_IPC_H
#define TOW_BACKEND_SOFT_IPC_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

/* Others may ask for the file of this descriptor, which stays the caller's: 0 with its token, or
 * -Exxx. Without the lock: somebody else is asked. */
int tow_soft_ipc_offer(int fd, struct tow_backend_token *ret_token);
/* With or without the lock: nobody may ask for it any more. */
void tow_soft_ipc_withdraw(const struct tow_backend_token *token);
/* The file of the token, if it has this size; else -1. Without the lock. */
int tow_soft_ipc_fetch(const struct tow_backend_token *token, uint64_t size);

/* Pages that begin at `base` are given back: they are shared no more. */
void tow_soft_ipc_forget(uint64_t base);
/* Whether other processes have memory of this one by cuIpc, or it theirs. With the lock. */
bool tow_soft_ipc_shared(void);
void tow_soft_ipc_fini(void);

#endif
