#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python door on a real GPU, from the installed wheel: right results, PyTorch's own ways, and what
calls cost. tests/gpu.sh python runs it. The last lines are one table and the sum.

What is not importable here, or wants a second GPU, is told as skipped.
"""
import argparse
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import warnings

FOLDER = tempfile.mkdtemp(prefix="fa-tune-python-")  # mode 0700
os.environ["FA_TUNE_STORE"] = os.path.join(FOLDER, "store.db")
os.environ.setdefault("FA_TUNE_SYSTEM", "")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "examples"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import fa_tune  # noqa: E402
import gpu_calls  # noqa: E402
import tap  # noqa: E402


def tensors(batch=2, heads=8, heads_kv=None, seq=256, seq_k=None, dim=64, dtype=torch.float16,
            device="cuda"):
    def made(heads, seq):
        return torch.randn(batch, heads, seq, dim, device=device, dtype=dtype)
    return made(heads, seq), *(made(heads_kv or heads, seq_k or seq) for _ in range(2))


# ---- what is right -------------------------------------------------------------------------------
def mask_of(sq, sk, causal, device, window=None):
    """True where a query sees a key; None: everywhere."""
    left, right = window or (-1, -1)
    right = 0 if causal else right
    shift = 0 if causal == "top-left" else sk - sq
    seen = torch.ones(sq, sk, dtype=torch.bool, device=device)
    if left < 0 and right < 0:
        return None
    if right >= 0:
        seen = seen.tril(shift + right)
    return seen.triu(shift - left) if left >= 0 else seen


def exact(q, k, v, causal=False, scale=None, window=None, narrow=None, number=torch.float64):
    """(o, lse) in float64, of (batch, heads, seq, dim) tensors. A row that sees nothing is 0. Weights are rounded to `narrow`."""
    case = {"causal": causal, "scale": scale, "window": window, **dict.fromkeys(("softcap", "score", "mask", "dropout"))}
    made = [gpu_calls.attend(case, b, *(x.to(number) for x in part), None, {}, None, narrow)[:2] for b, part in enumerate(zip(q, k, v))]
    return tuple(torch.stack(of) for of in zip(*made))


def by_sdpa(q, k, v, causal=False, scale=None, window=None):
    mask = mask_of(q.shape[2], k.shape[2], causal, q.device, window)
    plain = causal and not window and q.shape[2] == k.shape[2]
    group = q.shape[1] // k.shape[1]
    if mask is not None and not plain and group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=None if plain else mask, is_causal=bool(plain), scale=scale,
        enable_gqa=q.shape[1] != k.shape[1])


def error_of(o, reference):
    difference = (o.double() - reference).abs()
    return float(difference[torch.isfinite(difference)].max()) if difference.numel() else 0.0


def check(o, q, k, v, causal=False, scale=None, window=None):
    """Raises where o is further from float64 than twice the distance of SDPA or of a plain computation, as
    the library's proof judges. Returns the ratio to SDPA's, which is above 2 where a heavy key decides."""
    reference, _ = exact(q, k, v, causal, scale, window)
    assert torch.isfinite(o).all(), "the output has values that are not finite"
    ours, theirs = error_of(o, reference), error_of(by_sdpa(q, k, v, causal, scale, window), reference)
    plain = exact(q, k, v, causal, scale, window, q.dtype, torch.float32)[0].to(q.dtype)
    allowed = max(theirs, error_of(plain, reference)) + float(torch.finfo(q.dtype).eps * reference.abs().max()) / 2
    assert ours <= 2 * allowed + 1e-6, "error %.3g, SDPA's %.3g, allowed twice %.3g" % (ours, theirs, allowed)
    return ours / max(theirs, 1e-9)


def random_calls_against_float64():
    return gpu_calls.random_calls(options.seed if options.seed is not None else random.randrange(1 << 30), options.seconds)


# ---- PyTorch's own ways --------------------------------------------------------------------------
def fp8_keeps_a_needle_and_a_dominant_key():
    """e4m3 beside float64, two heads: at most twice the error of weights that are rounded to e4m3. NaN lies behind the keys."""
    if torch.cuda.get_device_capability() < (8, 9):
        raise tap.Skip("queries of e4m3 are for sm_89 and newer")
    told, scales = [], dict.fromkeys(("q_descale", "k_descale", "v_descale"), torch.ones(1, 2, device="cuda"))
    for dim, keys in (128, 131071), (64, 131071), (256, 131071), (128, 1048575):
        for kind, most in (("normal", 0), ("needle", 8.5), ("cut", 8.5), ("jump", 160), ("alone", 350), ("dominant", 15 * math.log(2)), ("alike", 0))[:7 if keys < 2 ** 20 - 1 else 2]:
            torch.manual_seed(dim)
            needle = keys - 59 if kind == "cut" else keys // 3   # cut: the last key that its query sees
            hidden = torch.full((64, keys), -math.inf, device="cuda", dtype=torch.double).triu(keys - 63) if kind == "cut" else 0
            q, k, v = (torch.randn(rows, 2, dim, device="cuda") for rows in (64, keys + 65, keys + 65))
            k = k[:1].repeat(len(k), 1, 1) if kind == "alike" else k
            if kind == "dominant":     # of all queries, 2 ** 15 times the weight of a key of score 0
                q, k[needle] = q / 2 + 1, most * dim ** -0.5
            elif most:                 # of one query, 2 ** 12 or 2 ** 230 times the others'
                k, v = k * 0.1, v * (kind != "alone")
                k[needle], v[needle] = q[5] * most * dim ** -0.5, 4
            q, k, v = (x.to(torch.float8_e4m3fn) for x in (q, k, v))
            if kind == "alone":        # of all values, its are not 0; the last key is the same but for a number, which is e ** -4 of its weight
                number = (q[5].float() * k[keys // 3].float() * dim ** -0.5 - 4).abs().argmin(1, keepdim=True)
                k.view(torch.uint8)[keys - 1] = k.view(torch.uint8)[keys // 3].scatter(1, number, 0)
            k.view(torch.uint8)[keys:] = v.view(torch.uint8)[keys:] = 0x7F
            ends = torch.tensor([0, 64, keys], device="cuda", dtype=torch.int32)
            bare = torch.nn.functional.pad(q.view(torch.uint8), (0, 8)).view(q.dtype)[..., :dim]   # not aligned: for mma.sync, on Hopper, too
            outputs = [fa_tune.attention_varlen(x, k, v, cu_seqlens_q=ends[:2], cu_seqlens_k=ends[::2].contiguous(), max_seqlen_q=64, max_seqlen_k=keys, causal=kind == "cut", **scales)
                       for x in ((q, bare) if dim == 128 and keys < 2 ** 20 - 1 else (q,))]
            for head in range(2):
                left, right, values = (x[:keys, head].double() for x in (q, k, v))
                weights = torch.exp((scores := left @ right.T * dim ** -0.5 + hidden) - scores.amax(-1, keepdim=True))
                o64, rounded = ((w @ values / weights.sum(-1, keepdim=True)) for w in (weights, (weights * 256).to(q.dtype).double() / 256))
                allowed, *errors = (float((x.bfloat16().double() - o64).abs().max()) for x in (rounded, *(o[:, head] for o in outputs)))
                told += [error / max(allowed, 1e-9) for error in errors if kind != "alone"]
                assert max(errors) <= 2 * allowed + (0.1 if kind == "alone" else 1e-4), "%s, head dim %d, %d keys: errors %s, allowed twice %.3g" % (kind, dim, keys, errors, allowed)
    return "%d outputs; error over that of rounded weights: median %.2f, largest %.2f" % (len(told), sorted(told)[len(told) // 2], max(told))


def torch_compile_takes_it_whole():
    q, k, v = tensors()

    @torch.compile(fullgraph=True)
    def model(q, k, v):
        return fa_tune.attention(q * 2, k, v, causal=True).transpose(1, 2).reshape(2, 256, -1) + 1

    @torch.compile(fullgraph=True)
    def into(q, k, v):
        out = torch.empty_like(q)
        o, lse = fa_tune.attention(q, k, v, out=out, return_lse=True)
        return o * 1, lse + 0

    with torch.no_grad():
        expected = fa_tune.attention(q * 2, k, v, causal=True).transpose(1, 2).reshape(2, 256, -1) + 1
        assert torch.equal(model(q, k, v), expected)
        o, lse = fa_tune.attention(q, k, v, return_lse=True)
        compiled = into(q, k, v)
        assert torch.equal(compiled[0], o) and torch.equal(compiled[1], lse)
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        fast = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        for _ in range(3):  # recorded as a graph, then replayed
            assert torch.equal(fast(*turned), expected)
        torch.library.opcheck(torch.ops.fa_tune.attention.default, (q, k, v, True))
        torch.library.opcheck(torch.ops.fa_tune.attention_lse.default, (q, k, v))
    return "fullgraph, out= and LSE, reduce-overhead, opcheck of both operators"


def graphs_capture_and_replay():
    q, k, v = tensors()
    out = torch.empty_like(q)
    fa_tune.attention(q, k, v, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    fresh = tensors(seq=136, dim=72)
    sentence = None
    with torch.cuda.graph(graph):
        fa_tune.attention(q, k, v, out=out)
        allocated = fa_tune.attention(q, k, v, causal=False)
        try:
            fa_tune.attention(*fresh)
        except fa_tune.CaptureError as error:
            sentence = str(error)
    assert sentence and "warm_up" in sentence, sentence
    for _ in range(3):
        for x in (q, k, v):
            x.copy_(torch.randn_like(x))
        graph.replay()
        check(out, q, k, v)
        assert torch.equal(allocated, out)
    check(fa_tune.attention(*fresh), *fresh)  # and afterwards it is tuned as ever
    return "replayed on new values; a miss while capturing says: %s" % sentence


def threads_and_streams():
    shapes = [dict(seq=s, dim=d) for s, d in ((64, 64), (128, 64), (200, 128), (256, 64))]
    given = [tensors(**shape) for shape in shapes]
    expected = [fa_tune.attention(*one) for one in given]
    torch.cuda.synchronize()
    wrong = []

    def work(number):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for turn in range(100):
                    which = (number + turn) % len(given)
                    o = fa_tune.attention(*given[which])
                    if not torch.equal(o, expected[which]):
                        wrong.append((number, turn))
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    q, k, v = tensors(seq=512)
    check(fa_tune.attention(q, k, v), q, k, v)
    late = [torch.zeros_like(x) for x in (q, k, v)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # the launch follows what is enqueued on this stream
        torch.cuda._sleep(int(2e7))
        for mine, theirs in zip(late, (q, k, v)):
            mine.copy_(theirs)
        o = fa_tune.attention(*late)
    side.synchronize()
    check(o, q, k, v)
    return "8 threads on streams of their own, 800 calls; a side stream's order holds"


def a_thread_without_a_context():
    q, k, v = tensors()
    expected, got = fa_tune.attention(q, k, v), []
    thread = threading.Thread(target=lambda: got.append(fa_tune.attention(q, k, v)))
    thread.start()
    thread.join()
    assert got and torch.equal(got[0], expected)


def outputs_are_as_pytorch_makes_them():
    q, k, v = tensors(seq=128)
    padded = torch.randn(2, 8, 128, 96, device="cuda", dtype=torch.float16)[..., :64]
    fa_tune.attention(q, k, v, return_lse=True)
    for way in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with way():
            model = torch.empty_like(q)
            for given in (q, torch.nn.Parameter(q, requires_grad=False), padded):
                before = torch.cuda.memory_allocated()
                o, lse = fa_tune.attention(given, k, v, return_lse=True)
                assert torch.cuda.memory_allocated() > before, "another allocator made the output"
                for made, dtype, shape in ((o, torch.float16, q.shape), (lse, torch.float32, q.shape[:3])):
                    assert (type(made), made.dtype, made.shape) == (torch.Tensor, dtype, shape), made
                    assert made.device == q.device and made.is_contiguous() and not made.requires_grad
                    assert made.is_inference() == model.is_inference()
                    assert torch._C._dispatch_keys(made) == torch._C._dispatch_keys(model)
                del o, lse, made
                assert torch.cuda.memory_allocated() <= before, "an output's memory was not given back"
    o = fa_tune.attention(q, k, v)
    o.record_stream(torch.cuda.Stream())
    quick = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None)
    return "by torch._C._dynamo.guards._empty_strided_cuda" if quick else "by torch.empty_like"


def two_devices():
    if torch.cuda.device_count() < 2:
        raise tap.Skip("one GPU is here")
    pairs = [tensors(device="cuda:%d" % n) for n in range(2)]
    for q, k, v in pairs:  # the current device stays 0
        o = fa_tune.attention(q, k, v)
        assert o.device == q.device
        check(o, q, k, v)
    assert torch.cuda.current_device() == 0


def fork_is_an_error():
    q, k, v = tensors()
    fa_tune.attention(q, k, v)
    torch.cuda.synchronize()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fa_tune.attention(q, k, v)
            told = "no error"
        except BaseException as error:
            told = "%s: %s" % (type(error).__name__, error)
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    told = os.read(reader, 4096).decode()
    os.waitpid(child, 0)
    assert told.startswith("ForkedError"), told
    return told


def sdpa_drop_in():
    q, k, v = tensors(heads_kv=2)
    with torch.no_grad():
        with fa_tune.recording() as met, fa_tune.sdpa():
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            assert len(met) == 1, "SDPA did not come to fa_tune: %r" % met
            turned = q.transpose(1, 2).contiguous().transpose(1, 2)
            strides = F.scaled_dot_product_attention(turned, k, v, enable_gqa=True).stride()
        check(o, q, k, v, True)
        assert strides == turned.stride(), strides
        with fa_tune.recording() as met:
            F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        assert len(met) == 0, "the drop-in outlived its block"
    mask = torch.rand(q.shape[2], k.shape[2], device="cuda") > 0.3
    with warnings.catch_warnings(record=True) as told, fa_tune.sdpa(), fa_tune.recording() as met:
        warnings.simplefilter("always")
        q1, k1, v1 = tensors()
        with torch.no_grad():
            masked = F.scaled_dot_product_attention(q1, k1, v1, attn_mask=mask)
            dropped = [F.scaled_dot_product_attention(q1, k1, v1, dropout_p=0.5) for _ in range(2)][1]
        assert torch.isfinite(masked).all() and torch.isfinite(dropped).all()
        ours = [str(one.message) for one in told if "PyTorch's own" in str(one.message)]
        assert len(met) == 0 and len(ours) == 1, (met, ours)
    if hasattr(torch.nn.attention, "activate_flash_attention_impl"):
        torch.nn.attention.activate_flash_attention_impl("fa_tune")
        assert torch.nn.attention.current_flash_attention_impl() == "fa_tune"
        torch.nn.attention.restore_flash_attention_impl()
    with torch.no_grad(), fa_tune.sdpa(), fa_tune.recording() as met:
        compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * 2,
                                 fullgraph=True)
        check(compiled(q1, k1, v1) / 2, q1, k1, v1)
        taken = len(met)
    return "taken under GQA and compile (%d); dropout told once, mask left alone" % taken


def hugging_face_tokens_are_the_same():
    if importlib.util.find_spec("transformers") is None:
        raise tap.Skip("transformers is not here")
    import hf_llama
    with fa_tune.policy(effort="predict"):
        same, difference, problems = hf_llama.compare(new_tokens=12)
    assert problems, "the model did not come to fa_tune"
    assert same, "tokens differ; logits by %g" % difference
    return "12 tokens of 2 prompts, %d problems, logits differ by at most %.2g" % (len(problems),
                                                                                  difference)


def tokens_agree(what, ours, theirs, logits):
    """Compares rows of tokens (lists). Two ways of rounding may part where SDPA's two best logits (steps, rows, vocabulary)
    are next to one another; behind that place the rows have nothing in common."""
    parted = 0
    assert len(ours) == len(theirs), (what, ours, theirs)
    for row, (mine, right) in enumerate(zip(ours, theirs)):
        assert len(mine) == len(right), "%s: row %d has %d tokens, SDPA's %d" % (what, row, len(mine), len(right))
        at = next((i for i, pair in enumerate(zip(mine, right)) if pair[0] != pair[1]), None)
        if at is not None:
            best = logits[at][row].float().topk(2).values
            assert best[0] - best[1] < 0.03, "%s: row %d differs from place %d on (%s, SDPA %s), where SDPA's best logits are %s" % (
                what, row, at, mine[at:], right[at:], best.tolist())
            parted += 1
    return "%s: the same tokens%s" % (what, " but for %d rows that part at a tie" % parted if parted else "")


class Watched:
    """A `with` that sees which problems came to fa_tune, and which sentences said that SDPA computed a call."""

    def __enter__(self):
        from fa_tune import _policy
        _policy._warned.clear()
        self.catcher, self.recording = warnings.catch_warnings(record=True), fa_tune.recording()
        self.told = self.catcher.__enter__()
        warnings.simplefilter("always")
        self.met = self.recording.__enter__()
        return self

    def __exit__(self, *error):
        self.recording.__exit__(*error)
        self.catcher.__exit__(*error)

    def check(self, what, wanted, least, falls_back=False):
        """At least so many calls of problems that are wanted; and SDPA where that was meant only."""
        reasons = [str(one.message) for one in self.told if "sdpa_attention_forward computes" in str(one.message)]
        assert bool(reasons) == falls_back, "%s: fell back: %s" % (what, reasons or "no")
        calls = sum(count for problem, count in self.met.calls.items() if wanted(problem))
        assert calls >= least, "%s: %d such calls of ours, wanted %d; met: %s; warnings: %s" % (
            what, calls, least, ["%d x %r" % (count, problem) for problem, count in self.met.calls.items()],
            [str(one.message)[:200] for one in self.told])
        return calls


def needs_transformers():
    if importlib.util.find_spec("transformers") is None:
        raise tap.Skip("transformers is not here")
    import transformers
    if not hasattr(transformers, "ContinuousBatchingConfig"):
        raise tap.Skip("transformers %s is older than 5.17, which this is written for" % transformers.__version__)
    return transformers


def by_sdpa_alone(model, prompts, new, **more):
    """(rows of tokens, logits) of greedy generation with a growing cache."""
    model.set_attn_implementation("sdpa")
    told = model.generate(prompts, max_new_tokens=new, do_sample=False, return_dict_in_generate=True, output_logits=True, **more)
    return told.sequences[:, prompts.shape[1]:].tolist(), told.logits


def transformers_static_cache():
    """Greedy generation with a static cache, eager, in chunks and compiled with CUDA graphs: SDPA's tokens, each step by ours."""
    transformers = needs_transformers()
    import hf_llama
    model, new, said = hf_llama.small_llama().to("cuda", torch.float16), 12, []
    layers = model.config.num_hidden_layers
    prompts = torch.randint(3, 512, (3, 100), device="cuda")
    padded = torch.ones_like(prompts)
    padded[0, :30] = 0

    def has_lengths(problem):
        return problem["lengths_k"] == "seqused"
    theirs, logits = by_sdpa_alone(model, prompts, new)
    ways = (("static, eager", {"disable_compile": True}, layers * (new - 1)),
            ("static, the prompt in chunks of 40", {"disable_compile": True, "prefill_chunk_size": 40}, layers * (new + 1)),
            ("static, compiled by generate()", {}, layers))  # replays of a graph are not seen
    for what, more, least in ways:
        model.set_attn_implementation("fa_tune")
        with Watched() as watched:
            made = model.generate(prompts, max_new_tokens=new, do_sample=False, cache_implementation="static", **more)
        said.append(tokens_agree(what, made[:, prompts.shape[1]:].tolist(), theirs, logits))
        said[-1] += ", %d calls with lengths" % watched.check(what, has_lengths, least)
    theirs_padded, logits_padded = by_sdpa_alone(model, prompts, new, attention_mask=padded)
    model.set_attn_implementation("fa_tune")
    with Watched() as watched:
        made = model.generate(prompts, attention_mask=padded, max_new_tokens=new, do_sample=False, cache_implementation="static",
                              disable_compile=True)
    said.append(tokens_agree("left padding", made[:, prompts.shape[1]:].tolist(), theirs_padded, logits_padded))
    watched.check("left padding", has_lengths, 0, falls_back=True)
    # A loop of one's own without a mask: the numbers of keys are made inside the compiled graph.
    model.set_attn_implementation("fa_tune")
    cache = transformers.StaticCache(config=model.config, max_cache_len=128)
    torch._dynamo.reset()
    step, given, rows = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True), prompts, []
    with torch.no_grad(), Watched() as watched:
        for i in range(new):
            if i > 0:
                torch.compiler.cudagraph_mark_step_begin()
            told = (step if i else model.forward)(input_ids=given, past_key_values=cache, use_cache=True)
            given = told.logits[:, -1:].argmax(-1).clone()
            rows.append(given)
    said.append(tokens_agree("reduce-overhead, fullgraph", torch.cat(rows, 1).tolist(), theirs, logits))
    watched.check("reduce-overhead, fullgraph", has_lengths, layers)
    return "; ".join(said)


