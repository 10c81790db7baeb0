#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forms of attention beside those who have them: multi-head latent attention's decoding (--latent: pages of 64 in any order, 8,192 keys, bf16 and rows of fp8)
and prefill (--prefill: 192/128, beside cuDNN and FlashAttention-3), e4m3 queries, keys and values (--fp8: beside our own bf16 and
FlashAttention-3's e4m3), dropout (--dropout: beside PyTorch's), and texts (--scores: beside FlexAttention); these, or all. Median us with the L2 cache flushed, in turn, and errors of outputs
that were NaN before. Needs the installed wheel and PyTorch on a GPU. FA_PEERS: vllm_fa3.py's, for --scores training_vs_torch.py's. Words
that are no option name rows of --scores, if not all are wanted."""
import sys

import vllm_fa3
from training_vs_torch import SDPA, fa_tune, flash_attention_4, in_turn, sdpa, torch  # with a store of their own

KEYS = 8192
FLUSH = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")


def latent(batch, heads):
    wide = torch.randn(batch * KEYS // 64, 64, 1, 576, device="cuda", dtype=torch.bfloat16)
    eight, scale = wide[..., :512].to(torch.float8_e4m3fn), torch.rand(*wide.shape[:3], 4, device="cuda") + 0.5
    rows = torch.cat([x.contiguous().view(torch.uint8) for x in (eight, scale, wide[..., 512:])], -1)
    cache = torch.cat([eight.bfloat16() * scale.bfloat16().repeat_interleave(128, -1), wide[..., 512:]], -1)
    table = torch.randperm(len(cache), device="cuda", dtype=torch.int32).view(batch, -1)
    lengths = torch.full((batch,), KEYS, device="cuda", dtype=torch.int32)
    q = torch.randn(batch, 1, heads, 576, device="cuda", dtype=torch.bfloat16)
    out = [q.new_full((batch, 1, heads, 512), float("nan")) for _ in range(2)]
    how = dict(v_dim=512, cache_seqlens=lengths, block_table=table, max_seqlen_k=KEYS)
    us = in_turn({n: lambda keys=keys, to=to: fa_tune.attention_decode(q, keys, **how, out=to) for n, (keys, to) in enumerate(zip((cache, rows), out))}, FLUSH)
    keys = cache[table[-1].long()].view(KEYS, 576).float()
    right = torch.softmax(q[-1, 0].float() @ keys.T / 24, -1) @ keys[:, :512]
    print("B %d, %d heads: bf16 %.1f us, %.0f GB/s; fp8 %.1f us, %.0f GB/s, %.3f times as fast; errors %s" % (
        batch, heads, us[0], batch * KEYS * 1152 / us[0] / 1e3, us[1], batch * KEYS * 656 / us[1] / 1e3, us[0] / us[1],
        ["%.4f" % (to[-1, 0] - right).abs().max() for to in out]), flush=True)


def prefill(batch, heads, seq, causal):
    q, k, v = (torch.randn(batch, heads, seq, dim, device="cuda", dtype=torch.bfloat16) for dim in (192, 192, 128))
    out, peer = (torch.full_like(v, float("nan")) for _ in range(2))
    flat = [x.transpose(1, 2).reshape(batch * seq, heads, -1) for x in (q, k, v, peer)]
    bounds, cudnn = torch.arange(0, batch * seq + 1, seq, device="cuda", dtype=torch.int32), sdpa(SDPA["pytorch-cudnn"], is_causal=causal)
    ways = {"ours": lambda: fa_tune.attention(q, k, v, causal=causal, out=out), "cuDNN": lambda: cudnn(q, k, v),
            **vllm_fa3.calls(*flat, bounds, seq, seq, causal, cu_seqlens_k=bounds)}
    us, error = in_turn(ways, FLUSH), (out - cudnn(q, k, v)).abs().max()
    print("B %d, %d heads x %d, 192/128%s: %s, error %.4f" % (batch, heads, seq, ", causal" if causal else "", told(us), error), flush=True)
    assert error <= 0.03


def narrow(batch, heads, seq, dim, causal):
    wide = [torch.randn(batch, seq, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    eight, one = [x.to(torch.float8_e4m3fn) for x in wide], torch.ones(batch, heads, device="cuda")
    out, plain, peer = (torch.full_like(wide[0], float("nan")) for _ in range(3))
    flat, bounds = [x.flatten(0, 1) for x in (*eight, peer)], torch.arange(0, batch * seq + 1, seq, device="cuda", dtype=torch.int32)
    ways = {"e4m3": lambda: fa_tune.attention(*eight, layout="bshd", causal=causal, q_scale=one, k_scale=one, v_scale=one, out=out),
            "bf16": lambda: fa_tune.attention(*wide, layout="bshd", causal=causal, out=plain), **vllm_fa3.calls(
                *flat, bounds, seq, seq, causal, cu_seqlens_k=bounds, q_descale=one, k_descale=one, v_descale=one)}
    us, errors = in_turn(ways, FLUSH), ["%.4f" % ((x - plain).float().norm() / plain.float().norm()) for x in (out, peer)]
    print("B %d, %d heads x %d, D %d%s: %s, %.0f TFLOP/s, errors %s" % (batch, heads, seq, dim, ", causal" if causal else "", told(us),
                                                                    4e-6 * batch * heads * seq ** 2 * dim / (1 + causal) / us["e4m3"], " and ".join(errors)), flush=True)
    assert float(errors[0]) <= 0.06


def dropped(dim, causal):
    q, k, v = (torch.randn(2, 16, 4096, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ways = {"ours": lambda: fa_tune.attention(q, k, v, causal=causal, dropout_p=0.1), "without": lambda: fa_tune.attention(q, k, v, causal=causal)}
    ways.update((name, lambda attend=sdpa(back_end, is_causal=causal, dropout_p=0.1): attend(q, k, v)) for name, back_end in SDPA.items())
    back = {name: lambda o=way(): torch.autograd.grad(o, (q, k, v), q.detach(), retain_graph=True) for name, way in ways.items()}
    for what, us in ("forward", in_turn(ways, FLUSH)), ("backward", in_turn(back, FLUSH)):
        print("dropout 0.1, D %d%s, %s: %s" % (dim, ", causal" if causal else "", what, told(us)), flush=True)


def told(us):
    """The times, each with its quotient by the first."""
    return ", ".join("%s %.0f us (%.3f)" % (name, time, time / next(iter(us.values()))) for name, time in us.items())


def reads(bend, x):
    """FlexAttention's function of a score, for the tensor that it reads."""
    return bend and (lambda s, b, h, i, j: bend(x, s, b, h, i, j))


