# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a small GPT-2 from transformers writes 32 tokens."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(8)
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=5000)).cuda().half().eval()
prompt = torch.arange(1, 17).unsqueeze(0).cuda()
with torch.no_grad():
    print(model.generate(prompt, max_new_tokens=32, do_sample=False, pad_token_id=0)[0].tolist())
model = model.float().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(2):
    loss = model(prompt, labels=prompt).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
