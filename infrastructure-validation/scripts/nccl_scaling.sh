#!/usr/bin/env bash
# Proves:         on one GPU the library loads, makes a communicator and computes rightly; at 1, 2, 4, … and all nodes, all ranks
#                 form one communicator, collectives give right results, over the interconnect that the profile names, at the
#                 bandwidth that it expects at a named size; so do groups of the ranks at one place of each node, all at once.
#                 On one node and on two, where the profile does not leave it out:
#                 told to go one way only (NVLink, NICs, Ring, no NVLS), NCCL does so, as fast as that way should be.
# Does not prove: any speed of one GPU (nothing leaves it); which single link or node is slow; anything about other nodes.
# Usage:          bash infrastructure-validation/scripts/nccl_scaling.sh [--nodes N | --nodelist n[0-3]]
#                 BRINGUP_SCALES=apart: each scale in a start of its own, as probes/scaling.py says what can differ. Default:
#                 together, in one start of all ranks.
#                 NCCL_TESTS_BIN=FOLDER: run nccl-tests (built with MPI) there too, beside our own collectives, and judge both.
#                 NCCL_TESTS_MPI: srun's --mpi for them; default pmix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
# shellcheck source=infrastructure-validation/scripts/counters.sh
source infrastructure-validation/scripts/counters.sh
need_repository
SCALES=${BRINGUP_SCALES:-together} STARTS=0 # of ranks, so far: each has a port of its own
[[ $SCALES == together || $SCALES == apart ]] || die "BRINGUP_SCALES=$SCALES: expected together or apart"

measure() { # inside the allocation; GPUS and RUN_DIR come from outside it
  local lines options=() line files count gpus list # of scales.txt: ending of the files' names, name, nodes, GPUs per node, n[0-1]
  local variant                                     # of variants.txt: its name first, and NCCL's variables last
  ! is_planned nccl.groups.busbw || options=(--groups)
  mapfile -t lines <"$RUN_DIR/raw/scales.txt"
  launches "${lines[@]}"
  together collectives "${lines[@]}"
  for line in "${lines[@]}"; do
    read -r files _ count gpus list <<<"$line"
    [[ -z ${NCCL_TESTS_BIN:-} ]] || nccl_tests
  done
  while read -r variant; do
    mapfile -t lines < <(sed -n "s/^$variant //p" "$RUN_DIR/raw/variants.txt")
    ! is_planned "nccl.variant.$variant.effect" || one_way
  done < <([[ ! -e $RUN_DIR/raw/variants.txt ]] || cut -d ' ' -f 1 "$RUN_DIR/raw/variants.txt" | sort -u)
}

launches() { # lines from the narrowest scale to the widest: how long srun itself takes, twice, with a program that does nothing
  local line files count gpus list begun
  for line in "$@"; do
    read -r files _ count gpus list _ <<<"$line"
    for _ in first again; do
      begun=$(nanoseconds)
      srun --cpu-bind=none --nodes="$count" --nodelist="$list" --ntasks="$((count * gpus))" --ntasks-per-node="$gpus" "${SRUN_SITE[@]}" \
        true </dev/null 2>>"$RUN_DIR/raw/launches.err" || continue
      printf '%s %s %s\n' "$files" "$((count * gpus))" "$(elapsed "$begun")" >>"$RUN_DIR/raw/launches.txt"
    done
  done
}

