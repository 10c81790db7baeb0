#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes gpu-bundle/: everything that tests/gpu.sh runs, with the shared libraries beside it, for a
# GPU machine that has CUDA and PyTorch but not this project's packages. Build here, copy the
# folder and the source tree there, run tests/gpu.sh.
#
#   tests/gpu_bundle.sh nvrtc 12.4 12.8   gpu-nvrtc/ in its place: these versions of NVRTC, for tests/gpu.sh (minutes: they are packed small)
set -eu
cd "$(dirname "$0")/.."
if [ "${1-}" = nvrtc ]; then
    kept=${XDG_CACHE_HOME:-$HOME/.cache}/fa-tune-tests/nvrtc
    mkdir -p gpu-nvrtc
    for version in "${@:2}"; do
        [ -d "$kept/$version" ] ||
            { echo "gpu_bundle: there is no $kept/$version: ./dev test --slow test_tuner_nvrtcs fetches it" >&2; exit 1; }
        tar -C "$kept" -cf - "$version" | xz -T0 >"gpu-nvrtc/$version.tar.xz"
    done
    du -sh gpu-nvrtc
    exit
fi
# The old kind of rpath: it holds also for what those libraries need that are opened at run time.
link_args='-Wl,--disable-new-dtags,-rpath,$ORIGIN'
if [ -f build-gpu/build.ninja ]; then
    meson configure build-gpu -Dc_link_args="$link_args"
else
    meson setup build-gpu --buildtype=release -Dc_link_args="$link_args" >/dev/null
fi
programs="tests/test_gpu_attn tests/test_gpu_driver tests/bench_latency"
# shellcheck disable=SC2086
ninja -C build-gpu --quiet fa-tune fa-tune-worker tests/fake/libcuda.so.1 $programs
rm -rf gpu-bundle
mkdir -p gpu-bundle/fake
cp build-gpu/fa-tune build-gpu/fa-tune-worker gpu-bundle/
cp -L build-gpu/libfa_tune.so.0.2 gpu-bundle/
ln -s libfa_tune.so.0.2 gpu-bundle/libfa_tune.so
for program in $programs; do
    cp "build-gpu/$program" gpu-bundle/
done
cp build-gpu/tests/fake/libcuda.so.1 gpu-bundle/fake/
# libpq is opened at run time, where a fleet's database is named.
for library in libpq.so.5; do
    found=$(ldconfig -p | awk -v name="$library" '$1 == name {print $NF; exit}')
    if [ -n "$found" ]; then
        cp -L "$found" gpu-bundle/
    else
        echo "gpu_bundle: no $library here: the bundle goes without it" >&2
    fi
done
# Everything but the C library, which the other machine has in a newer version, and the library that is there already.
ldd gpu-bundle/fa-tune gpu-bundle/fa-tune-worker gpu-bundle/test_gpu_attn \
    gpu-bundle/lib*.so.[45] |
    awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|libresolv|librt|libutil|libanl|ld-linux|libfa_tune)[.-]/ {print $3}' | sort -u |
    while read -r library; do cp -L "$library" gpu-bundle/; done
strip gpu-bundle/fa-tune gpu-bundle/fa-tune-worker gpu-bundle/lib*.so.*
du -sh gpu-bundle
