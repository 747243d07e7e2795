# SPDX-License-Identifier: Apache-2.0
"""Triton: a matrix product, fused attention, atomics, a loop with a while, autotuning left out."""
import torch
import triton
import triton.language as tl
from common import show


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :],
                       mask=(rows[:, None] < M) & ((k + inner)[None, :] < K), other=0.0)
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :],
                        mask=((k + inner)[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16),
             mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def attention(q, k, v, out, scale, LENGTH, DIM: tl.constexpr, BLOCK: tl.constexpr, CAUSAL: tl.constexpr):
    """One block of queries against all keys, with the running maximum and sum of the softmax."""
    base = tl.program_id(1) * LENGTH * DIM
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)
    query = tl.load(q + base + rows[:, None] * DIM + dims[None, :], mask=rows[:, None] < LENGTH, other=0.0)
    high = tl.full((BLOCK,), -1e30, dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK, DIM), dtype=tl.float32)
    for start in range(0, LENGTH, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        key = tl.load(k + base + keys[None, :] * DIM + dims[:, None], mask=keys[None, :] < LENGTH, other=0.0)
        score = tl.dot(query, key) * scale
        allowed = keys[None, :] < LENGTH
        if CAUSAL:
            allowed = allowed & (keys[None, :] <= rows[:, None])
        score = tl.where(allowed, score, -1e30)
        higher = tl.maximum(high, tl.max(score, axis=1))
        weight = tl.where(allowed, tl.exp(score - higher[:, None]), 0.0)
        shrink = tl.exp(high - higher)
        total = total * shrink + tl.sum(weight, axis=1)
        value = tl.load(v + base + keys[:, None] * DIM + dims[None, :], mask=keys[:, None] < LENGTH, other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(tl.float16), value)
        high = higher
    tl.store(out + base + rows[:, None] * DIM + dims[None, :], (mixed / total[:, None]).to(tl.float16),
             mask=rows[:, None] < LENGTH)


@triton.jit
def histogram(data, bins, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(data + at, mask=at < count, other=0)
    tl.atomic_add(bins + value, 1, mask=at < count)


@triton.jit
def collatz(out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n, steps = at + 1, tl.zeros((BLOCK,), dtype=tl.int32)
    while tl.max(n, axis=0) > 1:
        steps += tl.where(n > 1, 1, 0)
        n = tl.where(n > 1, tl.where(n % 2 == 0, n // 2, 3 * n + 1), n)
    tl.store(out + at, steps, mask=at < count)


def main(device):
    torch.manual_seed(19)
    a, b = (torch.randn(shape).half().to(device) for shape in ((200, 96), (96, 136)))
    c = torch.empty(200, 136, dtype=torch.float16, device=device)
    matmul[(triton.cdiv(200, 64), triton.cdiv(136, 64))](a, b, c, 200, 136, 96, BM=64, BN=64, BK=32)
    print("matmul close", torch.allclose(c.float(), a.float() @ b.float(), atol=0.05, rtol=0.02))
    show("matmul", c)
    q, k, v = (torch.randn(2, 4, 150, 64).half().to(device) for _ in range(3))
    for causal in (False, True):
        out = torch.empty_like(q)
        attention[(triton.cdiv(150, 64), 8)](q, k, v, out, 64**-0.5, 150, DIM=64, BLOCK=64, CAUSAL=causal)
        want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
        print("attention close", torch.allclose(out.float(), want, atol=0.02, rtol=0.02))
        show(f"attention causal={causal}", out)
    data = torch.randint(0, 64, (50000,), dtype=torch.int32).to(device)
    bins = torch.zeros(64, dtype=torch.int32, device=device)
    histogram[(triton.cdiv(50000, 1024),)](data, bins, 50000, BLOCK=1024)
    print("histogram", torch.equal(bins.long().cpu(), torch.bincount(data.cpu().long(), minlength=64)))
    steps = torch.empty(500, dtype=torch.int32, device=device)
    collatz[(4,)](steps, 500, BLOCK=128)
    print("collatz", steps[:10].tolist(), steps.max().item())


if __name__ == "__main__":
    main("cuda")
