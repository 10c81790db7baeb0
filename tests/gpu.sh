#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Correctness, robustness and figures on a real GPU, and a short table at the end. Run tests/gpu_bundle.sh
# first; needs Python with PyTorch and Triton for the peers.
#
#   tests/gpu.sh proof [PART...]  these parts or all, at once: serving attention; neighbours; gradients from the wheel by every
#                           way to them; what belongs to no family ("reference") and each family of attn_fwd: 300 random
#                           problems, memcheck and racecheck (two problems); each family of attn_bwd, from the wheel: 300
#                           random problems, memcheck (two) and racecheck (one; racecheck_bwd.py judges it).
#                           FA_PROOF_SECONDS at most (540), in which 16 cores do one family of attn_bwd in a call, and
#                           all that is not of attn_bwd in another
#   tests/gpu.sh neighbours the Python package's calls between other libraries' kernels in one process, from the wheel in
#                           gpu-bundle/; FA_PEERS is a folder with FlashAttention-3's package, if it is to be one
#   tests/gpu.sh serving    attention as inference engines call it, and graphs replayed on other sequences
#   tests/gpu.sh python [TEST...]  the Python package, from a wheel in gpu-bundle/ alone (./dev wheel makes it), and the ways to
#                           gradients; or these tests of gpu_python.py alone
#   tests/gpu.sh training [TEST...]  gradients through PyTorch's autograd, and their speed beside SDPA's, from the same wheel
#   tests/gpu.sh scores [TEST...]  FlexAttention's calls by fa_tune.flex beside PyTorch's own, from the same wheel
#   tests/gpu.sh gemm       the matrix product: every config proved, and its speed beside cuBLAS, from the same wheel
#   tests/gpu.sh rms_norm   RMS norm likewise, beside PyTorch's and torch.compile's
#   tests/gpu.sh nvrtc [VERSION...]  with each NVRTC of gpu-nvrtc/ (tests/gpu_bundle.sh nvrtc makes it) and the system's, or with these
#                           ("system"): a few problems of each family proved, and dense attention's six rows at 4096 timed, from
#                           the wheel and gpu-bundle/
#   tests/gpu.sh vllm [--model NAME]  whole vLLM engines in turn, FLASH_ATTN, TRITON_ATTN and CUSTOM, from the same wheel; FA_VLLM
#                           is the folder where vLLM 0.26.0 is installed
#   tests/gpu.sh sglang [--model NAME]  likewise SGLang's fa3, triton and fa_tune; FA_SGLANG is the folder of SGLang 0.5.13
#   tests/gpu.sh [final]    in 420 s at most, what matters most first and each part within a time of its own:
#                           correctness of every family (120 problems), serving, cold tunes and first predicted
#                           kernels, gradients (20 random problems and the ways to them), a sweep of 48 problems with
#                           PyTorch's times and its records, a launch, memcheck (2 problems a family), the Python
#                           package's first calls, many queries as serving engines ask for them, decoding
#                           and the prefill table as far as the time goes. Parts that no time is left for count as failed.
#                           Eight files in $OUT, copied as they come. `tests/gpu.sh final serving memcheck` runs
#                           these parts alone.
# FA_TUNE_NVRTC may be an archive of gpu-nvrtc/: `FA_TUNE_NVRTC=gpu-nvrtc/12.8.tar.xz tests/gpu.sh proof neighbours`.
# shellcheck disable=SC2317 # parts are called by their names
set -u
cd "$(dirname "$0")/.." || exit
mode=${1:-final}
bundle=$PWD/gpu-bundle
work=${FA_GPU_WORK:-$(mktemp -d)}
out=${OUT:-$work}
export FA_TUNE_STORE=$work/store.db FA_TUNE_LIBRARY=$bundle/libfa_tune.so
export PYTHONPATH=$PWD/tests/bench
passed=0 failed=0 table=$work/table
[ -n "${FA_GPU_WORK-}" ] || trap 'rm -rf "$work"' EXIT