def run(ways, what):
    """What the ways return that do not refuse; a refusal is printed."""
    made = {}
    for name, way in ways.items():
        try:
            made[name] = way()
        except Exception as refused:
            if name == "ours":
                raise
            print("%s: %s refuses: %s" % (what, name, (str(refused).splitlines() or [type(refused).__name__])[0]), flush=True)
    return made


def scores():
    """Texts beside FlexAttention's functions by Triton and by FlashAttention-4 ("FLASH"), in turn: forward, and backward, of what they read too (not FLASH)."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    slope, key, table, bias, pair, of_t5 = (torch.randn(*shape, device="cuda") for shape in ((16,), (2, KEYS), (2 * KEYS,), (16, KEYS, KEYS), (4, 256, 256), (12, 1023)))
    half = (torch.rand(64, 64, device="cuda") < 0.5).repeat_interleave(KEYS // 64, 0).repeat_interleave(KEYS // 64, 1)
    doc = (torch.arange(KEYS, device="cuda", dtype=torch.int32) // 1366).repeat(2, 1)
    for name, how, bend, seen, *shape in (
            ("causal", {"mask": "k <= q"}, None, lambda b, h, i, j: i >= j),
            ("slope, causal", {"causal": True, "score": "score - 0.0625 * (q - k)"}, lambda x, s, b, h, i, j: s - 0.0625 * (i - j), lambda b, h, i, j: i >= j),
            ("window", {"mask": "k <= q and q - k < 1024"}, None, lambda b, h, i, j: (i >= j) & (i - j < 1024)),
            ("prefix", {"mask": "k <= q or k < 1000"}, None, lambda b, h, i, j: (i >= j) | (j < 1000)),
            ("chunks, causal", {"causal": True, "mask": "q // 1366 == k // 1366"}, None, lambda b, h, i, j: (i >= j) & (i // 1366 == j // 1366)),
            ("tanh, causal", {"causal": True, "score": "30 * tanh(score / 30)"}, lambda x, s, b, h, i, j: 30 * torch.tanh(s / 30), lambda b, h, i, j: i >= j),
            ("distance", {"score": "score - 0.0625 * abs(q - k)"}, lambda x, s, b, h, i, j: s - 0.0625 * (i - j).abs(), None),
            ("key bias", {"score": "score + x[b][k]", "buffers": {"x": key}}, lambda x, s, b, h, i, j: s + x[b, j], None),
            ("table", {"score": "score + x[q - k + 8191]", "buffers": {"x": table}}, lambda x, s, b, h, i, j: s + x[i - j + 8191], None),
            ("documents", {"causal": True, "mask": "x[b][q] == x[b][k]", "buffers": {"x": doc}}, None, lambda b, h, i, j: (i >= j) & (doc[b, i] == doc[b, j])),
            ("blocks", {"mask": "x[q][k] != 0", "buffers": {"x": half}}, None, lambda b, h, i, j: half[i, j]),
            ("bias", {"score": "score + x[h][q][k]", "buffers": {"x": bias}}, lambda x, s, b, h, i, j: s + x[h, i, j], None),
            ("AlphaFold's pairs", {"score": "score + x[h][q][k]", "buffers": {"x": pair}}, lambda x, s, b, h, i, j: s + x[h, i, j], None, 256, 4, 256, 32),
            ("T5's distances", {"score": "score + x[h][k - q + 511]", "buffers": {"x": of_t5}}, lambda x, s, b, h, i, j: s + x[h, j - i + 511], None, 16, 12, 512, 64),
            # Last: FlexAttention takes 1.9 s for one backward.
            ("slopes, causal", {"causal": True, "score": "score + x[h] * (k - q)", "buffers": {"x": slope}}, lambda x, s, b, h, i, j: s + x[h] * (j - i),
             lambda b, h, i, j: i >= j)):
        if not set(PARTS).issuperset(sys.argv[1:]) and name not in sys.argv:
            continue
        torch.compiler.reset()
        q, k, v = (torch.randn(*shape or (2, 16, KEYS, 128), device="cuda", dtype=torch.bfloat16, requires_grad=name != "bias") for _ in range(3))
        x = how.get("buffers", {}).get("x")
        bends = [reads(bend, x), reads(bend, None if x is None else x.detach())]
        wanted = [q, k, v, *([x.requires_grad_()] if x is not None and x.is_floating_point() and name != "bias" else [])]  # a bias has too many elements
        mask = create_block_mask(seen, 2 if name == "documents" else None, None, KEYS, KEYS, device="cuda") if seen else None
        flex = torch.compile(flex_attention, dynamic=False)
        ways = {"ours": lambda: fa_tune.attention(q, k, v, **how), "FlexAttention": lambda: flex(q, k, v, score_mod=bends[0], block_mask=mask)}
        if flash_attention_4:
            ways["FLASH"] = lambda: flex(q, k, v, score_mod=bends[1], block_mask=mask, kernel_options={"BACKEND": "FLASH"})
        made = run(ways, name)
        apart = ["%.4f" % (made["ours"] - o).abs().max() for o in list(made.values())[1:]]
        print("%s: %s, differ by %s" % (name, told(in_turn({way: ways[way] for way in made}, FLUSH)), " and ".join(apart)), flush=True)
        if name == "bias":
            continue
        d_o = torch.randn_like(q)
        back = {way: lambda o=o, of=wanted[:3] if way == "FLASH" else wanted: torch.autograd.grad(o, of, d_o, retain_graph=True) for way, o in made.items()}
        made = run(back, name + ", backward")
        apart = ["%.4f" % max((x - y).abs().max() / y.abs().max() for x, y in zip(made["ours"], others)) for others in list(made.values())[1:]]
        print("%s, backward: %s, differ by %s" % (name, told(in_turn({way: back[way] for way in made}, FLUSH)), " and ".join(apart)), flush=True)


PARTS = {
    "--latent": lambda: [latent(size, heads) for size in (1, 16, 128) for heads in (8, 16, 64, 128)],
    "--prefill": lambda: [prefill(*one, causal) for one in ((4, 16, 1024), (2, 16, 4096), (1, 128, 2048), (1, 128, 8192), (1, 16, 16384))
                          for causal in (True, False)],
    "--fp8": lambda: [narrow(16384 // seq, 2048 // dim, seq, dim, causal) for dim in (64, 128, 256) for seq in (4096, 16384) for causal in (False, True)],
    "--dropout": lambda: [dropped(dim, causal) for dim in (64, 128) for causal in (False, True)],
    "--scores": scores}
for part in [part for part in PARTS if part in sys.argv] or (["--scores"] if sys.argv[1:] else PARTS):
    PARTS[part]()
