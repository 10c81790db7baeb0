# SPDX-License-Identifier: Apache-2.0
"""The library as the benchmarks call it: fa_tune.h through ctypes, on PyTorch's context and stream.

FA_TUNE_LIBRARY names libfa_tune.so. Structures mirror include/fa-tune/fa_types.h and fa_tune.h.
"""
import ctypes as c
import os

DTYPES = {"fp16": 0, "bf16": 1}
CAUSAL = {"none": 0, "bottom-right": 1, "top-left": 2}
EFFORTS = {"cached": 0, "predict": 1, "measure": 2, "patient": 3}


class Diag(c.Structure):
    _fields_ = [("text", c.c_char * 1024)]


class Problem(c.Structure):
    _fields_ = [("operation", c.c_void_p)]
    _fields_ += [(n, c.c_int32) for n in ("dtype", "causal", "layout", "head_dim", "batch", "heads_q",
                                          "heads_kv", "seq_q", "seq_k", "want_lse", "unaligned")]
    _fields_ += [(n, c.c_int32) for n in ("varlen", "lengths_k", "page", "window", "window_left", "window_right",
                                          "softcap", "sinks", "kv_dtype", "batch_invariant", "mean_q", "mean_k",
                                          "head_dim_v", "v_in_k", "score", "mask", "q_dtype", "buffers")]
    _fields_ += [("unused", c.c_int32 * 3)]


class Gpu(c.Structure):
    _fields_ = [("name", c.c_char * 64)]
    _fields_ += [(n, c.c_int32) for n in ("sm", "sm_count", "smem_per_block", "smem_per_sm", "smem_reserved", "regs_per_sm", "threads_per_sm",
                                          "blocks_per_sm")]
    _fields_ += [("l2_bytes", c.c_int64), ("memory_bus_bits", c.c_int32), ("clock_mhz", c.c_int32),
                 ("bandwidth_gbs", c.c_double), ("tensor_tflops", c.c_double),
                 ("present", c.c_bool), ("ordinal", c.c_int32), ("uuid", c.c_char * 40)]


class Tunable(c.Structure):
    _fields_ = [("name", c.c_char * 32), ("value", c.c_int32)]


class Config(c.Structure):
    _fields_ = [("family", c.c_char * 32), ("count", c.c_int32), ("tunable", Tunable * 16)]

    def text(self):
        return self.family.decode() + " " + " ".join(f"{t.name.decode()}={t.value}" for t in self.tunable[:self.count])


class Trial(c.Structure):
    _fields_ = [("config", Config), ("status", c.c_int32), ("reason", c.c_char * 512)]
    _fields_ += [(n, c.c_int32) for n in ("threads", "smem_bytes", "registers", "spill_bytes", "blocks_per_sm")]
    _fields_ += [("grid", c.c_uint32 * 3)]
    _fields_ += [(n, c.c_double) for n in ("compile_ms", "predicted_us", "median_us", "low_us", "high_us")]
    _fields_ += [("sample_count", c.c_int32), ("max_error", c.c_double), ("tolerance", c.c_double),
                 ("raced", c.c_bool), ("spilled", c.c_bool), ("static_smem_bytes", c.c_int32)]


class Answer(c.Structure):
    _fields_ = [("size", c.c_size_t), ("problem", Problem), ("gpu", Gpu), ("origin", c.c_int32), ("trial", Trial),
                ("entry", c.c_char * 32), ("cubin_key", c.c_char * 65), ("nvrtc", c.c_char * 256),
                ("driver_version", c.c_int32), ("unix_time", c.c_int64), ("default_us", c.c_double),
                ("tune_s", c.c_double)]
    _fields_ += [(n, c.c_int32) for n in ("space", "in_budget", "compiled", "clean", "proved", "measured", "failed", "ties")]
    _fields_ += [("from_store", c.c_bool), ("from_problem", Problem), ("from_gpu", c.c_char * 64),
                 ("why", c.c_char * 256), ("shortlist_only", c.c_bool), ("from_system", c.c_bool), ("strategy", c.c_char * 16),
                 ("undated", c.c_bool), ("contents", c.c_int32),
                 ("ties_differ", c.c_int32), ("same_bits", c.c_char * 32)]


class Args(c.Structure):
    _fields_ = [("size", c.c_size_t), ("q", c.c_void_p), ("k", c.c_void_p), ("v", c.c_void_p), ("o", c.c_void_p), ("lse", c.c_void_p)]
    _fields_ += [(n, c.c_int64 * 3) for n in ("q_stride", "k_stride", "v_stride", "o_stride")]
    _fields_ += [("softmax_scale", c.c_float)]
    _fields_ += [(n, c.c_void_p) for n in ("cu_seqlens_q", "cu_seqlens_k", "seqused_k", "block_table", "sinks", "k_scale", "v_scale")]
    _fields_ += [("block_table_stride", c.c_int64), ("k_scale_stride", c.c_int64 * 2),
                 ("v_scale_stride", c.c_int64 * 2), ("num_pages", c.c_int32), ("total_q", c.c_int32),
                 ("total_k", c.c_int32), ("softcap", c.c_float), ("workspace", c.c_void_p),
                 ("workspace_bytes", c.c_size_t), ("buffers", c.c_void_p), ("buffer_count", c.c_int32)]


class FaError(RuntimeError):
    pass


class Tuner:
    def __init__(self, library=None):
        self.lib = c.CDLL(library or os.environ["FA_TUNE_LIBRARY"])
        self.lib.fa_kernel_answer.restype = c.POINTER(Answer)
        self.handle = c.c_void_p()
        self.diag = Diag()
        self.check(self.lib.fa_open(None, c.byref(self.handle), c.byref(self.diag)))

    def check(self, rc):
        if rc != 0:
            raise FaError(f"{rc}: {self.diag.text.decode()}")

    def kernel(self, problem, effort="measure"):
        kernel = c.c_void_p()
        self.check(self.lib.fa_get_best_kernel(self.handle, c.byref(problem), EFFORTS[effort], c.byref(kernel), c.byref(self.diag)))
        return kernel

    def answer(self, kernel):
        return self.lib.fa_kernel_answer(kernel).contents

    def launcher(self, kernel, q, k, v, o, stream):
        """A call without arguments that launches on contiguous tensors; what is timed."""
        args = Args(size=c.sizeof(Args), q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr())
        return self.caller(kernel, args, stream)

    def caller(self, kernel, args, stream, keep=None):
        """A call without arguments that launches with `args`; `keep` is what must live as long."""
        launch, diag = self.lib.fa_launch, c.byref(self.diag)
        launch.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p]
        pointer, stream = c.cast(c.byref(args), c.c_void_p), c.c_void_p(stream)

        def call():
            if launch(kernel, pointer, stream, diag) != 0:
                raise FaError(self.diag.text.decode())
        call.keep = args, keep
        return call

    def close(self):
        self.lib.fa_close(c.byref(self.handle))


def problem(dtype="fp16", causal="none", head_dim=64, batch=4, heads=8, heads_kv=None, seq=512, seq_k=None):
    return Problem(dtype=DTYPES[dtype], causal=CAUSAL[causal], head_dim=head_dim, batch=batch,
                   heads_q=heads, heads_kv=heads_kv or heads, seq_q=seq, seq_k=seq_k or seq)
