/* SPDX-License-Identifier: Apache-2.0 */
/* Memory handed to the program that lives as long as a graph, a node or a capture: keyed by its id.
 */
#ifndef TOW_CLIENT_KEEP_H
#define TOW_CLIENT_KEEP_H

#include <stddef.h>
#include <stdint.h>

/* Replaces what the key had. NULL if memory is used up. */
void *towc_keep_make(uint64_t key, size_t size);
void towc_keep_drop(uint64_t key);

#endif
