#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlexAttention's calls on a real GPU, from the installed wheel, beside their definition in float32; models of transformers that train; docs/scores.md word for
word. tests/gpu.sh runs it, all or the tests that are named. A call that PyTorch's kernel would compute is an error."""
import math
import os
import re
import sys
import tempfile
import types
import warnings

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-scores-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

import fa_tune  # noqa: E402
import tap  # noqa: E402
from fa_tune import _core, _torch_ops, flex  # noqa: E402

HAS_GRADIENTS = "buffers" in _torch_ops.OPTIONS  # where a function reads tensors
LAUNCHED = []  # a member for each call
_attention = _core.attention
_core.attention = fa_tune.attention = lambda *args, **words: LAUNCHED.append(0) or _attention(*args, **words)


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


def models(transformers):
    """By name: what makes a model of an attention, what it is trained with, and which of it its tokens follow from."""
    from transformers.models.esm import modeling_esmfold as esmfold

    class Attention(esmfold.EsmFoldAttention):
        """AlphaFold's triangles: a bias of pairs, and one that hides keys."""
        def forward(self, q_x, kv_x, biases=(), **_):
            there, pair = biases[0][0, :, 0, 0], biases[1][0, 0]
            call = fa_tune.attention if self.way == "fa_tune" else lambda *x, score, scale: COMPILED(*x, score_mod=score, scale=scale)
            o = call(*self._prep_qkv(q_x[0], kv_x[0]), score=lambda s, b, h, i, j: s + there[b, j] + pair[h, i, j], scale=1.0)
            return self._wrap_up(o.transpose(1, 2), q_x[0])[None]

    class Triangles(esmfold.EsmFoldTriangleAttention):
        def __init__(self, attn_implementation):
            super().__init__(64, 32, 4)
            self.mha.__class__, self.mha.way = esmfold.EsmFoldAttention if attn_implementation == "sdpa" else Attention, attn_implementation

        def forward(self, x, mask):
            return types.SimpleNamespace(loss=((super().forward(x, mask) - x).float() ** 2).sum(-1).mean())

    small = {"vocab_size": 128, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    text = {**small, "head_dim": 64, "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
    vision = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 112, "patch_size": 14}
    torch.manual_seed(4)
    tokens, padded = torch.randint(120, (2, 200), device="cuda"), torch.arange(200, device="cuda").repeat(2, 1) < torch.tensor([[200], [131]], device="cuda")
    image, places = tokens.clone(), torch.cat([torch.arange(n, device="cuda") for n in (90, 1, 60, 49)])
    image[:, 20:36] = 127
    made = {"packed Llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, small, {"labels": tokens, "position_ids": places[None].repeat(2, 1), "use_cache": False}),
            "T5": (transformers.T5ForConditionalGeneration, transformers.T5Config, {
                "vocab_size": 128, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, "dropout_rate": 0.0},
                   {"labels": tokens[:, :140].contiguous(), "attention_mask": padded.long()}),
            "Gemma 3": (transformers.Gemma3ForConditionalGeneration, transformers.Gemma3Config, {
                "text_config": text, "vision_config": vision, "mm_tokens_per_image": 16, "image_token_index": 127},
                        {"labels": tokens, "input_ids": image, "token_type_ids": (image == 127).long(), "pixel_values": torch.randn(2, 3, 112, 112, device="cuda").bfloat16()})}
    made = {name: (lambda attn_implementation, make=make, config=config, how=how: make(config(**how, attn_implementation=attn_implementation)), {"input_ids": tokens, **given},
                   [] if "position_ids" in given else {"input_ids", "attention_mask", "token_type_ids", "pixel_values"}) for name, (make, config, how, given) in made.items()}
    return {**made, "triangles": (Triangles, {"x": torch.randn(1, 96, 96, 64, device="cuda").bfloat16(), "mask": (torch.rand(1, 96, 96, device="cuda") < 0.9).bfloat16()}, [])}


def trained(make, given, way):
    """The model, its losses of four steps, and the gradients of the first."""
    torch.manual_seed(5)
    model, losses, first = make(attn_implementation=way).to("cuda", torch.bfloat16).train(), [], None
    for _ in range(4):
        loss = model(**given).loss
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        first = first or [p.grad.float() for p in model.parameters() if p.grad is not None]
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0 if p.grad is None else 0.1 * p.grad)
    return model.eval(), losses, first


def models_of_transformers_train_and_generate(way="fa_tune"):
    """As with "sdpa"."""
    try:
        import transformers
    except ImportError:
        return "skipped: transformers is not here"
    said = []
    for name, (make, given, prompt) in models(transformers).items():
        before = len(LAUNCHED)
        (exact, right, best), between = trained(make, given, "sdpa"), len(LAUNCHED)
        model, losses, first = trained(make, given, way)
        assert between == before < len(LAUNCHED), name
        assert max(abs(a - b) / b for a, b in zip(losses, right)) < 0.01 and right[-1] < right[0], (name, losses, right)
        for mine, other in zip(first, best, strict=True):
            assert float((mine - other).norm()) <= 0.05 * float(other.norm()) + 1e-4, (name, tuple(mine.shape), float((mine - other).norm()), float(other.norm()))
        if prompt and way == "fa_tune":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.load_state_dict(exact.state_dict())
                how = {word: x for word, x in given.items() if word in prompt}
                mine, other = (x.generate(**how, max_new_tokens=8, do_sample=False, return_dict_in_generate=True, output_logits=True) for x in (model, exact))
            best = torch.stack(other.logits, 1).float().topk(2).values
            for row, (got, wanted) in enumerate(zip(mine.sequences[:, -8:].tolist(), other.sequences[:, -8:].tolist())):
                at = next((i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), None)
                assert at is None or best[row, at, 0] - best[row, at, 1] < 0.03, (name, got, wanted, best[row])
        said.append("%s %.4f to %.4f, by SDPA %.4f" % (name, losses[0], losses[-1], right[-1]))
        print("   ", said[-1], flush=True)
    return "; ".join(said)


def models_of_transformers_train_by_flex_attention():
    return models_of_transformers_train_and_generate("flex_attention")


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


if __name__ == "__main__":
    warnings.filterwarnings("error", "PyTorch's own kernel computes")
    fa_tune.policy(effort="predict")
    flex.use()
    tap.main([test for test in (dropout_is_drawn_by_its_seeds, models_of_transformers_train_and_generate, models_of_transformers_train_by_flex_attention, the_page_of_scores_are_calls_that_run, functions_are_their_definition)
              if len(sys.argv) < 2 or any(word in test.__name__ for word in sys.argv[1:])])
