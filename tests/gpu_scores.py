#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlexAttention's calls on a real GPU, from the installed wheel, beside their definition in float32; layers that train; docs/scores.md word for
word. tests/gpu.sh runs it, all or the tests that are named. A call that PyTorch's kernel would compute is an error."""
import math
import os
import re
import sys
import tempfile
import traceback
import warnings

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-scores-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

import fa_tune  # noqa: E402
from fa_tune import _core, _torch_ops, flex  # noqa: E402

HAS_GRADIENTS = "buffers" in _torch_ops.OPTIONS  # where a function reads tensors
LAUNCHED = []  # a member for each call
_attention = _core.attention


_core.attention = lambda *args, **words: LAUNCHED.append(0) or _attention(*args, **words)


def ours(q, k, v, score=None, mask=None, scale=None):
    """(o, lse) by torch.compile(flex_attention)."""
    seen = mask and create_block_mask(mask, q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cuda")
    before = len(LAUNCHED)
    made = COMPILED(q, k, v, score_mod=score, block_mask=seen, scale=scale, enable_gqa=True, return_lse=True)
    assert len(LAUNCHED) == before + 1
    return made


def definition(q, k, v, score=None, mask=None, scale=None):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1).float() for x in (k, v))
    scores = q.float() @ k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    at = [torch.arange(size, device="cuda").view([-1 if i == axis else 1 for i in range(4)]) for axis, size in enumerate(scores.shape)]
    scores = scores if score is None else score(scores, *at)
    scores = scores if mask is None else scores.masked_fill(~mask(*at), -math.inf)
    return torch.softmax(scores, -1).nan_to_num(0) @ v, scores.logsumexp(-1)


def near(got, right, most, what):
    got, right = got.detach().float(), right.detach().float()
    assert torch.equal(torch.isfinite(got), torch.isfinite(right)), what
    off = float((got - right).nan_to_num(0, 0, 0).abs().max() / right.nan_to_num(0, 0, 0).abs().max().clamp(min=1e-6))
    assert off <= most, "%s: off by %.4f of the largest" % (what, off)
    return off


