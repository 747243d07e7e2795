# SPDX-License-Identifier: Apache-2.0
"""JAX: convolutions and their gradients, against NumPy's idea of them."""
# env: XLA_PYTHON_CLIENT_PREALLOCATE=false
import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(1)
image = rng.standard_normal((2, 3, 12, 12)).astype(np.float32)
weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)


def by_hand(image, weights):
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, weights)


@jax.jit
def convolve(image, weights):
    return jax.lax.conv(image, weights, (1, 1), "SAME")


def close(name, got, want):
    got = np.asarray(got, dtype=np.float32)
    print(name, got.shape, "close", bool(np.allclose(got, want, rtol=2e-2, atol=5e-2)))


want = by_hand(image, weights)
close("forward", convolve(image, weights), want)
for_image, for_weights = jax.jit(jax.grad(lambda i, w: (convolve(i, w) * want).sum(), (0, 1)))(image, weights)
close("gradient of the image", for_image, by_hand(want, weights.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]))
padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (12, 12), axis=(2, 3))
close("gradient of the weights", np.asarray(for_weights) / 100, np.einsum("ncrshw,nkhw->kcrs", windows, want) / 100)
half = jax.lax.conv_general_dilated(jnp.asarray(image, jnp.bfloat16), jnp.asarray(weights, jnp.bfloat16), (2, 2), "VALID")
print("strided", half.dtype, half.shape, bool(jnp.isfinite(half.astype(jnp.float32)).all()))
last = jax.lax.conv_general_dilated(image.transpose(0, 2, 3, 1), weights.transpose(2, 3, 1, 0), (1, 1), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))
close("channels last", np.asarray(last).transpose(0, 3, 1, 2), want)
print("batched", jax.vmap(lambda w: convolve(image, w).sum())(np.stack([weights, 2 * weights])).shape)
