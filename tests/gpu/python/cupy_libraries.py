# SPDX-License-Identifier: Apache-2.0
"""CuPy on cuBLAS, cuFFT, cuSOLVER, cuRAND and cuSPARSE."""
import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np
from common import show


def close(name, got, want):
    print(name, "close", bool(np.allclose(cp.asnumpy(got), want, rtol=1e-4, atol=1e-4)))


rng = np.random.default_rng(1)
host = rng.standard_normal((64, 64))
a = cp.asarray(host)
for kind in (np.float32, np.float64, np.complex64):
    x = a.astype(kind)
    show(f"cuBLAS {np.dtype(kind)}", cp.asnumpy(x @ x.T))
    close(f"cuBLAS {np.dtype(kind)}", x @ x.T, host @ host.T)
batch = a.reshape(4, 16, 64).astype(np.float32)
show("cuBLAS batched", cp.asnumpy(batch @ batch.transpose(0, 2, 1)))
show("cuBLAS matrix by vector", cp.asnumpy(a @ a[0]))

show("cuFFT 1", cp.asnumpy(cp.fft.fft(a[0])))
show("cuFFT real", cp.asnumpy(cp.fft.rfft(a, axis=1)))
close("cuFFT 2", cp.fft.ifft2(cp.fft.fft2(a)), host)
close("cuFFT n", cp.fft.fftn(a.reshape(4, 16, 64)), np.fft.fftn(host.reshape(4, 16, 64)))

spd = a @ a.T + 64 * cp.eye(64)
show("cuSOLVER cholesky", cp.asnumpy(cp.linalg.cholesky(spd)))
close("cuSOLVER solve", a @ cp.linalg.solve(a, a[:, :2]), host[:, :2])
u, s, v = cp.linalg.svd(a)
close("cuSOLVER svd", (u * s) @ v, host)
q, r = cp.linalg.qr(a)
close("cuSOLVER qr", q @ r, host)
close("cuSOLVER eigh", cp.linalg.eigvalsh(spd), np.linalg.eigvalsh(cp.asnumpy(spd)))
print("cuSOLVER det", float(cp.linalg.slogdet(spd)[0]))

state = cp.random.RandomState(7)
show("cuRAND uniform", cp.asnumpy(state.random_sample(5000)))
show("cuRAND normal", cp.asnumpy(state.standard_normal(5000, dtype=np.float32)))
show("cuRAND integers", cp.asnumpy(state.randint(0, 1000, 5000)))
show("generator", cp.asnumpy(cp.random.default_rng(3).standard_normal(5000)))

thin = np.where(host > 1, host, 0)
matrix = sparse.csr_matrix(cp.asarray(thin))
close("cuSPARSE by vector", matrix @ a[0], thin @ host[0])
close("cuSPARSE by matrix", matrix @ a, thin @ host)
close("cuSPARSE by sparse", (matrix @ matrix.T).toarray(), thin @ thin.T)
close("cuSPARSE to CSC", matrix.tocsc().toarray(), thin)
