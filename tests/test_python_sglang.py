#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune's backend for SGLang 0.5.13 on the fake driver, against stand-ins: what it registers, what it hands over for each
step, and that it comes out right."""
import enum
import sys
import types
from unittest import mock

import tap
from attention_case import DIM, answered, close
from engine_case import FLOAT16, FLOAT32, INT32, MOST, PAGE, Abstract, Tensor, ints, latent_case, paged, refused, registered, stand_in
from serving_case import Ragged
import fa_tune
from fa_tune import Problem, integrations
from fa_tune.integrations import _start

choices = []
stand_in("sglang.srt.layers.attention.attention_registry",
         register_attention_backend=lambda name: lambda of: registered.setdefault(name, of))
stand_in("sglang.srt.layers.attention.base_attn_backend", AttentionBackend=Abstract)
stand_in("sglang.srt.mem_cache.swa_memory_pool", SWAKVPool=type("SWAKVPool", (), {}))
Attends = enum.Enum("AttentionType", "DECODER DECODER_BIDIRECTIONAL ENCODER_ONLY")
Radix = type("RadixAttention", (types.SimpleNamespace,), {})
stand_in("sglang.srt.layers.radix_attention", AttentionType=Attends, RadixAttention=Radix)
stand_in("sglang.srt.server_args", add_attention_backend_choices=choices.extend)


def model_of(*layers, **members):
    """A model of modules that hold a layer each, and these members."""
    holders = [types.SimpleNamespace(children=lambda layer=layer: [types.SimpleNamespace(), layer], **members) for layer in layers]
    return types.SimpleNamespace(modules=lambda: holders)


class Pool:
    """SGLang's pool of keys and values, a slot for each token."""

    def __init__(self, k, v):
        self.buffers, self.written = [t.view(-1, Ragged.HEADS_KV, DIM) for t in (k, v)], []

    def set_kv_buffer(self, *args):
        self.written.append(args)

    def get_kv_buffer(self, layer_id):
        tap.equal(layer_id, 3)
        return self.buffers


def runner_of(table, pool, layers, cache=FLOAT16, chunk=64, **latent):
    """SGLang's, of a model of these layers whose requests, from 1 on, have the pages of the table."""
    slots = [0] * MOST + [page * PAGE + at for page in table.numbers() for at in range(PAGE)]
    return types.SimpleNamespace(
        page_size=PAGE, use_mla_backend=bool(latent), kv_cache_dtype=cache, device="cuda:0", model=model_of(*layers), token_to_kv_pool=pool,
        server_args=types.SimpleNamespace(chunked_prefill_size=chunk, cuda_graph_max_bs=2),
        model_config=types.SimpleNamespace(context_len=MOST, dtype=FLOAT16, **latent),
        req_to_token_pool=types.SimpleNamespace(req_to_token=Tensor((len(table) + 1, MOST), slots, dtype=INT32)))


def batch_of(case, **more):
    """A step of the requests from 1 on."""
    decodes = set(case.queries) == {1}
    return types.SimpleNamespace(**{**dict(
        batch_size=len(case.keys), req_pool_indices=ints(range(1, len(case.keys) + 1)), seq_lens=ints(case.keys), seq_lens_cpu=ints(case.keys),
        extend_seq_lens=ints(case.queries), extend_seq_lens_cpu=case.queries, extend_prefix_lens_cpu=None, out_cache_loc="where", rids=["a", "b", "c"],
        spec_info=None, forward_mode=types.SimpleNamespace(is_decode=lambda: decodes, is_decode_or_idle=lambda: decodes, is_idle=lambda: False)), **more})


