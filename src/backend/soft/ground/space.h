/* SPDX-License-Identifier: Apache-2.0 */
/* Free address ranges. */
#ifndef TOW_SOFT_GROUND_SPACE_H
#define TOW_SOFT_GROUND_SPACE_H

#include <stddef.h>
#include <stdint.h>

/* Free address ranges, sorted; first fit. */
struct tow_soft_space {
    struct tow_soft_hole {
        uint64_t base, size;
    } * holes; /* owned */
    size_t count, capacity;
};
int tow_soft_space_init(struct tow_soft_space *space, uint64_t base, uint64_t size);
void tow_soft_space_fini(struct tow_soft_space *space);
/* -ENOMEM if nothing fits. `align` is a power of two. `at` not 0: that address or none (-EBUSY). */
int tow_soft_space_take(struct tow_soft_space *space, uint64_t size, uint64_t align, uint64_t at,
                        uint64_t *ret_base);
int tow_soft_space_give(struct tow_soft_space *space, uint64_t base, uint64_t size);

static inline uint64_t tow_soft_round_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}

#endif
