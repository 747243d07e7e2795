import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from common import show

torch.manual_seed(4)
q, k, v = (torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    try:
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        show(f"{backend.name} forward", out)
        out.float().sum().backward()
        print(f"{backend.name} gradient {q.grad.float().norm().item():.3f}")
        q.grad = k.grad = v.grad = None
    except RuntimeError as error:
        print(backend.name, "refused:", str(error).splitlines()[0][:80])
