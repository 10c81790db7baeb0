# SPDX-License-Identifier: Apache-2.0
"""The problems of a model's layers, one a line: `python -m fa_tune.model MODEL [--training] [FIELD=VALUE[,VALUE…] …] > plan.jsonl`.

MODEL is a name, however it is written (llama3.1:8b), or a config.json as transformers writes it, or its folder. `fa-tune sweep --plan plan.jsonl` tunes the
problems: of serving prefill and decode, with --training what is trained (for `sweep --training`), or those of the lengths that are given, as in seq_q=512,1024."""
import difflib
import itertools
import json
import os
import re
import sys

from ._errors import did_you_mean
from ._types import ProblemFields

LEFT_OUT = set("meta instruct chat hf it base pt coder math preview bf16 fp16 fp8 int4 int8 awq gptq gguf mlx 4bit 8bit thinking 128k 1m 4k 8k dense".split())

PARTS = "text_config", "llm_config", "language_config", "thinker_config"  # of the language model, beside an image's or a voice's
FIELDS = sorted(ProblemFields.__optional_keys__ - {"heads", "seq"})  # those stand for one or two of them, and not in a plan
MIXED = "gemma2", "gemma3", "gpt_oss", "cohere2"  # have layers of both kinds, whether or not the config lists them


def _number(config, absent, *names):
    """The first of these fields that is a number above 0."""
    values = (config.get(name) for name in names)
    return next((int(value) for value in values if isinstance(value, (int, float)) and value >= 1), absent)


def _dtype(config):
    return "fp16" if str(config.get("dtype") or config.get("torch_dtype")).rpartition(".")[2] == "float16" else "bf16"


def _latent_layers(config, heads, rank):
    """Of multi-head latent attention: prompts attend by heads, decode steps to the keys that all heads share, whose first columns are values."""
    turned, value = _number(config, 64, "qk_rope_head_dim"), _number(config, 128, "v_head_dim")
    prompt = {"heads_q": heads, "heads_kv": heads, "head_dim": _number(config, 128, "qk_nope_head_dim") + turned, "head_dim_v": value}
    decode = {"heads_q": heads, "heads_kv": 1, "head_dim": rank + turned, "head_dim_v": rank, **({"v_in_k": "true"} if rank + turned > 512 else {}),
              "seq_q": 1, "seq_k": 4096, "batch": "1,8,32", "lengths_k": "seqused", "page": 64}
    return [{name: str(value) for name, value in {**layer, "dtype": _dtype(config)}.items()} for layer in (prompt, decode)]


