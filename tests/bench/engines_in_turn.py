# SPDX-License-Identifier: Apache-2.0
"""Whole engines in turn: vLLM with FLASH_ATTN, TRITON_ATTN and CUSTOM (fa_tune's backend) or, by --engine sglang, SGLang with
fa3, triton and fa_tune, a process each on one GPU, and models with random weights and as many layers as are asked for.

A row, one JSON line of --out as soon as it is measured, is one batch of equal prompts by one backend in one round: time to the
first token and between tokens (means over the batch, by vLLM's own clock), tokens/s of the whole batch, in round 1 attention's
share of the GPU's time (torch.profiler), and its greedy tokens beside the first backend's, FLASH_ATTN's, as beside() has them.
Random weights leave the two best tokens so close that rounding alone makes backends differ: TRITON_ATTN's distance is the
measure for CUSTOM's, which fails where its mean is more than 1.5 times as large. Backends take turns within a round; each batch
is run once before it is measured. The script ends after --seconds; a backend that does not start is a row too.

--model trained asks for the same tokens: the checkpoint of tests/bench/trained_llama.py, which is certain of its tokens, and
prompts of its texts, of different lengths in a batch. `right` is the share of tokens that continue the text. CUSTOM fails where
a token of which FLASH_ATTN is sure is another one, and where less than 0.99 of the tokens are sure.

    FA_VLLM=FOLDER tests/gpu.sh vllm [--model gpt-oss-20b]       FOLDER: where vLLM 0.26.0 is installed (pip --target)
    FA_SGLANG=FOLDER tests/gpu.sh sglang [--model trained]                          likewise SGLang 0.5.13
    python3 tests/bench/engines_in_turn.py --model llama-3-8b --out rows.jsonl       with vLLM and fa_tune importable

SGLang's time to the first token is that of a run of one token, until the whole batch has it; attention's share is not taken; random
weights are compared of latent attention alone. Every measured run begins with an empty prefix cache, which vLLM has for a trained
model alone. In round 1 of a trained model each batch runs once more with the prompts in the cache: `cached_tokens` of its
`prompt_tokens` came from there, `cached_…` beside the run without. Where a sure token differs, or none came from there, the script fails.
"""
import argparse
import itertools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from statistics import median

import trained_llama

MODELS = {  # vocabularies are small, so that few layers stand beside no large last product
    "llama-3-8b": dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=4096, intermediate_size=14336,
                       num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_act="silu", rope_theta=500000.0),
    "gemma-2-9b": dict(architectures=["Gemma2ForCausalLM"], model_type="gemma2", hidden_size=3584, intermediate_size=14336,
                       num_attention_heads=16, num_key_value_heads=8, head_dim=256, query_pre_attn_scalar=256,
                       sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                       hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True),
    "gemma-3-12b": dict(architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", hidden_size=3840,
                        intermediate_size=15360, num_attention_heads=16, num_key_value_heads=8, head_dim=256,
                        query_pre_attn_scalar=256, sliding_window=1024, hidden_activation="gelu_pytorch_tanh",
                        tie_word_embeddings=True, layer_types=["sliding_attention"] * 5 + ["full_attention"]),
    "gpt-oss-20b": dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=2880, intermediate_size=2880,
                        num_attention_heads=64, num_key_value_heads=8, head_dim=64, num_local_experts=32,
                        num_experts_per_tok=4, sliding_window=128),
    # The first layer is dense; without YaRN, which changes no shape.
    "deepseek-v2-lite": dict(architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", hidden_size=2048, intermediate_size=10944,
                             moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, n_group=1,
                             topk_group=1, topk_method="greedy", norm_topk_prob=False, routed_scaling_factor=1.0, first_k_dense_replace=1,
                             moe_layer_freq=1, num_attention_heads=16, num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
                             qk_rope_head_dim=64, v_head_dim=128, hidden_act="silu", rope_theta=10000.0),
}
BACKENDS = {"vllm": ["FLASH_ATTN", "TRITON_ATTN", "CUSTOM"], "sglang": ["fa3", "triton", "fa_tune"]}
LATENT = {"vllm": ["FLASH_ATTN_MLA", "TRITON_MLA", "CUSTOM"], "sglang": BACKENDS["sglang"]}
# (length of the prompts, how many), the most telling first
CELLS = [(1024, 16), (8192, 16), (1024, 64), (32768, 1), (8192, 64), (1024, 256), (1024, 1), (8192, 1), (32768, 16),
         (8192, 256), (32768, 64)]
