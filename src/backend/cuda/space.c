/* SPDX-License-Identifier: Apache-2.0 */
/* Reserves address space so that the real driver's allocations of each server lie in that server's
 * slot. */
#include "backend/cuda/space.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>

#include "base/log.h"

#define TIB (UINT64_C(1) << 40)
#define SLOT_SIZE (4 * TIB)
/* Stream-ordered pools lie here in every layout, or above what is taken from there on (both seen
 * on driver 580); the driver itself needs what is below. */
#define POOL_BASE UINT64_C(0x300000000)
#define POOL_FIRST UINT64_C(0x302000000)
/* With the bottom-up layout everything else follows from here, up to 1 TiB further by chance. */
#if defined(__x86_64__)
#define MAPS_BASE UINT64_C(0x2a0000000000)
#elif defined(__aarch64__)
#define MAPS_BASE UINT64_C(0x400000000000)
#else
#define MAPS_BASE UINT64_C(0)
#endif

enum { GAPS_MAX = 512 };

struct gap {
    uint64_t begin, end;
};

static bool is_bottom_up(void)
{
    int layout = personality(0xffffffff);
    return MAPS_BASE != 0 && layout != -1 && (layout & ADDR_COMPAT_LAYOUT) != 0;
}

/* What is free in [begin, end). */
static unsigned find_gaps(uint64_t begin, uint64_t end, struct gap gaps[GAPS_MAX])
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned count = 0;
    uint64_t from, to;
    while (maps != NULL && begin < end && count < GAPS_MAX &&
           fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2 || to <= begin) {
            continue;
        }
        if (from > begin) {
            gaps[count++] = (struct gap){begin, from < end ? from : end};
        }
        begin = to;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    if (begin < end && count < GAPS_MAX) {
        gaps[count++] = (struct gap){begin, end};
    }
    return count;
}

static bool space_fill(uint64_t begin, uint64_t end)
{
    static struct gap gaps[GAPS_MAX];
    unsigned count = find_gaps(begin, end, gaps);
    for (unsigned i = 0; i < count; i++) {
        void *at = (void *)(uintptr_t)gaps[i].begin;
        if (mmap(at, gaps[i].end - gaps[i].begin, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                 0) == MAP_FAILED) {
            return false;
        }
    }
    return count < GAPS_MAX;
}

void tow_space_fill(uint64_t slot)
{
    if (slot > 0 && !(is_bottom_up() && space_fill(POOL_FIRST, POOL_BASE + slot * SLOT_SIZE) &&
                      space_fill(MAPS_BASE, MAPS_BASE + slot * SLOT_SIZE))) {
        tow_log(TOW_AREA_BACKEND, TOW_LOG_WARN,
                "the addresses of slot %llu cannot be had: a program that uses several servers may "
                "be refused",
                (unsigned long long)slot);
    }
}

unsigned tow_space_ranges(uint64_t slot, struct tow_backend_range ret_ranges[2])
{
    ret_ranges[0] = (struct tow_backend_range){POOL_BASE + slot * SLOT_SIZE, SLOT_SIZE};
    if (!is_bottom_up()) {
        tow_log(TOW_AREA_BACKEND, TOW_LOG_DEBUG,
                "this process has the usual address layout: device addresses may collide with the "
                "client's");
        return 1;
    }
    ret_ranges[1] = (struct tow_backend_range){MAPS_BASE + slot * SLOT_SIZE, SLOT_SIZE};
    return 2;
}
