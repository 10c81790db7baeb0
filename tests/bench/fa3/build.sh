#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# FlashAttention-3's own dense fp16 and bf16 forward kernels (head dims 64, 128 and 256) as one small library for
# tests/bench/attn_vs_torch.py, in twenty minutes on two cores where its package takes hours. Needs git, nvcc 12.3 or later
# and the network; no GPU.
#
#   tests/bench/fa3/build.sh DIR
#   PYTHONPATH=DIR python3 tests/bench/attn_vs_torch.py --dtype fp16 --head-dim 64 128 256
set -eu
[ $# -eq 1 ] || { echo "build.sh: usage: tests/bench/fa3/build.sh DIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
commit=0251105a # of 2026-08-15
if [ ! -d flash-attention ]; then
    git clone --quiet https://github.com/Dao-AILab/flash-attention
    git -C flash-attention checkout --quiet "$commit"
    git -C flash-attention submodule --quiet update --init --depth 1 csrc/cutlass
fi
source=flash-attention/hopper
# Its setup.py's flags, and what a dense call does not use left out.
flags="-O3 -std=c++17 --use_fast_math --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC
       -DNDEBUG -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90 -DCUTLASS_DEBUG_TRACE_LEVEL=0
       -I$source -Iflash-attention/csrc/cutlass/include"
for feature in VARLEN LOCAL APPENDKV PAGEDKV SOFTCAP SPLIT; do
    flags="$flags -DFLASHATTENTION_DISABLE_$feature"
done
objects=
for dtype in fp16 bf16; do
    for dim in 64 128 256; do
        echo "build.sh: head dim $dim, $dtype"
        # shellcheck disable=SC2086
        nvcc $flags -c "$source/instantiations/flash_fwd_hdim${dim}_${dtype}_sm90.cu" -o "d$dim-$dtype.o"
        objects="$objects d$dim-$dtype.o"
    done
done
# shellcheck disable=SC2086
nvcc $flags -c "$here/fa3.cu" -o fa3.o
# shellcheck disable=SC2086
nvcc -shared -cudart shared -o libfa3.so fa3.o $objects
cp "$here/flash_attn_interface.py" .
echo "build.sh: made $PWD/libfa3.so"
