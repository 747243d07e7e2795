# SPDX-License-Identifier: Apache-2.0
"""What JAX's users write: each operation against NumPy. Prints a line for each and OK at the end."""

import functools
import sys
import threading

from jax._src import hardware_utils

hardware_utils.has_visible_nvidia_gpu = lambda: True  # it looks for NVIDIA's device files

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

sys.stdout.reconfigure(line_buffering=True)
rng = np.random.default_rng(1)
gpu = jax.devices("cuda")[0]


def element_wise():
    a = rng.random(10001, dtype=np.float32)
    got = jax.jit(lambda a: jnp.tanh(a) * 2 + a)(jax.device_put(a, gpu))
    np.testing.assert_allclose(np.asarray(got), np.tanh(a) * 2 + a, rtol=1e-5)


def reductions():
    a = rng.random((64, 300), dtype=np.float32)
    np.testing.assert_allclose(np.asarray(jnp.sum(jax.device_put(a, gpu), axis=1)), a.sum(axis=1), rtol=1e-5)
    assert int(jnp.argmax(a)) == int(a.argmax())


def gradient():
    a = rng.random(500, dtype=np.float32)
    got = jax.jit(jax.grad(lambda a: jnp.sum(jnp.sin(a) ** 2)))(a)
    np.testing.assert_allclose(np.asarray(got), np.sin(2 * a), rtol=1e-4)


def loops():
    carry, sums = jax.lax.scan(lambda c, x: (c + x, c * 2), jnp.float32(0), jnp.arange(20, dtype=jnp.float32))
    assert float(carry) == 190 and float(sums[-1]) == 2 * 171
    assert int(jax.lax.while_loop(lambda n: n < 1000, lambda n: n * 3 + 1, jnp.int32(1))) == 1093


def sorting():
    a = rng.integers(0, 1 << 30, 3000).astype(np.int32)
    assert (np.asarray(jnp.sort(jax.device_put(a, gpu))) == np.sort(a)).all()


def donated():
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state):
        return state + 1

    state = jax.device_put(np.zeros(5000, np.float32), gpu)
    for _ in range(10):
        state = step(state)
    assert (np.asarray(state) == 10).all()


def callback():
    shape = jax.ShapeDtypeStruct((40,), np.float32)
    a = rng.random(40, dtype=np.float32)
    got = jax.jit(lambda a: jax.pure_callback(lambda x: np.asarray(x) * 3, shape, a + 1))(a)
    np.testing.assert_allclose(np.asarray(got), (a + 1) * 3, rtol=1e-6)


def to_and_fro():
    """Copies of all sizes by several threads, staged in page-locked memory that host functions give back."""
    add = jax.jit(lambda a: a + 1)
    wrong = []

    def work(seed):
        mine = np.random.default_rng(seed)
        for i in range(40):
            a = mine.integers(0, 1 << 30, 1 << (i * 7 + seed) % 20).astype(np.int32)
            on_gpu = jax.device_put(a, gpu)
            if not (np.asarray(add(on_gpu)) == a + 1).all() or not (np.asarray(on_gpu) == a).all():
                wrong.append(a.size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


for operation in (element_wise, reductions, gradient, loops, sorting, donated, callback, to_and_fro):
    operation()
    print(operation.__name__)
print("OK")
