# SPDX-License-Identifier: Apache-2.0
"""The caching allocator's own accounts: statistics, a snapshot, its history."""
import torch

NAMES = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak",
         "active.all.current", "allocation.all.allocated", "segment.all.current", "inactive_split_bytes.all.current",
         "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")


def stats(what):
    got = torch.cuda.memory_stats()
    print(what, {name: got.get(name) for name in NAMES})


torch.cuda.init()
torch.cuda.memory._record_memory_history(max_entries=1000, context=None)
stats("before")
tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (100, 5000, 1 << 20, 3 << 20, 50 << 20, 200 << 20)]
stats("six tensors")
del tensors[1::2]
stats("three are gone")
tensors.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))
torch.cuda.empty_cache()
stats("empty cache")
for segment in sorted(torch.cuda.memory_snapshot(), key=lambda s: s["total_size"]):  # not by address
    print("segment", segment["segment_type"], segment["total_size"], segment["allocated_size"],
          [(block["state"], block["size"]) for block in segment["blocks"]])
snapshot = torch.cuda.memory._snapshot()
print("history", [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][0]])
torch.cuda.memory._record_memory_history(enabled=None)
del tensors
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
stats("at the end")
print("summary", len(torch.cuda.memory_summary().splitlines()))
