# SPDX-License-Identifier: Apache-2.0
"""Several streams and threads, and events between them."""
import threading

import torch
from common import show

torch.manual_seed(13)
first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
print("priorities", first.priority, second.priority, torch.cuda.Stream.priority_range())
data = torch.zeros(1 << 20, device="cuda")
data += 0  # its kernels are loaded before it matters
data *= 1
torch.cuda._sleep(1)
torch.cuda.synchronize()
begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
with torch.cuda.stream(first):
    begin.record()
    torch.cuda._sleep(600_000_000)  # clock cycles: about a third of a second
    data += 1
    middle.record()
print("while it sleeps", middle.query(), first.query())
second.wait_event(middle)
with torch.cuda.stream(second):
    data *= 5
    end.record(second)
end.synchronize()
print("afterwards", middle.query(), first.query(), end.query())
print("times", begin.elapsed_time(middle) > 20, middle.elapsed_time(end) >= 0, begin.elapsed_time(end) < 60000)
print("data", data[0].item(), data.sum().item())

results = {}


def work(number):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.full((1000, 1000), float(number), device="cuda")
        for _ in range(50):
            x = x * 0.5 + number
        results[number] = x.sum(dtype=torch.float64)
    stream.synchronize()


threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", [results[i].item() for i in range(8)])
outside = torch.cuda.ExternalStream(first.cuda_stream)
with torch.cuda.stream(outside):
    show("external", torch.arange(1000, device="cuda", dtype=torch.float32).cumsum(0))
print("default", torch.cuda.default_stream().query(), torch.cuda.current_stream() == torch.cuda.default_stream())
