# SPDX-License-Identifier: Apache-2.0
"""PyTorch: products of matrices in several types."""
import torch
from common import show

torch.manual_seed(1)
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    a, b = (torch.randn(512, 512).to(dtype).cuda() for _ in range(2))
    show(f"matmul {dtype}", a @ b)
print("devices", torch.cuda.device_count(), torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))
