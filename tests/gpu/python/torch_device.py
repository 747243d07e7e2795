# SPDX-License-Identifier: Apache-2.0
"""What PyTorch says of the GPU and of its libraries."""
import torch

properties = torch.cuda.get_device_properties(0)
for name in ("name", "major", "minor", "total_memory", "multi_processor_count", "uuid", "warp_size", "L2_cache_size",
             "max_threads_per_multi_processor", "max_threads_per_block", "regs_per_multiprocessor", "is_integrated",
             "is_multi_gpu_board", "shared_memory_per_block", "shared_memory_per_block_optin",
             "shared_memory_per_multiprocessor", "pci_bus_id", "pci_device_id", "pci_domain_id", "clock_rate",
             "memory_clock_rate", "memory_bus_width"):
    print(name, getattr(properties, name, "is not told"))
print("device", torch.cuda.get_device_name(), torch.cuda.get_device_capability(), torch.cuda.current_device())
print("count", torch.cuda.device_count(), torch.cuda.is_available(), torch.cuda.is_initialized())
print("memory", torch.cuda.mem_get_info()[1])
print("bfloat16", torch.cuda.is_bf16_supported(), "architectures", torch.cuda.get_arch_list())
print("CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version(), "NCCL", torch.cuda.nccl.version())
print("blas", torch.backends.cuda.preferred_blas_library(), "linalg", torch.backends.cuda.preferred_linalg_library())
try:
    torch.cuda.get_device_properties(torch.cuda.device_count())
    print("one device too many")
except (AssertionError, RuntimeError) as error:
    print(type(error).__name__, str(error).splitlines()[0])
