/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses to host pointers, every one checked.
 *
 * The usual case is that all lanes lie in the range that the same instruction hit last; one pass
 * over the row finds that out. Only when it fails are lanes looked at one by one. */
#include "ptx/machine/row.h"

#include <string.h>

/* ---- lanes at even steps ---- */

TOW_HOT bool tow_ptx_line_global(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                                 enum tow_ptx_access access, struct tow_ptx_line *ret_line)
{
    return tow_ptx_try_line_global(w, o, bytes, access, ret_line);
}

TOW_HOT bool tow_ptx_line_shared64(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                   uint32_t bytes, enum tow_ptx_access access,
                                   struct tow_ptx_line *ret_line)
{
    (void)access;
    return tow_ptx_line_inside(tow_ptx_row(w, o->a), (uint64_t)o->imm, 0, w->block->shared_bytes,
                               bytes, w->block->shared, ret_line);
}

TOW_HOT bool tow_ptx_line_generic(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                  uint32_t bytes, enum tow_ptx_access access,
                                  struct tow_ptx_line *ret_line)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    if (a[0] + (uint64_t)o->imm - WINDOW_SHARED < WINDOW_SHARED_BYTES) {
        return tow_ptx_line_inside(a, (uint64_t)o->imm, WINDOW_SHARED, w->block->shared_bytes,
                                   bytes, w->block->shared, ret_line);
    }
    return tow_ptx_try_line_global(w, o, bytes, access, ret_line);
}

TOW_HOT bool tow_ptx_line_shared32(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                   uint32_t bytes, enum tow_ptx_access access,
                                   struct tow_ptx_line *ret_line)
{
    return tow_ptx_try_line_shared32(w, o, bytes, access, ret_line);
}

/* ---- any addresses ---- */

/* Whether every active lane lies in [low, low + size) and is aligned; leaves the pointers. */
static inline bool all_inside(struct tow_ptx_warp *w, const uint64_t *a, uint64_t offset,
                              uint64_t low, uint64_t size, uint32_t bytes, uint64_t host)
{
    uint64_t bad = 0, bits = 0, span, m = w->exec;
    if (size < bytes) {
        return false;
    }
    span = size - bytes;
    uint64_t *ptr = (uint64_t *)w->ptr;
    uint64_t delta = host - low;
    if (m == FULL) {
        for (unsigned l = 0; l < LANES; l++) {
            uint64_t p = a[l] + offset;
            bad |= p - low > span;
            bits |= p;
            ptr[l] = p + delta;
        }
    } else {
        for (unsigned l = 0; l < LANES; l++) {
            uint64_t p = a[l] + offset, on = 0ull - ((m >> l) & 1u);
            bad |= (p - low > span) & on;
            bits |= p & on;
            ptr[l] = p + delta;
        }
    }
    return !bad && !(bits & (bytes - 1));
}

static enum tow_ptx_deed deed_of(enum tow_ptx_access access)
{
    return access == ACCESS_READ ? TOW_PTX_DEED_READ : TOW_PTX_DEED_WRITE;
}

static bool memory_misaligned(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                              uint64_t address, uint64_t bytes, enum tow_ptx_place place,
                              enum tow_ptx_access access)
{
    const struct tow_ptx_deed_of deed = {deed_of(access), place, bytes, true};
    tow_ptx_fault_at(w, o, TOW_PTX_FAULT_MISALIGNED, lane, address, &deed,
                     "access of %llu bytes at the misaligned address 0x%llx",
                     (unsigned long long)bytes, (unsigned long long)address);
    return false;
}

