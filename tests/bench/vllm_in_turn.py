# SPDX-License-Identifier: Apache-2.0
"""Whole engines in turn: vLLM with FLASH_ATTN, TRITON_ATTN and CUSTOM (fa_tune's backend), a process each on one GPU, and
models with random weights and as many layers as are asked for.

A row, one JSON line of --out as soon as it is measured, is one batch of equal prompts by one backend in one round: time to the
first token and between tokens (means over the batch, by vLLM's own clock), tokens/s of the whole batch, in round 1 attention's
share of the GPU's time (torch.profiler), and the share of FLASH_ATTN's greedy tokens that come before the first difference.
Random weights leave the two best tokens close to one another, so that rounding alone makes backends differ: TRITON_ATTN's
share is the measure for CUSTOM's. Backends take turns within a round; each batch is run once before it is measured. The
script ends after --seconds, with whatever was measured; a backend that does not start is a row too.

    FA_VLLM=FOLDER tests/gpu.sh vllm [--model gpt-oss-20b]       FOLDER: where vLLM 0.26.0 is installed (pip --target)
    python3 tests/bench/vllm_in_turn.py --model llama-3-8b --out rows.jsonl          with vLLM and fa_tune importable
"""
import argparse
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

MODELS = {  # vocabularies are small, so that few layers stand beside no large last product
    "llama-3-8b": dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=4096, intermediate_size=14336,
                       num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_act="silu", rope_theta=500000.0),
    "gemma-2-9b": dict(architectures=["Gemma2ForCausalLM"], model_type="gemma2", hidden_size=3584, intermediate_size=14336,
                       num_attention_heads=16, num_key_value_heads=8, head_dim=256, query_pre_attn_scalar=256,
                       sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                       hidden_activation="gelu_pytorch_tanh"),
    "gpt-oss-20b": dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=2880, intermediate_size=2880,
                        num_attention_heads=64, num_key_value_heads=8, head_dim=64, num_local_experts=32,
                        num_experts_per_tok=4, sliding_window=128),
}
BACKENDS = ["FLASH_ATTN", "TRITON_ATTN", "CUSTOM"]
# (length of the prompts, how many), the most telling first
CELLS = [(1024, 16), (8192, 16), (1024, 64), (32768, 1), (8192, 64), (1024, 256), (1024, 1), (8192, 1), (32768, 16)]
ATTENTION = "flash", "varlen_num_blocks", "unified_attention", "reduce_segments", "attn_fwd"  # in kernels' names
VOCABULARY, MOST_TOKENS = 32000, 32768


# ---- one engine: a process that is told batches on stdin and answers on stdout -----------------------------------------
def fill(model):
    """Weights that let attention matter: products keep the size of what they are given, norms change nothing."""
    import torch
    dice = torch.Generator("cuda").manual_seed(1)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            weight.data.copy_(torch.randn(weight.shape, device="cuda", generator=dice) * weight.shape[-1] ** -0.5)
        else:
            ones = "norm" in name and "Gemma" not in type(model).__name__  # Gemma's norms multiply by 1 + weight
            weight.data.fill_(float(ones))
            if name.endswith("sinks"):
                weight.data.copy_(torch.randn(weight.shape, device="cuda", generator=dice))
    for module in model.modules():  # a backend may have made something of the weights when they were loaded
        if hasattr(getattr(module, "impl", None), "process_weights_after_loading"):
            module.impl.process_weights_after_loading(torch.bfloat16)