unpack() { python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$work/nvrtc"; } # ARCHIVE
case ${FA_TUNE_NVRTC-} in
*.tar.xz)
    unpack "$FA_TUNE_NVRTC" || exit
    FA_TUNE_NVRTC=$work/nvrtc/$(basename "$FA_TUNE_NVRTC" .tar.xz)
    ;;
esac

note() { printf '%s\n' "$*" | tee -a "$table"; }
verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); note "FAILED: $1"; fi
}
seconds() { python3 -c 'import sys; print("%.2f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$@"; }
clock() { date +%s.%N; }
tap() { # counts the cases of a TAP program's output
    awk '/^ok/ {ok++} /^not ok/ {bad++} END {print ok + 0, bad + 0}' "$1"
}

prove() {
    echo "== correctness"
    FA_TEST_PROBLEMS=${FA_TEST_PROBLEMS:-300} "$bundle/test_gpu_attn" | tee "$out/attn.tap"
    verdict "correctness sweep" "${PIPESTATUS[0]}"
    note "correctness sweep: $(tap "$out/attn.tap" | awk '{print $1 " tests passed, " $2 " failed"}'), \
$(grep -o '[0-9]* of [0-9]* problems proved' "$out/attn.tap" | paste -sd, | sed 's/,/ and /g'), \
$(grep -o 'seed [0-9a-fx]*' "$out/attn.tap" | head -n 1)"
}
sanitize() { # TOOL...: a short sweep of each family that is swept
    command -v compute-sanitizer >/dev/null || { note "compute-sanitizer is not here"; return; }
    for tool in "$@"; do
        echo "== compute-sanitizer $tool"
        FA_TEST_PROBLEMS=${FA_SANITIZED_PROBLEMS:-4} timeout "${FA_SANITIZER_S:-200}" compute-sanitizer --target-processes all --tool "$tool" \
            --error-exitcode 9 "$bundle/test_gpu_attn" >"$out/$tool.log" 2>&1
        status=$?
        verdict "compute-sanitizer $tool (exit status $status; 124: out of time)" "$status"
        note "compute-sanitizer $tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$tool.log" | tail -n 1)"
    done
}
serving() { # lengths, tables and pages on the device
    echo "== serving attention"
    install_wheel
    env -u FA_TUNE_STORE -u FA_TUNE_LIBRARY PYTHONPATH="$work/site" python3 tests/gpu_serving.py | tee "$out/serving.tap"
    verdict "serving attention" "${PIPESTATUS[0]}"
    note "serving attention: $(tap "$out/serving.tap" | awk '{print $1 " cases right, " $2 " wrong"}')"
}
# Five cold tunes, two of them of gradients, and how soon each problem has a first, predicted kernel; every one on an empty store.
cold_tunes() {
    echo "== cold tunes"
    "$bundle/fa-tune" --seq 512 --effort predict --quiet --store "$work/page-in.db" >/dev/null
    for effort in predict tune; do
        for problem in "--seq 512 --head-dim 64" "--seq 512 --head-dim 64 --dtype bf16 --causal" "--seq 4096 --head-dim 128 --causal" \
            "--operation attn_bwd --seq 4096 --head-dim 128 --heads 16 --causal" "--operation attn_bwd --seq 16384 --head-dim 64 --heads 32 --batch 1"; do
            how=
            [ "$effort" = tune ] || how="--effort $effort"
            rm -rf "$work"/cold.db*
            begin=$(clock)
            # shellcheck disable=SC2086
            "$bundle/fa-tune" $problem $how --json --quiet --store "$work/cold.db" >"$out/cold.json"
            verdict "cold $effort $problem" $?
            end=$(clock)
            note "cold $effort $problem: $(python3 -c 'import json, sys
funnel = json.load(open(sys.argv[1]))["funnel"]
print(funnel["compiled"], "configs compiled,", funnel["measured"], "measured")' "$out/cold.json") in $(seconds "$begin" "$end") s"
        done
    done
}
every_config() { # OPERATION PROBLEM...: all of them compiled, proved and measured
    operation=$1
    shift
    for problem in "$@"; do
        # shellcheck disable=SC2086
        "$bundle/fa-tune" tune --operation "$operation" $problem --quiet --json >"$work/operation.json"; verdict "$operation $problem" $?
        note "$operation $problem: $(python3 - "$work/operation.json" <<'PY'
import json, sys
told = json.load(open(sys.argv[1]))
answer, funnel = told["answer"], told["funnel"]
tunables = " ".join("%s=%s" % item for item in answer["config"]["tunables"].items())
print("%d configs, %d proved, %d failed; %s %s %.1f us" % (funnel["in_budget"], funnel["proved"], funnel["failed"], answer["config"]["family"],
                                                          tunables, answer["median_us"]))
sys.exit(funnel["failed"] > 0)
PY
)"
        verdict "every config of $operation $problem is right" $?
    done
}
versus() { # NAME ARGUMENTS: ours beside PyTorch's back ends
    name=$1
    shift
    echo "== ours beside PyTorch's FA2 and cuDNN: $name"
    python3 tests/bench/attn_vs_torch.py "$@" --out "$out/attn.jsonl" | tee "$work/attn.txt"
    verdict "benchmark: $name" "${PIPESTATUS[0]}"
    cat "$work/attn.txt" >>"$table"
}
latency() {
    echo "== latency"
    FA_TUNE_STORE=$1 "$bundle/bench_latency" >/dev/null # page in
    note "$(FA_TUNE_STORE=$1 "$bundle/bench_latency")"
}
finish() {
    echo
    echo "== table"
    cat "$table"
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
    exit
}

