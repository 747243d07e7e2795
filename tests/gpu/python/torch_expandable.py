# SPDX-License-Identifier: Apache-2.0
"""The allocator with segments that grow: physical memory mapped into reserved addresses."""
# env: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
# alone: the last allocation maps all that is free before it fails
import torch
from common import show

torch.manual_seed(11)
parts = []
for i in range(12):
    parts.append(torch.full(((i + 1) << 20,), float(i), device="cuda"))
for segment in torch.cuda.memory_snapshot():
    print("segment", segment["is_expandable"], segment["total_size"], segment["allocated_size"])
del parts[::2]
torch.cuda.empty_cache()  # unmaps in the middle of segments
print("reserved", torch.cuda.memory_reserved(), "allocated", torch.cuda.memory_allocated())
parts += [torch.full((7 << 20,), float(-i), device="cuda") for i in range(3)]
print("sums", [part.sum(dtype=torch.float64).item() for part in parts])
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    there = torch.ones(9 << 20, device="cuda") * 2
torch.cuda.current_stream().wait_stream(side)
there.record_stream(torch.cuda.current_stream())
show("from the other stream", (there + parts[-1][0])[:1000])
graph = torch.cuda.CUDAGraph()
static = torch.arange(1 << 20, dtype=torch.int64, device="cuda")  # scans of floats are rounded as blocks happen to meet
with torch.cuda.graph(graph):
    out = (static * 3).cumsum(0)[-1]
graph.replay()
print("graph", out.item())
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("out of memory, as it should be")
show("after", parts[-1][:100] + 1)
