/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of graphs share. */
#ifndef TOW_CONFORM_GRAPHS_H
#define TOW_CONFORM_GRAPHS_H

#include "driver.h"

CUgraph graph_new(void);

/* A node after another one, or NULL: *to += value. */
CUgraphNode add_inc(CUgraph graph, CUgraphNode after, CUdeviceptr to, int value);

/* A node that allocates 4096 bytes. */
CUgraphNode add_alloc(CUgraph graph, CUdeviceptr *ret_address);

/* The parameters of a copy from the host to the device. */
CUDA_MEMCPY3D copy_of(CUdeviceptr to, const void *from, size_t size);

CUgraphExec make(CUgraph graph);

/* Launches it in `side`, and waits. */
void go(CUgraphExec exec);

#endif
