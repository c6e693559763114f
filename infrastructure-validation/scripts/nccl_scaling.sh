#!/usr/bin/env bash
# Proves:         on one GPU the library loads, makes a communicator and computes rightly; at 1, 2, 4, … and all nodes, all ranks
#                 form one communicator, collectives give right results, over the interconnect that the profile names, at the
#                 bandwidth that it expects at a named size.
# Does not prove: any speed of one GPU (nothing leaves it); which single link or node is slow; anything about other nodes.
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
  ((GPUS == 1)) || scale 1gpu 1-gpu 1 "${names[0]}" # where a node has one GPU, that is what 1-node is
  while true; do
    scale "$count" "$(scale_name "$count")" "$GPUS" "${names[@]:0:count}"
    ((count < total)) || break
    count=$((count * 2 < total ? count * 2 : total))
  done
}

scale() { # ending of the files' names, name of the scale, GPUs per node, nodes…
  collectives "$@"
  [[ -z ${NCCL_TESTS_BIN:-} ]] || nccl_tests "$@"
}

collectives() { # as scale
  local files=$1 name=$2 gpus=$3 rc=0
  shift 3
  local nodes=$# list logs=$RUN_DIR/raw/nccl-$files
  list=$(join_names "$@")
  mkdir -p "$logs"
  MASTER_ADDR=$1 MASTER_PORT=$(port "${files/1gpu/0}") \
    srun --label --kill-on-bad-exit=1 --nodes="$nodes" --nodelist="$list" --ntasks="$((nodes * gpus))" \
    --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "$PYTHON" infrastructure-validation/probes/collectives.py "$name" "$logs" \
    >"$RUN_DIR/raw/collectives-$files.jsonl" 2>"$RUN_DIR/raw/collectives-$files.err" || rc=$?
  printf '%s\n' "$rc" >"$RUN_DIR/raw/collectives-$files.rc"
}

nccl_tests() { # as scale
  local files=$1 gpus=$3 binary rc json
  local sizes=(-b 8K -e 8G -f 2)
  ((gpus == GPUS)) || sizes=(-b 8K -e 1G -f 131072) # one GPU has no curve: right at a small and at a large size
  shift 3
  local nodes=$# list
  list=$(join_names "$@")
  for binary in all_reduce_perf all_gather_perf reduce_scatter_perf alltoall_perf broadcast_perf sendrecv_perf; do
    rc=0 json=$RUN_DIR/raw/$binary-$files.json
    srun --mpi="${NCCL_TESTS_MPI:-pmix}" --kill-on-bad-exit=1 --nodes="$nodes" --nodelist="$list" --ntasks="$((nodes * gpus))" \
      --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
      "$NCCL_TESTS_BIN/$binary" "${sizes[@]}" -g 1 -c 1 -w 5 -n 20 -J "$json" \
      >"$RUN_DIR/raw/$binary-$files.txt" 2>"$RUN_DIR/raw/$binary-$files.err" || rc=$?
    [[ ! -e $json ]] || "$PYTHON" infrastructure-validation/scripts/without_environment.py "$json" ||
      rc=$((rc > 0 ? rc : 1))
    printf '%s\n' "$rc" >"$RUN_DIR/raw/$binary-$files.rc"
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
