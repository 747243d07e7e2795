# SPDX-License-Identifier: Apache-2.0
"""CuPy's own kernels: RawModule with templates and a global, element-wise and reduction kernels, streams, a graph."""
import cupy as cp
import numpy as np
from common import show

CODE = r"""
__constant__ float offset = 1.0f;
__device__ int calls;
template <typename T> __global__ void affine(T *out, const T *in, T by, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = in[i] * by + T(offset);
    }
    if (i == 0) {
        atomicAdd(&calls, 1);
    }
}
extern "C" __global__ void sums(const float *in, float *out)
{
    extern __shared__ float part[];
    part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            part[threadIdx.x] += part[threadIdx.x + step];
        }
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = part[0];
    }
}
"""
module = cp.RawModule(code=CODE, options=("--std=c++17",), name_expressions=("affine<float>", "affine<int>"))
count = 10000
for kind in (np.float32, np.int32):
    data = cp.arange(count, dtype=kind)
    out = cp.empty_like(data)
    kernel = module.get_function(f"affine<{'float' if kind is np.float32 else 'int'}>")
    kernel((count // 250,), (250,), (out, data, kind(3), np.int32(count)))
    show(f"affine {np.dtype(kind)}", cp.asnumpy(out))
    print("attributes", kernel.max_threads_per_block, kernel.shared_size_bytes, kernel.const_size_bytes > 0)
calls = cp.ndarray((1,), dtype=np.int32, memptr=module.get_global("calls"))
print("calls", int(calls[0]))
data = cp.arange(1024 * 64, dtype=np.float32) / 1024
out = cp.empty(256, dtype=np.float32)
module.get_function("sums")((256,), (256,), (data, out), shared_mem=1024)
show("sums", cp.asnumpy(out))

mix = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x > y ? x - y : x + y", "mix")
show("element-wise", cp.asnumpy(mix(data, data[::-1])))
length = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "length_of")
print("reduction", float(length(cp.arange(100, dtype=np.float64))))

streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
cp.cuda.Device().synchronize()
parts = []
for i, stream in enumerate(streams):
    with stream:
        parts.append((data * (i + 1)).sum(dtype=np.float64))
for stream in streams:
    stream.synchronize()
print("streams", [float(part) for part in parts])
pinned = cp.cuda.alloc_pinned_memory(4096)
host = np.frombuffer(pinned, np.float32, 1024)
host[...] = np.arange(1024)
device = cp.empty(1024, dtype=np.float32)
device.set(host, stream=streams[0])
streams[0].synchronize()
show("pinned", cp.asnumpy(device))

target = cp.zeros(1024, dtype=np.float32)
add = cp.RawKernel('extern "C" __global__ void add(float *p) { p[threadIdx.x] += 1; }', "add")
add((1,), (1024,), (target,))
cp.cuda.Device().synchronize()
with streams[1]:
    streams[1].begin_capture()
    add((1,), (1024,), (target,))
    add((1,), (1024,), (target,))
    graph = streams[1].end_capture()
for _ in range(5):
    graph.launch(streams[1])
streams[1].synchronize()
print("graph", float(target[3]))
pool = cp.get_default_memory_pool()
print("pool", pool.used_bytes() > 0, pool.total_bytes() >= pool.used_bytes())
