#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama on data that it makes, with fa_tune's attention and with PyTorch's, from the same seeds.

    python3 examples/train_llama.py [--steps 200] [--seq 1024] [--batch 8]

Each sequence repeats random tokens, so that the loss falls as attention learns to look back. Prints a table: the loss of
the last steps (mean and spread of three seeds), tokens/s, and the peak of allocated memory. Ends with status 1 if fa_tune's
mean loss is further from SDPA's than the seeds are from each other. Needs PyTorch and a CUDA GPU.
"""
import argparse
import contextlib
import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import fa_tune

PERIOD, THETA = 64, 10000.0


@dataclass
class Shape:
    vocabulary: int = 512
    width: int = 512
    layers: int = 6
    heads: int = 8
    heads_kv: int = 4
    dim: int = 64


def by_fa_tune(q, k, v):
    return fa_tune.attention(q, k, v, causal=True)


def by_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


WAYS = {"SDPA": (by_sdpa, contextlib.nullcontext),
        "SDPA, FlashAttention-2": (by_sdpa, lambda: sdpa_kernel(SDPBackend.FLASH_ATTENTION)),
        "fa_tune": (by_fa_tune, contextlib.nullcontext)}


class Block(nn.Module):
    def __init__(self, attend, shape):
        super().__init__()
        self.attend, self.shape, width = attend, shape, shape.width
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, (shape.heads + 2 * shape.heads_kv) * shape.dim, bias=False)
        self.out = nn.Linear(shape.heads * shape.dim, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x, turn):
        batch, seq, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, seq, -1, self.shape.dim).transpose(1, 2)
        q, k, v = heads.split((self.shape.heads, self.shape.heads_kv, self.shape.heads_kv), 1)
        o = self.attend(rotated(q, turn), rotated(k, turn), v)
        x = x + self.out(o.transpose(1, 2).reshape(batch, seq, -1))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x, turn):
    """Rotary position embedding; turn: cosines and sines, (seq, dim / 2) each."""
    first, second = x.chunk(2, -1)
    cos, sin = (t.to(x.dtype) for t in turn)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class Llama(nn.Module):
    def __init__(self, attend, seq, shape):
        super().__init__()
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(attend, shape) for _ in range(shape.layers))
        self.norm, self.head = nn.RMSNorm(shape.width), nn.Linear(shape.width, shape.vocabulary, bias=False)
        angle = torch.arange(seq)[:, None] * THETA ** (-torch.arange(0, shape.dim, 2) / shape.dim)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        return self.head(self.norm(x))


def made_tokens(batch, seq, vocabulary, generator):
    """(batch, seq + 1) random tokens that come again every PERIOD."""
    period = torch.randint(vocabulary, (batch, PERIOD), device=generator.device, generator=generator)
    return period.repeat(1, (seq + PERIOD) // PERIOD)[:, :seq + 1]


def training(model, vocabulary, batch, seq, generator, rate=lambda: 1e-3, clip=None):
    """Trains without end; yields the loss of each step, which the GPU may not have computed yet. rate(): of the next step;
    clip: the most that the norm of the gradients may be."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    while True:
        tokens = made_tokens(batch, seq, vocabulary, generator)
        with torch.autocast(tokens.device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.param_groups[0]["lr"] = rate()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


def train(attend, seed, steps, batch, seq):
    """(the mean loss of the last tenth of the steps, tokens/s, peak bytes)"""
    torch.manual_seed(seed)
    shape = Shape()
    model = Llama(attend, seq, shape).cuda()
    torch.cuda.reset_peak_memory_stats()
    losses, begin, first = [], None, steps // 10  # what is tuned is tuned then
    each_step = training(model, shape.vocabulary, batch, seq, torch.Generator("cuda").manual_seed(seed))
    for step in range(steps):
        if step == first:
            torch.cuda.synchronize()
            begin = time.monotonic()
        losses.append(next(each_step))
    torch.cuda.synchronize()
    speed = (steps - first) * batch * seq / (time.monotonic() - begin)
    return float(torch.stack(losses[-max(first, 1):]).mean()), speed, torch.cuda.max_memory_allocated()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("--steps", 200), ("--seq", 1024), ("--batch", 8)):
        parser.add_argument(name, type=int, default=value)
    options = parser.parse_args()
    losses = {}
    print("%-24s %-22s %10s %9s" % ("attention", "loss (of three seeds)", "tokens/s", "peak MiB"))
    for name, (attend, scope) in WAYS.items():
        with scope():
            runs = [train(attend, seed, options.steps, options.batch, options.seq) for seed in range(3)]
        losses[name] = [run[0] for run in runs]
        mean, spread = sum(losses[name]) / 3, max(losses[name]) - min(losses[name])
        print("%-24s %.4f, spread %.4f %10.0f %9.0f" % (name, mean, spread, sorted(run[1] for run in runs)[1],
                                                         runs[0][2] / 2**20), flush=True)
    apart = abs(sum(losses["fa_tune"]) - sum(losses["SDPA"])) / 3
    spread = max(max(one) - min(one) for one in losses.values())
    print("fa_tune's mean loss is %.4f from SDPA's; the seeds differ by up to %.4f" % (apart, spread))
    return not apart <= spread


if __name__ == "__main__":
    sys.exit(main())
