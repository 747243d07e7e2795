# SPDX-License-Identifier: Apache-2.0
"""PyTorch: work that is captured into a CUDA graph and replayed."""
import torch
from common import show

torch.manual_seed(5)
net = torch.nn.Linear(256, 256).cuda()
static = torch.randn(32, 256, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side), torch.no_grad():
    for _ in range(3):
        net(static).relu()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    out = net(static).relu().sum(dim=1)
for seed in range(3):
    static.copy_(torch.full((32, 256), float(seed)))
    graph.replay()
    torch.cuda.synchronize()
    show(f"replay {seed}", out)