# What takes minutes a family and leaves cores and the GPU idle, beside each other. Nothing is timed here.
proof() {
    limit=${FA_PROOF_SECONDS:-540} begin=$SECONDS
    [ $# -gt 0 ] || set -- serving neighbours gradients reference attn_fwd_sm75 attn_fwd_sm80 attn_fwd_prefill_sm80 \
        attn_fwd_splitkv_sm80 attn_fwd_splitkv_sm90a attn_fwd_sm90a attn_fwd_prefill_sm90a attn_fwd_fp8_sm89 attn_fwd_fp8_sm90a attn_fwd_latent_sm90a attn_fwd_latent_bytes_sm90a attn_fwd_latent_few_sm90 attn_bwd_sm80 attn_bwd_sm90a attn_bwd_wide_sm90a attn_bwd_short_sm90a attn_bwd_ring_sm90a
    parts=()
    run() { # NAME COMMAND...: its output and its status
        name=$1
        shift
        parts+=("$name")
        (timeout "$limit" "$@" >"$work/$name.tap" 2>&1; echo $? >"$work/$name.status") &
    }
    installed=(env -u FA_TUNE_STORE -u FA_TUNE_LIBRARY PYTHONPATH="$work/site")
    random() { # NAME FAMILY PROBLEMS [TOOL...]: gradients of random problems, under a tool
        run "$1" "${installed[@]}" FA_TEST_FAMILY="$2" FA_TEST_PROBLEMS="$3" "${@:4}" \
            python3 tests/gpu_training.py random_problems_have_the_gradients_of_float64
    }
    backward() { # NAME: a family of attn_bwd
        install_wheel
        # A process compiles and proves one problem after another.
        for number in {1..12}; do random "$1-$number" "$1" 25; done
        # Memory of the tensors' own, so that what lies beside one is nobody's; of PyTorch's kernels nothing is looked at.
        sanitizer=(env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --target-processes application-only --kernel-name kns=attn_bwd
            --launch-timeout 120)
        random "memcheck-$1" "$1" 2 "${sanitizer[@]}" --tool memcheck --report-api-errors no --error-exitcode 9
        random "racecheck-$1" "$1" 1 "${sanitizer[@]}" --tool racecheck --racecheck-report hazard --print-limit 0 --show-backtrace no
    }
    family() { # NAME: of the forward pass
        FA_TEST_FAMILY=$1 FA_TEST_PROBLEMS=300 run "$1" "$bundle/test_gpu_attn"
        for tool in memcheck racecheck; do
            FA_TEST_FAMILY=$1 FA_TEST_PROBLEMS=2 run "$tool-$1" compute-sanitizer --target-processes all --tool $tool --error-exitcode 9 "$bundle/test_gpu_attn"
        done
    }
    for part in "$@"; do
        case $part in
        serving) install_wheel; run serving "${installed[@]}" python3 tests/gpu_serving.py ;;
        neighbours) run neighbours bash tests/gpu.sh neighbours --seconds $((limit / 2)) ;;
        gradients) install_wheel; run ways "${installed[@]}" python3 tests/gpu_training.py ways ;;
        attn_bwd_*) backward "$part" ;;
        reference | attn_fwd_*) family "$part" ;;
        *) echo "tests/gpu.sh proof: there is no part \"$part\"" >&2; exit 2 ;;
        esac
    done
    wait
    for name in "${parts[@]}"; do
        status=$(cat "$work/$name.status")
        if [[ $name = racecheck-attn_bwd_* ]]; then
            python3 tests/racecheck_bwd.py "$work/$name.tap" >"$work/judged" || status=1
            cat "$work/judged" >>"$work/$name.tap"
        fi
        verdict "$name (exit status $status; 124: out of time)" "$status"
        [ "$status" -eq 0 ] || grep -a '^not ok' "$work/$name.tap" | cut -c1-600
        note "$name: $(tap "$work/$name.tap" | awk '{print $1 " tests passed, " $2 " failed"}') $(grep -oE \
            'seed [0-9a-fx]+|neighbours, .*|[0-9]+ of [0-9]+ problems proved|(ERROR|RACECHECK) SUMMARY.*|^racecheck: .*' "$work/$name.tap" | sort -u | paste -sd' ')"
    done
    note "proof: $((SECONDS - begin)) s"
    (cd "$work" && tar czf "$out/proof-$1.tar.gz" ./*.tap)
    finish
}

grid="--seq 512:16384:x2 --head-dim 64,128 --dtype fp16,bf16 --causal both --tokens 16384 --hidden 2048" # 48 problems
beside_torch() {
    echo "== beside PyTorch, in the sweep's own table"
    # shellcheck disable=SC2086
    python3 examples/baseline_torch.py $grid --peers pytorch-fa2,pytorch-cudnn >"$out/baseline.jsonl"
    verdict baseline $?
    # shellcheck disable=SC2086
    "$bundle/fa-tune" import "$out/baseline.jsonl" --quiet && "$bundle/fa-tune" sweep $grid --quiet >"$work/sweep.txt"
    verdict "sweep with a baseline" $?
    cut -c1-200 "$work/sweep.txt"
}
records() { # for system/merge.py
    "$bundle/fa-tune" export --unsigned --out "$work/records.fab" --quiet &&
        "$bundle/fa-tune" show "$work/records.fab" --json >"$out/records-h200.json"
    verdict records $?
}

install_wheel() { # once
    [ ! -d "$work/site" ] || return 0
    wheel=$(find "$bundle" -name 'fa_tune-*.whl' | head -n 1)
    echo "== pip install ${wheel##*/}"
    python3 -m pip install --quiet --no-index --no-deps --target "$work/site" "$wheel"
    verdict "pip install of a wheel in gpu-bundle/" $?
}
neighbours() { # ARGUMENTS of tests/gpu_neighbours.py
    install_wheel
    env -u FA_TUNE_STORE -u FA_TUNE_LIBRARY PYTHONPATH="$work/site:${FA_PEERS-}" python3 tests/gpu_neighbours.py "$@" |
        tee "$out/neighbours.txt"
    verdict neighbours "${PIPESTATUS[0]}"
    sed '1,/^== table/d' "$out/neighbours.txt" >>"$table"
    finish
}
# The Python package in a folder of its own, without anything else of gpu-bundle/.
python_package() { # TESTS, or all
    install_wheel
    note "wheel: $(stat -c %s "$wheel") bytes, $(du -sk "$work/site" | cut -f1) KiB installed"
    unset FA_TUNE_STORE FA_TUNE_LIBRARY
    PYTHONPATH=$work/site python3 tests/gpu_python.py "$@" | tee "$out/python.txt"
    verdict "tests/gpu_python.py" "${PIPESTATUS[0]}"
    grep -E '^(ok|not ok|#) ' "$out/python.txt" >>"$table"
}

