#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks `fa-tune serve` for the best attention kernel of a problem, loads the cubin that it gets and
launches it; checks the result against double precision. Needs the standard library and the driver
alone: no PyTorch, no CUDA toolkit, not even libfa_tune.

    fa-tune serve &
    python3 examples/serve_and_launch.py            # the socket in XDG_RUNTIME_DIR
    python3 examples/serve_and_launch.py /run/user/1000/fa-tune.sock

What it does for one problem a program does for each of its own: ask, load, and from then on launch.
The problem says "unaligned": such kernels take any pointers and strides and no tensor maps, so that
one structure is their whole argument. Exit status 77: no CUDA device here.
"""
import array
import ctypes
import http.client
import json
import math
import operator
import os
import random
import socket
import struct
import sys

BATCH, HEADS, SEQ, DIM = 1, 2, 128, 64
COUNT = BATCH * HEADS * SEQ * DIM
PROBLEM = {"dtype": "fp16", "causal": "bottom-right", "layout": "bhsd", "head_dim": DIM,
           "batch": BATCH, "heads_q": HEADS, "heads_kv": HEADS, "seq_q": SEQ, "seq_k": SEQ,
           "unaligned": True}
NO_DEVICE = 77


# ---- the service -------------------------------------------------------------------------------
class Service(http.client.HTTPConnection):
    """HTTP over the Unix socket of this user's or root's service."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)
        peer = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", peer)[1] not in (0, os.geteuid()):
            sys.exit("%s is another user's: its kernels are not for us" % self.path)

    def ask(self, method, path, body=None):
        self.request(method, path, json.dumps(body) if body is not None else None)
        response = self.getresponse()
        return response.status, response.read()


def best_kernel(service, uuid):
    """The answer for this device, and its cubin's bytes."""
    ask = {"problem": PROBLEM, "uuid": uuid, "effort": "measure", "timeout_ms": 60000}
    while True:
        status, text = service.ask("POST", "/v1/kernel", ask)
        document = json.loads(text)
        if status == 504:  # it is still being tuned: wait on
            print("tuning", flush=True)
            continue
        if status != 200:
            sys.exit("the service says: " + document["error"]["message"])
        break
    answer = document["answer"]
    if answer["driver_version"] is None:
        sys.exit("no GPU has proved the service's answer yet (origin: %s)" % answer["origin"])
    status, data = service.ask("GET", "/v1/cubins/" + answer["cubin_key"])
    if status != 200:
        sys.exit("the service no longer has the cubin of its answer: ask it to tune \"again\"")
    return answer, data


# ---- as much of the driver as this needs -------------------------------------------------------
class Params(ctypes.Structure):
    """struct fa_attn_params of kernel_templates/attn_fwd/attn_params.h; strides are in elements."""
    _fields_ = [(name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse")] + \
               [("%s_%s_stride" % (tensor, part), ctypes.c_longlong)
                for tensor in "qkvo" for part in ("batch", "head", "row")] + \
               [(name, ctypes.c_int) for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_k",
                                                  "causal_offset")] + \
               [("softmax_scale", ctypes.c_float), ("softmax_scale_log2", ctypes.c_float)]


class Driver:
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # a CUfunction_attribute

    def __init__(self):
        try:
            self.library = ctypes.CDLL(os.environ.get("FA_TUNE_LIBCUDA", "libcuda.so.1"))
        except OSError:
            self.library = None
        if self.library is None or self.library.cuInit(0) != 0:
            print("no CUDA device")
            sys.exit(NO_DEVICE)
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxPushCurrent_v2", context)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            sys.exit("%s failed with %d" % (name, code))

    def uuid(self):
        raw = ctypes.create_string_buffer(16)
        self.call("cuDeviceGetUuid_v2", raw, self.device)
        text = raw.raw.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def load(self, cubin, entry, shared_bytes):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        self.call("cuFuncSetAttribute", function, self.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        return function

    def upload(self, values):
        pointer, size = ctypes.c_uint64(), len(values) * values.itemsize
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.call("cuMemcpyHtoD_v2", pointer, values.tobytes(), ctypes.c_size_t(size))
        return pointer.value

    def download(self, pointer, count):
        raw = ctypes.create_string_buffer(2 * count)
        self.call("cuMemcpyDtoH_v2", raw, ctypes.c_uint64(pointer), ctypes.c_size_t(2 * count))
        return halves(raw.raw)

    def launch(self, function, answer, params):
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        self.call("cuLaunchKernel", function, *answer["grid"], answer["threads"], 1, 1,
                  answer["smem_bytes"], None, arguments, None)
        self.call("cuStreamSynchronize", None)


# ---- attention in double precision -------------------------------------------------------------
def halves(raw):
    return [value for value, in struct.iter_unpack("<e", raw)]


def rows(values, head):
    at = head * SEQ * DIM
    return [values[at + row * DIM:at + (row + 1) * DIM] for row in range(SEQ)]


def dot(a, b):
    return sum(map(operator.mul, a, b))


def reference(q, k, v):
    """softmax(Q K^T / sqrt(D)) V of one head, causal."""
    columns = list(zip(*v))
    for i, query in enumerate(q):
        scores = [dot(query, k[j]) / math.sqrt(DIM) for j in range(i + 1)]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        yield [dot(weights, column) / sum(weights) for column in columns]


def largest_error(tensors, result):
    worst = 0.0
    for head in range(BATCH * HEADS):
        for expected, got in zip(reference(*(rows(t, head) for t in tensors)), rows(result, head)):
            errors = [abs(a - b) for a, b in zip(expected, got)]
            if not all(error <= worst for error in errors):
                worst = max(errors) if all(map(math.isfinite, errors)) else math.inf
    return worst


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.environ.get("XDG_RUNTIME_DIR", "/run/user/%d" % os.getuid()), "fa-tune.sock")
    driver = Driver()
    try:
        answer, cubin = best_kernel(Service(path), driver.uuid())
    except (OSError, http.client.HTTPException) as error:
        sys.exit("no service answers at %s: %s" % (path, error))
    config = answer["config"]
    print("kernel %s %s" % (config["family"], " ".join(
        "%s=%d" % item for item in config["tunables"].items())))
    print("origin %s, %d bytes for %s" % (answer["origin"], len(cubin), answer["gpu"]["name"]))
    function = driver.load(cubin, answer["entry"], answer["smem_bytes"])

    numbers = random.Random(1)
    packed = [array.array("B", struct.pack("<%de" % COUNT, *(numbers.uniform(-1, 1)
                                                             for _ in range(COUNT))))
              for _ in "qkvo"]
    params = Params(batch=BATCH, heads_q=HEADS, heads_kv=HEADS, seq_q=SEQ, seq_k=SEQ,
                    causal_offset=0,  # seq_k - seq_q, for a mask anchored bottom-right
                    softmax_scale=1 / math.sqrt(DIM),
                    softmax_scale_log2=math.log2(math.e) / math.sqrt(DIM))
    for name, tensor in zip("qkvo", packed):
        setattr(params, name, driver.upload(tensor))
        setattr(params, name + "_batch_stride", HEADS * SEQ * DIM)
        setattr(params, name + "_head_stride", SEQ * DIM)
        setattr(params, name + "_row_stride", DIM)
    driver.launch(function, answer, params)
    error = largest_error([halves(tensor.tobytes()) for tensor in packed[:3]],
                          driver.download(params.o, COUNT))
    print("largest error %.2g against double precision" % error)
    return 0 if error <= 2e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
