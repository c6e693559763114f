#!/usr/bin/env bash
# Proves:         the same collectives on all nodes at once, while CPU, memory, network and GPU of every node are sampled at 1 Hz.
#                 Clocks are compared first, so that samples of all nodes can be put on one time axis.
# Does not prove: what happens between two samples; that no clock was set during the run.
# Usage:          bash infrastructure-validation/scripts/nccl_run_with_monitoring.sh [--nodes N | --nodelist n[0-3]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
# shellcheck source=infrastructure-validation/scripts/counters.sh
source infrastructure-validation/scripts/counters.sh
# shellcheck source=infrastructure-validation/scripts/monitor.sh
source infrastructure-validation/scripts/monitor.sh
need_repository

watched() { # inside the allocation; NODES, NODE_COUNT, GPUS, SCALE and RUN_DIR come from outside it
  local rc=0 begun logs=$RUN_DIR/raw/nccl-$NODE_COUNT
  mkdir -p "$logs"
  # how far the clocks are apart, while nothing else runs: the samples carry each node's own time
  srun --overlap --label --kill-on-bad-exit=0 --nodes="$NODE_COUNT" --ntasks="$NODE_COUNT" --ntasks-per-node=1 \
    "${SRUN_SITE[@]}" python3 infrastructure-validation/probes/clock.py --reference "$(names_of "$NODES" | sed -n 1p)" --port "$(port 0)" \
    >"$RUN_DIR/raw/clock.jsonl" 2>"$RUN_DIR/raw/clock.err" || true # a node without an answer is incomplete
  begun=$(nanoseconds)
  start_monitor "$GPUS"
  MASTER_ADDR=$(rank0_of "$NODES") MASTER_PORT=$(port "$NODE_COUNT") \
    srun --overlap --label --cpu-bind=none --kill-on-bad-exit=1 --nodes="$NODE_COUNT" --ntasks="$((NODE_COUNT * GPUS))" \
    --ntasks-per-node="$GPUS" --distribution="plane=$GPUS" --gpus-per-node="$GPUS" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "${SRUN_SITE[@]}" "${CONTAINER[@]}" "${CONTAINER_PYTHON:-$PYTHON}" \
    infrastructure-validation/probes/collectives.py "$SCALE" "$logs" \
    >"$RUN_DIR/raw/collectives-$NODE_COUNT.jsonl" 2>"$RUN_DIR/raw/collectives-$NODE_COUNT.err" </dev/null || rc=$?
  stop_monitor
  printf '%s\n' "$rc" >"$RUN_DIR/raw/collectives-$NODE_COUNT.rc"
  elapsed "$begun" >"$RUN_DIR/raw/collectives-$NODE_COUNT.seconds"
}

if [[ ${1:-} == --inside ]]; then
  read_counters before "$GPUS"
  watched
  read_counters after "$GPUS"
  exit
fi
choose_nodes "$@" --phase nccl_monitoring
need_connections "$NODES"
scales=$("$PYTHON" -m bringup scales --whole --nodes "$NODES" --gpus-per-node "$GPUS") || exit 2
read -r _ SCALE _ <<<"$scales"
export SCALE
run_begin nccl_monitoring --nodes "$NODES" --gpus-per-node "$GPUS"
rc=0
export SALLOC_TIMELIMIT="${SALLOC_TIMELIMIT:-60}" # minutes; a partition with a shorter limit refuses more
salloc --quiet --job-name=nccl_monitoring --immediate="$BRINGUP_WAIT_S" --nodes="$NODE_COUNT" --nodelist="$NODES" --exclusive --mem=0 \
  "${SALLOC_SITE[@]}" bash "${BASH_SOURCE[0]}" --inside </dev/null || rc=$?
run_end "$rc"
