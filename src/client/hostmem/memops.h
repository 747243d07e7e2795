/* SPDX-License-Identifier: Apache-2.0 */
/* Of memory operations, what graphs use. */
#ifndef TOW_CLIENT_MEMOPS_H
#define TOW_CLIENT_MEMOPS_H

#include "gen/cuda_types.h"

/* Page-locked host memory that the operations of a graph's node name becomes reachable. */
CUresult towc_memops_reach(const CUstreamBatchMemOpParams *ops, unsigned count);

#endif