def sglang_extends_and_decodes_also_by_a_graphs_buffers():
    integrations.register_sglang()
    tap.equal(choices, ["fa_tune"])
    layer = Radix(
        layer_id=3, tp_q_head_num=Ragged.HEADS, tp_k_head_num=Ragged.HEADS_KV, tp_v_head_num=Ragged.HEADS_KV,
        head_dim=DIM, v_head_dim=DIM, scaling=DIM ** -0.5, logit_cap=0.0, sliding_window_size=-1,
        is_cross_attention=False, attn_type=Attends.DECODER, k_scale=None, v_scale=None,
        logit_capping_method="tanh", use_irope=False, xai_temperature_len=-1)
    for queries in ([4, 1, 2], [1, 1, 1]):
        case = Ragged(queries, [20, 33, 7])
        k, v, table = paged(case)
        runner = runner_of(table, Pool(k, v), [layer])
        _start._prepared.clear()
        backend = registered["fa_tune"](runner)
        prepared = set(_start._prepared)
        assert prepared, "kernels are not there before the first step"
        decodes = queries == [1, 1, 1]
        batch = batch_of(case)
        forward = backend.forward_decode if decodes else backend.forward_extend
        q = Tensor((sum(queries), Ragged.HEADS * DIM), case.q)
        backend.init_forward_metadata(batch)
        with fa_tune.recording() as met:
            told = forward(q, k, v, layer, batch)
        assert {_start.kind_of(problem) for problem in met} <= prepared == _start._prepared, met
        tap.equal((told.shape, runner.token_to_kv_pool.written), (q.shape, [(layer, "where", k, v, None, None)]))
        close(told.numbers(), case.expected(causal=True)[0])
        if not decodes:
            between_the_pieces_of_a_graph(backend, batch, q, k, v, layer, told)
        layer.attn_type = Attends.ENCODER_ONLY
        close(forward(q, k, v, layer, batch).numbers(), case.expected()[0])
        layer.attn_type = Attends.DECODER
        backend.init_cuda_graph_state(8, 8)
        if decodes:
            backend.init_forward_metadata_out_graph(batch, in_capture=True)
            held = backend.step.lengths.memory, backend.step.pages.memory
            close(forward(q, k, v, layer, batch, save_kv_cache=False).numbers(), case.expected()[0])
            backend.init_forward_metadata_out_graph(batch)
            assert held == (backend.step.lengths.memory, backend.step.pages.memory), "a graph's buffers have moved"
    idle = types.SimpleNamespace(is_idle=lambda: True, is_decode_or_idle=lambda: True)
    backend.init_forward_metadata(types.SimpleNamespace(forward_mode=idle))
    batch.forward_mode = idle  # of a rank whose graph runs because others have sequences
    backend.init_forward_metadata_out_graph(batch)
    windows = sys.modules["sglang.srt.mem_cache.swa_memory_pool"].SWAKVPool()
    taken = dict(page_size=PAGE, token_to_kv_pool=None, use_mla_backend=False, kv_cache_dtype=FLOAT16,
                 model_config=types.SimpleNamespace(dtype=FLOAT16))
    for wrong, word in (({"token_to_kv_pool": windows}, "--disable-hybrid-swa-memory"), ({"kv_cache_dtype": (11, 8)}, "fp8_e4m3")):
        tap.has(refused(NotImplementedError, registered["fa_tune"], types.SimpleNamespace(**dict(taken, **wrong))), word)
    refused(ValueError, registered["fa_tune"], types.SimpleNamespace(page_size=1))
    batch.spec_info = "drafts"
    for prepare in (backend.init_forward_metadata, backend.init_forward_metadata_out_graph):
        batch.forward_mode = types.SimpleNamespace(is_idle=lambda: False, is_decode_or_idle=lambda: True)
        tap.has(refused(NotImplementedError, prepare, batch), "speculative")
    batch.mm_inputs = [None, "an image"]
    for number, wrong in enumerate((
            {"is_cross_attention": True}, {"attn_type": Attends.DECODER_BIDIRECTIONAL}, {"use_irope": True},
            {"logit_cap": 30.0, "logit_capping_method": "sigmoid"}, {"xai_temperature_len": 1024},
            {"attn_type": Attends.ENCODER_ONLY, "sliding_window_size": 64})):
        other = Radix(**dict(vars(layer), **wrong, layer_id=10 + number))
        refused(NotImplementedError, forward, q, k, v, other, batch)
        if "attn_type" not in wrong or "sliding_window_size" in wrong:  # the others are refused for what a request brings
            refused(NotImplementedError, registered["fa_tune"], types.SimpleNamespace(**dict(vars(runner), model=model_of(other))))
    tap.has(refused(NotImplementedError, forward, q, k, v, layer, batch, q_rope=q), "q_rope")


