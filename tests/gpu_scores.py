#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlexAttention by fa_tune.flex on a real GPU, from the installed wheel, beside PyTorch's own: functions one by one, and layers as people
write them. tests/gpu.sh runs it, all or the tests that are named. A call that PyTorch's kernel would compute is an error."""
import math
import os
import sys
import tempfile
import time
import traceback
import warnings

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-scores-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

import fa_tune  # noqa: E402
from fa_tune import _core, flex  # noqa: E402

COMPILED = torch.compile(flex_attention, dynamic=False)
LAUNCHED = [0]
_attention = _core.attention


def counted(*args, **words):
    LAUNCHED[0] += 1
    return _attention(*args, **words)


_core.attention = counted


def block_mask(mask, batch=None, heads=None, rows=None):
    return create_block_mask(mask, batch, heads, rows, rows, device="cuda")


def near(got, right, most, what):
    got, right = got.detach().float(), right.detach().float()
    assert torch.equal(torch.isfinite(got), torch.isfinite(right)), what
    off = float((got - right).nan_to_num(0, 0, 0).abs().max() / right.nan_to_num(0, 0, 0).abs().max().clamp(min=1e-6))
    assert off <= most, "%s: off by %.4f of the largest" % (what, off)
    return off


def both(run):
    """What `run` returns with PyTorch's kernels, and with ours."""
    made = []
    for on in (False, True):
        flex.use(on)
        torch.manual_seed(1)
        before = LAUNCHED[0]
        made.append(run())
        assert (LAUNCHED[0] > before) == on, "launched %d" % (LAUNCHED[0] - before)
    return made