# Gradients by the package in a folder of its own.
gradients_right() { # TESTS; none: all
    install_wheel
    unset FA_TUNE_STORE FA_TUNE_LIBRARY
    export PYTHONPATH=$work/site
    python3 tests/gpu_training.py "$@" | tee "$out/training.txt"
    verdict "tests/gpu_training.py" "${PIPESTATUS[0]}"
    grep -E '^(not )?ok ' "$out/training.txt" >>"$table"
}
training() {
    gradients_right "$@"
    python3 tests/bench/training_vs_torch.py --out "$out/training.jsonl" | tee "$work/speed.txt"
    verdict "benchmark: training" "${PIPESTATUS[0]}"
    python3 tests/bench/training_vs_torch.py --host | tee -a "$work/speed.txt"
    cat "$work/speed.txt" >>"$table"
    finish
}

scores() { # TESTS; none: all
    install_wheel
    unset FA_TUNE_STORE FA_TUNE_LIBRARY
    PYTHONPATH=$work/site python3 tests/gpu_scores.py "$@" | tee "$out/scores.txt"
    verdict "tests/gpu_scores.py" "${PIPESTATUS[0]}"
    finish
}

beside_peers() { # OPERATION: from the wheel, beside PyTorch
    install_wheel
    unset FA_TUNE_STORE FA_TUNE_LIBRARY
    PYTHONPATH=$work/site python3 tests/bench/operation_vs_torch.py "$1" --out "$out/$1.jsonl" | tee -a "$table"
    verdict "benchmark: $1" "${PIPESTATUS[0]}"
    finish
}

