# SPDX-License-Identifier: Apache-2.0
"""Out of memory with the card nearly full, and recovery. Plain allocations only."""
# alone: it takes most of the card
import torch
from common import show

GIB = 1 << 30
keep = torch.arange(1 << 20, dtype=torch.float32, device="cuda")


def check(blocks):
    """What is in them, and whether other work can be done."""
    print("each has its own", all(block[::GIB].tolist() == [i + 1] * 4 for i, block in enumerate(blocks)))
    print("computing goes on", (keep[:1000] * 2).sum().item())


def full():
    """Blocks of 4 GiB until there are no more."""
    blocks = []
    try:
        while True:
            block = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
            block.fill_(len(blocks) + 1)
            blocks.append(block)
    except torch.OutOfMemoryError as error:
        print("full:", str(error).split(". GPU")[0])
    return blocks


check([torch.full((4 * GIB,), 1, dtype=torch.uint8, device="cuda")])  # loads the kernels, too
torch.cuda.empty_cache()
free, total = torch.cuda.mem_get_info()
for round in range(2):
    spare = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    blocks = full()
    del spare
    torch.cuda.empty_cache()
    taken = len(blocks) * 4 * GIB
    print("nearly all was had", taken > free - 8 * GIB, torch.cuda.mem_get_info()[0] < 8 * GIB)
    check(blocks)
    del blocks
    torch.cuda.empty_cache()
    print("given back", torch.cuda.mem_get_info()[0] > free - 4 * GIB)
big = torch.empty(int(free * 0.8), dtype=torch.uint8, device="cuda")
big.fill_(7)
print("one large block", big[-1].item(), set(big[::GIB].tolist()))
try:
    torch.empty(int(total * 0.5), dtype=torch.uint8, device="cuda")
    print("that much memory?")
except torch.OutOfMemoryError:
    print("no more", torch.cuda.memory_stats()["num_ooms"])
del big
torch.cuda.empty_cache()
torch.cuda.set_per_process_memory_fraction(0.05)
try:
    torch.empty(int(total * 0.1), dtype=torch.uint8, device="cuda")
    print("more than allowed?")
except torch.OutOfMemoryError:
    print("the fraction is kept")
show("still there", keep)