def sglang_attends_in_models_with_latent_attention():
    """Single queries and prompts behind a prefix to the cache, prompts without one to keys and values that are given."""
    case, cache, table, wanted, _ = latent_case()
    written, seen, _start._prepared = [], [], set()
    pool = types.SimpleNamespace(set_kv_buffer=lambda *args: written.append(args), get_kv_buffer=lambda _: (cache.view(-1, 1, DIM), None))
    layer = Radix(layer_id=3, tp_q_head_num=case.HEADS, tp_k_head_num=1, head_dim=DIM, v_head_dim=DIM // 2, scaling=DIM ** -0.5, logit_cap=0.0,
                  sliding_window_size=-1, is_cross_attention=False, attn_type=Attends.DECODER,
                  logit_capping_method="tanh", use_irope=False, xai_temperature_len=-1)
    given = Radix(**dict(vars(layer), tp_k_head_num=case.HEADS, head_dim=48, v_head_dim=32, logit_cap=30.0))
    backend = registered["fa_tune"](runner_of(table, pool, [layer, given], kv_lora_rank=DIM // 2, qk_rope_head_dim=DIM // 2))
    q, k = Tensor((2, case.HEADS * DIM), case.q), Tensor((2, 1, DIM))
    for decodes in (True, False):
        batch = batch_of(case, forward_mode=types.SimpleNamespace(is_decode=lambda now=decodes: now, is_idle=lambda: False))
        backend.init_forward_metadata(batch)
        with fa_tune.recording() as met:
            close(backend.forward_decode(q, k, k, layer, batch).numbers(), wanted)
        assert {_start.kind_of(problem) for problem in met} <= _start._prepared, met
    tap.equal(written, [(layer, "where", k, k)] * 2)
    tap.has(refused(NotImplementedError, registered["fa_tune"], runner_of(table, pool, [], (10, 8), kv_lora_rank=512, qk_rope_head_dim=64)), "over fp8")
    tokens = [Tensor((2, case.HEADS, size)) for size in (48, 48, 32)]
    with answered(lambda *args: seen.append(args) or Tensor((2, case.HEADS, 32))):
        tap.equal(backend.forward_extend(*tokens, given, batch, save_kv_cache=False).shape, (2, case.HEADS * 32))
    assert _start.kind_of(Problem(**seen[0][0])) in _start._prepared, seen
    batch.extend_prefix_lens_cpu = [0, 3]
    tap.has(refused(NotImplementedError, backend.forward_extend, *tokens, given, batch, save_kv_cache=False), "prefix")


def between_the_pieces_of_a_graph(backend, batch, q, k, v, layer, expected):
    """SGLang's piecewise graphs: attention writes where the next piece reads. The prompt that each graph is captured with is not
    recorded, and nothing is computed for it where it is longer than the table of slots."""
    batch._attn_output = Tensor(q.shape)
    told = backend.forward_extend(q, k, v, layer, batch)
    assert told.memory is batch._attn_output.memory, "the next piece reads another tensor"
    tap.equal(told.numbers(), expected.numbers())
    del batch._attn_output
    longer = dict(vars(batch), batch_size=1, req_pool_indices=ints([0]), seq_lens=ints([4 * MOST]), seq_lens_cpu=ints([4 * MOST]),
                  extend_seq_lens=ints([4 * MOST]), extend_seq_lens_cpu=[4 * MOST])
    tap.has(refused(NotImplementedError, backend.init_forward_metadata, types.SimpleNamespace(**longer)), "table of slots")
    for captured, numbers in (longer, [0] * q.numel()), (vars(batch), expected.numbers()):
        captured = types.SimpleNamespace(**dict(captured, rids=None))
        written = len(backend.token_to_kv_pool.written)
        backend.init_forward_metadata(captured)
        told = backend.forward_extend(q, k, v, layer, captured)
        tap.equal((told.numbers(), fa_tune._policy.current.record, len(backend.token_to_kv_pool.written)), (numbers, "", written + 1))
    backend.init_forward_metadata(batch)
    tap.equal(fa_tune._policy.current.record, _start.record_of("sglang"))


def sglangs_layers_are_handed_over_as_they_are():
    """fp8 caches with their scales; windows of SGLang's, which count the keys in front, soft caps and sinks."""
    fp8 = (10, 8)
    sinks = Tensor((Ragged.HEADS,), [1.0, 2.0, 3.0, 4.0], dtype=FLOAT32)
    for kind_of_cache, window, cap, own in ((fp8, -1, 0.0, None), (FLOAT16, 15, 30.0, sinks), (fp8, 0, 0.0, sinks)):
        handed_over_by_sglang(kind_of_cache, window, cap, own)


def handed_over_by_sglang(cache, window, cap, sinks):
    fp8, shape = cache != FLOAT16, (2 * PAGE, Ragged.HEADS_KV, DIM)
    pool = types.SimpleNamespace(get_kv_buffer=lambda _: (Tensor(shape, dtype=cache), Tensor(shape, dtype=cache)))
    backend = registered["fa_tune"](runner_of(Tensor((1, 3), [1, 2, 3], dtype=INT32), pool, [], cache, -1))
    layer = types.SimpleNamespace(
        layer_id=3, tp_q_head_num=Ragged.HEADS, tp_k_head_num=Ragged.HEADS_KV, tp_v_head_num=Ragged.HEADS_KV, head_dim=DIM,
        v_head_dim=DIM, scaling=1.0, logit_cap=cap, sliding_window_size=window, attn_type=Attends.DECODER, k_scale=None,
        v_scale=Tensor((1,), [0.5], dtype=FLOAT32))
    announced = []
    backend._check, seen = lambda _: None, []
    with mock.patch.object(_start, "prepare", lambda _, *kinds, **most: announced.extend(kinds) or tap.equal(most["most_queries"], MOST)), \
            answered(lambda *args: seen.append(args) or Tensor((2, Ragged.HEADS, DIM))):
        for starts, rows in ((None, 2), (ints([0, 3, 4]), 4)):
            backend.step = sys.modules["fa_tune.integrations.sglang"].Step(
                ints([9, 9]), Tensor((2, 1), [0, 1], dtype=INT32), PAGE, starts, 3)
            backend._attend(Tensor((rows, Ragged.HEADS * DIM)), None, None, layer, types.SimpleNamespace(mm_inputs=None), sinks=sinks)
    tap.equal((len(announced), len(seen)), (2, 2))  # one layer
    for (problem, _, words, _), kind in zip(seen, announced):
        if fp8:
            tap.equal((words["k_scale"].numbers(), words["v_scale"].numbers()), ([1.0] * 4, [0.5] * 4))
        asked = Problem(**problem)
        tap.equal((asked.kv_dtype, asked.window, asked.window_left, asked.window_right, asked.softcap, asked.sinks),
                  ("fp8" if fp8 else "same", window >= 0, max(window, 0), 0, cap > 0, sinks is not None))
        tap.equal((words.get("softcap", 0.0), words.get("sinks") and words["sinks"].numbers()), (cap, sinks and sinks.numbers()))
        tap.equal(_start.kind_of(asked), _start.kind_of(Problem(**kind, batch=2, seq_q=asked.seq_q, seq_k=asked.seq_k)))


tap.main()
