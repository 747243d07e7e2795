/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs share with streams. */
#ifndef TOW_SOFT_STREAM_STREAM_H
#define TOW_SOFT_STREAM_STREAM_H

#include "gen/cuda_types.h"

CUresult tow_soft_memops_check(const CUstreamBatchMemOpParams *ops, unsigned count);

#endif
