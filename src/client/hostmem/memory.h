/* SPDX-License-Identifier: Apache-2.0 */
/* What other rooms tell memory.c. */
#ifndef TOW_CLIENT_MEMORY_H
#define TOW_CLIENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Whom to ask before host memory goes away. */
struct towc_memory_ops {
    /* True while some of [address, address + size) is still to be read. */
    bool (*is_still_to_read)(const void *address, size_t size);
};

/* There is one; to register it again changes nothing. */
void towc_memory_register(const struct towc_memory_ops *ops);

#endif
