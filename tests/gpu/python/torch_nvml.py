# SPDX-License-Identifier: Apache-2.0
"""What PyTorch asks NVML for. The answers change all the time: only whether there is one is told."""
import sys

import torch

try:
    import pynvml  # noqa: F401: what PyTorch uses
except ImportError:
    print("pynvml is not installed")
    sys.exit(77)

CALLS = {
    "utilization": lambda percent: 0 <= percent <= 100,
    "memory_usage": lambda percent: 0 <= percent <= 100,
    "temperature": lambda celsius: 0 < celsius < 120,
    "power_draw": lambda milliwatts: milliwatts > 1000,
    "clock_rate": lambda megahertz: megahertz > 0,
    "device_memory_used": lambda size: size > 0,
    "list_gpu_processes": lambda text: text.startswith("GPU:0"),
}
x = torch.ones(1000, device="cuda")
for name, sensible in CALLS.items():
    try:
        answer = getattr(torch.cuda, name)()
        print(name, "answers", "sensibly" if sensible(answer) else "oddly")
    except Exception as error:
        print(name, type(error).__name__)
print("result", x.sum().item())
