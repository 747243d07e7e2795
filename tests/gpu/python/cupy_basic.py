# SPDX-License-Identifier: Apache-2.0
"""CuPy: elements, sums, a raw kernel."""
import cupy as cp
from common import show

x = cp.arange(100000, dtype=cp.float32)
show("elementwise", cp.asnumpy(cp.sqrt(x) * 2 + 1))
print("sum", float(x.sum()), float(x.max()))
kernel = cp.RawKernel('extern "C" __global__ void twice(float *p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] *= 2; }', "twice")
kernel((391,), (256,), (x, cp.int32(100000)))
show("raw", cp.asnumpy(x))
a = cp.random.RandomState(1).rand(200, 200)
show("random", cp.asnumpy(a))
show("fft", cp.asnumpy(cp.fft.fft(a[0])))
print("solve", float(cp.abs(a @ cp.linalg.solve(a, a[:, :1]) - a[:, :1]).max()) < 1e-6)
show("sort", cp.asnumpy(cp.sort(a.ravel())))
