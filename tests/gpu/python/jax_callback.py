# SPDX-License-Identifier: Apache-2.0
"""JAX: programs on the GPU that call back into Python."""
# env: XLA_PYTHON_CLIENT_PREALLOCATE=false
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from common import show

x = jnp.arange(1000, dtype=jnp.float32)
like = jax.ShapeDtypeStruct(x.shape, x.dtype)


@jax.jit
def pure(x):
    return jax.pure_callback(lambda a: np.asarray(a)[::-1] * np.float32(2), like, x + 1) - 1


show("pure", np.asarray(pure(x)))
seen = []


def note(i, total):
    seen.append((int(i), float(total)))
    return np.int32(len(seen))


@jax.jit
def loop(x):
    def body(i, state):
        total, calls = state
        total = total + x.sum() * i
        return total, io_callback(note, jax.ShapeDtypeStruct((), jnp.int32), i, total, ordered=True)
    return jax.lax.fori_loop(0, 5, body, (jnp.float32(0), jnp.int32(0)))


total, calls = loop(x)
print("ordered", float(total), int(calls), seen)


@jax.jit
def careful(x):
    jax.debug.callback(lambda a: seen.append(float(a)), x.max())
    return x * 2


show("debug", np.asarray(careful(x)))
jax.effects_barrier()
print("last seen", seen[-1])


@jax.jit
def fails(x):
    def complain(a):
        raise ValueError("a peculiar word")
    return jax.pure_callback(complain, like, x)


try:
    fails(x).block_until_ready()
    print("no error?")
except Exception as error:
    print("an error comes through", "a peculiar word" in str(error))
show("and it goes on", np.asarray(pure(x)))
