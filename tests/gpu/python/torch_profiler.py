# SPDX-License-Identifier: Apache-2.0
"""The profiler must not disturb, whether CUPTI can look at the GPU or not. No times are printed."""
import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from common import show

torch.manual_seed(16)
a, b = torch.randn(256, 256).cuda(), torch.randn(256, 256).cuda()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, profile_memory=True) as got:
    with record_function("mine"):
        c = (a @ b).relu()
    torch.cuda.synchronize()
names = {event.key for event in got.key_averages()}
print("profiled", [name in names for name in ("mine", "aten::mm", "aten::relu")])
print("table", "aten::mm" in got.key_averages().table(row_limit=100))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "trace.json")
    got.export_chrome_trace(path)
    with open(path) as file:
        print("trace", "traceEvents" in json.load(file))
steps = []
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
             on_trace_ready=lambda p: steps.append(p.step_num)) as got:
    for _ in range(5):
        c = c @ b / 16
        got.step()
print("steps", steps)
with torch.autograd.profiler.emit_nvtx():
    c = c + 1
torch.cuda.nvtx.range_push("range")
torch.cuda.nvtx.range_pop()
show("result", c)
