/* SPDX-License-Identifier: Apache-2.0 */
/* Free address ranges, kept sorted and merged; the lowest that fits is taken. */
#include "backend/soft/ground/space.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int space_grow(struct tow_soft_space *space)
{
    if (space->count < space->capacity) {
        return 0;
    }
    size_t capacity = space->capacity == 0 ? 16 : space->capacity * 2;
    struct tow_soft_hole *holes = realloc(space->holes, capacity * sizeof *holes);
    if (holes == NULL) {
        return -ENOMEM;
    }
    space->holes = holes;
    space->capacity = capacity;
    return 0;
}

int tow_soft_space_init(struct tow_soft_space *space, uint64_t base, uint64_t size)
{
    memset(space, 0, sizeof *space);
    int rc = space_grow(space);
    if (rc == 0) {
        space->holes[0] = (struct tow_soft_hole){base, size};
        space->count = 1;
    }
    return rc;
}

void tow_soft_space_fini(struct tow_soft_space *space)
{
    free(space->holes);
    memset(space, 0, sizeof *space);
}

/* Cuts [base, base + size) out of hole i, which holds it. */
static int space_cut(struct tow_soft_space *space, size_t i, uint64_t base, uint64_t size)
{
    struct tow_soft_hole *hole = &space->holes[i];
    uint64_t before = base - hole->base;
    uint64_t after = hole->base + hole->size - (base + size);
    if (before != 0 && after != 0) {
        if (space_grow(space) != 0) {
            return -ENOMEM;
        }
        hole = &space->holes[i];
        memmove(hole + 1, hole, (space->count - i) * sizeof *hole);
        space->count++;
        hole[0].size = before;
        hole[1] = (struct tow_soft_hole){base + size, after};
    } else if (before != 0) {
        hole->size = before;
    } else if (after != 0) {
        *hole = (struct tow_soft_hole){base + size, after};
    } else {
        memmove(hole, hole + 1, (space->count - i - 1) * sizeof *hole);
        space->count--;
    }
    return 0;
}

int tow_soft_space_take(struct tow_soft_space *space, uint64_t size, uint64_t align, uint64_t at,
                        uint64_t *ret_base)
{
    for (size_t i = 0; i < space->count; i++) {
        struct tow_soft_hole hole = space->holes[i];
        uint64_t base = at != 0 ? at : tow_soft_round_up(hole.base, align);
        if (base < hole.base || base - hole.base > hole.size ||
            hole.size - (base - hole.base) < size) {
            continue;
        }
        int rc = space_cut(space, i, base, size);
        if (rc == 0) {
            *ret_base = base;
        }
        return rc;
    }
    return at != 0 ? -EBUSY : -ENOMEM;
}

int tow_soft_space_give(struct tow_soft_space *space, uint64_t base, uint64_t size)
{
    size_t low = 0, high = space->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (space->holes[middle].base < base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool joins_before = low > 0 && space->holes[low - 1].base + space->holes[low - 1].size == base;
    bool joins_after = low < space->count && base + size == space->holes[low].base;
    if (joins_before && joins_after) {
        space->holes[low - 1].size += size + space->holes[low].size;
        memmove(&space->holes[low], &space->holes[low + 1],
                (space->count - low - 1) * sizeof *space->holes);
        space->count--;
    } else if (joins_before) {
        space->holes[low - 1].size += size;
    } else if (joins_after) {
        space->holes[low].base = base;
        space->holes[low].size += size;
    } else {
        if (space_grow(space) != 0) {
            return -ENOMEM;
        }
        memmove(&space->holes[low + 1], &space->holes[low],
                (space->count - low) * sizeof *space->holes);
        space->holes[low] = (struct tow_soft_hole){base, size};
        space->count++;
    }
    return 0;
}
