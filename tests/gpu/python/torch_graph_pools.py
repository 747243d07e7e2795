# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: training through graphed callables, graphs that share a pool of memory, a pool of one's own."""
import torch
from torch import nn
from common import show

torch.manual_seed(15)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)).cuda()
head = nn.Linear(128, 8).cuda()
sample = torch.randn(32, 128, device="cuda")
hidden = torch.randn(32, 128, device="cuda", requires_grad=True)
model, head = torch.cuda.make_graphed_callables((model, head), ((sample,), (hidden,)))
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    x = torch.full((32, 128), 0.1 * step, device="cuda")
    optimizer.zero_grad(set_to_none=True)
    loss = head(model(x)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print("graphed step", step, loss.item().hex())
show("weights", next(model.parameters()))

pool = torch.cuda.graph_pool_handle()
one, two = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
static = torch.arange(1 << 16, dtype=torch.float32, device="cuda")
with torch.cuda.graph(one, pool=pool):
    a = (static * 2).cumsum(0)
with torch.cuda.graph(two, pool=one.pool()):
    b = a.flip(0) - static
for i in range(3):
    static.fill_(i + 1)
    one.replay()
    two.replay()
    print("shared pool", i, a[-1].item(), b[0].item(), b.sum(dtype=torch.float64).item())
print("same pool", one.pool() == two.pool() == pool)
one.reset()
two.reset()

mine = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(mine):
    inside = torch.ones(5 << 20, device="cuda")
print("own pool", [segment["total_size"] for segment in mine.snapshot()], inside.sum().item())