def transformers_continuous_batching():
    """generate_batch of ragged prompts: SDPA's tokens of each alone, decoding over the cache's pages by ours, with CUDA graphs
    and with windows too."""
    transformers = needs_transformers()
    import hf_llama
    new, said = 10, []
    torch.manual_seed(3)
    windowed = transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=512, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        sliding_window=48, bos_token_id=1, eos_token_id=None, pad_token_id=0)).eval()
    prompts = [torch.randint(3, 512, (length,)).tolist() for length in (5, 130, 17, 64, 33)]

    def is_paged(problem):
        return problem["page"] > 0 and problem["lengths_k"] == "seqused"

    def has_window(problem):
        return problem["window"] and problem["varlen"]
    config = transformers.ContinuousBatchingConfig
    for what, model, more, wanted in (
            ("eager, pages of 32", hf_llama.small_llama(), {"block_size": 32, "num_blocks": 64}, is_paged),
            ("prompts in chunks, pages of 256", None, {"block_size": 256, "num_blocks": 16, "max_batch_tokens": 64}, is_paged),
            ("CUDA graphs, pages of 64", None, {"block_size": 64, "num_blocks": 64, "use_cuda_graph": True}, is_paged),
            ("windows", windowed, {"block_size": 32, "num_blocks": 64}, has_window)):
        if model is not None:
            used = model.to("cuda", torch.float16)
            alone = [by_sdpa_alone(used, torch.tensor([prompt], device="cuda"), new) for prompt in prompts]
        theirs, logits = [rows[0] for rows, _ in alone], [[one[1][i][0] for one in alone] for i in range(new)]
        used.set_attn_implementation("paged|fa_tune")
        with Watched() as watched, fa_tune.policy(on_miss="nearest"):
            told = used.generate_batch(
                prompts, generation_config=transformers.GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1,
                                                                         pad_token_id=0),
                continuous_batching_config=config(**{"max_batch_tokens": 256, **more}), progress_bar=False)
        made = sorted(told.values(), key=lambda one: int(one.request_id.rsplit("_", 1)[-1]))
        failed = [str(one.error) for one in made if one.error]
        assert not failed and len(made) == len(prompts), "%s: %d of %d requests came back; errors: %s" % (
            what, len(made), len(prompts), failed)
        said.append(tokens_agree(what, [list(one.generated_tokens) for one in made], theirs, logits))
        said[-1] += ", %d calls" % watched.check(what, wanted, used.config.num_hidden_layers * (1 if "graphs" in what else new - 1))
    return "; ".join(said)


