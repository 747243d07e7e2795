# SPDX-License-Identifier: Apache-2.0
"""PyTorch: collective operations of NCCL with one process."""
import tempfile

import torch
import torch.distributed as dist
from common import show

# A file, not a port: several of these may run at once.
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    dist.all_reduce(x)
    show("all_reduce", x)
    dist.destroy_process_group()