ATTENTION = "flash", "varlen_num_blocks", "unified_attention", "reduce_segments", "attn_fwd", "kernel_stage"  # in kernels' names
TRAINED_CELLS = [(896, 64), (640, 16), (512, 256), (896, 1)]  # with up to 128 tokens behind them
BATCHES = sorted({count for _, count in CELLS + TRAINED_CELLS})  # that graphs are captured for
VOCABULARY, MOST_TOKENS = 32000, 32768
BEST, FARTHER = 5, 1.5  # tokens whose probabilities are compared; how many times as far as TRITON_ATTN's is a failure


# ---- one engine: a process that is told batches on stdin and answers on stdout -----------------------------------------
def fill(model):
    """Weights that let attention matter and rounding little: products keep the size of what they are given, scores have a
    deviation of 2 and more, so that few keys take the weight and soft caps bend it, sinks are about as large as the largest
    score of a window, and of a router's experts the last ones weigh little. Norms change nothing but in Gemma, where they
    multiply by 1 + weight: its embeddings are its last product's weights too, so what layers add is made to outweigh the
    token that came in."""
    import torch
    dice, gemma = torch.Generator("cuda").manual_seed(1), "Gemma" in type(model).__name__
    for name, weight in model.named_parameters():
        if name.endswith("sinks"):
            weight.data.copy_(torch.randn(weight.shape, device="cuda", generator=dice) * 2 + 8)
        elif weight.dim() > 1:
            times = 2 ** 0.5 if "qkv_proj" in name else 4 if "router" in name or "mlp.gate." in name else 1
            size = 1 if "embed" in name and not gemma else weight.shape[-1] ** -0.5
            weight.data.copy_(torch.randn(weight.shape, device="cuda", generator=dice) * (times * size))
        else:
            times = 2 ** 0.5 if "q_norm" in name or "k_norm" in name else 8 if gemma and "post_" in name else 1
            weight.data.fill_(times - gemma if "norm" in name else 0)
    for module in model.modules():  # a backend may have made something of the weights when they were loaded
        for made in module if type(module).__name__ == "MLAAttention" else None, getattr(module, "impl", None):
            if hasattr(made, "process_weights_after_loading"):
                made.process_weights_after_loading(torch.bfloat16)


def write_filled(folder):
    """A model with the weights of fill(), beside its config: SGLang's engine is another process."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    fill(model)
    model.save_pretrained(folder)


def attention_share(run):
    """Of the GPU's time within run(), by kernels' names."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
    times = [(event.key.lower(), event.self_device_time_total) for event in profiled.key_averages()]
    attention = sum(t for name, t in times if any(word in name for word in ATTENTION) and "reshape_and_cache" not in name)
    return attention / max(sum(t for _, t in times), 1e-9)


def prompts_of(folder, length, count):
    """Lists of tokens, and the texts that they are the beginning of, where the model knows any."""
    if os.path.exists(folder + "/texts.json"):
        return trained_llama.prompts(folder, length, count)
    dice = random.Random(length * 1000 + count)
    return [[dice.randrange(3, VOCABULARY) for _ in range(length)] for _ in range(count)], None


