#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Workers of a fleet under Slurm: one task on each GPU, all on one queue.
#
#   export FA_TUNE_STORE=postgresql://tuner@db.example.org/fa_tune   # password in ~/.pgpass
#   fa-tune sweep --enqueue --gpu H100,A100 --seq 512:16384:x2 --head-dim 64,128
#   sbatch --gpus=8 --ntasks=8 examples/slurm_worker.sh
#   sbatch --ntasks=4 --cpus-per-task=32 --gpus-per-task=0 examples/slurm_worker.sh   # these compile
#   watch fa-tune queue
#
# A task takes the problems queued for its GPU's type and ends when there was nothing to do for
# IDLE_EXIT. A minute before its time is up, or when it is preempted, it gets SIGTERM and hands its
# problem back; what a node that dies had goes to another at once.
#
#SBATCH --job-name=fa-tune-worker
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --output=fa-tune-worker-%j.log
set -euo pipefail

: "${FA_TUNE_STORE:?set it to postgresql://USER@HOST/DATABASE}"

# While the server does not answer, a file serves, on a local disk: a home directory that is mounted from
# elsewhere is refused. `fa-tune push` on the node brings what it holds to the server.
umask 077
export XDG_CACHE_HOME=${SLURM_TMPDIR:-/tmp}/fa-tune-${SLURM_JOB_ID:-$$}

# Slurm shows each task its own GPU as device 0, and as many cores as it may use.
exec srun --kill-on-bad-exit=0 --export=ALL \
    "${FA_TUNE:-fa-tune}" worker --idle-exit "${IDLE_EXIT:-10m}" --no-progress "$@"
