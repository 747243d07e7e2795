# SPDX-License-Identifier: Apache-2.0
"""What Numba-CUDA's users write: each operation against NumPy. Prints a line for each and OK at the end."""

import math
import sys

import numpy as np
from numba import cuda, float32, float64, int32

sys.stdout.reconfigure(line_buffering=True)
rng = np.random.default_rng(1)


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


def vector_add():
    a, b = rng.random(10001, dtype=np.float32), rng.random(10001, dtype=np.float32)
    out = np.zeros_like(a)
    add[(a.size + 127) // 128, 128](a, b, out)
    assert (out == a + b).all()


@cuda.jit
def block_sums(a, out):
    shared = cuda.shared.array(256, float64)
    i, t = cuda.grid(1), cuda.threadIdx.x
    shared[t] = a[i] if i < a.size else 0.0
    cuda.syncthreads()
    step = 128
    while step > 0:
        if t < step:
            shared[t] += shared[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


def shared_reduction():
    a = rng.random(20000)
    out = np.zeros((a.size + 255) // 256)
    block_sums[out.size, 256](a, out)
    assert math.isclose(out.sum(), a.sum(), rel_tol=1e-12)


@cuda.reduce
def total(a, b):
    return a + b


def decorated_reduction():
    a = np.arange(5000, dtype=np.int64)
    assert total(a) == a.sum()


@cuda.jit
def count(values, bins, top, low, swapped):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i] % bins.size, 1)
        cuda.atomic.max(top, 0, values[i])
        cuda.atomic.min(low, 0, float(values[i]))
        cuda.atomic.cas(swapped, 0, 0, 7)


def atomics():
    values = rng.integers(0, 100000, 9999).astype(np.int32)
    bins, top, low, swapped = np.zeros(17, np.int32), np.zeros(1, np.int32), np.full(1, 1e9), np.zeros(1, np.int32)
    count[40, 256](values, bins, top, low, swapped)
    assert (bins == np.bincount(values % 17, minlength=17)).all()
    assert top[0] == values.max() and low[0] == values.min() and swapped[0] == 7


@cuda.jit
def multiply(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    value = float32(0.0)
    for k in range((a.shape[1] + 15) // 16):
        tile_a[tx, ty] = a[x, ty + k * 16] if x < a.shape[0] and ty + k * 16 < a.shape[1] else 0.0
        tile_b[tx, ty] = b[tx + k * 16, y] if tx + k * 16 < b.shape[0] and y < b.shape[1] else 0.0
        cuda.syncthreads()
        for j in range(16):
            value += tile_a[tx, j] * tile_b[j, ty]
        cuda.syncthreads()
    if x < c.shape[0] and y < c.shape[1]:
        c[x, y] = value


def matrix_multiply():
    a, b = rng.random((50, 70), dtype=np.float32), rng.random((70, 40), dtype=np.float32)
    c = cuda.device_array((50, 40), np.float32)
    multiply[(4, 3), (16, 16)](cuda.to_device(a), cuda.to_device(b), c)
    assert np.allclose(c.copy_to_host(), a @ b, rtol=1e-5)


@cuda.jit(device=True)
def polynomial(x, degree):
    value = 0.0
    for i in range(degree):
        value = value * x + (i + 1)
    return value


@cuda.jit(device=True)
def both(x):
    return math.sin(x), math.exp(-x)


@cuda.jit
def functions(a, out):
    i = cuda.grid(1)
    if i < a.size:
        s, e = both(a[i])
        out[i] = polynomial(a[i], 5) + s * e + math.sqrt(a[i])


def device_functions():
    a = rng.random(1000)
    out = np.zeros_like(a)
    functions[4, 256](a, out)
    wanted = np.polyval([1, 2, 3, 4, 5], a) + np.sin(a) * np.exp(-a) + np.sqrt(a)
    assert np.allclose(out, wanted, rtol=1e-13)


@cuda.jit
def warp_sum(a, out):
    i = cuda.grid(1)
    value = a[i]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
    if cuda.laneid == 0:
        out[i // 32] = value


def shuffles():
    a = rng.integers(0, 1000, 256).astype(np.int32)
    out = np.zeros(8, np.int32)
    warp_sum[2, 128](a, out)
    assert (out == a.reshape(8, 32).sum(axis=1)).all()


@cuda.jit
def local_sort(a):
    row = cuda.local.array(8, int32)
    i = cuda.grid(1)
    for k in range(8):
        row[k] = a[i, k]
    for j in range(1, 8):
        value, k = row[j], j - 1
        while k >= 0 and row[k] > value:
            row[k + 1] = row[k]
            k -= 1
        row[k + 1] = value
    for k in range(8):
        a[i, k] = row[k]


def local_memory_and_streams():
    a = rng.integers(0, 1000, (64, 8)).astype(np.int32)
    stream = cuda.stream()
    there = cuda.to_device(a, stream=stream)
    begin, end = cuda.event(), cuda.event()
    begin.record(stream)
    local_sort[2, 32, stream](there)
    end.record(stream)
    back = there.copy_to_host(stream=stream)
    stream.synchronize()
    assert (back == np.sort(a, axis=1)).all() and begin.elapsed_time(end) >= 0


for operation in (vector_add, shared_reduction, decorated_reduction, atomics, matrix_multiply, device_functions, shuffles,
                  local_memory_and_streams):
    operation()
    print(operation.__name__)
print("OK")
