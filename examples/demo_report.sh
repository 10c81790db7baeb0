#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A report to look at without a GPU: the attention kernels that were measured on an H100 and are shipped as records,
# with the trials and the baselines beside them, taken into a store of their own and drawn.
#
#     examples/demo_report.sh report-h100.html [fa-tune [GPU]]
set -eu
page=$(realpath "${1:?a file for the page}")
fa_tune=$(realpath -e "${2:-$(command -v fa-tune)}" 2>/dev/null) ||
    { echo "there is no ${2:-fa-tune on the path}: make it with ./dev build, then $0 $1 build/fa-tune" >&2; exit 1; }
gpu=${3:-H100 SXM}
records=$(realpath "${FA_TUNE_RECORDS:-$(dirname "$0")/../system/records.jsonl}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder FA_TUNE_STORE=$folder/records-${gpu// /-}.db FA_TUNE_SYSTEM=
"$fa_tune" import "$records" --gpu "$gpu" --quiet >/dev/null
"$fa_tune" report --gpu "$gpu" --operation attn_fwd --out "$page"
