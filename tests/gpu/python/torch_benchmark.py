# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own timers; what they measure is not printed."""
import torch
from torch.utils import benchmark

x = torch.ones(512, 512, device="cuda")
timer = benchmark.Timer("x @ x", globals={"x": x}, label="matmul", sub_label="512", description="fp32")
fixed = timer.timeit(20)
print("timeit", fixed.number_per_run, len(fixed.raw_times), 0 < fixed.median < 1)
adaptive = timer.blocked_autorange(min_run_time=0.1)
print("blocked_autorange", adaptive.number_per_run >= 1, 0 < adaptive.median < 1)
small = benchmark.Timer("y + 1", setup="y = torch.zeros(10, device='cuda')", num_threads=1).timeit(50)
print("with a setup", small.number_per_run, 0 < small.median < 1)
table = str(benchmark.Compare([fixed]))
print("table", "matmul" in table, "fp32" in table)
print("result", (x @ x)[0, 0].item())
