# SPDX-License-Identifier: Apache-2.0
"""NVML by pynvml, where it is installed: what monitoring programs print of a GPU that does not change."""
import sys

try:
    import pynvml as n
except ImportError:
    print("pynvml is not installed")
    sys.exit(77)

n.nvmlInit()
print("driver", n.nvmlSystemGetDriverVersion(), "CUDA", n.nvmlSystemGetCudaDriverVersion())
for i in range(n.nvmlDeviceGetCount()):
    device = n.nvmlDeviceGetHandleByIndex(i)
    print(i, n.nvmlDeviceGetName(device), n.nvmlDeviceGetUUID(device), n.nvmlDeviceGetCudaComputeCapability(device))
    print("PCI", n.nvmlDeviceGetPciInfo(device).busId, "memory", n.nvmlDeviceGetMemoryInfo(device).total)
    memory = n.nvmlDeviceGetMemoryInfo(device)
    print("sums up", 0 <= memory.used <= memory.total, 0 <= memory.free <= memory.total)
    for name, *arguments in (("nvmlDeviceGetUtilizationRates",), ("nvmlDeviceGetPowerUsage",),
                             ("nvmlDeviceGetComputeRunningProcesses",), ("nvmlDeviceGetTemperature", 0)):
        try:
            getattr(n, name)(device, *arguments)
            print(name, "answers")
        except n.NVMLError as error:
            print(name, error)
try:
    n.nvmlDeviceGetHandleByIndex(99)
except n.NVMLError as error:
    print("device 99:", error)
n.nvmlShutdown()
