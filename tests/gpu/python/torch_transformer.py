import torch
from torch import nn
from common import show

torch.manual_seed(3)
layer = nn.TransformerEncoderLayer(256, 8, 512, dropout=0.0, batch_first=True).cuda()
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    model = nn.TransformerEncoder(layer, 2).cuda().to(dtype).eval()
    x = torch.randn(4, 64, 256).to(dtype).cuda()
    with torch.no_grad():
        show(f"forward {dtype}", model(x))
model = nn.TransformerEncoder(layer, 2).cuda().train()
scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(4, 64, 256).cuda()
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = model(x).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("autocast", step, loss.item())
