/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that more than one server takes part in, or another server than the current context's.
 * They go through this process and are done when the call returns. */
#ifndef TOW_CLIENT_PEER_H
#define TOW_CLIENT_PEER_H

#include "client/stream/context.h"

/* True if the address is memory of another server than the current context's; never with one
 * server. */
bool tow_peer_elsewhere(CUdeviceptr address);

/* Copies by address, either side on any server or on the host, after what `stream` has to do. */
CUresult tow_peer_copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream);
/* The same for copies of two and three dimensions. */
bool tow_peer_elsewhere_3d(const CUDA_MEMCPY3D_PEER *copy);
CUresult tow_peer_copy_3d(const CUDA_MEMCPY3D_PEER *p, CUstream stream);

#endif
