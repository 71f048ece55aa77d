#!/usr/bin/env python3
"""The work of `intellect-node bench train` in PyTorch, eager, for comparison.

A Llama as people write it: separate q, k, v, gate and up linears, rotate-half RoPE, scaled_dot_product_attention,
nn.RMSNorm, fused AdamW, gradients clipped to norm 1. Width 256, 6 blocks, 8 heads, ffn 688, vocabulary 512, context 256,
batch 8, f32: 5.0M parameters. Prints the same JSON: the median step after the warm-up, and the peak of resident memory.

usage: train.py [--threads N] [--steps N] [--warmup N]
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, FFN, VOCAB, CONTEXT, BATCH = 6, 256, 8, 688, 512, 256, 8
SIZE = WIDTH // HEADS


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.k, self.v, self.o = (linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = linear(WIDTH, FFN), linear(WIDTH, FFN), linear(FFN, WIDTH)

    def forward(self, x, cos, sin):
        h = self.attention_norm(x)
        heads = lambda y: y.view(BATCH, CONTEXT, HEADS, SIZE).transpose(1, 2)
        q, k, v = heads(self.q(h)), heads(self.k(h)), heads(self.v(h))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCAB, bias=False)
        angles = torch.outer(torch.arange(CONTEXT).float(), 10000.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--warmup", type=int, default=3)
    arguments = arguments.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    model = Llama()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(inputs).view(-1, VOCAB), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for _ in range(arguments.warmup):
        step()
    times = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        loss = step()
        times.append((time.perf_counter() - start) * 1e3)
    median = statistics.median(times)
    print(json.dumps({
        "tokens_per_s": BATCH * CONTEXT / median * 1e3,
        "step_ms": median,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": sum(p.numel() for p in model.parameters()),
        "threads": arguments.threads,
        "steps": arguments.steps,
        "loss": loss,
        "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