# A few problems of each family, beside each other. Nothing is timed.
families_proved() { # VERSION
    names=()
    prove_one() { # NAME COMMAND...
        names+=("$1")
        (timeout 200 "${@:2}" >"$work/$1.log" 2>&1; echo $? >"$work/$1.status") &
    }
    for name in attn_fwd_sm75 attn_fwd_sm80 attn_fwd_prefill_sm80 attn_fwd_splitkv_sm80 attn_fwd_splitkv_sm90a attn_fwd_sm90a attn_fwd_prefill_sm90a attn_fwd_fp8_sm89 attn_fwd_fp8_sm90a attn_fwd_latent_sm90a attn_fwd_latent_bytes_sm90a attn_fwd_latent_few_sm90; do
        prove_one "$name" env FA_TEST_FAMILY="$name" FA_TEST_PROBLEMS=6 "$bundle/test_gpu_attn"
    done
    for name in attn_bwd_sm80 attn_bwd_sm90a attn_bwd_wide_sm90a attn_bwd_short_sm90a attn_bwd_ring_sm90a; do
        prove_one "$name" env -u FA_TUNE_STORE -u FA_TUNE_LIBRARY PYTHONPATH="$work/site" FA_TEST_FAMILY="$name" FA_TEST_PROBLEMS=2 \
            python3 tests/gpu_training.py random_problems_have_the_gradients_of_float64
    done
    prove_one gemm "$bundle/fa-tune" --operation gemm --m 200 --n 1032 --k 520 --dtype bf16 --store "$work/gemm-$1.db"
    prove_one rms_norm "$bundle/fa-tune" --operation rms_norm --rows 5000 --columns 128 --dtype bf16 --store "$work/rms_norm-$1.db"
    wait
    for name in "${names[@]}"; do
        echo "== NVRTC $1: $name"
        tail -n 6 "$work/$name.log"
        verdict "NVRTC $1: $name" "$(cat "$work/$name.status")"
    done
}
nvrtcs() { # VERSION..., or all
    install_wheel
    # shellcheck disable=SC2046
    [ $# -gt 0 ] || set -- $(cd gpu-nvrtc && basename -s .tar.xz ./*.tar.xz) system
    for version in "$@"; do
        unset FA_TUNE_NVRTC
        if [ "$version" != system ]; then
            unpack "gpu-nvrtc/$version.tar.xz"; verdict "unpacking gpu-nvrtc/$version.tar.xz" $?
            export FA_TUNE_NVRTC=$work/nvrtc/$version
        fi
        export FA_TUNE_STORE=$work/$version.db
        note "$("$bundle/fa-tune" doctor | grep ' nvrtc ')"
        families_proved "$version"
        rm -f "$out/attn.jsonl"
        versus "NVRTC $version" --head-dim 64 128 256 --dtype fp16 --seq 4096
        mv "$out/attn.jsonl" "$out/nvrtc-$version.jsonl"
    done
    note "$(python3 - "$out" "$@" <<'PY'
import json, sys
folder, *versions = sys.argv[1:]
rows = [[json.loads(line) for line in open(f"{folder}/nvrtc-{version}.jsonl")] for version in versions]
print("D    causal  " + "".join(f"{version:>10} us" for version in versions))
for same in zip(*rows):
    print(f"{same[0]['D']:<4} {'yes' if same[0]['causal'] else 'no':<6}  " + "".join(f"{row['ours_us']:13.1f}" for row in same))
PY
)"
    finish
}

