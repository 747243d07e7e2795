# SPDX-License-Identifier: Apache-2.0
"""cuSOLVER, cuFFT, cuSPARSE and cuDNN's recurrent networks, by PyTorch."""
import torch
from common import show

torch.manual_seed(18)
a = torch.randn(96, 96, dtype=torch.float64).cuda()
spd = a @ a.T + 96 * torch.eye(96, dtype=torch.float64, device="cuda")
show("cholesky", torch.linalg.cholesky(spd))
show("solve", torch.linalg.solve(a, a[:, :3]))
print("qr", all(torch.allclose(x, y) for x, y in (((lambda q, r: q @ r)(*torch.linalg.qr(a)), a),)))
u, s, v = torch.linalg.svd(a)
print("svd", torch.allclose(u @ torch.diag(s) @ v, a), [round(x, 6) for x in s[:3].tolist()])
print("eigh", [round(x, 6) for x in torch.linalg.eigh(spd).eigenvalues[:3].tolist()])
show("batched", torch.linalg.inv(torch.eye(8, device="cuda").expand(10, 8, 8) * torch.arange(1, 11, device="cuda").view(10, 1, 1)))
x = torch.randn(8, 1000).cuda()
show("rfft", torch.fft.rfft(x))
show("fft2", torch.fft.fft2(x.view(8, 40, 25)))
show("stft", torch.stft(x, 64, window=torch.hann_window(64, device="cuda"), return_complex=True))
sparse = torch.where(a > 1, a, torch.zeros_like(a)).to_sparse_csr()
show("sparse", sparse @ a[:, :8])
torch.backends.cudnn.deterministic = True
lstm = torch.nn.LSTM(32, 64, num_layers=2, batch_first=True).cuda()
out, _ = lstm(torch.randn(4, 20, 32).cuda())
show("lstm", out)
out.sum().backward()
show("lstm gradient", lstm.weight_ih_l0.grad)
show("sort", torch.randn(100000).cuda().sort().values)
show("unique", torch.randint(0, 500, (100000,)).cuda().unique())
show("generator", torch.rand(10000, device="cuda", generator=torch.Generator("cuda").manual_seed(5)))
