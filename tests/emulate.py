#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a shared library from a rendered kernel template, for the CPU.

Every inline-assembly statement becomes a call into emulator.hpp or emulator_hopper.hpp, by its text; to execute one that
the tables below do not have is a fault, so that nothing is left out in silence. The library has

    const char *emulated_launch(entry, params, maps, grid, threads, shared bytes, granted)   NULL: done; else what was wrong
    const unsigned emulated_parameter_bytes, and emulated_map_bytes: 0, or of emulator_hopper.hpp's maps, for q, k, v and o

    python3 tests/emulate.py KERNEL.cu LIBRARY.so
"""
import fcntl
import functools
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(os.environ.get("FA_TEST_KEPT") or os.path.join(os.path.dirname(HERE), ".cuda"), "kept.emulated")
KEPT_MOST = 400  # programs and libraries
RENDERED = "rendered.cu"
EMULATOR = "emulator_hopper.hpp"  # includes emulator.hpp
OPTIONS = ["-O1", "-std=c++17", "-fPIC", "-fno-semantic-interposition", "-fno-strict-aliasing", "-w", "-Wno-psabi"]
LINKER = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # takes a fifth of the time
TEMPLATES = os.path.join(os.path.dirname(HERE), "kernel_templates")
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%0,%%1,%%2,%%3}, {%%4,%%5,%%6,%%7}, {%%8,%%9}, {%%0,%%1,%%2,%%3};"
CALLS = {
    "": "nothing",
    "mov.b32 %0, %1;": "same_bits",
    "cvt.f32.f16 %0, %1;": "half_to_float",
    "cvt.rn.f16.f32 %0, %1;": "float_to_half",
    "cvt.rn.bf16.f32 %0, %1;": "float_to_brain",
    "cvt.rn.f16x2.f32 %0, %1, %2;": "pack_half",
    "cvt.rn.bf16x2.f32 %0, %1, %2;": "pack_brain",
    "ex2.approx.ftz.f32 %0, %1;": "exp2_of",
    "lg2.approx.ftz.f32 %0, %1;": "log2_of",
    "rcp.approx.ftz.f32 %0, %1;": "reciprocal_of",
    "rsqrt.approx.ftz.f32 %0, %1;": "reciprocal_root_of",
    "max.f32 %0, %1, %2;": "max_of",
    "prmt.b32 %0, %1, 0, %2;": "permute",
    "prmt.b32 %0, %1, %2, %3;": "permute",
    "{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }":
        "pack_e4m3",
    "{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b; }": "widen_e4m3",
    "mul.rn.f16x2 %0, %1, %2;": "multiply_halves",
    "fma.rn.bf16x2 %0, %1, %2, %3;": "multiply_add_brains",
    "shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;": "shuffle_xor",
    "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.u32 %0, 1, 0, q; }": "ballot",
    "{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }": "ballot",
    "bfind.u32 %0, %1;": "highest_bit",
    "shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;": "from_lane",
    "redux.sync.min.s32 %0, %1, 0xffffffff;": "of_all<32>",
    "redux.sync.max.s32 %0, %1, 0xffffffff;": "of_all<33>",
    "{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }": "shared_address",
    "st.shared.b32 [%0], %1;": "store_shared",
    "st.shared.v2.b32 [%0], {%1,%2};": "store_shared",
    "st.shared.v4.b32 [%0], {%1,%2,%3,%4};": "store_shared",
    "ld.shared.b32 %0, [%1];": "load_shared",
    "ld.shared.v2.b32 {%0,%1}, [%2];": "load_shared",
    "ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];": "load_shared",
    "ld.global.nc.b32 %0, [%1];": "load_global",
    "ld.global.b32 %0, [%1];": "load_global",
    "ld.global.nc.v2.b32 {%0,%1}, [%2];": "load_global",
    "ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];": "load_global",
    "ld.global.v4.b32 {%0,%1,%2,%3}, [%4];": "load_global",
    "ld.acquire.gpu.global.u32 %0, [%1];": "load_acquire",
    "ld.global.cg.v2.f32 {%0,%1}, [%2];": "load_global",
    "ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];": "load_global",
    "st.global.v2.b32 [%0], {%1,%2};": "store_global",
    "st.global.v4.b32 [%0], {%1,%2,%3,%4};": "store_global",
    "st.global.v2.f32 [%0], {%1,%2};": "store_global",
    "st.global.v4.f32 [%0], {%1,%2,%3,%4};": "store_global",
    "atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;": "count_and_wrap",
    "atom.relaxed.gpu.global.add.u32 %0, [%1], 1;": "count",
    "red.relaxed.gpu.global.add.f32 [%0], %1;": "add_global",
    "red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};": "add_global",
    "red.relaxed.gpu.global.add.u64 [%0], %1;": "add_global",
    "red.release.gpu.global.add.u32 [%0], %1;": "add_global",
    "st.release.gpu.global.u32 [%0], %1;": "store_global",
    "st.relaxed.gpu.global.u32 [%0], %1;": "store_global",
    "prefetch.global.L2 [%0];": "nothing",
    "createpolicy.fractional.L2::evict_first.b64 %0, 1.0;": "nothing",
    "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;": "copy_async_16",
    "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;": "copy_async",
    "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;": "copy_async",
    "cp.async.commit_group;": "commit",
    "cp.async.wait_group %0;": "wait_copies",
    "bar.sync 0;": "block_barrier",
    "bar.sync %0, %1;": "barrier",
    "bar.warp.sync 0xffffffff;": "warp_barrier",
    "mbarrier.init.shared.b64 [%0], %1;": "split_init",
    "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }": "split_arrive",
    "{ .reg .pred done; AGAIN_%=: mbarrier.test_wait.parity.shared.b64 done, [%0], %1; @!done bra AGAIN_%=; }": "split_wait",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];": "ldmatrix",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];": "ldmatrix_trans",
    MMA % ("f16", "f16"): "mma<emu::half_value>",
    MMA % ("bf16", "bf16"): "mma<emu::brain_value>",
    MMA.replace("k16", "k32") % ("e4m3", "e4m3"): "mma<emu::byte_value>",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};": "mma_tf32",
}
# Of sm_90: emulator_hopper.hpp.
CALLS |= {
    "ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];": "load_global",
    "shfl.sync.bfly.b32 %0, %1, 1, 31, 0xffffffff;": "from_neighbour",
    "shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;": "from_first",
    "{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000; mov.f32 %2, 0f00000000; "
    "mov.f32 %3, 0f00000000; @p ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4]; }": "load_global_if",
    "movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;": "transpose",
    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};": "stmatrix",
    "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};": "stmatrix_trans",
    "mbarrier.init.shared::cta.b64 [%0], %1;": "split_init",
    "mbarrier.arrive.shared::cta.b64 _, [%0];": "byte_arrive",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;": "byte_arrive",
    "{ .reg .pred done; AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra AGAIN_%=; }": "byte_wait",
    "mbarrier.inval.shared::cta.b64 [%0];": "split_end",
    "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p bar.sync %0, %1; }": "barrier_if",
    "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p bar.arrive %0, %1; }": "barrier_arrive_only_if",
    "mov.u32 %0, %dynamic_smem_size;": "shared_size",
    "prefetch.tensormap [%0];": "nothing",
    "{ .reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p nanosleep.u32 0; }": "nothing",
    "{ .reg .pred p; setp.lt.s32 p, %0, 0; @p exit; }": "nothing",
    "fence.mbarrier_init.release.cluster;": "nothing",
    "fence.proxy.async.shared::cta;": "proxy_fence",
    "fence.proxy.async.global;": "nothing",
    "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;": "nothing",
    "setmaxnreg.dec.sync.aligned.u32 %0;": "nothing",
    "setmaxnreg.inc.sync.aligned.u32 %0;": "nothing",
    "griddepcontrol.wait;": "nothing",
    "griddepcontrol.launch_dependents;": "nothing",
    "bar.arrive %0, %1;": "barrier_arrive_only",
    "trap;": "trap",
    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
    "[%0], [%1, {%3, %4, %5, %5}], [%2], %6, %7;": "tensor_load_to_all",
    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;": "tensor_load_to_all",
    "mov.u32 %0, %cluster_ctarank;": "cluster_rank",
    **{"barrier.cluster.arrive.%s; barrier.cluster.wait.acquire;" % order: "cluster_barrier" for order in ("relaxed", "release")},
    "mapa.shared::cluster.u32 %0, %1, %2;": "place_in_block",
    "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];": "load_from_block",
    "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }": "byte_arrive_in_block",
    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
    "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;": "tensor_load",
    "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], %6;": "tensor_store",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];": "array_load",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;": "array_load",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;": "array_add",
    "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;": "array_store",
    "cp.async.bulk.commit_group;": "store_commit",
    "cp.async.bulk.wait_group.read %0;": "store_wait",
    "cp.async.bulk.wait_group %0; fence.proxy.async.global;": "store_wait",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;": "map_copy",
    "wgmma.fence.sync.aligned;": "nothing",
    "wgmma.commit_group.sync.aligned;": "product_commit",
    "wgmma.wait_group.sync.aligned %0;": "product_wait",
}
MAP_FIELDS = {"rank": "rank", "box_dim": "box", "global_dim": "extent", "global_stride": "stride", "element_stride": "element_stride",
              "elemtype": "type", "interleave_layout": "interleave", "swizzle_mode": "swizzle", "fill_mode": "fill"}
BEYOND = r"setp\.le\.s32 p, %(\d+), (\d+); @p mov\.b32 %(\d+), 0xff800000;"
WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(?:16|32)\.f32\.(b?f16|e4m3)\.(?:b?f16|e4m3) \{[%0-9, ]*\}, (\{?)[%b][^;]*?, (?:p|all), 1, 1(?:, )?([^;]*);")


def call_of(said, operands):
    """The call that stands for an instruction; one that nothing emulates is a fault when it is executed."""
    if said in CALLS:
        return "emu::%s(%s)" % (CALLS[said], ", ".join(operands))
    if re.fullmatch(r"\{ \.reg \.pred p; (?:%s )+\}" % BEYOND.replace("(", "(?:"), said):
        return "(%s)" % ", ".join("%s <= %s ? void(%s = -HUGE_VALF) : void()" % (operands[int(limit)], column, operands[int(to)])
                                  for limit, column, to in re.findall(BEYOND, said))
    if said in ("set.ge.f16x2.f16x2 %0, %1, %2;", "set.ge.u32.f16x2 %0, %1, %2;"):
        return "(%s = [](emu::u32 a, emu::u32 b, emu::u32 yes) { return (emu::half_value(a) >= emu::half_value(b) ? yes : 0) | (emu::half_value(a >> 16) >= emu::half_value(b >> 16) ? yes << 16 : 0); }(%s, %s, %s))" % (
            *operands, "0xffff" if "u32" in said else "0x3c00")
    field = re.fullmatch(r"tensormap\.replace\.tile\.(\w+)\.shared::cta\.b1024\.b(?:32|64) \[%0\], (?:(\d), )?%1;", said)
    if field is not None and field.group(1) == "global_address":
        return "emu::map_set_address(%s)" % ", ".join(operands)
    if field is not None and field.group(1) in MAP_FIELDS:
        return "emu::map_set(%s, &emu::TensorMap::%s, %s%s)" % (operands[0], MAP_FIELDS[field.group(1)],
                                                               field.group(2) + ", " if field.group(2) else "", operands[1])
    found = WGMMA.findall(said)
    if found and len(set(found)) == 1 and len(found) in (1, 4):
        columns, kind, registers, ways = found[0]
        form = "kRegistersForm" if registers else "kSharedForm" if ways in ("0, 0", "") else "kAcrossForm"
        adds = re.search(r"setp\.ne\.b32 p, ([%0-9]+), 0;", said).group(1)
        apart = re.findall(r"add\.u64 b, %\d+, (\d+);", said) or ["0"]
        if said.count("wgmma.mma_async") == len(found) and [int(x) for x in apart] == [int(apart[0]) * i for i in range(1, len(found))] or len(found) == 1:
            return "emu::wgmma<%s, %d, emu::%s, %d, %s, %s>(%s)" % (columns, ("f16", "bf16", "e4m3").index(kind), form, len(found), apart[0],
                                                                    "-1" if adds[0] == "%" else adds, ", ".join(operands))
    return "emu::not_emulated(\"%s\")" % said[:120]


TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}:]|[^"()\[\]{}:]+')


def parts_of(text):
    """What lies between its first parenthesis and that one's end, cut at the colons that are in no bracket."""
    parts, depth = [""], 0
    for token in TOKEN.finditer(text):
        word = token.group()
        if word in "([{":
            depth += 1
        elif word in ")]}":
            depth -= 1
            if depth == 0:
                return parts
        if word == ":" and depth == 1:
            parts.append("")
        elif depth > 1 or word != "(":
            parts[-1] += word
    sys.exit("emulate.py: an asm statement without an end")