def functions_are_their_definition(part=slice(None)):
    """Forward, the LSE and all gradients, of lengths that are equal and of others."""
    heads, key_heads, worst = 8, 2, 0
    for rows, keys, dim in ((1000, 1000, 64), (384, 777, 128)):
        leaves = slope, table, bias = [torch.randn(shape, device="cuda", requires_grad=HAS_GRADIENTS) for shape in (heads, rows + keys, (heads, rows, keys))]
        document, there = (torch.arange(2048, device="cuda") // 170).int(), torch.rand(2, keys, device="cuda") > 0.1
        scores = {"alibi": lambda s, b, h, q, k: s + slope[h] * (k - q) * 0.1, "table": lambda s, b, h, q, k: s + table[k - q + rows - 1],
                  "bias": lambda s, b, h, q, k: s + bias[h, q, k], "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
                  "general": lambda s, b, h, q, k: torch.where((q // 32) % 2 == (k // 32) % 2, s * 1.5, s - (q - k).abs() * 0.01), "": None}
        masks = {"causal": lambda b, h, q, k: q >= k, "document": lambda b, h, q, k: (document[q] == document[k]) & (q >= k),
                 "prefix": lambda b, h, q, k: (k < 200) | (q >= k), "padding": lambda b, h, q, k: there[b, k], "": None}
        for score, mask in ([(score, "") for score in scores] + [("", mask) for mask in masks] + [("alibi", "document"), ("general", "prefix")])[part]:
            trains = HAS_GRADIENTS or not {score, mask} & {"alibi", "table", "bias", "document", "padding"}
            x = [torch.randn(2, h, length, dim, device="cuda").bfloat16().requires_grad_(trains) for h, length in (
                (heads, rows), (key_heads, keys), (key_heads, keys))]
            torch._dynamo.reset()
            made, right = (call(*x, scores[score], masks[mask]) for call in (ours, definition))
            if trains:
                weight, of = torch.randn_like(right[0]), [*x, *(leaf for leaf in leaves if leaf is {"alibi": slope, "table": table, "bias": bias}.get(score))]
                losses = [(o.float() * weight).sum() + lse.nan_to_num(neginf=0).sum() for o, lse in (made, right)]
                made, right = ((*two, *torch.autograd.grad(loss, of)) for two, loss in zip((made, right), losses))
            worst = max(worst, *(near(got, wanted, 0.03, (score, mask, rows, i)) for i, (got, wanted) in enumerate(zip(made, right))))
    return "off by %.4f of the largest at most" % worst


class Layer(nn.Module):
    """Attention between a norm and a sum: heads of 64, with a bias that is learnt, of `shape`, where `score` reads one."""

    def __init__(self, mask=None, scale=None, shape=(0,), score=None, width=256):
        super().__init__()
        self.mask, self.scale, self.score, self.norm, self.bias = mask, scale, score, nn.LayerNorm(width), nn.Parameter(torch.randn(shape))
        self.into, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, call):
        q, k, v = self.into(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        score = self.score and (lambda s, b, h, q, k: self.score(self.bias, s, h, q, k))
        return x + self.out(call(q, k, v, score, self.mask, self.scale)[0].to(x.dtype).transpose(1, 2).flatten(2))


def layers_train_with_the_losses_of_their_definition():
    """A table of distances for each head, as T5's; a bias of pairs and a mask of keys, as in AlphaFold's triangles."""
    document = torch.repeat_interleave(torch.arange(4, device="cuda"), torch.tensor([300, 10, 500, 214], device="cuda"))
    there, result = torch.rand(8, 256, device="cuda") > 0.2, []
    kinds = {"image prefix": (2, 777, False, {"mask": lambda b, h, q, k: (q >= k) | (k < 256) & (q < 256)}),
             "packed Llama": (2, 1024, True, {"mask": lambda b, h, q, k: (q >= k) & (document[q] == document[k])}),
             "T5": (2, 512, True, {"scale": 1.0, "shape": (4, 1023), "score": lambda table, s, h, q, k: s + table[h, k - q + 511]}),
             "triangle": (8, 256, True, {"shape": (4, 256, 256), "score": lambda pair, s, h, q, k: s + pair[h, q, k], "mask": lambda b, h, q, k: there[b, k]})}
    for name, (batch, rows, reads, how) in kinds.items():
        losses = {definition: [], ours: []}
        for call, told in losses.items():
            torch._dynamo.reset()
            torch.manual_seed(1)
            layers, x = nn.ModuleList(Layer(**how) for _ in range(2)).cuda().bfloat16(), torch.randn(batch, rows, 256, device="cuda").bfloat16()
            optimizer = torch.optim.SGD(layers.parameters(), lr=0.5)
            for _ in range(6):
                with torch.set_grad_enabled(HAS_GRADIENTS or not reads):
                    loss = ((layers[1](layers[0](x, call), call).float() - 0.5) ** 2).mean()
                told.append(float(loss.detach()))
                if loss.requires_grad:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        assert max(abs(a - b) / a for a, b in zip(*losses.values())) < 0.01, (name, losses)
        result.append("%s %.4f to %.4f beside %.4f" % (name, losses[ours][0], losses[ours][-1], losses[definition][-1]))
    return "; ".join(result)


def dropout_is_drawn_by_its_seeds():
    """Seeds, the mean of many, and a graph's. What each weight becomes, and the gradients: gpu_calls.py."""
    q, k, v = (torch.randn(1, 4, 256, 64, device="cuda").half() for _ in range(3))
    same = [torch.manual_seed(i) and fa_tune.attention(q, k, v, dropout_p=0.5) for i in (3, 3, 4)]
    assert torch.equal(same[0], same[1]) and not torch.equal(same[0], same[2])
    mean = sum(fa_tune.attention(q, k, v, dropout_p=0.1).float() for _ in range(2000)) / 2000
    off, graph, seed = near(mean, definition(q, k, v)[0], 0.05, "mean"), torch.cuda.CUDAGraph(), torch.tensor([1, 2], device="cuda")
    with torch.cuda.graph(graph):
        given, drawn = (fa_tune.attention(q, k, v, dropout_p=0.5, dropout_seed=x) for x in (seed, None))
    graph.replay()
    before = given.clone(), drawn.clone()
    seed += 1
    graph.replay()
    assert torch.equal(given, fa_tune.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)) and not any(map(torch.equal, before, (given, drawn)))
    return "the mean of 2,000 is off by %.4f of the largest" % off


def the_page_of_scores_are_calls_that_run():
    names = {}
    for block in re.findall(r"(?ms)^```python\n(.*?)^```$", open("docs/scores.md", encoding="utf-8").read()):
        exec(block, names)  # pylint: disable=exec-used
    q, k, v, slope, pair, there = (names[name] for name in ("q", "k", "v", "slope", "pair", "there"))
    near(names["flex"], definition(q, k, v, lambda s, b, h, i, j: s + slope[h] * (j - i), names["window"])[0], 0.03, "flex")
    near(names["sinks"], names["flex"], 0.03, "functions")
    near(names["triangle"], definition(q, k, v, lambda s, b, h, i, j: s + pair[h, i, j], lambda b, h, i, j: there[b, j])[0], 0.03, "triangle")


COMPILED = torch.compile(flex_attention, dynamic=False)


def main():
    failed = 0
    warnings.filterwarnings("error", "PyTorch's own kernel computes")
    fa_tune.policy(effort="predict")
    flex.use()
    for test in (dropout_is_drawn_by_its_seeds, layers_train_with_the_losses_of_their_definition, the_page_of_scores_are_calls_that_run, functions_are_their_definition):
        if len(sys.argv) < 2 or any(word in test.__name__ for word in sys.argv[1:]):
            try:
                print("ok", test.__name__, test() or "", flush=True)
            except Exception:  # pylint: disable=broad-exception-caught
                failed += 1
                print("not ok", test.__name__, traceback.format_exc()[-1800:], flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
