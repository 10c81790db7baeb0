#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A report to look at without a GPU: the winners that were measured on an H200 and are shipped as records,
# compiled into a bundle, imported into a store of its own, and drawn.
#
#     examples/demo_report.sh report-h200.html [fa-tune]
#
# Records hold winners with their medians and intervals, no samples and no baselines: a store of your own
# sweep draws the race, the heat maps and the comparison with other kernels too.
set -eu
page=$(realpath "${1:?a file for the page}")
fa_tune=$(realpath "${2:-$(command -v fa-tune)}")
records=$(realpath "$(dirname "$0")/../system/records.jsonl")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder FA_TUNE_STORE=$folder/store.db FA_TUNE_SYSTEM=
"$fa_tune" export --from-records "$records" --gpu H200 --unsigned --out h200.fab --quiet >/dev/null
"$fa_tune" import h200.fab --allow-unsigned >/dev/null
"$fa_tune" report --out "$page"
