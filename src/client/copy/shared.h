/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the device and memory that the worker has too: they name its address. */
#ifndef TOW_CLIENT_SHARED_H
#define TOW_CLIENT_SHARED_H

#include <stdbool.h>
#include <stddef.h>

#include "client/completion/completion.h"
#include "client/copy/look.h"

/* TOW_WAY_SHARED: of one dimension, of memory that the program handed over. */
towc_copy_executor towc_shared_copy;

/* Sends a copy of one dimension without a reply. `word` may be NULL; `ret_number`: the command's.
 */
CUresult towc_shared_send(unsigned fn, CUdeviceptr device, const void *host, size_t size,
                          CUstream stream, const struct tow_fence_word *word, uint32_t value,
                          uint64_t *ret_number);

#endif