def operands_of(part):
    """The expressions of "constraint"(expression), …"""
    found, at = [], 0
    while (begin := re.compile(r'\s*,?\s*"[^"]*"\s*\(').match(part, at)) is not None:
        depth, end = 1, begin.end()
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(part[end], 0)
            end += 1
        found.append(part[begin.end():end - 1])
        at = end
    if part[at:].strip():
        sys.exit("emulate.py: operands that are not understood: %s" % part)
    return found


# No operand has a semicolon, and texts of instructions are quoted.
STATEMENT = re.compile(r'\basm\b(?:\s+volatile)?\s*(\((?:"(?:[^"\\]|\\.)*"|[^";]+)*);')


@functools.cache  # kernels of a test have most of their statements in common
def call_for(statement):
    parts = parts_of(statement)
    said = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', parts[0])).replace("\\n", " ")
    return call_of(re.sub(r"\s+", " ", said).strip(), [operand for part in parts[1:3] for operand in operands_of(part)]) + ";"


def for_the_cpu(compiler, folders, source, arch=800):
    """The template's text in C++, and how many arrays of shared memory it has whose size a launch says."""
    text = subprocess.run([compiler, "-E", "-P", "-x", "c++", "-std=c++17", "-D__CUDACC__", "-D__CUDA_ARCH__=%d" % arch,
                           "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0",
                           *folders, source], check=True, capture_output=True, text=True).stdout
    return re.subn(r"extern\s+__shared__\s+[^;]*\b(\w+)\[\]\s*;", r"auto &\1 = emu::shared_memory;", STATEMENT.sub(lambda found: call_for(found.group(1)), text))