together() { # stem of the files, lines from the narrowest scale to the widest: one start of ranks, and more only after a bad end
  local stem=$1 numbers number left
  shift
  while (($#)); do
    STARTS=$((STARTS + 1))
    if [[ $SCALES == apart ]]; then
      start "$stem" "$1" >/dev/null
      shift
      continue
    fi
    numbers=$(start "$stem" "$@") || numbers="" # nothing more can be written: what is not there is incomplete
    left=()
    for number in $numbers; do left+=("${@:number+1:1}"); done
    set -- "${left[@]}"
  done
}

start() { # stem of the files, lines: prints the number of each that is left to be measured
  local stem=$1 scales=() errors=$RUN_DIR/raw/$1.err rc=0 begun files name count gpus list step_gpus step_list
  shift
  begun=$(nanoseconds)
  read -r _ _ count step_gpus step_list _ <<<"${*: -1}" # the widest
  while read -r files name _ gpus list _; do
    scales+=("$stem-$files:$name:$gpus:$(places "$list" "$step_list")")
    rm -rf "$RUN_DIR/raw/"{"$stem","${stem/#collectives/groups}"}"-$files".{jsonl,rc,err} "$RUN_DIR/raw/$(logs_of "$stem" "$files")"
    mkdir -p "$RUN_DIR/raw/$(logs_of "$stem" "$files")"
  done < <(printf '%s\n' "$@")
  # Slurm would bind ranks to cores in their order, and half of the GPUs may be on the other socket: NCCL knows which is near
  MASTER_ADDR=$(rank0_of "$step_list") MASTER_PORT=$(port "$STARTS") \
    srun --label --cpu-bind=none --kill-on-bad-exit=1 --nodes="$count" --nodelist="$step_list" --ntasks="$((count * step_gpus))" \
    --ntasks-per-node="$step_gpus" --distribution="plane=$step_gpus" --gpus-per-node="$step_gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "${SRUN_SITE[@]}" "${CONTAINER[@]}" "${CONTAINER_PYTHON:-$PYTHON}" \
    infrastructure-validation/probes/scaling.py "${options[@]}" "$RUN_DIR/raw" "${scales[@]}" 2>"$errors" </dev/null |
    "$PYTHON" infrastructure-validation/probes/parts.py out "$RUN_DIR/raw" "${scales[@]}" || rc=$?
  printf '%s %s\n' "$((count * step_gpus))" "$(elapsed "$begun")" >>"$RUN_DIR/raw/starts.txt"
  "$PYTHON" infrastructure-validation/probes/parts.py errors "$RUN_DIR/raw" "$errors" "$rc" "${scales[@]}"
}

logs_of() { # stem, ending of the files' names: where NCCL writes its log
  printf '%s\n' "${1/#collectives/nccl}-$2"
}

places() { # n[0,3] n[0-3] -> 0,3: the places of the first nodes among the second, in the order in which Slurm places ranks
  awk 'FNR == 1 { list++ } list == 1 { wanted[$0] } list == 2 { step[$0] }
    list == 3 && $0 in step { if ($0 in wanted) print "n" place + 0; place++ }' \
    <(names_of "$1") <(names_of "$2") <(names_of "$SLURM_JOB_NODELIST") | short_of | tr -d 'n[]'
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
    --ntasks-per-node="$gpus" --distribution="plane=$gpus" --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank "$GPUS")" \
    "${SRUN_SITE[@]}" "$NCCL_TESTS_BIN/$binary" "$@" -g 1 -c 1 -w 5 -n 20 \
    >"$stem.txt" 2>"$stem.err" </dev/null
}

one_way() ( # of the variant that measure has read; a step that fails leaves no log, and its gate says so
  options=(--only all_reduce)
  read -r _ _ _ _ _ settings <<<"${lines[0]}"
  read -r -a settings <<<"$settings"
  export "${settings[@]}"
  unset NCCL_DEBUG_FILE
  if [[ -z ${NCCL_TESTS_BIN:-} ]]; then
    together "variant_$variant" "${lines[@]}"
    exit
  fi
  for line in "${lines[@]}"; do
    read -r files _ count gpus list _ <<<"$line"
    stem=$RUN_DIR/raw/variant_$variant-$files
    mkdir -p "$stem"
    NCCL_DEBUG_FILE="$stem/nccl.%h.%p.log" nccl_test all_reduce_perf "$stem" -b 8K -e 1G -f 131072 || true
  done
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
[[ $PLANNED != *nccl.variant.* ]] || # that program takes a second to start
  "$PYTHON" -m bringup variants --nodes "$NODES" --gpus-per-node "$GPUS" >"$RUN_DIR/raw/variants.txt"
rc=0 given=${SALLOC_TIMELIMIT:-} count=$(wc -l <"$RUN_DIR/raw/scales.txt")
export SALLOC_TIMELIMIT="${SALLOC_TIMELIMIT:-60}"                               # minutes; a partition with a shorter limit refuses more
[[ -n $given ]] || ((count <= 7)) || export SALLOC_TIMELIMIT="$((8 * count))" # 4,096 nodes have 14
salloc --quiet --job-name=nccl_scaling --immediate="$BRINGUP_WAIT_S" --nodes="$NODE_COUNT" --nodelist="$NODES" --exclusive --mem=0 \
  "${SALLOC_SITE[@]}" bash "${BASH_SOURCE[0]}" --inside </dev/null || rc=$?
run_end "$rc"