def vllm_engine(a, backend, folder):
    from vllm import LLM, SamplingParams
    trained = a.model == "trained"
    llm = LLM(model=folder, load_format="auto" if trained else "dummy", skip_tokenizer_init=True, dtype="bfloat16",
              attention_backend=backend, kv_cache_dtype=a.kv_cache_dtype, max_model_len=longest(a), max_num_seqs=256,
              max_num_batched_tokens=8192, block_size=a.page, gpu_memory_utilization=0.2, kv_cache_memory_bytes=a.cache_gb << 30,
              enable_prefix_caching=trained, seed=0, disable_log_stats=False,
              compilation_config={"cudagraph_capture_sizes": BATCHES})
    if not trained:
        llm.apply_model(fill)

    def generate(prompts, tokens, best=None, cached=False):
        if trained and not cached:
            assert llm.reset_prefix_cache()
        begin = time.perf_counter()
        out = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=best), use_tqdm=False)
        wall, stats, answers = time.perf_counter() - begin, [one.metrics for one in out], [one.outputs[0] for one in out]
        return {"wall": wall, "first": sum(s.first_token_latency for s in stats) / len(out),
                "rest": sum(s.last_token_ts - s.first_token_ts for s in stats) / len(out),
                "cached_tokens": sum(one.num_cached_tokens or 0 for one in out),
                "tokens": [list(one.token_ids) for one in answers], "best": best and [
                    [{token: found.logprob for token, found in step.items()} for step in one.logprobs] for one in answers]}
    return generate


def sglang_engine(a, backend, folder):
    import sglang
    with open(folder + "/config.json", encoding="utf-8") as file:
        a_token = bytes_of_token(json.load(file))
    batches = sorted({int(cell.split("x")[1]) for cell in a.cells}) if a.cells else BATCHES
    engine = sglang.Engine(
        model_path=folder, load_format="auto" if a.model == "trained" or a.latent else "dummy", skip_tokenizer_init=True, dtype="bfloat16",
        attention_backend=backend, kv_cache_dtype="fp8_e4m3" if a.kv_cache_dtype == "fp8" else a.kv_cache_dtype,
        # SGLang limits piecewise graphs to a length that it is told: a trained model's own length is the right one
        context_length=None if a.model == "trained" else longest(a), max_running_requests=max(batches), chunked_prefill_size=8192,
        page_size=a.page, mem_fraction_static=0.5, max_total_tokens=(a.cache_gb << 30) // a_token, cuda_graph_bs=batches,
        disable_piecewise_cuda_graph=a.latent,  # or 42 lengths of prompts are compiled one by one
        sampling_backend="pytorch", grammar_backend="none", random_seed=0, log_level="info")

    def run(prompts, tokens, best=None, cached=False):
        while not cached and not engine.flush_cache().success:  # requests that are answered may not have ended yet
            time.sleep(0.01)
        begin = time.perf_counter()
        out = engine.generate(input_ids=prompts, return_logprob=best is not None, top_logprobs_num=best or 0, sampling_params={
            "temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True})
        return time.perf_counter() - begin, out

    def generate(prompts, tokens, best=None, cached=False):
        """The first token's time is that of another run, until the whole batch has it. `cached`: with what earlier runs left."""
        first, _ = run(prompts, 1, cached=cached)
        wall, out = run(prompts, tokens, best, cached)
        return {"wall": wall, "first": first, "rest": wall - first, "tokens": [one["output_ids"] for one in out],
                "cached_tokens": sum(one["meta_info"]["cached_tokens"] for one in out),
                "best": best and [[{token: chance for chance, token, _ in step} for step in one["meta_info"]["output_top_logprobs"]]
                                  for one in out]}
    return generate


def serve(a):
    begin, (backend, folder) = time.time(), a.serve
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    generate = {"vllm": vllm_engine, "sglang": sglang_engine}[a.engine](a, backend, folder)
    answers.write(json.dumps({"start_s": time.time() - begin}) + "\n")
    for line in sys.stdin:
        length, count, first = json.loads(line)
        prompts, texts = prompts_of(folder, length, count)
        before = generate(prompts, a.decode + 1, BEST) if first else generate(prompts, 4)
        told = generate(prompts, a.decode + 1)
        row = {"first_ms": 1e3 * told["first"], "between_ms": 1e3 * told["rest"] / a.decode,
               "tokens_per_s": count * (a.decode + 1) / told["wall"], "wall_ms": 1e3 * told["wall"]}
        if first and a.engine == "vllm":  # SGLang's GPU is another process's
            row["attention_share"] = attention_share(lambda: generate(prompts, a.decode + 1))
        if first and (texts or a.engine == "vllm" or a.latent):  # SGLang's other random weights give all tokens the same chance
            row["tokens"], row["best"] = before["tokens"], before["best"]
        if first and texts:  # the run before has left its prompts in the cache
            cached = generate(prompts, a.decode + 1, BEST, cached=True)
            row.update(cached_tokens=cached["cached_tokens"], prompt_tokens=sum(map(len, prompts)),
                       cached={name: cached[name] for name in ("tokens", "best")})
            follow = [text[len(prompt):] for prompt, text in zip(prompts, texts)]
            row["right"] = sum(token == other for answer, text in zip(row["tokens"], follow)
                               for token, other in zip(answer, text)) / (count * (a.decode + 1))
        answers.write(json.dumps(row) + "\n")


# ---- all of them ------------------------------------------------------------------------------------------------------
class Engine:
    def __init__(self, a, backend, folder, end):
        self.backend, self.end, self.rest = backend, end, b""
        environment = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_HOST_IP="127.0.0.1", GLOO_SOCKET_IFNAME="lo",
                           VLLM_NO_USAGE_STATS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_FLASHINFER_SAMPLER="0",
                           VLLM_CACHE_ROOT=folder + "/cache", VLLM_CONFIG_ROOT=folder + "/config", TOKENIZERS_PARALLELISM="false")
        self.log = open(os.path.join(os.path.dirname(os.path.abspath(a.out)), "%s-%s.log" % (a.engine, backend)), "wb")
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", backend, folder, "--decode", str(a.decode),
                                         "--cache-gb", str(a.cache_gb), "--model", a.model, "--kv-cache-dtype", a.kv_cache_dtype,
                                         "--engine", a.engine, "--page", str(a.page), *(["--cells", *a.cells] if a.cells else [])],
                                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True)

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
        os.killpg(self.process.pid, signal.SIGKILL)  # with processes of its own
        self.process.wait()
        self.log.close()