# ---- functions ------------------------------------------------------------------------------------
def functions_are_pytorchs():
    """Forward, the LSE and gradients."""
    batch, heads, key_heads, rows = 2, 8, 2, 1000
    slope, table = torch.rand(heads, device="cuda"), torch.randn(2 * rows, device="cuda")
    bias = torch.randn(1, heads, rows, rows, device="cuda").bfloat16()
    document = (torch.arange(rows, device="cuda") // 170).int()[None].repeat(batch, 1)
    padding = torch.rand(batch, rows, device="cuda") > 0.1
    scores = {"alibi": lambda s, b, h, q, k: s + slope[h] * (k - q), "table": lambda s, b, h, q, k: s + table[k - q + rows - 1],
              "bias": lambda s, b, h, q, k: s + bias[0, h, q, k], "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
              "general": lambda s, b, h, q, k: torch.where((q // 32) % 2 == (k // 32) % 2, s * 1.5, s - (q - k).abs() * 0.01), "none": None}
    masks = {"causal": lambda b, h, q, k: q >= k, "document": lambda b, h, q, k: (document[b, q] == document[b, k]) & (q >= k),
             "prefix": lambda b, h, q, k: (k < 200) | (q >= k), "padding": lambda b, h, q, k: padding[b, k], "none": None}
    reads = ("alibi", "table", "bias", "document", "padding")
    pairs = [(score, "none") for score in scores] + [("none", mask) for mask in masks] + [("alibi", "document"), ("general", "prefix")]
    for score, mask in pairs:
        trains = score not in reads and mask not in reads or "buffers" in fa_tune._torch_ops.OPTIONS

        def run():
            torch._dynamo.reset()
            x = [torch.randn(batch, h, rows, 64 if trains else 128, device="cuda").bfloat16().requires_grad_(trains) for h in (heads, key_heads, key_heads)]
            seen = None if masks[mask] is None else block_mask(masks[mask], batch, heads, rows)
            o, lse = COMPILED(*x, score_mod=scores[score], block_mask=seen, enable_gqa=True, return_lse=True)
            return [o, lse, *(torch.autograd.grad((o.float() * torch.randn_like(o)).sum() + lse.sum(), x) if trains else ())]
        theirs, ours = both(run)
        for name, got, right in zip(("o", "lse", "dq", "dk", "dv"), ours, theirs):
            near(got, right, 0.03, (score, mask, name))


# ---- layers ---------------------------------------------------------------------------------------
class Layer(nn.Module):
    """Attention between a norm and a sum: heads of 64, by flex_attention as everybody has it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, score=None, mask=None, scale=None):
        q, k, v = self.into(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(COMPILED(q, k, v, score_mod=score, block_mask=mask, scale=scale).transpose(1, 2).flatten(2))


def train(make, inputs, steps=6):
    """The losses of some steps."""
    torch._dynamo.reset()
    module = make().cuda().bfloat16()
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.5), []
    for _ in range(steps):
        torch.manual_seed(2)
        loss = ((module(*inputs()).float() - 0.5) ** 2).mean()
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def same_losses(make, inputs):
    theirs, ours = both(lambda: train(make, inputs))
    assert theirs[-1] < theirs[0] and max(abs(a - b) / a for a, b in zip(theirs, ours)) < 0.02, (theirs, ours)
    return "losses %s beside %s" % (" ".join("%.4f" % x for x in ours), " ".join("%.4f" % x for x in theirs))


def a_packed_llama_trains_with_the_same_losses():
    """Documents behind one another: a token sees the earlier ones of its own document."""
    lengths = torch.tensor([300, 10, 500, 214], device="cuda")
    document = torch.repeat_interleave(torch.arange(4, device="cuda", dtype=torch.int32), lengths)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer(256, 4) for _ in range(2))

        def forward(self, x):
            mask = block_mask(lambda b, h, q, k: (q >= k) & (document[q] == document[k]), rows=x.shape[1])
            for layer in self.layers:
                x = layer(x, mask=mask)
            return x
    if "buffers" in fa_tune._torch_ops.OPTIONS:
        return same_losses(Llama, lambda: (torch.randn(2, 1024, 256, device="cuda").bfloat16(),))
    with torch.no_grad():
        theirs, ours = both(lambda: Llama().cuda().bfloat16()(torch.randn(2, 1024, 256, device="cuda").bfloat16()))
    return "outputs alone: off by %.4f" % near(ours, theirs, 0.03, "packed")


def an_image_prefix_trains_with_the_same_losses():
    """The first 256 tokens are an image, which sees itself in both directions; text behind it is causal."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer(256, 4)

        def forward(self, x):
            return self.layer(x, mask=block_mask(lambda b, h, q, k: (q >= k) | ((q < 256) & (k < 256)), rows=x.shape[1]))
    return same_losses(Model, lambda: (torch.randn(2, 777, 256, device="cuda").bfloat16(),))


def t5_and_triangle_attention_are_pytorchs():
    """A relative bias of T5's buckets, without a scale; a bias of pairs and a mask of keys, as AlphaFold's triangles have."""
    def buckets(distance):
        n, exact = distance.abs(), 8
        far = exact + (torch.log(n.float().clamp(min=1) / exact) / math.log(128 / exact) * (16 - exact)).long().clamp(max=7)
        return torch.where(n < exact, n, far) + 16 * (distance > 0)

    rows = 512
    result = []
    for name in ("T5", "triangle"):
        def run():
            torch._dynamo.reset()
            layer = Layer(256, 4).cuda().bfloat16()
            if name == "T5":
                table = nn.Embedding(32, 4).cuda()(buckets(torch.arange(1 - rows, rows, device="cuda"))).detach().t().contiguous()
                return layer(torch.randn(2, rows, 256, device="cuda").bfloat16(), lambda s, b, h, q, k: s + table[h, k - q + rows - 1], scale=1.0)
            pair, seen = torch.randn(1, 4, rows, rows, device="cuda").bfloat16(), torch.rand(8, rows, device="cuda") > 0.2
            return layer(torch.randn(8, rows, 256, device="cuda").bfloat16(), lambda s, b, h, q, k: s + pair[0, h, q, k],
                         block_mask(lambda b, h, q, k: seen[b, k], 8, None, rows))
        with torch.no_grad():
            theirs, ours = both(run)
        result.append("%s off by %.4f" % (name, near(ours, theirs, 0.03, name)))
    return "; ".join(result)


def main():
    failed = 0
    warnings.filterwarnings("error", "PyTorch's own kernel computes")
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch._dynamo.config.recompile_limit = 64
    fa_tune.policy(effort="predict")
    for name, test in list(globals().items()):
        if getattr(test, "__module__", None) == __name__ and "_are_" in name or "_trains_" in name:
            if len(sys.argv) < 2 or any(word in name for word in sys.argv[1:]):
                begun = time.monotonic()
                try:
                    print("ok", name, "%s (%.0f s)" % (test() or "", time.monotonic() - begun), flush=True)
                except Exception:  # pylint: disable=broad-exception-caught
                    failed += 1
                    print("not ok", name, traceback.format_exc()[-1800:], flush=True)
    print("%d failed" % failed)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
