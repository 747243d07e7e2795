# SPDX-License-Identifier: Apache-2.0
"""A training that is watched by tests/gpu/faults: again and again the same steps from the same seed, until its input ends.

Prints a line for each step (seconds since the epoch at its end, milliseconds) and after the last of a turn the hash of all losses and weights.
"""

import hashlib
import select
import sys
import time

import torch

STEPS = 40


def turn():
    torch.manual_seed(5)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(6)]
    net = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.GELU())]).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(2048, 1024).cuda(), torch.randn(2048, 1024).cuda()
    digest = hashlib.sha256()
    for _ in range(STEPS):
        begin = time.monotonic()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        digest.update(loss.item().hex().encode())
        print(f"step {time.time():.4f} {(time.monotonic() - begin) * 1e3:.3f}", flush=True)
    for layer in layers:
        digest.update(layer.weight.detach().cpu().numpy().tobytes())
    print(f"turn {digest.hexdigest()[:16]}", flush=True)


torch.use_deterministic_algorithms(True)
turn()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    turn()
