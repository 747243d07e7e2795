# SPDX-License-Identifier: Apache-2.0
"""Triton: softmax, compiled at run time."""
import torch
import triton
import triton.language as tl
from common import show


@triton.jit
def softmax(out, inp, columns, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(inp + row * columns + cols, mask=cols < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + cols, e / tl.sum(e, axis=0), mask=cols < columns)


torch.manual_seed(9)
x = torch.randn(64, 781, device="cuda")
y = torch.empty_like(x)
softmax[(64,)](y, x, 781, BLOCK=1024)
print("close", torch.allclose(y, torch.softmax(x, 1), atol=1e-6))
show("softmax", y)
