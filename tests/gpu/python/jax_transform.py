# SPDX-License-Identifier: Apache-2.0
"""JAX: jit, grad, vmap, scan, while loops, random numbers, donated buffers."""
# env: XLA_PYTHON_CLIENT_PREALLOCATE=false
# env: XLA_FLAGS=--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true
import functools

import jax
import jax.numpy as jnp
import numpy as np
from common import show

key = jax.random.key(1)
x, w = jax.random.normal(key, (64, 32)), jax.random.normal(jax.random.key(2), (32, 16)) / 8
show("random", np.asarray(x))


def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


value, gradient = jax.jit(jax.value_and_grad(loss))(w, x)
print("loss", float(value).hex())
show("gradient", np.asarray(gradient))
show("second derivative", np.asarray(jax.jit(jax.hessian(loss))(w[:, :1], x)))
show("vmap", np.asarray(jax.jit(jax.vmap(lambda row: jnp.outer(row, row).sum(axis=0)))(x)))
show("each gradient", np.asarray(jax.vmap(jax.grad(loss), (None, 0))(w, x[:, None])))


def cell(carry, row):
    carry = jnp.tanh(carry + row[:16])
    return carry, carry.sum()


carry, sums = jax.lax.scan(cell, jnp.zeros(16), x)
show("scan", np.asarray(carry))
show("scan's outputs", np.asarray(sums))
print("while", int(jax.lax.while_loop(lambda n: n < 1000, lambda n: n * 3 + 1, jnp.int32(1))))
show("sort", np.asarray(jnp.sort(x.ravel())))


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def step(w, momentum, count, x):
    momentum = 0.9 * momentum + jax.grad(loss)(w, x)
    return w - 0.1 * momentum, momentum, count + 1


state = w + 0, jnp.zeros_like(w), jnp.int32(0)
for _ in range(5):
    old, state = state, step(*state, x)
print("donated", [buffer.is_deleted() for buffer in old], int(state[2]))
show("trained", np.asarray(state[0]))
show("bfloat16", np.asarray((x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32)))
show("fft", np.asarray(jnp.fft.fft(x[0])))
show("to the host and back", np.asarray(jax.device_put(np.asarray(x)) + 1))
