# SPDX-License-Identifier: Apache-2.0
"""What CuPy's users write: each operation against NumPy. Prints a line for each and OK at the end."""

import sys

import cupy as cp
import numpy as np

sys.stdout.reconfigure(line_buffering=True)
rng = np.random.default_rng(1)


def element_wise():
    a, b = rng.random((100, 101), dtype=np.float32), rng.random((100, 101), dtype=np.float32)
    x, y = cp.asarray(a), cp.asarray(b)
    assert (cp.asnumpy(x + y * 2) == a + b * 2).all()
    assert np.allclose(cp.asnumpy(cp.sin(x) * cp.exp(y)), np.sin(a) * np.exp(b), rtol=1e-6)
    assert (cp.asnumpy(cp.where(x > y, x, y)) == np.maximum(a, b)).all()
    square = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "square_of_difference")
    assert np.allclose(cp.asnumpy(square(x, y)), (a - b) ** 2, rtol=1e-6)
    assert (cp.asnumpy(x.T[3:40:2, ::-1].copy()) == a.T[3:40:2, ::-1]).all()
    assert (cp.asnumpy(cp.arange(1000) // 7) == np.arange(1000) // 7).all()


def reductions():
    a = rng.random((60, 70))
    x = cp.asarray(a)
    assert np.allclose(float(x.sum()), a.sum(), rtol=1e-12)
    assert np.allclose(cp.asnumpy(x.sum(axis=0)), a.sum(axis=0), rtol=1e-12)
    assert np.allclose(cp.asnumpy(x.mean(axis=1)), a.mean(axis=1), rtol=1e-12)
    assert float(x.max()) == a.max() and int(x.argmin()) == a.argmin()
    assert np.allclose(cp.asnumpy(cp.cumsum(x)), np.cumsum(a), rtol=1e-12)
    assert bool((x < 1).all()) and int(cp.count_nonzero(x > 0.5)) == np.count_nonzero(a > 0.5)


def raw_kernel():
    kernel = cp.RawKernel(r"""
        extern "C" __global__ void blocks(const float *in, float *out, int n)
        {
            __shared__ float part[128];
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            part[threadIdx.x] = i < n ? in[i] * 2 : 0;
            __syncthreads();
            for (int step = 64; step > 0; step /= 2) {
                if (threadIdx.x < step) {
                    part[threadIdx.x] += part[threadIdx.x + step];
                }
                __syncthreads();
            }
            if (threadIdx.x == 0) {
                atomicAdd(out, part[0]);
            }
        }""", "blocks")
    a = rng.integers(0, 100, 5000).astype(np.float32)
    out = cp.zeros(1, cp.float32)
    kernel((40,), (128,), (cp.asarray(a), out, np.int32(a.size)))
    assert float(out[0]) == 2 * a.sum()


def reduction_kernel():
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "euclidean_norm")
    a = rng.random((30, 40))
    assert np.allclose(cp.asnumpy(norm(cp.asarray(a), axis=1)), np.linalg.norm(a, axis=1), rtol=1e-12)


def random():
    state = cp.random.RandomState(5)
    uniform, normal = state.random_sample(20000), state.normal(3, 2, 20000)
    assert 0 <= float(uniform.min()) and float(uniform.max()) < 1 and abs(float(uniform.mean()) - 0.5) < 0.02
    assert abs(float(normal.mean()) - 3) < 0.1 and abs(float(normal.std()) - 2) < 0.1
    again = cp.random.RandomState(5).random_sample(20000)
    assert bool((uniform == again).all())
    generator = cp.random.default_rng(7)
    integers = generator.integers(0, 10, 5000)
    assert int(integers.min()) == 0 and int(integers.max()) == 9
    assert sorted(cp.asnumpy(cp.random.permutation(100))) == list(range(100))


def sort():
    for kind in (np.int32, np.float32, np.float64):
        a = (rng.random(3000) * 1000).astype(kind)
        assert (cp.asnumpy(cp.sort(cp.asarray(a))) == np.sort(a)).all()
    a = rng.permutation(2000)
    assert (cp.asnumpy(cp.argsort(cp.asarray(a))) == np.argsort(a)).all()
    b = rng.integers(0, 50, (20, 30))
    assert (cp.asnumpy(cp.sort(cp.asarray(b), axis=0)) == np.sort(b, axis=0)).all()
    assert (cp.asnumpy(cp.unique(cp.asarray(b))) == np.unique(b)).all()


def linear_algebra():
    """Of NVIDIA's cuBLAS and cuSOLVER: not among the usual ones, see docs/compatibility.md."""
    a, b = rng.random((70, 50)), rng.random((50, 60))
    x, y = cp.asarray(a), cp.asarray(b)
    assert np.allclose(cp.asnumpy(x @ y), a @ b, rtol=1e-12)
    assert np.allclose(cp.asnumpy(x.astype(np.float32) @ y.astype(np.float32)), a @ b, rtol=1e-4)
    c = rng.random((40, 40)) + 40 * np.eye(40)
    assert np.allclose(cp.asnumpy(cp.linalg.solve(cp.asarray(c), x[:40, :1])), np.linalg.solve(c, a[:40, :1]))
    assert np.allclose(cp.asnumpy(cp.linalg.svd(x)[1]), np.linalg.svd(a)[1])
    assert np.allclose(cp.asnumpy(cp.fft.fft(x)), np.fft.fft(a))


OPERATIONS = [element_wise, reductions, raw_kernel, reduction_kernel, random, sort]
for operation in [globals()[name] for name in sys.argv[1:]] or OPERATIONS:
    operation()
    print(operation.__name__)
print("OK")