/* Global memory, one lane; uses and refreshes the instruction's range. */
static uint8_t *global_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                            struct tow_ptx_range *range, unsigned lane, uint64_t p, uint64_t bytes,
                            enum tow_ptx_access access, bool again)
{
    const struct tow_ptx_deed_of deed = {deed_of(access), TOW_PTX_PLACE_GLOBAL, bytes, again};
    struct tow_ptx_range found;
    if (p >= range->low && p < range->high && bytes <= range->high - p &&
        (access == ACCESS_READ || range->writable)) {
        return (uint8_t *)(uintptr_t)p;
    }
    uint64_t params = (uint64_t)(uintptr_t)w->runner->params;
    if (access == ACCESS_READ && p >= params && p - params < w->runner->param_bytes &&
        bytes <= w->runner->param_bytes - (p - params)) {
        return (uint8_t *)(uintptr_t)p;
    }
    uint64_t workspace = (uint64_t)(uintptr_t)w->runner->workspace;
    if (workspace && p >= workspace && bytes <= WORKSPACE_BYTES &&
        p - workspace <= WORKSPACE_BYTES - bytes) {
        return (uint8_t *)(uintptr_t)p;
    }
    if (w->launch->env->find(w->launch->env_user, p, &found) && p >= found.low && p < found.high) {
        if (access == ACCESS_WRITE && !found.writable) {
            tow_ptx_fault_at(w, o, TOW_PTX_FAULT_ADDRESS, lane, p, &deed,
                             "write of %llu bytes to read-only memory at 0x%llx",
                             (unsigned long long)bytes, (unsigned long long)p);
            return NULL;
        }
        if (bytes <= found.high - p) {
            *range = found;
            return (uint8_t *)(uintptr_t)p;
        }
    }
    tow_ptx_fault_at(w, o, TOW_PTX_FAULT_ADDRESS, lane, p, &deed,
                     "%s of %llu bytes at 0x%llx, which is in no live allocation",
                     access == ACCESS_READ ? "read" : "write", (unsigned long long)bytes,
                     (unsigned long long)p);
    return NULL;
}

TOW_HOT bool tow_ptx_at_global(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                               enum tow_ptx_access access)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    struct tow_ptx_range *range = tow_ptx_range_of(w, o);
    uint64_t offset = (uint64_t)o->imm;
    if ((access == ACCESS_READ || range->writable) &&
        all_inside(w, a, offset, range->low, range->high - range->low, bytes, range->low)) {
        return true;
    }
    FOR_LANES(l, w->exec)
    {
        uint64_t p = a[l] + offset;
        if (p & (bytes - 1)) {
            return memory_misaligned(w, o, l, p, bytes, TOW_PTX_PLACE_GLOBAL, access);
        }
        if (!(w->ptr[l] = global_lane(w, o, range, l, p, bytes, access, true))) {
            return false;
        }
    }
    return true;
}

uint8_t *tow_ptx_shared_at(struct tow_ptx_warp *w, uint32_t address, uint64_t bytes)
{
    struct tow_ptx_block *block = w->block;
    uint32_t rank = address >> SHARED_RANK_SHIFT;
    if (rank) {
        if (!block->cluster || rank - 1 >= block->cluster->count) {
            return NULL;
        }
        block = block->cluster->blocks[rank - 1];
        address &= (1u << SHARED_RANK_SHIFT) - 1;
    }
    if (address > block->shared_bytes || bytes > block->shared_bytes - address) {
        return NULL;
    }
    return block->shared + address;
}

static bool shared_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                        uint64_t p, uint32_t bytes, enum tow_ptx_access access)
{
    if (p & (bytes - 1)) {
        return memory_misaligned(w, o, lane, p, bytes, TOW_PTX_PLACE_SHARED, access);
    }
    if (p >> 32 || !(w->ptr[lane] = tow_ptx_shared_at(w, (uint32_t)p, bytes))) {
        const struct tow_ptx_deed_of deed = {deed_of(access), TOW_PTX_PLACE_SHARED, bytes, true};
        tow_ptx_fault_at(w, o, TOW_PTX_FAULT_ADDRESS, lane, p, &deed,
                         "access of %u bytes at shared address 0x%llx; the block has %u bytes",
                         bytes, (unsigned long long)p, w->block->shared_bytes);
        return false;
    }
    return true;
}

