# SPDX-License-Identifier: Apache-2.0
"""Numba-CUDA, where it is installed."""
import sys

import numpy as np
from common import show

np.row_stack = np.vstack  # gone from NumPy 2.4, and all that an older Numba misses
try:
    from numba import cuda, float32
except Exception as error:  # not installed, or not made for this NumPy
    print("numba cannot be imported:", type(error).__name__, error)
    sys.exit(77)


@cuda.jit
def affine(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * x[i] + y[i]


@cuda.jit
def block_sums(x, out):
    part = cuda.shared.array(128, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    part[t] = x[i] if i < x.size else 0.0
    step = 64
    while step > 0:
        cuda.syncthreads()
        if t < step:
            part[t] += part[t + step]
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


@cuda.jit
def count(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


n = 10000
x = np.arange(n, dtype=np.float32)
out = np.zeros_like(x)
affine[(n + 127) // 128, 128](x, x[::-1].copy(), out)
show("affine", out)
stream = cuda.stream()
device, sums = cuda.to_device(x, stream=stream), cuda.device_array(79, dtype=np.float32, stream=stream)
block_sums[79, 128, stream](device, sums)
show("block sums", sums.copy_to_host(stream=stream))
stream.synchronize()
bins = np.zeros(10, dtype=np.int32)
count[(n + 127) // 128, 128]((x.astype(np.int32) * 7) % 10, bins)
print("bins", bins.tolist())
print("device", cuda.get_current_device().compute_capability)
