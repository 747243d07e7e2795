# SPDX-License-Identifier: Apache-2.0
"""torch.compile with nothing compiled before: fused functions, an MLP's training, and CUDA graphs (mode="reduce-overhead")."""
import os
import pathlib
import tempfile

# What an earlier run has compiled, natively perhaps, would spare this one the compiler.
caches = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(caches.name, "inductor")
os.environ["TRITON_CACHE_DIR"] = os.path.join(caches.name, "triton")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from common import show  # noqa: E402

torch.manual_seed(7)


def close(a, b):
    """Sums are added in an order that depends on the compiler's choice of blocks, which it makes by measuring."""
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


@torch.compile
def fused(x, y):
    return torch.nn.functional.gelu(x * 2 + y).sum(dim=-1)


@torch.compile
def whole(i, j):
    return (i * 3 - j).clamp(min=-50), (i ^ j).sum(dim=0)


x, y = torch.randn(64, 1024, device="cuda"), torch.randn(64, 1024, device="cuda")
print("fused", close(fused(x, y), torch.nn.functional.gelu(x * 2 + y).sum(dim=-1)))
i, j = (torch.randint(-1000, 1000, (64, 1024)).cuda() for _ in range(2))
for name, tensor in zip(("of integers", "summed integers"), whole(i, j)):
    show(name, tensor)  # exact in any order

plain, model = (nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 16)).cuda() for _ in range(2))
model.load_state_dict(plain.state_dict())
compiled = torch.compile(model)
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (plain, model)]
x, y = torch.randn(64, 128).cuda(), torch.randint(0, 16, (64,)).cuda()
for step in range(3):
    losses = []
    for net, optimizer in zip((plain, compiled), optimizers):
        optimizer.zero_grad(set_to_none=True)
        losses.append(nn.functional.cross_entropy(net(x), y))
        losses[-1].backward()
    print("training", step, "loss", close(*losses), "gradients",
          all(close(a.grad, b.grad) for a, b in zip(plain.parameters(), model.parameters())))
    for optimizer in optimizers:
        optimizer.step()
print("weights", all(close(a, b) for a, b in zip(plain.parameters(), model.parameters())))

torch.compiler.reset()
graphed = torch.compile(model, mode="reduce-overhead")
with torch.no_grad():
    for step in range(5):  # warm up, record, replay
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.full((64, 128), 0.1 * step, device="cuda")
        print("graph", step, close(graphed(x).clone(), model(x)))
print("graphs left out", counters["inductor"]["cudagraph_skips"])
print("compiled here", any(pathlib.Path(caches.name).rglob("*.cubin")))