TOW_HOT bool tow_ptx_at_shared32(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                                 enum tow_ptx_access access)
{
    (void)access;
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t offset = (uint32_t)o->imm, size = w->block->shared_bytes, bad = 0, bits = 0;
    uint8_t *shared = w->block->shared;
    if (size >= bytes) {
        uint32_t span = size - bytes, m = w->exec;
        if (m == FULL) {
            for (unsigned l = 0; l < LANES; l++) {
                uint32_t p = a[l] + offset;
                bad |= p > span;
                bits |= p;
                w->ptr[l] = shared + p;
            }
        } else {
            for (unsigned l = 0; l < LANES; l++) {
                uint32_t p = a[l] + offset, on = 0u - ((m >> l) & 1u);
                bad |= (p > span) & on;
                bits |= p & on;
                w->ptr[l] = shared + p;
            }
        }
        if (!bad && !(bits & (bytes - 1))) {
            return true;
        }
    }
    FOR_LANES(l, w->exec)
    {
        if (!shared_lane(w, o, l, (uint32_t)(a[l] + offset), bytes, access)) {
            return false;
        }
    }
    return true;
}

TOW_HOT bool tow_ptx_at_shared64(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                                 enum tow_ptx_access access)
{
    (void)access;
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint64_t offset = (uint64_t)o->imm;
    if (all_inside(w, a, offset, 0, w->block->shared_bytes, bytes,
                   (uint64_t)(uintptr_t)w->block->shared)) {
        return true;
    }
    FOR_LANES(l, w->exec)
    {
        if (!shared_lane(w, o, l, a[l] + offset, bytes, access)) {
            return false;
        }
    }
    return true;
}

static bool local_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       uint64_t p, uint64_t bytes, enum tow_ptx_access access)
{
    if (p & (bytes - 1)) {
        return memory_misaligned(w, o, lane, p, bytes, TOW_PTX_PLACE_LOCAL, access);
    }
    if (p > w->local_stride || bytes > w->local_stride - p) {
        const struct tow_ptx_deed_of deed = {deed_of(access), TOW_PTX_PLACE_LOCAL, bytes, true};
        tow_ptx_fault_at(w, o, TOW_PTX_FAULT_ADDRESS, lane, p, &deed,
                         "access of %llu bytes at local address 0x%llx; a thread has %u bytes",
                         (unsigned long long)bytes, (unsigned long long)p, w->local_stride);
        return false;
    }
    w->ptr[lane] = w->local + (uint64_t)lane * w->local_stride + p;
    return true;
}

bool tow_ptx_at_local32(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                        enum tow_ptx_access access)
{
    (void)access;
    const uint32_t *a = tow_ptx_row(w, o->a);
    FOR_LANES(l, w->exec)
    {
        if (!local_lane(w, o, l, (uint32_t)(a[l] + (uint32_t)o->imm), bytes, access)) {
            return false;
        }
    }
    return true;
}

bool tow_ptx_at_local64(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                        enum tow_ptx_access access)
{
    (void)access;
    const uint64_t *a = tow_ptx_row(w, o->a);
    FOR_LANES(l, w->exec)
    {
        if (!local_lane(w, o, l, a[l] + (uint64_t)o->imm, bytes, access)) {
            return false;
        }
    }
    return true;
}

