/* SPDX-License-Identifier: Apache-2.0 */
/* Which server has a side of a copy. */
#ifndef TOW_CLIENT_OWNER_H
#define TOW_CLIENT_OWNER_H

#include "client/hostmem/region.h"

/* The context in which memory is copied: the one it was made in, else its device's primary one.
 * NULL: host memory, or memory that only the current context's server can know. */
struct tow_context *tow_owner_of(const struct tow_region *region);
struct tow_context *tow_owner_at(CUdeviceptr address);
/* That of a side of a copy of two or three dimensions: of memory its own, of an array what the
 * caller says. */
struct tow_context *tow_owner_of_source(const CUDA_MEMCPY3D_PEER *p);
struct tow_context *tow_owner_of_target(const CUDA_MEMCPY3D_PEER *p);

/* True if it is another server's than the current context's. */
bool tow_owner_is_elsewhere(const struct tow_context *owner);

#endif
