# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch and prints JSON lines: first tensor, CNN training step, fp16 transformer forward, and GPT-2 small with
random weights (64 tokens, training step). tests/gpu/bench runs it natively and through Towline.

    python3 bench/torch_steps.py [--turns] [PART ...]     first_tensor cnn transformer gpt2

With --turns it makes its models, says "ready", and measures once for every line that it reads: two processes can so be
measured in turns without starting anew. A turn ends with a line "end".
"""

import json
import statistics
import sys
import time

TURNS = "--turns" in sys.argv[1:]
PARTS = [a for a in sys.argv[1:] if a != "--turns"] or ["first_tensor", "cnn", "transformer", "gpt2"]


def say(name, value, unit="ms", **more):
    print(json.dumps({"name": name, "unit": unit, "value": value, **more}), flush=True)


def timed(step, warm, count):
    """Milliseconds of a step that ends with its own synchronisation: the median."""
    for _ in range(warm):
        step()
    samples = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        samples.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(samples)


import torch  # noqa: E402
from torch import nn  # noqa: E402

# The first use of the GPU is always timed: nothing may come before it.
begin = time.perf_counter()
torch.ones(1, device="cuda").item()
if "first_tensor" in PARTS:
    say("torch_first_tensor", (time.perf_counter() - begin) * 1e3)
torch.manual_seed(1)


def cnn():
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                          nn.Linear(64 * 16, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(64, 3, 32, 32).cuda(), torch.randint(0, 10, (64,)).cuda()

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
    return [("torch_cnn_step", step, 10, 60)]


def transformer():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 6).cuda().half().eval()
    x = torch.randn(8, 128, 512).half().cuda()

    def forward():
        with torch.no_grad():
            model(x)
        torch.cuda.synchronize()
    train = nn.TransformerEncoder(layer, 2).cuda().float().train()
    optimizer = torch.optim.AdamW(train.parameters(), lr=1e-4)
    z = torch.randn(8, 128, 512).cuda()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = train(z).pow(2).mean()
        loss.backward()
        optimizer.step()
        loss.item()
    return [("torch_transformer_forward", forward, 10, 60), ("torch_transformer_training_step", step, 5, 30)]


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda().half().eval()
    prompt = torch.arange(1, 17).unsqueeze(0).cuda()

    def tokens():
        with torch.no_grad():
            model.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0)
        torch.cuda.synchronize()
    train = GPT2LMHeadModel(GPT2Config()).cuda().train()
    optimizer = torch.optim.AdamW(train.parameters(), lr=1e-5)
    batch = torch.randint(0, 50000, (4, 256)).cuda()

    def step():
        loss = train(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    return [("torch_gpt2_64_tokens", tokens, 1, 3), ("torch_gpt2_training_step", step, 3, 12)]


def main():
    steps = []
    for name, part in (("cnn", cnn), ("transformer", transformer), ("gpt2", gpt2)):
        if name in PARTS:
            try:
                steps += part()
            except ImportError as error:
                print(json.dumps({"skipped": name, "why": str(error)}), flush=True)

    def measure():
        for name, step, warm, count in steps:
            say(name, timed(step, warm, count))

    if not TURNS:
        measure()
        return
    for _, step, warm, _ in steps:  # what a first use loads and chooses is no part of a turn
        timed(step, 0, warm)
    print("ready", flush=True)
    for _ in sys.stdin:
        measure()
        print("end", flush=True)


if __name__ == "__main__":
    main()