TOW_HOT bool tow_ptx_at_generic(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                                enum tow_ptx_access access)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    struct tow_ptx_range *range = tow_ptx_range_of(w, o);
    uint64_t offset = (uint64_t)o->imm;
    if ((access == ACCESS_READ || range->writable) &&
        all_inside(w, a, offset, range->low, range->high - range->low, bytes, range->low)) {
        return true;
    }
    uint64_t first = a[__builtin_ctz(w->exec)] + offset;
    if (first - WINDOW_SHARED < WINDOW_SHARED_BYTES &&
        all_inside(w, a, offset, WINDOW_SHARED, w->block->shared_bytes, bytes,
                   (uint64_t)(uintptr_t)w->block->shared)) {
        return true;
    }
    FOR_LANES(l, w->exec)
    {
        uint64_t p = a[l] + offset;
        if (p - WINDOW_SHARED < WINDOW_SHARED_BYTES) {
            if (!shared_lane(w, o, l, p - WINDOW_SHARED, bytes, access)) {
                return false;
            }
        } else if (p - WINDOW_LOCAL < WINDOW_LOCAL_BYTES) {
            if (!local_lane(w, o, l, p - WINDOW_LOCAL, bytes, access)) {
                return false;
            }
        } else if (p & (bytes - 1)) {
            return memory_misaligned(w, o, l, p, bytes, TOW_PTX_PLACE_GLOBAL, access);
        } else if (!(w->ptr[l] = global_lane(w, o, range, l, p, bytes, access, true))) {
            return false;
        }
    }
    return true;
}

uint8_t *tow_ptx_at_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                         uint64_t address, uint64_t bytes, enum tow_ptx_access access)
{
    if (address - WINDOW_SHARED < WINDOW_SHARED_BYTES) {
        uint8_t *at = tow_ptx_shared_at(w, (uint32_t)(address - WINDOW_SHARED), bytes);
        if (!at) {
            const struct tow_ptx_deed_of deed = {deed_of(access), TOW_PTX_PLACE_SHARED, bytes,
                                                 false};
            tow_ptx_fault_at(w, o, TOW_PTX_FAULT_ADDRESS, lane, address - WINDOW_SHARED, &deed,
                             "access of %llu bytes at shared address 0x%llx; the block has %u "
                             "bytes",
                             (unsigned long long)bytes,
                             (unsigned long long)(address - WINDOW_SHARED), w->block->shared_bytes);
        }
        return at;
    }
    if (address - WINDOW_LOCAL < WINDOW_LOCAL_BYTES) {
        uint64_t at = address - WINDOW_LOCAL;
        if (at > w->local_stride || bytes > w->local_stride - at) {
            const struct tow_ptx_deed_of deed = {deed_of(access), TOW_PTX_PLACE_LOCAL, bytes,
                                                 false};
            tow_ptx_fault_at(w, o, TOW_PTX_FAULT_ADDRESS, lane, at, &deed,
                             "access of %llu bytes at local address 0x%llx; a thread has %u bytes",
                             (unsigned long long)bytes, (unsigned long long)at, w->local_stride);
            return NULL;
        }
        return w->local + (uint64_t)lane * w->local_stride + at;
    }
    return global_lane(w, o, tow_ptx_range_of(w, o), lane, address, bytes, access, false);
}

uint8_t *tow_ptx_probe(struct tow_ptx_warp *w, unsigned lane, uint64_t address, uint64_t *ret_bytes)
{
    struct tow_ptx_range found;
    if (address - WINDOW_SHARED < WINDOW_SHARED_BYTES) {
        uint64_t at = address - WINDOW_SHARED;
        if (at >= w->block->shared_bytes) {
            return NULL;
        }
        *ret_bytes = w->block->shared_bytes - at;
        return w->block->shared + at;
    }
    if (address - WINDOW_LOCAL < WINDOW_LOCAL_BYTES) {
        uint64_t at = address - WINDOW_LOCAL;
        if (at >= w->local_stride) {
            return NULL;
        }
        *ret_bytes = w->local_stride - at;
        return w->local + (uint64_t)lane * w->local_stride + at;
    }
    if (!w->launch->env->find(w->launch->env_user, address, &found) || address < found.low ||
        address >= found.high) {
        return NULL;
    }
    *ret_bytes = found.high - address;
    return (uint8_t *)(uintptr_t)address;
}
