# SPDX-License-Identifier: Apache-2.0
"""The driver's stream-ordered pools as PyTorch's allocator."""
# env: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
import torch
from common import show

torch.manual_seed(12)
print("backend", torch.cuda.get_allocator_backend())
streams = [torch.cuda.Stream() for _ in range(3)]
results = []
source = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
for round in range(5):
    for i, stream in enumerate(streams):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            scratch = source * (i + 1) + round
            results.append(scratch.sum(dtype=torch.float64))
            source.record_stream(stream)
            del scratch
for stream in streams:
    torch.cuda.current_stream().wait_stream(stream)
print("sums", [result.item() for result in results])
net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(64, 512).cuda()
for step in range(3):
    optimizer.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
show("weights", net.weight)
torch.cuda.synchronize()
print("allocated", torch.cuda.memory_allocated() > 0, torch.cuda.memory_reserved() >= torch.cuda.memory_allocated())
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("out of memory, as it should be")
torch.cuda.empty_cache()
show("after", source[:100] + 1)
