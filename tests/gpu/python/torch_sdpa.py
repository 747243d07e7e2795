# SPDX-License-Identifier: Apache-2.0
"""Attention by each of PyTorch's kernels, forward and backward."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from common import show

torch.manual_seed(4)
BACKENDS = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
for dtype, causal in ((torch.float16, False), (torch.bfloat16, True), (torch.float32, True)):
    q, k, v = (torch.randn(2, 8, 128, 64).to(dtype).cuda().requires_grad_() for _ in range(3))
    mix = torch.randn(2, 8, 128, 64).to(dtype).cuda()
    for backend in BACKENDS:
        what = f"{backend.name} {dtype} causal={causal}"
        try:
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        except RuntimeError as error:
            print(what, "refused:", str(error).splitlines()[0][:80])
            continue
        show(f"{what} forward", out)
        gradients = torch.autograd.grad((out * mix).float().sum(), (q, k, v))
        # Some backward kernels add in any order.
        for name, gradient in zip("qkv", gradients):
            print(f"{what} gradient of {name}: {gradient.float().norm().item():.2f}")
