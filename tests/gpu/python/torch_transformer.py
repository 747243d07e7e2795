# SPDX-License-Identifier: Apache-2.0
"""A transformer: inference in three types; training in fp32, in fp16 (autocast and a gradient scaler) and all in bf16."""
# env: CUBLAS_WORKSPACE_CONFIG=:4096:8
import torch
from torch import nn
from common import show

torch.use_deterministic_algorithms(True)  # attention's gradients would be added in any order
torch.manual_seed(3)
layer = nn.TransformerEncoderLayer(256, 8, 512, dropout=0.0, batch_first=True).cuda()
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    model = nn.TransformerEncoder(layer, 2).cuda().to(dtype).eval()
    x = torch.randn(4, 64, 256).to(dtype).cuda()
    with torch.no_grad():
        show(f"forward {dtype}", model(x))


def train(name, weights, half):
    torch.manual_seed(4)
    model = nn.TransformerEncoder(layer, 2).to("cuda", weights).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=half == torch.float16)
    x, y = (torch.randn(4, 64, 256).to("cuda", weights) for _ in range(2))
    for step in range(4):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=half or torch.float16, enabled=half is not None):
            loss = nn.functional.mse_loss(model(x).float(), y.float())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(name, step, loss.item().hex(), "norm", norm.item())
    show(f"{name} weights", model.layers[0].linear1.weight)


train("fp32", torch.float32, None)
train("fp16", torch.float32, torch.float16)
train("bf16", torch.bfloat16, None)
