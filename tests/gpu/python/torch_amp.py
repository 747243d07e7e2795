# SPDX-License-Identifier: Apache-2.0
"""Training in mixed precision: autocast, a gradient scaler, and a step that it must leave out."""
import torch
from torch import nn
from common import show

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 16)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14, growth_interval=2)
x, y = torch.randn(64, 128).cuda(), torch.randint(0, 16, (64,)).cuda()
for step in range(6):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
    if step == 3:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, out.dtype, loss.item().hex(), "norm", norm.item(), "scale", scaler.get_scale())
    show("weights", model[0].weight)
with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
    show("bfloat16", model(x))
