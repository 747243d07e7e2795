/* SPDX-License-Identifier: Apache-2.0 */
/* Of memory operations, what graphs use. */
#ifndef TOW_CLIENT_MEMOPS_H
#define TOW_CLIENT_MEMOPS_H

#include "gen/cuda_types.h"

/* Page-locked host memory that memory operations name becomes reachable, and has what the host
 * wrote. */
CUresult towc_memops_reach(const CUstreamBatchMemOpParams *ops, unsigned count);

#endif