def beside(ours, theirs):
    """Of two answers to one batch: the share of equal tokens before the first that differs, and up to there how far log
    probabilities are apart; `crossed`: how much likelier, to them, their token is than ours where the first one differs;
    `lead`: how much likelier, to them, theirs are than the second best, at the least; `sure`: the share whose lead is > 1."""
    leading, apart, crossed, leads = 0, [], [0.0], []
    for *tokens, steps, their_steps in zip(ours["tokens"], theirs["tokens"], ours["best"], theirs["best"]):
        for mine, other, step, their_step in zip(*tokens, steps, their_steps):
            best, second = sorted(their_step.values())[:-3:-1]
            leads.append(best - second)
            apart += [abs(step[token] - their_step[token]) for token in step.keys() & their_step.keys()]
            if mine != other:  # ours is less likely to them than each of their best ones, where it is none of these
                crossed.append(their_step[str(other)] - their_step.get(str(mine), min(their_step.values())))
                break
            leading += 1
    tokens = sum(map(len, theirs["tokens"]))
    return {"same_tokens": leading / tokens, "of_tokens": tokens, "compared": len(apart),
            "apart": sum(apart) / max(len(apart), 1), "most_apart": max(apart, default=0.0), "crossed": max(crossed),
            "lead": min(leads), "sure": sum(lead > trained_llama.SURE for lead in leads) / len(leads)}


