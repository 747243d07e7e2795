# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a DataLoader with processes of its own and page-locked memory."""
import torch
from torch.utils.data import DataLoader, TensorDataset
from common import show


def main():
    data = TensorDataset(torch.arange(1000, dtype=torch.float32).reshape(100, 10), torch.arange(100))
    total = torch.zeros(10, device="cuda")
    for x, _ in DataLoader(data, batch_size=10, num_workers=2, pin_memory=True):
        total += x.cuda(non_blocking=True).sum(dim=0)
    show("total", total)


if __name__ == "__main__":
    main()
