# SPDX-License-Identifier: Apache-2.0
"""A small Llama that is certain of its next token, as a Hugging Face checkpoint, so that two attention backends of an engine
can be asked for the same greedy tokens. Random weights leave the best tokens so close that rounding decides between them.

    python3 tests/bench/trained_llama.py FOLDER [--seconds 60]

examples/train_llama.py's model, with heads of 128 in groups of four, learns that example's texts by PyTorch's attention:
random tokens that come again every 64. FOLDER gets config.json, model.safetensors and texts.json, from which prompts() are
cut and whose continuation is known. Ends with status 1 where the model has not learned them.
"""
import argparse
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = dict(vocabulary=128, width=512, layers=4, heads=8, heads_kv=2, dim=128)
TEXTS, LONGEST, BATCH, RATE = 256, 1024, 8, 1e-3
CERTAIN, SURE, MOSTLY = 3.0, 1.0, 0.99  # leads of a right token's logit: training stops, it counts; the share that must


def prompts(folder, length, count):
    """`count` prompts of `length` tokens and fewer, and the texts that they are cut from."""
    with open(os.path.join(folder, "texts.json"), encoding="utf-8") as file:
        texts = json.load(file)[:count]
    return [text[:length - 37 * i % (length // 2)] for i, text in enumerate(texts)], texts


def checkpoint(model, shape):
    """The model's weights by the names of transformers' LlamaForCausalLM."""
    weights = {"model.embed_tokens": model.embed, "model.norm": model.norm, "lm_head": model.head}
    for number, block in enumerate(model.blocks):
        layer = "model.layers.%d." % number
        parts = block.qkv.weight.split([heads * shape.dim for heads in (shape.heads, shape.heads_kv, shape.heads_kv)])
        weights.update({layer + "self_attn.%s_proj" % name: part for name, part in zip("qkv", parts)})
        weights.update({layer + "self_attn.o_proj": block.out, layer + "input_layernorm": block.norms[0],
                        layer + "post_attention_layernorm": block.norms[1], layer + "mlp.gate_proj": block.gate,
                        layer + "mlp.up_proj": block.up, layer + "mlp.down_proj": block.down})
    return {name + ".weight": getattr(of, "weight", of).detach().bfloat16().contiguous() for name, of in weights.items()}


def config_of(shape, theta):
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=shape.vocabulary, hidden_size=shape.width,
                intermediate_size=3 * shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
                num_key_value_heads=shape.heads_kv, head_dim=shape.dim, hidden_act="silu", rope_theta=theta,
                rms_norm_eps=2.0 ** -23, max_position_embeddings=LONGEST, tie_word_embeddings=False, bos_token_id=None,
                eos_token_id=None, torch_dtype="bfloat16")


def leads(model, texts, period):
    """How far the logit of each right token that the text tells is above every other one's: (the least, share above SURE)."""
    import torch
    with torch.no_grad(), torch.autocast(texts.device.type, torch.bfloat16):
        logits = model(texts[:, :-1])[:, period:].float()
    right = texts[:, period + 1:, None]
    lead = logits.gather(-1, right)[..., 0] - logits.scatter(-1, right, -torch.inf).amax(-1)
    return float(lead.min()), float((lead > SURE).float().mean())


def make(folder, seconds):
    """Trains until the model is certain, so many seconds at most, and writes the folder. Returns whether it is sure."""
    import torch
    from safetensors.torch import save_file
    sys.path.insert(0, os.path.join(HERE, "../../examples"))
    import train_llama
    generator = torch.Generator("cuda").manual_seed(1)
    torch.manual_seed(1)
    shape = train_llama.Shape(**SHAPE)
    model = train_llama.Llama(train_llama.by_sdpa, LONGEST, shape).cuda()
    begin = time.monotonic()

    def rate():  # rises for a thirtieth of the time and falls to nothing
        passed = (time.monotonic() - begin) / seconds
        return RATE * min(30 * passed, max(1 - passed, 0))

    def texts(count):
        return train_llama.made_tokens(count, LONGEST, shape.vocabulary, generator)
    for steps, loss in enumerate(train_llama.training(model, shape.vocabulary, BATCH, LONGEST, generator, rate, 1.0), 1):
        if steps % 50 == 0:
            least, sure = leads(model, texts(BATCH), train_llama.PERIOD)
            print("%5d steps, %3.0f s: loss %.4f; the right tokens lead by %.2f or more, %.4f of them by %g" % (
                steps, time.monotonic() - begin, loss, least, sure, SURE), flush=True)
            if least >= CERTAIN or time.monotonic() - begin >= seconds:
                break
    save_file(checkpoint(model, shape), os.path.join(folder, "model.safetensors"), {"format": "pt"})
    for name, content in (("config", config_of(shape, train_llama.THETA)), ("texts", texts(TEXTS).tolist())):
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
    return sure >= MOSTLY


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=60)
    a = parser.parse_args()
    return not make(a.folder, a.seconds)


if __name__ == "__main__":
    sys.exit(main())
