#!/usr/bin/env bash
# Proves:         on one GPU the library loads, makes a communicator and computes rightly; at 1, 2, 4, … and all nodes, all ranks
#                 form one communicator, collectives give right results, over the interconnect that the profile names, at the
#                 bandwidth that it expects at a named size; so do groups of the ranks at one place of each node, all at once.
#                 On one node and on two, where the profile does not leave it out:
#                 told to go one way only (NVLink, NICs, Ring, no NVLS), NCCL does so, as fast as that way should be.
# Does not prove: any speed of one GPU (nothing leaves it); which single link or node is slow; anything about other nodes.
# Usage:          bash infrastructure-validation/scripts/nccl_scaling.sh [--nodes N | --nodelist n[0-3]]
#                 NCCL_TESTS_BIN=FOLDER: run nccl-tests (built with MPI) there too, beside our own collectives, and judge both.
#                 NCCL_TESTS_MPI: srun's --mpi for them; default pmix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
# shellcheck source=infrastructure-validation/scripts/counters.sh
source infrastructure-validation/scripts/counters.sh
need_repository

measure() { # inside the allocation; GPUS and RUN_DIR come from outside it
  local files name count gpus list # a line of scales.txt: ending of the files' names, name, nodes, GPUs per node, n[0-1]
  local variant settings           # of variants.txt: its name first, and NCCL's variables last
  while read -r files name count gpus list; do
    collectives
    [[ -z ${NCCL_TESTS_BIN:-} ]] || nccl_tests
    ((count == 1)) || ! is_planned nccl.groups.busbw || groups
  done <"$RUN_DIR/raw/scales.txt"
  while read -r variant files name count gpus list settings; do
    ! is_planned "nccl.variant.$variant.effect" || one_way
  done <"$RUN_DIR/raw/variants.txt"
}

collectives() { # of the scale that measure has read
  local rc=0 logs=$RUN_DIR/raw/nccl-$files
  mkdir -p "$logs"
  # Slurm would bind ranks to cores in their order, and half of the GPUs may be on the other socket: NCCL knows which is near
  MASTER_ADDR=$(rank0_of "$list") MASTER_PORT=$(port "${files/1gpu/0}") \
    srun --label --cpu-bind=none --kill-on-bad-exit=1 --nodes="$count" --nodelist="$list" --ntasks="$((count * gpus))" \
    --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "${SRUN_SITE[@]}" "${CONTAINER[@]}" "${CONTAINER_PYTHON:-$PYTHON}" \
    infrastructure-validation/probes/collectives.py "$name" "$logs" \
    >"$RUN_DIR/raw/collectives-$files.jsonl" 2>"$RUN_DIR/raw/collectives-$files.err" </dev/null || rc=$?
  printf '%s\n' "$rc" >"$RUN_DIR/raw/collectives-$files.rc"
}

groups() { # of the scale that measure has read, without a log: that of NCCL speaks of all ranks
  MASTER_ADDR=$(rank0_of "$list") MASTER_PORT=$(port "$files") \
    srun --label --cpu-bind=none --kill-on-bad-exit=1 --nodes="$count" --nodelist="$list" --ntasks="$((count * gpus))" \
    --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "${SRUN_SITE[@]}" "${CONTAINER[@]}" "${CONTAINER_PYTHON:-$PYTHON}" infrastructure-validation/probes/groups.py "$name" \
    >"$RUN_DIR/raw/groups-$files.jsonl" 2>"$RUN_DIR/raw/groups-$files.err" </dev/null || true
}

nccl_tests() { # of the scale that measure has read
  local binary rc
  local sizes=(-b 8K -e 8G -f 2)
  ((gpus == GPUS)) || sizes=(-b 8K -e 1G -f 131072) # one GPU has no curve: right at a small and at a large size
  for binary in all_reduce_perf all_gather_perf reduce_scatter_perf alltoall_perf broadcast_perf sendrecv_perf; do
    rc=0
    nccl_test "$binary" "$RUN_DIR/raw/$binary-$files" "${sizes[@]}" || rc=$?
    printf '%s\n' "$rc" >"$RUN_DIR/raw/$binary-$files.rc"
  done
}

nccl_test() { # binary, path of its files without their endings, sizes; of the scale that measure has read
  local binary=$1 stem=$2
  shift 2
  srun --mpi="${NCCL_TESTS_MPI:-pmix}" --cpu-bind=none --kill-on-bad-exit=1 --nodes="$count" --nodelist="$list" --ntasks="$((count * gpus))" \
    --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "${SRUN_SITE[@]}" "$NCCL_TESTS_BIN/$binary" "$@" -g 1 -c 1 -w 5 -n 20 \
    >"$stem.txt" 2>"$stem.err" </dev/null
}

one_way() ( # of the variant that measure has read; a step that fails leaves no log, and its gate says so
  stem=$RUN_DIR/raw/variant_$variant-$files
  mkdir -p "$stem"
  read -r -a settings <<<"$settings"
  export "${settings[@]}" NCCL_DEBUG_FILE="$stem/nccl.%h.%p.log" BRINGUP_NCCL_VARIANT="$variant"
  if [[ -n ${NCCL_TESTS_BIN:-} ]]; then
    nccl_test all_reduce_perf "$stem" -b 8K -e 1G -f 131072 || true
  else
    MASTER_ADDR=$(rank0_of "$list") MASTER_PORT=$(port "${files/1gpu/0}") \
      srun --label --cpu-bind=none --kill-on-bad-exit=1 --nodes="$count" --nodelist="$list" --ntasks="$((count * gpus))" \
      --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
      "${SRUN_SITE[@]}" "${CONTAINER[@]}" "${CONTAINER_PYTHON:-$PYTHON}" \
      infrastructure-validation/probes/collectives.py "$name" "$stem" all_reduce \
      >"$stem.jsonl" 2>"$stem.err" </dev/null || true
  fi
)

if [[ ${1:-} == --inside ]]; then
  read_counters before "$GPUS"
  measure
  read_counters after "$GPUS"
  exit
fi
choose_nodes "$@" --phase nccl_scaling
need_connections "$NODES"
run_begin nccl_scaling --nodes "$NODES" --gpus-per-node "$GPUS"
"$PYTHON" -m bringup scales --nodes "$NODES" --gpus-per-node "$GPUS" >"$RUN_DIR/raw/scales.txt"
"$PYTHON" -m bringup variants --nodes "$NODES" --gpus-per-node "$GPUS" >"$RUN_DIR/raw/variants.txt"
rc=0 given=${SALLOC_TIMELIMIT:-} scales=$(wc -l <"$RUN_DIR/raw/scales.txt")
export SALLOC_TIMELIMIT="${SALLOC_TIMELIMIT:-60}"                               # minutes; a partition with a shorter limit refuses more
[[ -n $given ]] || ((scales <= 7)) || export SALLOC_TIMELIMIT="$((8 * scales))" # 4,096 nodes have 14
salloc --quiet --job-name=nccl_scaling --immediate="$BRINGUP_WAIT_S" --nodes="$NODE_COUNT" --nodelist="$NODES" --exclusive --mem=0 \
  "${SALLOC_SITE[@]}" bash "${BASH_SOURCE[0]}" --inside </dev/null || rc=$?
run_end "$rc"