def main():
    source, library = sys.argv[1:]
    compiler = os.environ.get("CXX", "c++")
    folders = [word for name in ("attn_fwd", "vocabulary") for word in ("-I", os.path.join(TEMPLATES, name))]
    with open(source, encoding="utf-8") as file:
        rendered = file.read()
    changes, hopper = re.findall("^//! (.*) => (.*)$", rendered, re.M), "_wgmma.cuh" in rendered
    with tempfile.TemporaryDirectory() as changed:
        copy_changed(os.path.join(TEMPLATES, "attn_fwd"), changed, changes, rendered.split("//! ")[0])
        text, count = for_the_cpu(compiler, ["-I", changed, *folders], os.path.join(changed, RENDERED), 900 if hopper else 800)
    maps = "fa_attn_boxes_wanted" in text
    kernels = re.findall(r"(attn_fwd\w*)\s*\(\s*const\s+__grid_constant__\s+(\w+)", text)
    if count == 0 or not kernels:
        sys.exit("emulate.py: %s is no attention kernel with shared memory of its launch" % source)
    text += """
struct Arguments { %s params; emu::MapPlace maps[%d]; };
extern "C" const unsigned emulated_parameter_bytes = sizeof(Arguments::params), emulated_map_bytes = %d * sizeof(emu::MapPlace);
static Arguments a;
static void (*const kernels[])() = {%s};
static void run(int which) { kernels[which](); }
extern "C" const char *emulated_launch(const char *entry, const void *params, const void *maps, const unsigned *grid, unsigned threads, unsigned bytes,
                                       bool (*granted)(const void *, size_t, bool)) {
    const int which = strcmp(entry, "attn_fwd") != 0;
    memcpy(&a.params, params, sizeof a.params);
    memcpy(&a.maps, maps, emulated_map_bytes);
    emu::granted = granted;
    emu::change = emu::told("EMULATOR_CHANGE");
    emu::dice += (unsigned)emu::told("EMULATOR_SEED");
    emu::blocks_at_once = emu::cluster = %s, emu::cluster_arrived = 0;
    return emu::launch(run, &which, grid, threads, bytes);
}
""" % (kernels[0][1], 4 * maps, 4 * maps,
       ", ".join("[] { %s(a.params%s); }" % (name, ", *(const fa_attn_tensor_maps *)a.maps" * maps) for name, _ in kernels), "kCluster" if "kCluster =" in text else "1")
    shutil.copy(compiled(compiler, text), library)