def summary(rows, a):
    """Of each batch how many times as fast as the first backend the others are, by the medians of the rounds, and how near
    its answers theirs are. Returns whether CUSTOM's are as near as TRITON_ATTN's, a trained model's tokens the same."""
    _, triton, custom = backends_of(a)
    first = a.backends[0]
    times, apart = {}, {}
    for row in rows:
        if "between_ms" in row:
            for what in ("first_ms", "between_ms", "wall_ms"):
                times.setdefault((row["prompt"], row["batch"]), {}).setdefault((row["backend"], what), []).append(row[what])
        if "apart" in row:
            apart.setdefault(row["backend"], []).append(row)
    for (length, count), of in times.items():
        for backend in sorted({name for name, _ in of} - {first} if (first, "wall_ms") in of else ()):
            print("%5d x %-3d %-11s / %s: first token %.3f, between tokens %.3f, tokens/s %.3f (%d rounds)" % (
                length, count, backend, first, *(median(of[first, what]) / median(of[backend, what])
                                          for what in ("first_ms", "between_ms", "wall_ms")), len(of[backend, "wall_ms"])))
    means = {}
    for backend, of in apart.items():
        means[backend] = sum(row["apart"] * row["compared"] for row in of) / max(sum(row["compared"] for row in of), 1)
        print("%-11s log probabilities %.3g apart from the first backend's, at most %.3g; tokens differ first where its own are at "
              "most %.3g apart; %d of %d before; they lead by %.3g or more" % (
                  backend, means[backend], max(row["most_apart"] for row in of), max(row["crossed"] for row in of),
                  round(sum(row["same_tokens"] * row["of_tokens"] for row in of)), sum(row["of_tokens"] for row in of),
                  min(row["lead"] for row in of)))
    if a.model == "trained":
        judged = apart.get(custom) or [row for of in apart.values() for row in of]   # CUSTOM may be what others are compared with
        right = all(row["crossed"] <= trained_llama.SURE and row["sure"] >= trained_llama.MOSTLY for row in judged)
        return judged != [] and right and all(row["cached_crossed"] <= trained_llama.SURE and row["cached_tokens"] > 0
                                              for row in rows if "cached_crossed" in row)
    if custom in means and triton not in means:
        print("how far %s may be is not judged: %s did not run" % (custom, triton))
        return True
    return means.get(custom, 0.0) <= FARTHER * means.get(triton, 0.0)


def longest(a):
    """Tokens of the longest prompt and its answer."""
    return trained_llama.LONGEST if a.model == "trained" else MOST_TOKENS + a.decode + 16


def bytes_of_token(config):
    """Of its keys and values in all layers, in bf16."""
    each = config["kv_lora_rank"] + config["qk_rope_head_dim"] if "kv_lora_rank" in config else config["num_key_value_heads"] * config["head_dim"] * 2
    return each * 2 * config["num_hidden_layers"]


def backends_of(a):
    return (LATENT if a.latent else BACKENDS)[a.engine]


def cells_of(a):
    """Those whose keys and values fit into the cache."""
    if a.model == "trained":
        return TRAINED_CELLS
    a_token = bytes_of_token(config_of(a.model, a.layers))
    return [(n, count) for n, count in CELLS if (n + a.decode + 64) * count * a_token <= a.cache_gb << 30
            and (not a.cells or "%dx%d" % (n, count) in a.cells)]