def cupy_arrays():
    if importlib.util.find_spec("cupy") is None:
        raise tap.Skip("CuPy is not here")
    import cupy
    q, k, v = tensors()
    arrays = [cupy.from_dlpack(x) for x in (q, k, v)]
    o = fa_tune.attention(*arrays)
    assert isinstance(o, cupy.ndarray), type(o)
    check(torch.from_dlpack(o), q, k, v)
    out = cupy.zeros_like(arrays[0])
    assert fa_tune.attention(*arrays, out=out) is out
    check(torch.from_dlpack(out), q, k, v)
    return "CuPy %s" % cupy.__version__


def jax_arrays():
    if importlib.util.find_spec("jax") is None:
        raise tap.Skip("JAX is not here")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.dlpack
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        raise tap.Skip("JAX sees no GPU: %s" % error) from None
    q, k, v = tensors()
    arrays = [jax.dlpack.from_dlpack(x) for x in (q, k, v)]
    out = torch.empty_like(q)
    fa_tune.attention(*arrays, out=out)
    check(out, q, k, v)
    return "JAX %s, out= a PyTorch tensor" % jax.__version__


def a_bound_kernel_and_objects():
    q, k, v = tensors(seq=512)
    bound = fa_tune.kernel(seq=512, head_dim=64, batch=2, heads=8, effort="measure")
    check(bound(q, k, v), q, k, v)
    out = torch.empty_like(q)
    assert bound(q, k, v, out=out) is out
    check(out, q, k, v)
    try:
        bound(q[:, :, :100], k, v)
    except fa_tune.ShapeError:
        pass
    else:
        raise AssertionError("another shape was not refused")
    answer = bound.answer
    assert answer.origin == "measured" and answer.median_us > 0
    winners = fa_tune.winners()
    assert len(winners) >= 1 and "winner" in repr(winners)
    assert fa_tune.doctor(), fa_tune.doctor()
    document = fa_tune.report(head_dim=64)
    assert document.problems
    swept = fa_tune.sweep(seq=[512], head_dim=64, batch=2, heads=8, progress=False)
    assert swept.state == "done" and swept[0].answer.origin.startswith("measured")
    return "%s" % repr(answer).replace("\n", " ")


