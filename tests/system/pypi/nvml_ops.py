# SPDX-License-Identifier: Apache-2.0
"""What pynvml's users ask, with the records as pynvml declares them. Prints a line for each and OK at the end."""

import ctypes
import sys

import pynvml as n

sys.stdout.reconfigure(line_buffering=True)


def memory(device):
    old, new = n.nvmlDeviceGetMemoryInfo(device), n.nvmlDeviceGetMemoryInfo(device, n.nvmlMemory_v2)
    assert (old.total, old.free) == (new.total, new.free), (old, new)
    assert 0 < old.free == old.total - old.used, old


def pci(device):
    info = n.nvmlDeviceGetPciInfo(device)
    assert info.busId == "%08X:%02X:%02X.0" % (info.domain, info.bus, info.device), info.busId


def identity(device):
    uuid = n.nvmlDeviceGetUUID(device)
    assert uuid.startswith("GPU-") and n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)) == 0, uuid
    assert n.nvmlDeviceGetName(device) == "Towline Software GPU"
    assert tuple(n.nvmlDeviceGetCudaComputeCapability(device)) == (12, 1)


def fabric(device):
    info = n.c_nvmlGpuFabricInfo_v2_t()
    info.version = n.nvmlGpuFabricInfo_v2
    n.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
    assert info.state == 0, info.state


def mistakes(device):
    del device
    try:
        n.nvmlDeviceGetHandleByIndex(99)
    except n.NVMLError_InvalidArgument:
        return
    raise AssertionError("there is a device 99")


n.nvmlInit()
assert n.nvmlDeviceGetCount() == 1
for operation in (memory, pci, identity, fabric, mistakes):
    operation(n.nvmlDeviceGetHandleByIndex(0))
    print(operation.__name__)
n.nvmlShutdown()
print("OK")
