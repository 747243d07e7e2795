# SPDX-License-Identifier: Apache-2.0
"""PyTorch on two devices, which remotely are those of two servers. One device alone plays both parts."""
import os

import torch
from torch import nn
from common import show

count = torch.cuda.device_count()
if count != int(os.environ.get("EXPECT_DEVICES", count)):
    raise SystemExit(f"there are {count} devices")
first, second = torch.device("cuda", 0), torch.device("cuda", 1 if count > 1 else 0)
torch.manual_seed(20)
x = torch.randn(256, 256)
a, b = x.to(first), x.to(second)
show("on the first", a @ a)
show("on the second", b @ b)
print("equal", torch.equal((a @ a).cpu(), (b @ b).cpu()))
show("copied", (a.to(second) + b).to(first))
pinned = x.pin_memory()
print("pinned", all(torch.equal(pinned.to(device, non_blocking=True).cpu(), x) for device in (first, second)))

# A model in two halves, its gradients crossing from one to the other.
head, tail = nn.Linear(256, 64).to(first), nn.Linear(64, 8).to(second)
optimizer = torch.optim.SGD([*head.parameters(), *tail.parameters()], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = tail(torch.relu(head(a)).to(second)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item().hex())
show("weights", head.weight)
with torch.cuda.device(second):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        c = b * 2
    event = stream.record_event()
torch.cuda.current_stream(first).wait_event(event)
show("after the other's event", c.to(first) + a)
for device in (first, second):
    torch.cuda.synchronize(device)