engine() { # NAME VARIABLE VERSION ARGUMENTS of tests/bench/engines_in_turn.py
    name=$1 folder=${!2-}
    if [ ! -d "$folder/$name" ]; then
        echo "tests/gpu.sh $name: $2=FOLDER says where $name $3 is installed; \"$folder\" has no folder $name" >&2
        exit 2
    fi
    shift 3
    install_wheel
    unset FA_TUNE_LIBRARY
    PYTHONPATH=$work/site:$folder python3 tests/bench/engines_in_turn.py --engine "$name" --out "$out/$name.jsonl" "$@" | tee -a "$table"
    verdict "backends of $name in turn" "${PIPESTATUS[0]}"
    finish
}

# ---- final: parts, each in a process of its own that its time ends ---------------------------------
part_correctness() {
    FA_TEST_FAKE_CUDA=$bundle/fake/libcuda.so.1 "$bundle/test_gpu_driver"; verdict driver $?
    FA_TEST_PROBLEMS=120 prove
}
part_cold() { cold_tunes; }
part_sweep() {
    begin=$(clock)
    # shellcheck disable=SC2086
    "$bundle/fa-tune" sweep $grid --quiet --json >"$work/sweep.json"; verdict sweep $?
    note "sweep of 48 problems: $(seconds "$begin" "$(clock)") s"
    records
    gzip -c "$FA_TUNE_STORE" >"$out/store.db.gz"
}
part_torch() {
    beside_torch
    records
    gzip -c "$FA_TUNE_STORE" >"$out/store.db.gz"
}
part_serving() { serving; }
part_training() { FA_TEST_PROBLEMS=20 gradients_right; }
part_launch() {
    "$bundle/fa-tune" --seq 512 --quiet >/dev/null; verdict "a tune" $?
    latency "$FA_TUNE_STORE"
}
part_decode() {
    echo "== decoding"
    python3 tests/bench/decode_vs_torch.py --forms fixed "page 64" --budget-ms 20 --seconds 42 --out "$out/decode.jsonl" | tee -a "$table"
    verdict decoding "${PIPESTATUS[0]}"
}
part_many() { # many queries as serving engines ask for them, beside the dense kernel
    python3 tests/bench/prefill_serving.py --seconds 60 --out "$out/many.jsonl" | tee -a "$table"
    verdict "many queries as serving engines ask for them" "${PIPESTATUS[0]}"
}
part_prefill() { versus fp16 --head-dim 128 64 256 --dtype fp16 --budget 40 --seconds 85; }
part_python() { python_package the_newcomers_three_lines host_costs; }
part_memcheck() { FA_SANITIZED_PROBLEMS=2 FA_SANITIZER_S=75 sanitize memcheck; }

