/* SPDX-License-Identifier: Apache-2.0 */
/* Launch attributes on the wire, for launches, occupancy and graph nodes. */
#ifndef TOW_CLIENT_LAUNCH_ATTRIBUTES_H
#define TOW_CLIENT_LAUNCH_ATTRIBUTES_H

#include <stddef.h>

#include "gen/cuda_types.h"
#include "wire/cursor.h"

/* CUDA_ERROR_INVALID_VALUE, or of a handle, when they cannot be; else how many bytes they take. */
CUresult towc_launch_attributes_check(const CUlaunchAttribute *attributes, unsigned count,
                                      size_t *ret_size);
void towc_launch_attributes_encode(struct tow_enc *enc, const CUlaunchAttribute *attributes,
                                   unsigned count);

#endif
