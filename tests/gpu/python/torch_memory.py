# SPDX-License-Identifier: Apache-2.0
"""PyTorch: page-locked memory and several streams."""
import torch
from common import show

torch.manual_seed(6)
pinned = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
device = pinned.to("cuda", non_blocking=True)
streams = [torch.cuda.Stream() for _ in range(4)]
parts = []
for i, stream in enumerate(streams):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        parts.append((device * (i + 1)).sum(dtype=torch.float64))
event = torch.cuda.Event(enable_timing=True)
for stream in streams:
    torch.cuda.current_stream().wait_stream(stream)
event.record()
event.synchronize()
print([p.item() for p in parts])
back = torch.empty_like(pinned).pin_memory()
back.copy_(device * 2, non_blocking=True)
torch.cuda.synchronize()
show("back", back)
before = torch.cuda.memory_allocated()
try:
    torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
    print("that much memory?")
except torch.OutOfMemoryError:
    print("out of memory, as it should be")
torch.cuda.empty_cache()
print("allocated", torch.cuda.memory_allocated() - before, torch.cuda.mem_get_info()[1])
show("after", (device[:1000] + 1))
print("ok", torch.utils.collect_env.__name__)