def config_of(model, layers):
    config = dict(vocab_size=VOCABULARY, max_position_embeddings=131072, rms_norm_eps=1e-5,
                  bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16", num_hidden_layers=layers, **MODELS[model])
    if "layer_types" in config:
        config["layer_types"] = (config["layer_types"] * layers)[:layers]
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=BACKENDS, default="vllm")
    parser.add_argument("--model", choices=[*MODELS, "trained"], default="llama-3-8b")
    parser.add_argument("--layers", type=int, default=0, help="0: 4, or as many as have each kind of the model's")
    parser.add_argument("--decode", type=int, default=32, help="tokens after the first one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--cache-gb", type=int, default=11, help="of each engine's keys and values")
    parser.add_argument("--cells", nargs="+", metavar="LENGTHxBATCH", choices=["%dx%d" % cell for cell in CELLS],
                        help="these alone, of those that fit into the cache")
    parser.add_argument("--kv-cache-dtype", default="auto", help="auto, or fp8: of keys and values")
    parser.add_argument("--page", type=int, default=64, help="tokens of a page of keys and values")
    parser.add_argument("--train-seconds", type=float, default=60, help="that --model trained may be trained, at most")
    parser.add_argument("--together", action="store_true", help="start all engines at once: sooner, but what is tuned then is "
                        "timed beside other work, and an engine must not take all memory that is free")
    parser.add_argument("--backends", nargs="+", help="the first is what the others are compared with")
    parser.add_argument("--out", default="engines.jsonl")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    a = parser.parse_args()
    a.latent = "kv_lora_rank" in MODELS.get(a.model, ())
    if a.serve:
        return serve(a)
    a.backends = a.backends or backends_of(a)
    end, folder, engines, rows, failed = time.monotonic() + a.seconds, tempfile.mkdtemp(), [], [], 0
    if a.model == "trained":
        a.layers = trained_llama.SHAPE["layers"]
        if subprocess.run([sys.executable, trained_llama.__file__, folder, "--seconds", str(a.train_seconds)]).returncode:
            print("the model is not sure of its tokens: the lines above tell why", file=sys.stderr)
            failed += 1
    else:
        a.layers = a.layers or len(MODELS[a.model].get("layer_types", range(4)))
        with open(folder + "/config.json", "w", encoding="utf-8") as file:
            json.dump(config_of(a.model, a.layers), file)
        if a.latent and a.engine == "sglang":
            write_filled(folder)
    with open(a.out, "a", encoding="utf-8", buffering=1) as out:
        def tell(backend, **row):
            rows.append(dict(row, backend=backend))
            out.write(json.dumps(dict(engine=a.engine, model=a.model, layers=a.layers, cache=a.kv_cache_dtype, backend=backend, **row)) + "\n")
            print("%-11s %-11s %s" % (a.model, backend, "  ".join("%s %s" % (name, "%.4g" % value if isinstance(value, float)
                                                                            else value) for name, value in row.items())), flush=True)
        try:
            coming = (Engine(a, backend, folder, end) for backend in a.backends)
            if a.together:
                coming = list(coming)
            for engine in coming:
                engines.append(engine)
                started = engine.answer()
                tell(engine.backend, **(started or {"failed": "did not start: %s-%s.log" % (a.engine, engine.backend)}))
                if started is None:
                    failed += 1
                    engines.remove(engine)
                    engine.close()
            for turn, (length, count) in itertools.product(range(1, a.rounds + 1), cells_of(a)):
                theirs = None
                for engine in list(engines) if time.monotonic() < end else []:
                    row = engine.ask(length, count, turn == 1)
                    if row is None:
                        over = time.monotonic() >= end
                        tell(engine.backend, round=turn, prompt=length, batch=count,
                             failed="the time is over" if over else "ended: %s-%s.log" % (a.engine, engine.backend))
                        if over:
                            break
                        failed += 1
                        engines.remove(engine)
                        engine.close()
                        continue
                    answer = {name: row.pop(name) for name in ("tokens", "best") if name in row}
                    if "cached" in row:
                        found = beside(row.pop("cached"), answer)
                        row.update(cached_tokens_same=found["same_tokens"], cached_crossed=found["crossed"])
                    theirs = answer if engine.backend == a.backends[0] else theirs
                    if answer and theirs and theirs is not answer:
                        row.update(beside(answer, theirs))
                    tell(engine.backend, round=turn, prompt=length, batch=count, **row)
        finally:
            for engine in engines:
                engine.close()
            shutil.rmtree(folder, ignore_errors=True)
            failed += not summary(rows, a)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