def _layer(config, heads, window):
    one = config.get("multi_query") is True and config.get("new_decoder_architecture") is not True
    of_keys = _number(config, 1 if one else heads, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    dim = _number(config, _number(config, 0, "hidden_size", "n_embd", "d_model") // heads, "head_dim", "d_kv", "kv_channels")
    if not window:  # Gemma 4
        of_keys, dim = _number(config, of_keys, "num_global_key_value_heads"), _number(config, dim, "global_head_dim")
    layer = {"heads_q": heads, "heads_kv": of_keys, "head_dim": dim, "dtype": _dtype(config)}
    if _number(config, 0, "attn_logit_softcapping"):
        layer["softcap"] = "true"
    if "gpt_oss" in str(config.get("model_type")):
        layer["sinks"] = "true"
    if window:
        layer.update(window="true", window_left=window - 1)
    return {name: str(value) for name, value in layer.items()}


def _uncovered(config, kinds):
    """What its attention has that no kernel computes, and what does; None: nothing that is known."""
    if _number(config, 0, "index_topk"):
        return "sparse attention (index_topk)"
    if any(part.get("alibi") is True for part in (config, config.get("attn_config") or {})) or "bloom" in str(config.get("model_type")):
        return "ALiBi, which PyTorch's SDPA computes"
    if config.get("relative_attention_num_buckets") is not None:
        return "a relative bias of positions, which PyTorch's SDPA computes"
    return "masks of chunks, which PyTorch's flex_attention computes" if "chunked" in kinds else None


def layers_of(config):
    """Layers without a window, with one, or both, as objects of fields; ValueError says what is not covered."""
    for part in PARTS:
        if isinstance(config.get(part), dict):
            return layers_of(config[part])
    heads = _number(config, 0, "num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
    kinds, window = str(config.get("layer_types") or ""), _number(config, 0, "sliding_window")
    uncovered = _uncovered(config, kinds)
    if uncovered or not heads:
        raise ValueError("its attention has " + uncovered if uncovered else 'it describes no attention: "num_attention_heads" is missing')
    if _number(config, 0, "kv_lora_rank"):
        return _latent_layers(config, heads, _number(config, 0, "kv_lora_rank"))
    if config.get("use_sliding_window") is False or window >= _number(config, 1 << 31, "max_position_embeddings"):
        window = 0
    both = (config.get("use_sliding_window") is True or _number(config, 0, "sliding_window_pattern") > 1
            or any(name in str(config.get("model_type")) for name in MIXED))
    full = not window or ("full" in kinds if kinds else both)
    sliding = window and ("sliding" in kinds or not kinds)
    return [_layer(config, heads, 0)] * full + [_layer(config, heads, window)] * bool(sliding)


def _plain(name):
    """What tells a name from others: "meta-llama/Llama-3.1-8B-Instruct" and "llama3.1:8b" are "llama318b"."""
    first, *rest = (part.replace(".", "") for part in re.split(r"[^a-z0-9.]+", name.rpartition("/")[2].lower()))
    kept = [part for part in rest if part not in LEFT_OUT and not re.fullmatch("[0-9]{4}", part)]
    return "".join(kept if first == "meta" else [first, *kept])


def _layers_called(name, models):
    """The layers of a model of the table; ValueError: there is none, or it is not covered."""
    plain = {_plain(known): known for known in models}
    found = plain.get(_plain(name))
    if found is None:
        near = [known for key, known in plain.items() if key.startswith(_plain(name))][:1] or difflib.get_close_matches(name.lower(), models, 1)
        raise ValueError("it is no known model, nor a config.json" + "".join(": did you mean %s?" % one for one in near))
    layers = models[found]
    layers = models[layers] if isinstance(layers, str) else layers
    if isinstance(layers, dict):
        raise ValueError("it is not covered: " + layers["not_covered"])
    return layers


def problems_of(layers, works, given):
    """Each layer with each work, as objects of a plan; given fields come first, and with lengths there is no other work."""
    for layer in layers:
        has_lengths = any(name in fields for fields in (layer, given) for name in ("seq_q", "seq_k"))
        for work in [{}] if has_lengths else works:
            fields = {**work, **layer, **given}
            for values in itertools.product(*(text.split(",") for text in fields.values())):
                yield {name: int(value) if re.fullmatch("-?[0-9]+", value) else {"true": True, "false": False}.get(value, value)
                       for name, value in zip(fields, values)}


def main(arguments):
    if {"-h", "--help"}.intersection(arguments):
        print(__doc__)
        return 0
    named = [word for word in arguments if word != "--training" and "=" not in word]
    if len(named) != 1 or named[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    path = os.path.join(named[0], "config.json") if os.path.isdir(named[0]) else named[0]
    try:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json"), encoding="utf-8") as file:
            table = json.load(file)
        if path.endswith(".json"):
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            if not isinstance(config, dict):
                raise ValueError("it is no JSON object")
            layers = layers_of(config)
        else:
            layers = _layers_called(named[0], table["models"])
        given = dict(word.split("=", 1) for word in arguments if "=" in word)
        for name in (one for one in given if one not in FIELDS):
            raise ValueError("a problem has no field %r%s" % (name, did_you_mean(name, FIELDS)))
        for problem in problems_of(layers, table["training" if "--training" in arguments else "serving"], given):
            print(json.dumps(problem))
    except (OSError, ValueError) as error:
        print("fa_tune.model: %s: %s" % (path, error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