final() { # PARTS, or all
    limits="correctness:110 serving:70 memcheck:85 training:120 cold:60 sweep:100 torch:60 prefill:100 many:90 python:60 decode:62 launch:15"
    all=${FA_FINAL_SECONDS:-410} # for a call of 420
    mkdir "$work/out"
    export FA_GPU_WORK=$work XDG_CONFIG_HOME=$work/config FA_TUNE_SYSTEM=
    for name in "$@"; do
        [[ " $limits" = *" $name:"* ]] || { note "FAILED: there is no part \"$name\" in: $limits"; exit 2; }
    done
    for one in $limits; do
        name=${one%:*} limit=${one#*:}
        [ $# -eq 0 ] || [[ " $* " = *" $name "* ]] || continue
        left=$((all - SECONDS))
        [ "$limit" -le $left ] || limit=$left
        [ "$limit" -ge 10 ] || { verdict "part $name: no time left" 1; continue; }
        begin=$SECONDS
        OUT=$work/out timeout -k 3 "$limit" bash tests/gpu.sh "part_$name" 2>&1 | tee -a "$work/out/final.log"
        status=${PIPESTATUS[0]}
        verdict "part $name (exit status $status; 124: out of time)" "$status"
        note "part $name: $((SECONDS - begin)) of $limit s"
        cp "$table" "$work/out/final.txt"
        for file in final.txt final.log records-h200.json baseline.jsonl store.db.gz attn.jsonl decode.jsonl many.jsonl; do
            [ ! -e "$work/out/$file" ] || [ "$out" = "$work" ] || cp "$work/out/$file" "$out/"
        done
    done
    finish
}

shift $(($# > 0))
case $mode in
final) final "$@" ;;
proof) proof "$@" ;;
part_*) "$mode"; [ $failed -eq 0 ]; exit ;;
python)
    python_package "$@"
    [ $# -gt 0 ] || gradients_right ways
    finish
    ;;
training) training "$@" ;;
scores) scores "$@" ;;
gemm)
    every_config gemm "--m 4096 --dtype bf16" "--m 16 --dtype bf16" "--m 200 --n 1032 --k 520 --dtype bf16"
    beside_peers gemm
    ;;
rms_norm)
    every_config rms_norm "--rows 16384" "--rows 4096 --dtype bf16 --residual" "--rows 3 --columns 28672 --residual" \
        "--rows 5000 --columns 128 --dtype bf16" "--rows 200 --columns 1001 --unaligned" "--rows 4 --columns 131072 --dtype bf16" \
        "--rows 300 --columns 65536"
    beside_peers rms_norm
    ;;
nvrtc) nvrtcs "$@" ;;
vllm) engine vllm FA_VLLM 0.26.0 "$@" ;;
sglang) engine sglang FA_SGLANG 0.5.13 "$@" ;;
neighbours) neighbours "$@" ;;
serving) serving; finish ;;
esac
echo "tests/gpu.sh: there is no mode \"$mode\"" >&2
exit 2