def serving_policy():
    q, k, v = tensors(seq=296, dim=88)
    with fa_tune.policy(effort="cached"):
        try:
            fa_tune.attention(q, k, v)
        except fa_tune.NotTuned as error:
            sentence = str(error)
        else:
            raise AssertionError("a miss was not raised")
        with fa_tune.policy(on_miss="sdpa"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(fa_tune.attention(q, k, v), q, k, v)
        with fa_tune.policy(effort="predict"):
            fa_tune.warm_up([dict(seq=296, head_dim=88, batch=2, heads=8)])
        check(fa_tune.attention(q, k, v), q, k, v)
    return "a miss says: %s" % sentence


# ---- what it costs -------------------------------------------------------------------------------
LINES = """
import json, sys, time
begin = time.perf_counter()
import fa_tune, torch
imported = time.perf_counter()
effort = sys.argv[1]
fa_tune.policy(effort=effort)
q, k, v = (torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.float16) for _ in range(3))
torch.cuda.synchronize()
ready = time.perf_counter()
o = fa_tune.attention(q, k, v)
torch.cuda.synchronize()
done = time.perf_counter()
assert torch.allclose(o, torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=5e-3)
print(json.dumps({"import": imported - begin, "first": done - ready, "all": done - begin}))
"""


def newcomer(effort, store, system=""):
    """Seconds of `import fa_tune, torch` and of the first call, in a process of its own."""
    env = {**os.environ, "FA_TUNE_STORE": os.path.join(FOLDER, store), "FA_TUNE_SYSTEM": system}
    done = subprocess.run([sys.executable, "-c", LINES, effort], env=env, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def the_newcomers_three_lines():
    newcomer("predict", "page-in.db")  # libraries come off the disk once for all
    rows = [("first call, measure, empty store", newcomer("measure", "new.db"), 4.0),
            ("first call, second process", newcomer("measure", "new.db"), 0.5),
            ("first call, predict, empty store", newcomer("predict", "predict.db"), 1.0)]
    bundle = os.path.join(FOLDER, "new.fab")
    os.environ["XDG_CONFIG_HOME"] = os.path.join(FOLDER, "config")
    store = ["--store", os.path.join(FOLDER, "new.db")]
    for words in (["keygen"], ["export", *store, "--out", bundle]):
        subprocess.run([sys.executable, "-c", "import fa_tune._package as package; package.main()", *words],
                       stdout=subprocess.DEVNULL, check=True)
    rows.append(("first call, a bundle, empty store", newcomer("measure", "bundle.db", bundle), 1.0))
    for name, told, limit in rows:
        print("# %s: %.2f s (goal %.1f s%s); import fa_tune, torch %.1f s" % (
            name, told["first"], limit, ", missed" if told["first"] > limit else "", told["import"]))


def host_costs():
    program = os.path.join(ROOT, "tests", "bench", "python_cost.py")
    if not os.path.exists(program):
        raise tap.Skip("tests/bench/python_cost.py is not here")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=240,
                          check=False)
    for line in done.stdout.splitlines():
        print("# " + line)
    assert done.returncode == 0, done.stderr[-2000:]


TESTS = [
    the_newcomers_three_lines, a_bound_kernel_and_objects, random_calls_against_float64, fp8_keeps_a_needle_and_a_dominant_key,
    torch_compile_takes_it_whole, graphs_capture_and_replay,
    outputs_are_as_pytorch_makes_them, threads_and_streams, a_thread_without_a_context, two_devices, serving_policy,
    sdpa_drop_in, hugging_face_tokens_are_the_same, transformers_static_cache,
    transformers_continuous_batching, cupy_arrays, jax_arrays, host_costs, fork_is_an_error,
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=int, default=60, help="of random calls (60)")
    parser.add_argument("tests", nargs="*", help="names of tests; none: all")
    options = parser.parse_args()
    print("# fa_tune %s, PyTorch %s on %s, Python %s" % (
        fa_tune.__version__, torch.__version__, torch.cuda.get_device_name(), sys.version.split()[0]))
    fa_tune.policy(effort="predict")  # the newcomer's lines time "measure" in processes of their own
    tap.main([test for test in TESTS if not options.tests or test.__name__ in options.tests])
