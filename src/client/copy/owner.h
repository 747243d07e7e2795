/* SPDX-License-Identifier: Apache-2.0 */
/* Which server has an operand of a copy. */
#ifndef TOW_CLIENT_OWNER_H
#define TOW_CLIENT_OWNER_H

#include "client/hostmem/region.h"

/* The context in which memory is copied: the one it was made in, else its device's primary one.
 * NULL: host memory, or memory that only the current context's server can know. */
struct towc_context *towc_owner_of(const struct towc_region *region);
struct towc_context *towc_owner_at(CUdeviceptr address);
/* That of an operand of a copy of two or three dimensions: of memory its own, of an array what the
 * caller says. */
struct towc_context *towc_owner_of_source(const CUDA_MEMCPY3D_PEER *p);
struct towc_context *towc_owner_of_target(const CUDA_MEMCPY3D_PEER *p);

/* True if it is another server's than the current context's. */
bool towc_owner_is_elsewhere(const struct towc_context *owner);

#endif
