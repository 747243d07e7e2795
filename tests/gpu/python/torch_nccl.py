import os
import torch
import torch.distributed as dist
from common import show

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl", rank=0, world_size=1)
x = torch.arange(1000, dtype=torch.float32, device="cuda")
dist.all_reduce(x)
show("all_reduce", x)
dist.destroy_process_group()
