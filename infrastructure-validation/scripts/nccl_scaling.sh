#!/usr/bin/env bash
# Proves:         at 1, 2, 4, … and all nodes, all ranks form one communicator, collectives give right results, over the
#                 interconnect that the profile names, at the bandwidth that it expects at a named size.
# Does not prove: which single link or node is slow, nor anything about nodes beyond the list.
# Usage:          bash infrastructure-validation/scripts/nccl_scaling.sh [--nodes N | --nodelist n[0-3]]
#                 NCCL_TESTS_BIN=FOLDER: run nccl-tests (built with MPI) there too, beside our own collectives, and judge both.
#                 NCCL_TESTS_MPI: srun's --mpi for them; default pmix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
need_repository

measure() { # inside the allocation; NODES, GPUS and RUN_DIR come from outside it
  local -a names
  IFS=, read -r -a names <<<"$NODES"
  local count=1 total=${#names[@]}
  while true; do
    collectives "$count" "$(join_names "${names[@]:0:count}")"
    [[ -z ${NCCL_TESTS_BIN:-} ]] || nccl_tests "$count" "$(join_names "${names[@]:0:count}")"
    ((count < total)) || break
    count=$((count * 2 < total ? count * 2 : total))
  done
}

collectives() { # node count, node list
  local count=$1 list=$2 rc=0
  local logs=$RUN_DIR/raw/nccl-$count
  mkdir -p "$logs"
  MASTER_ADDR=${list%%,*} MASTER_PORT=$(port "$count") \
    srun --label --kill-on-bad-exit=1 --nodes="$count" --nodelist="$list" --ntasks="$((count * GPUS))" \
    --ntasks-per-node="$GPUS" --gpus-per-node="$GPUS" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "$PYTHON" infrastructure-validation/probes/collectives.py "$(scale_name "$count")" "$logs" \
    >"$RUN_DIR/raw/collectives-$count.jsonl" 2>"$RUN_DIR/raw/collectives-$count.err" || rc=$?
  printf '%s\n' "$rc" >"$RUN_DIR/raw/collectives-$count.rc"
}

nccl_tests() { # node count, node list
  local count=$1 list=$2 binary rc json
  for binary in all_reduce_perf all_gather_perf reduce_scatter_perf alltoall_perf broadcast_perf sendrecv_perf; do
    rc=0 json=$RUN_DIR/raw/$binary-$count.json
    srun --mpi="${NCCL_TESTS_MPI:-pmix}" --kill-on-bad-exit=1 --nodes="$count" --nodelist="$list" --ntasks="$((count * GPUS))" \
      --ntasks-per-node="$GPUS" --gpus-per-node="$GPUS" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
      "$NCCL_TESTS_BIN/$binary" -b 8K -e 8G -f 2 -g 1 -c 1 -w 5 -n 20 -J "$json" \
      >"$RUN_DIR/raw/$binary-$count.txt" 2>"$RUN_DIR/raw/$binary-$count.err" || rc=$?
    [[ ! -e $json ]] || "$PYTHON" infrastructure-validation/scripts/without_environment.py "$json" ||
      rc=$((rc > 0 ? rc : 1))
    printf '%s\n' "$rc" >"$RUN_DIR/raw/$binary-$count.rc"
  done
}

if [[ ${1:-} == --inside ]]; then
  measure
  exit
fi
choose_nodes "$@"
run_begin nccl_scaling --nodes "$NODES" --gpus-per-node "$GPUS"
rc=0
salloc --quiet --job-name=nccl_scaling --immediate="$BRINGUP_WAIT_S" --nodes="$NODE_COUNT" --nodelist="$NODES" --exclusive --mem=0 --time=60 \
  bash "${BASH_SOURCE[0]}" --inside </dev/null || rc=$?
run_end "$rc"