def attention_share(run):
    """Of the GPU's time within run(), by kernels' names."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
    times = [(event.key.lower(), event.self_device_time_total) for event in profiled.key_averages()]
    attention = sum(t for name, t in times if any(word in name for word in ATTENTION) and "reshape_and_cache" not in name)
    return attention / max(sum(t for _, t in times), 1e-9)


def serve(a):
    begin = time.time()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM prints is no answer
    from vllm import LLM, SamplingParams
    llm = LLM(model=a.serve[1], load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", attention_backend=a.serve[0],
              max_model_len=MOST_TOKENS + a.decode + 16, max_num_seqs=256, max_num_batched_tokens=8192, block_size=64,
              gpu_memory_utilization=0.2, kv_cache_memory_bytes=a.cache_gb << 30, enable_prefix_caching=False, seed=0,
              disable_log_stats=False, compilation_config={"cudagraph_capture_sizes": sorted({count for _, count in CELLS})})
    llm.apply_model(fill)
    answers.write(json.dumps({"start_s": time.time() - begin}) + "\n")

    def generate(prompts, tokens):
        return llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False),
                            use_tqdm=False)
    for line in sys.stdin:
        length, count, share = json.loads(line)
        dice = random.Random(length * 1000 + count)
        prompts = [{"prompt_token_ids": [dice.randrange(3, VOCABULARY) for _ in range(length)]} for _ in range(count)]
        generate(prompts, 4)
        begin = time.perf_counter()
        out = generate(prompts, a.decode + 1)
        wall = time.perf_counter() - begin
        stats = [one.metrics for one in out]
        row = {"first_ms": 1e3 * sum(s.first_token_latency for s in stats) / count,
               "between_ms": 1e3 * sum(s.last_token_ts - s.first_token_ts for s in stats) / count / a.decode,
               "tokens_per_s": count * (a.decode + 1) / wall, "wall_ms": 1e3 * wall}
        if share:
            row["attention_share"] = attention_share(lambda: generate(prompts, a.decode + 1))
        answers.write(json.dumps(dict(row, tokens=[list(one.outputs[0].token_ids) for one in out])) + "\n")


# ---- all of them ------------------------------------------------------------------------------------------------------
class Engine:
    def __init__(self, a, backend, folder, end):
        self.backend, self.end, self.rest = backend, end, b""
        environment = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_HOST_IP="127.0.0.1", GLOO_SOCKET_IFNAME="lo",
                           VLLM_NO_USAGE_STATS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_FLASHINFER_SAMPLER="0",
                           VLLM_CACHE_ROOT=folder + "/cache", VLLM_CONFIG_ROOT=folder + "/config", TOKENIZERS_PARALLELISM="false")
        self.log = open(os.path.join(os.path.dirname(os.path.abspath(a.out)), "vllm-%s.log" % backend), "wb")
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", backend, folder, "--decode", str(a.decode),
                                         "--cache-gb", str(a.cache_gb)], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log)

    def answer(self):
        """Its next answer; None: it has ended, or the time is over."""
        pipe = self.process.stdout
        while b"\n" not in self.rest:
            ready, _, _ = select.select([pipe], [], [], max(self.end - time.monotonic(), 0))
            more = os.read(pipe.fileno(), 1 << 20) if ready else b""
            if not more:
                return None
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def ask(self, *what):
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def same_tokens(ours, theirs):
    """The share of tokens before the first that differs, over all prompts."""
    leading = sum(next((i for i, (x, y) in enumerate(zip(one, other)) if x != y), len(one)) for one, other in zip(ours, theirs))
    return leading / max(sum(map(len, theirs)), 1)


def summary(rows):
    """Of each batch how many times as fast as FLASH_ATTN the others are, by the medians of the rounds."""
    times = {}
    for row in rows:
        if "between_ms" in row:
            for what in ("first_ms", "between_ms", "wall_ms"):
                times.setdefault((row["prompt"], row["batch"]), {}).setdefault((row["backend"], what), []).append(row[what])
    for (length, count), of in times.items():
        for backend in sorted({name for name, _ in of} - {"FLASH_ATTN"} if ("FLASH_ATTN", "wall_ms") in of else ()):
            print("%5d x %-3d %-11s / FLASH_ATTN: first token %.3f, between tokens %.3f, tokens/s %.3f (%d rounds)" % (
                length, count, backend, *(median(of["FLASH_ATTN", what]) / median(of[backend, what])
                                          for what in ("first_ms", "between_ms", "wall_ms")), len(of[backend, "wall_ms"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-3-8b")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--decode", type=int, default=32, help="tokens after the first one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--cache-gb", type=int, default=11, help="of each engine's keys and values")
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--out", default="vllm.jsonl")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.serve:
        return serve(a)
    end, folder = time.monotonic() + a.seconds, tempfile.mkdtemp()
    with open(folder + "/config.json", "w", encoding="utf-8") as file:
        json.dump(dict(MODELS[a.model], num_hidden_layers=a.layers, vocab_size=VOCABULARY, max_position_embeddings=131072,
                       rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16"), file)
    engines, rows, failed = [], [], 0
    with open(a.out, "a", encoding="utf-8", buffering=1) as out:
        def tell(backend, **row):
            rows.append(dict(row, backend=backend))
            out.write(json.dumps(dict(model=a.model, layers=a.layers, backend=backend, **row)) + "\n")
            print("%-11s %-11s %s" % (a.model, backend, "  ".join("%s %s" % (name, "%.4g" % value if isinstance(value, float)
                                                                            else value) for name, value in row.items())), flush=True)
        try:
            for backend in a.backends:  # one after the other: each measures how much memory is free
                engine = Engine(a, backend, folder, end)
                engines.append(engine)
                started = engine.answer()
                tell(backend, **(started or {"failed": "did not start: vllm-%s.log" % backend}))
                if started is None:
                    failed += 1
                    engines.remove(engine)
                    engine.close()
            a_token = MODELS[a.model]["num_key_value_heads"] * MODELS[a.model]["head_dim"] * 4 * a.layers
            cells = [(n, count) for n, count in CELLS if (n + a.decode + 64) * count * a_token <= a.cache_gb << 30]
            for turn in range(1, a.rounds + 1):
                for length, count in cells:
                    theirs = None
                    for engine in list(engines):
                        row = engine.ask(length, count, turn == 1)
                        if row is None:
                            failed += time.monotonic() < end
                            tell(engine.backend, round=turn, prompt=length, batch=count,
                                 failed="the time is over" if time.monotonic() >= end else "ended: vllm-%s.log" % engine.backend)
                            if time.monotonic() >= end:
                                return 1 if failed else 0
                            engines.remove(engine)
                            engine.close()
                            continue
                        tokens = row.pop("tokens")
                        theirs = tokens if engine.backend == "FLASH_ATTN" else theirs
                        if theirs is not None:
                            row["same_tokens"] = same_tokens(tokens, theirs)
                        tell(engine.backend, round=turn, prompt=length, batch=count, **row)
        finally:
            for engine in engines:
                engine.close()
            shutil.rmtree(folder, ignore_errors=True)
            summary(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
