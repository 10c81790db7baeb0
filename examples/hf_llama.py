#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama of Hugging Face transformers on fa_tune's kernels: prefill and greedy decode, and the same
tokens as with PyTorch's SDPA.

    pip install fa-tune torch transformers
    python3 examples/hf_llama.py --new-tokens 32

The model is small and randomly initialised, so that nothing is downloaded. Needs a CUDA GPU. With
--cpu both runs use SDPA's way on the CPU, which shows that the fallback answers, and nothing more.
"""
import argparse
import sys
import time

import torch
import transformers

import fa_tune


def small_llama(seed=0):
    """A Llama with grouped heads: 8 query heads, 2 key and value heads of 64."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=2048,
        bos_token_id=1, eos_token_id=None, pad_token_id=0)
    return transformers.LlamaForCausalLM(config).eval()


def greedy(model, prompt, new_tokens, implementation):
    """Tokens (batch, new_tokens) chosen one after another, and the prefill's logits of the last place."""
    model.set_attn_implementation(implementation)
    tokens, logits, cache, given = [], None, None, prompt
    with torch.inference_mode():
        for _ in range(new_tokens):
            told = model(given, past_key_values=cache, use_cache=True)
            cache, given = told.past_key_values, told.logits[:, -1:].argmax(-1)
            logits = told.logits[:, -1] if logits is None else logits
            tokens.append(given)
    return torch.cat(tokens, 1), logits


def compare(batch=2, prompt_length=200, new_tokens=16, device="cuda"):
    """Runs both ways. Returns (the same tokens?, largest difference of the prefill's logits, problems)."""
    dtype = torch.float16 if device == "cuda" else torch.float32
    model = small_llama().to(device, dtype)
    prompt = torch.randint(3, 512, (batch, prompt_length), device=device)
    expected, expected_logits = greedy(model, prompt, new_tokens, "sdpa")
    with fa_tune.recording() as met:
        tokens, logits = greedy(model, prompt, new_tokens, "fa_tune")
    return (bool((tokens == expected).all()), float((logits - expected_logits).abs().max()),
            met.problems())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the prompt (200)")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--effort", default="predict", choices=("cached", "predict", "measure"))
    parser.add_argument("--cpu", action="store_true", help="on the CPU, where SDPA answers for us")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device: --cpu shows the fallback")
    begin = time.monotonic()
    with fa_tune.policy(effort=options.effort):
        same, difference, problems = compare(options.batch, options.prompt, options.new_tokens,
                                             "cpu" if options.cpu else "cuda")
    print("%d tokens for each of %d prompts: %s as with SDPA; logits differ by at most %.2g" % (
        options.new_tokens, options.batch, "the same" if same else "NOT the same", difference))
    print("%d problems for fa_tune, %.1f s in all" % (len(problems), time.monotonic() - begin))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
