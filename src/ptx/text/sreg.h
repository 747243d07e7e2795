/* SPDX-License-Identifier: Apache-2.0 */
/* Special registers: the rows that the machine keeps for them, and the parser's numbers. */
#ifndef TOW_PTX_SREG_H
#define TOW_PTX_SREG_H

#include <stddef.h>

/* Rows of BASE_WARP. */
enum {
    WROW_TID_X,
    WROW_TID_Y,
    WROW_TID_Z,
    WROW_WARPID,
    WROW_COUNT,
};
/* Rows of BASE_BLOCK, all uint32_t. */
enum {
    BROW_CTAID_X,
    BROW_CTAID_Y,
    BROW_CTAID_Z,
    BROW_SMID,
    BROW_CLUSTERID_X,
    BROW_CLUSTERID_Y,
    BROW_CLUSTERID_Z,
    BROW_CLUSTER_CTAID_X,
    BROW_CLUSTER_CTAID_Y,
    BROW_CLUSTER_CTAID_Z,
    BROW_CLUSTER_CTARANK,
    BROW_BLOCK_VARIES, /* the rows above differ from block to block, those below do not */
    BROW_NTID_X = BROW_BLOCK_VARIES,
    BROW_NTID_Y,
    BROW_NTID_Z,
    BROW_NCTAID_X,
    BROW_NCTAID_Y,
    BROW_NCTAID_Z,
    BROW_NWARPID,
    BROW_NSMID,
    BROW_GRIDID,
    BROW_DYNAMIC_SMEM,
    BROW_TOTAL_SMEM,
    BROW_AGGR_SMEM,
    BROW_NCLUSTERID_X,
    BROW_NCLUSTERID_Y,
    BROW_NCLUSTERID_Z,
    BROW_CLUSTER_NCTAID_X,
    BROW_CLUSTER_NCTAID_Y,
    BROW_CLUSTER_NCTAID_Z,
    BROW_CLUSTER_NCTARANK,
    BROW_DYNAMIC_BASE, /* shared address of the extern array */
    BROW_ENVREG1,
    BROW_ENVREG2,
    BROW_COUNT,
};
#define PARAM_ROWS_MAX 64u /* behind these: parameters of the kernel, two rows for 64 bits */

/* Special registers as the parser numbers them: rows above, then these. */
enum tow_ptx_sreg {
    SREG_WARP_ROWS = 0,
    SREG_BLOCK_ROWS = 100,
    SREG_LANEID = 200,
    SREG_LANEMASK_EQ,
    SREG_LANEMASK_LE,
    SREG_LANEMASK_LT,
    SREG_LANEMASK_GE,
    SREG_LANEMASK_GT,
    SREG_ZERO, /* what we have nothing to say about reads as 0: %pm0, %envreg3 ... */
    SREG_ZERO64,
    SREG_IS_EXPLICIT_CLUSTER,
    SREG_CLOCK, /* from here on: read anew each time */
    SREG_CLOCK_HI,
    SREG_CLOCK64,
    SREG_GLOBALTIMER,
    SREG_GLOBALTIMER_LO,
    SREG_GLOBALTIMER_HI,
};

/* By name without the dot of a component ("%tid", "x"): number or -1. */
int tow_ptx_sreg_find(const char *name, size_t length, char component);

#endif
