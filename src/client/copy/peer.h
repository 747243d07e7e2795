/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that more than one server takes part in, or another server than the current context's.
 * They go through this process and are done when the call returns. */
#ifndef TOW_CLIENT_PEER_H
#define TOW_CLIENT_PEER_H

#include "client/copy/look.h"

/* Copies by address, either operand on any server or on the host, after what `stream` has to do. */
CUresult towc_peer_copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream);
/* TOW_WAY_PEER: that, or the same for copies of two and three dimensions. */
towc_copy_executor towc_peer_go;

#endif
