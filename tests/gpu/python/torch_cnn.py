# SPDX-License-Identifier: Apache-2.0
"""A convolutional network trained in fp32, in fp16 (autocast and a gradient scaler) and in bf16 (autocast)."""
# env: CUBLAS_WORKSPACE_CONFIG=:4096:8
import torch
from torch import nn
from common import show

# Warned only: PyTorch does not promise as much of all pooling. Here no two windows overlap, so nothing depends on an order.
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False


def train(name, half):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(),
                          nn.Linear(64 * 16, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=half == torch.float16)
    x, y = torch.randn(64, 3, 32, 32).cuda(), torch.randint(0, 10, (64,)).cuda()
    for step in range(5):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=half or torch.float16, enabled=half is not None):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(name, step, out.dtype, loss.item().hex())
    show(f"{name} first weights", model[0].weight)
    show(f"{name} last weights", model[-1].weight)
    model.eval()
    with torch.no_grad():
        show(f"{name} afterwards", model(x))


train("fp32", None)
train("fp16", torch.float16)
train("bf16", torch.bfloat16)
