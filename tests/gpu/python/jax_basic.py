# SPDX-License-Identifier: Apache-2.0
"""JAX: the first steps. Without autotuning, which times kernels and so takes other ones in every run."""
# env: XLA_PYTHON_CLIENT_PREALLOCATE=false
# env: XLA_FLAGS=--xla_gpu_autotune_level=0
import jax
import jax.numpy as jnp
import numpy as np
from common import show

key = jax.random.key(0)
x = jax.random.normal(key, (128, 128))
print("device", jax.devices()[0].platform)
show("matmul", np.asarray(jax.jit(lambda a: a @ a.T)(x)))
show("grad", np.asarray(jax.grad(lambda a: jnp.sin(a).sum())(x)))
image, weights = jax.random.normal(key, (2, 3, 16, 16)), jax.random.normal(key, (4, 3, 3, 3))
print("conv", float(jax.lax.conv(image, weights, (1, 1), "SAME").sum()))
print("callback", float(jax.pure_callback(lambda a: np.float32(a.sum()), jax.ShapeDtypeStruct((), np.float32), x)))
