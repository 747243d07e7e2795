# SPDX-License-Identifier: Apache-2.0
"""Saving and loading: a model, an optimiser and the random generator, to the GPU and to the host."""
import io

import torch
from torch import nn
from common import show

torch.manual_seed(14)
model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(32, 64).cuda()


def train(model, optimizer):
    optimizer.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    optimizer.step()
    return loss.item().hex()


print("before", [train(model, optimizer) for _ in range(3)])
base = torch.arange(100.0, device="cuda")
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.cuda.get_rng_state(),
            "views": [base, base[10:20]], "types": [torch.ones(5, dtype=t, device="cuda") for t in (
                torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64)]}, file)
wanted = torch.rand(1000, device="cuda")
after = [train(model, optimizer) for _ in range(2)]
for where in ("cuda", "cpu", None):
    file.seek(0)
    state = torch.load(file, map_location=where)
    print("loaded to", where, {key: value.device.type for key, value in state["model"].items()})
    print("types", [(t.dtype, t.device.type) for t in state["types"]])
state["views"][0][15] = 99
print("views share", state["views"][1][5].item())
again = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)).cuda()
again.load_state_dict(state["model"])
second = torch.optim.Adam(again.parameters(), lr=0.01)
second.load_state_dict(state["optimizer"])
print("goes on the same", [train(again, second) for _ in range(2)] == after)
torch.cuda.set_rng_state(state["rng"].cpu())
print("random numbers again", torch.equal(torch.rand(1000, device="cuda"), wanted))
show("weights", again[0].weight)
