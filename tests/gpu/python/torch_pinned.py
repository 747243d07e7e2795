# SPDX-License-Identifier: Apache-2.0
"""Pinned memory and copies that do not block, both ways and at once; memory registered by hand."""
import torch
from common import show

torch.manual_seed(17)
print("pinned", torch.zeros(10).is_pinned(), torch.zeros(10).pin_memory().is_pinned(),
      torch.empty(10, pin_memory=True).is_pinned())
up, down = torch.cuda.Stream(), torch.cuda.Stream()
for count in (1, 1000, 65536, 1 << 20, 5_000_011):
    source = torch.arange(count, dtype=torch.int32).pin_memory()
    back = torch.zeros(count, dtype=torch.int32).pin_memory()
    with torch.cuda.stream(up):
        device = source.to("cuda", non_blocking=True)
        device = device * 3 + 1
        ready = up.record_event()
    down.wait_event(ready)
    with torch.cuda.stream(down):
        back.copy_(device, non_blocking=True)
        done = down.record_event()
    device.record_stream(down)
    done.synchronize()
    print(count, torch.equal(back, source * 3 + 1))

buffers = [torch.empty(1 << 18, pin_memory=True) for _ in range(2)]
events = [torch.cuda.Event() for _ in buffers]
total = torch.zeros((), dtype=torch.float64, device="cuda")
for i in range(20):  # the host fills one buffer while the other is read
    buffer, event = buffers[i % 2], events[i % 2]
    event.synchronize()
    buffer.fill_(float(i))
    total += buffer.to("cuda", non_blocking=True).sum(dtype=torch.float64)
    event.record()
print("two buffers", total.item())

plain = torch.arange(1 << 20, dtype=torch.float32)
cudart = torch.cuda.cudart()
print("register", int(cudart.cudaHostRegister(plain.data_ptr(), plain.numel() * 4, 0)), plain.is_pinned())
device = plain.to("cuda", non_blocking=True)
plain_back = torch.empty_like(plain)
plain_back.copy_(device.flip(0), non_blocking=True)
torch.cuda.synchronize()
print("unregister", int(cudart.cudaHostUnregister(plain.data_ptr())), plain.is_pinned())
show("registered", plain_back)
strided = torch.arange(1 << 16, dtype=torch.float32).view(256, 256).pin_memory().t()
show("strided", strided.to("cuda", non_blocking=True)[::2, ::3])