def kept(what, end, make):
    """The file in KEPT that `make` fills once for all that has the same words `what`; several programs at a time share it."""
    folder = os.path.join(KEPT, hashlib.sha256("\0".join(what).encode()).hexdigest())
    try:
        os.utime(folder)  # the last that is removed
    except OSError:
        own = "%s.%d" % (folder, os.getpid())
        os.makedirs(own, exist_ok=True)  # a killed program of this number may have left it
        make(os.path.join(own, end))
        try:
            os.rename(own, folder)
        except OSError:  # another program was first
            shutil.rmtree(own)
        for old in sorted(glob.glob(os.path.join(KEPT, "*")), key=made_at)[:-KEPT_MOST]:
            shutil.rmtree(old, ignore_errors=True)
    return os.path.join(folder, end)


def made_at(path):
    try:
        return os.path.getmtime(path)
    except OSError:  # another program has given it its name, or has removed it
        return 0


@functools.cache
def shared_parts(compiler, judge):
    """What all that has this judge is made of: words that name it, the folder of the emulator precompiled, and the objects that every text is
    linked with, which are optimised: emulator.cpp, and JUDGE_judge.cpp where there is one."""
    what = [*OPTIONS, *LINKER, subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout]
    for path in sorted(glob.glob(os.path.join(HERE, "emulat*.?pp")) + [os.path.join(HERE, "dropout.h")] + glob.glob(os.path.join(TEMPLATES, "*", "*_params.h"))):
        with open(path, encoding="utf-8") as file:
            what.append(file.read())
    apart = os.path.join(HERE, (judge or "").replace(".hpp", "_judge.cpp"))

    def make(end, *options):
        os.makedirs(KEPT, exist_ok=True)
        folder = os.open(KEPT, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # tests begin at once: one makes it, the others wait
            return kept([*what, end, *options], end, lambda path: subprocess.run([compiler, *OPTIONS, *options, "-o", path], check=True))
        finally:
            os.close(folder)
    header = make(EMULATOR + ".gch", "-x", "c++-header", os.path.join(HERE, EMULATOR))
    sources = [path for path in (os.path.join(HERE, "emulator.cpp"), apart) if os.path.isfile(path)]
    return what, os.path.dirname(header), [make("made.o", "-O3", "-c", path) for path in sources]


def compiled(compiler, text, judge=None):
    """A library of the emulator and the text behind it, or a program that ends with `judge`. What was compiled once, from the same text
    by the same compiler, serves every test and both builds. More optimising takes longer than a text's code runs for."""
    what, folder, objects = shared_parts(compiler, judge)
    text = '#include "%s"\n%s' % (EMULATOR, text)
    command = [compiler, *OPTIONS, "-I", folder, "-I", HERE, *(["-shared"] if judge is None else []), "-x", "c++", "-", "-x", "none", *objects, *LINKER]
    return kept([*what, str(judge), text], "made", lambda path: subprocess.run([*command, "-o", path], input=text, check=True, text=True))


def with_changes(text, changes):
    """The text with all of these changes of whole statements or expressions in it: a run makes the one whose number it is told. A
    change with a third member is made with each of the others, too."""
    for number, (said, instead, *with_others) in enumerate(changes, 1):
        told = "emu::change %s" % ("!= 0" if with_others else "== %d" % number)
        both = "if (%s) { %s } else { %s }" if said.endswith(";") else "(%s ? %s : %s)"
        text = text.replace(said, both % (told, instead, said))
    return text


def copy_changed(source, folder, changes, rendered):
    """The texts of an operation's folder, and RENDERED, which includes them."""
    texts = {RENDERED: rendered}
    for name in os.listdir(source):
        with open(os.path.join(source, name), encoding="utf-8") as file:
            texts[name] = file.read()
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(with_changes(text, changes))
    for said, *_ in changes:
        assert any(said in text for text in texts.values()), said


@functools.cache
def program(operation, kernel, defines, judge, hopper, changes):
    """What a judge (tests/JUDGE) makes of a kernel of an operation that is built in."""
    compiler, folder, source = os.environ.get("CXX", "c++"), tempfile.mkdtemp(), os.path.join(TEMPLATES, operation)
    try:
        written = "".join(text for name, text in defines if name == "")  # behind the defines
        defined = "".join("#define %s %d\n" % pair for pair in defines if pair[0])
        copy_changed(source, folder, changes, '%s%s#include "%s"\n' % (defined, written, kernel))
        includes = [word for name in (folder, os.path.join(TEMPLATES, "vocabulary"), os.path.join(TEMPLATES, "attn_fwd")) for word in ("-I", name)]
        text, _ = for_the_cpu(compiler, includes, os.path.join(folder, RENDERED), 900 if hopper else 800)
    finally:
        shutil.rmtree(folder)
    text = '#define __shared__ static\n#define __syncthreads emu::block_barrier\n%s\n%s#include "%s"\n' % (text, defined, judge)
    return compiled(compiler, text, judge)


def judged(operation, kernel, defines, words, judge, hopper=False, changes=(), change=0):
    """Runs a program with these words. `changes` may be made in the texts of the operation's folder; it makes the one that `change`
    counts, 0: none."""
    made = program(operation, kernel, tuple(defines.items()), judge, hopper, changes)
    return subprocess.run([made, *map(str, words)], env=dict(os.environ, EMULATOR_CHANGE=str(change)), capture_output=True, text=True,
                          check=False)


if __name__ == "__main__":
    main()
