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

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import fa_tune

VOCABULARY, WIDTH, LAYERS, HEADS, HEADS_KV, PERIOD = 512, 512, 6, 8, 4, 64
DIM = WIDTH // HEADS


def by_fa_tune(q, k, v):
    return fa_tune.attention(q, k, v, causal=True)


def by_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


WAYS = {"SDPA": (by_sdpa, contextlib.nullcontext),
        "SDPA, FlashAttention-2": (by_sdpa, lambda: sdpa_kernel(SDPBackend.FLASH_ATTENTION)),
        "fa_tune": (by_fa_tune, contextlib.nullcontext)}


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * HEADS_KV) * DIM, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x, turn):
        batch, seq, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, seq, -1, DIM).transpose(1, 2)
        q, k, v = heads.split((HEADS, HEADS_KV, HEADS_KV), 1)
        o = self.attend(rotated(q, turn), rotated(k, turn), v)
        x = x + self.out(o.transpose(1, 2).reshape(batch, seq, WIDTH))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x, turn):
    """Rotary position embedding; turn: cosines and sines, (seq, DIM / 2) each."""
    first, second = x.chunk(2, -1)
    cos, sin = (t.to(x.dtype) for t in turn)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class Llama(nn.Module):
    def __init__(self, attend, seq):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(attend) for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        angle = torch.arange(seq)[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        return self.head(self.norm(x))


def made_tokens(batch, seq, generator):
    """Random tokens that come again every PERIOD."""
    period = torch.randint(VOCABULARY, (batch, PERIOD), device="cuda", generator=generator)
    return period.repeat(1, (seq + PERIOD) // PERIOD)[:, :seq + 1]


def train(attend, seed, steps, batch, seq):
    """(the mean loss of the last tenth of the steps, tokens/s, peak bytes)"""
    torch.manual_seed(seed)
    generator = torch.Generator("cuda").manual_seed(seed)
    model = Llama(attend, seq).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.cuda.reset_peak_memory_stats()
    losses, begin = [], None
    for step in range(steps):
        if step == steps // 10:  # what is tuned is tuned
            torch.cuda.synchronize()
            begin = time.monotonic()
        tokens = made_tokens(batch, seq, generator)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    speed = (steps - steps // 10) * batch * seq / (time.monotonic() - begin)
    return float(torch.stack(losses[-max(steps // 10, 1):]).mean()), speed, torch.cuda.max_memory_allocated()


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
