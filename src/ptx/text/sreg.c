/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the special registers. */
#include <stdbool.h>
#include <string.h>

#include "ptx/text/sreg.h"

static const struct {
    const char *name;
    short number;
    bool vector; /* .x .y .z follow each other */
} sregs[] = {
    {"%tid", SREG_WARP_ROWS + WROW_TID_X, true},
    {"%warpid", SREG_WARP_ROWS + WROW_WARPID, false},
    {"%ntid", SREG_BLOCK_ROWS + BROW_NTID_X, true},
    {"%ctaid", SREG_BLOCK_ROWS + BROW_CTAID_X, true},
    {"%nctaid", SREG_BLOCK_ROWS + BROW_NCTAID_X, true},
    {"%nwarpid", SREG_BLOCK_ROWS + BROW_NWARPID, false},
    {"%smid", SREG_BLOCK_ROWS + BROW_SMID, false},
    {"%nsmid", SREG_BLOCK_ROWS + BROW_NSMID, false},
    {"%gridid", SREG_BLOCK_ROWS + BROW_GRIDID, false},
    {"%dynamic_smem_size", SREG_BLOCK_ROWS + BROW_DYNAMIC_SMEM, false},
    {"%total_smem_size", SREG_BLOCK_ROWS + BROW_TOTAL_SMEM, false},
    {"%aggr_smem_size", SREG_BLOCK_ROWS + BROW_AGGR_SMEM, false},
    {"%clusterid", SREG_BLOCK_ROWS + BROW_CLUSTERID_X, true},
    {"%nclusterid", SREG_BLOCK_ROWS + BROW_NCLUSTERID_X, true},
    {"%cluster_ctaid", SREG_BLOCK_ROWS + BROW_CLUSTER_CTAID_X, true},
    {"%cluster_nctaid", SREG_BLOCK_ROWS + BROW_CLUSTER_NCTAID_X, true},
    {"%cluster_ctarank", SREG_BLOCK_ROWS + BROW_CLUSTER_CTARANK, false},
    {"%cluster_nctarank", SREG_BLOCK_ROWS + BROW_CLUSTER_NCTARANK, false},
    {"%envreg1", SREG_BLOCK_ROWS + BROW_ENVREG1, false},
    {"%envreg2", SREG_BLOCK_ROWS + BROW_ENVREG2, false},
    {"%laneid", SREG_LANEID, false},
    {"%lanemask_eq", SREG_LANEMASK_EQ, false},
    {"%lanemask_le", SREG_LANEMASK_LE, false},
    {"%lanemask_lt", SREG_LANEMASK_LT, false},
    {"%lanemask_ge", SREG_LANEMASK_GE, false},
    {"%lanemask_gt", SREG_LANEMASK_GT, false},
    {"%is_explicit_cluster", SREG_IS_EXPLICIT_CLUSTER, false},
    {"%clock", SREG_CLOCK, false},
    {"%clock_hi", SREG_CLOCK_HI, false},
    {"%clock64", SREG_CLOCK64, false},
    {"%globaltimer", SREG_GLOBALTIMER, false},
    {"%globaltimer_lo", SREG_GLOBALTIMER_LO, false},
    {"%globaltimer_hi", SREG_GLOBALTIMER_HI, false},
    {"%current_graph_exec", SREG_ZERO64, false},
    {"%reserved_smem_offset_begin", SREG_ZERO, false},
    {"%reserved_smem_offset_end", SREG_ZERO, false},
    {"%reserved_smem_offset_cap", SREG_ZERO, false},
};

static bool sreg_starts(const char *name, size_t length, const char *prefix)
{
    size_t n = strlen(prefix);
    return length > n && memcmp(name, prefix, n) == 0 && name[n] >= '0' && name[n] <= '9';
}

int tow_ptx_sreg_find(const char *name, size_t length, char component)
{
    for (unsigned i = 0; i < sizeof sregs / sizeof sregs[0]; i++) {
        if (strlen(sregs[i].name) != length || memcmp(sregs[i].name, name, length) != 0) {
            continue;
        }
        if (!sregs[i].vector) {
            return component ? -1 : sregs[i].number;
        }
        if (component >= 'x' && component <= 'z') {
            return sregs[i].number + (component - 'x');
        }
        return component == 'w' ? SREG_ZERO : -1;
    }
    bool wide = length > 3 && memcmp(name + length - 3, "_64", 3) == 0;
    if (sreg_starts(name, length, "%envreg") || sreg_starts(name, length, "%pm") ||
        sreg_starts(name, length, "%reserved_smem_offset_")) {
        return component ? -1 : wide ? SREG_ZERO64 : SREG_ZERO;
    }
    return -1;
}
