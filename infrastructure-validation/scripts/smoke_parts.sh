# shellcheck shell=bash disable=SC2034,SC2153,SC2154  # variables of and for smoke_test.sh
# The parts of the smoke phase. Sourced by smoke_test.sh, which sets RUN_DIR, raw, probes, where, memory, USABLE…; failures go to
# rc. What a job gets is looked at in jobs of their own (look_at_binding); all other parts are steps of one allocation.
#
# BRINGUP_DRILL makes one part do the wrong thing, so that its gate is seen to fail:
#   array-task-lost · no-dependency · no-warning · no-requeue · slow-queue · exit-code-lost · bad-exit-ignored ·
#   task-lost · looked-late · two-tasks-one-gpu · two-jobs-one-gpu (where devices are not confined); of the probes: probes/faults.py
: "${BRINGUP_DRILL:=}"

drilled() { [[ $BRINGUP_DRILL == "$1" ]]; }

least_memory() { # MiB that Slurm has configured for the smallest of the usable nodes
  sinfo --noheader --Node --nodes="$USABLE" --format=%m | awk 'NR == 1 || $1 + 0 < least { least = $1 + 0 } END { print least + 0 }'
}

# Sets `memory`, the options that ask for it: never more than three quarters of the smallest node, and nothing where RealMemory is
# not configured: Slurm then calls it 1, does not count memory, and refuses whoever asks for more.
ask_memory() { # MiB per node or core, option (--mem, --mem-per-cpu), or MiB per node, --mem-per-gpu and the GPUs of a node
  local most=$((node_mib * 3 / 4))
  memory=()
  ((node_mib <= 1)) || memory=("$2=$((($1 < most ? $1 : most) / ${3:-1}))M")
}

# On all usable nodes; facts to raw/NAME.jsonl. An option that is given twice counts the second time.
step() { # NAME TASKS_PER_NODE OPTIONS… COMMAND…
  local name=$1 tasks=$2
  shift 2
  srun --label --kill-on-bad-exit=0 --job-name="smoke-$name" "${where[@]}" --ntasks="$((USABLE_COUNT * tasks))" \
    --ntasks-per-node="$tasks" "${memory[@]}" --time=10 "${SRUN_SITE[@]}" "$@" >"$raw/$name.jsonl" 2>"$raw/$name.err" || rc=$?
}

# What tasks of a job get: a GPU and a core each; without asking for one, no GPU; two jobs at once, different ones.
look_at_binding() {
  local gpus=(--gpus-per-task=1) tasks=$GPUS begun=$SECONDS
  ! drilled task-lost || tasks=$((GPUS - 1))
  ! drilled two-tasks-one-gpu || gpus=(--gpus-per-node="$GPUS" --gpu-bind=map_gpu:0)
  placed binding "$tasks" "$USABLE"
  step binding "$tasks" "${gpus[@]}" --cpus-per-task=1 python3 "$probes/binding.py" task
  JOB_START_S=$((SECONDS - begun))
  where=("${where[@]/%--immediate=*/--immediate=$((BRINGUP_WAIT_S + 2 * JOB_START_S))}") # the job before has an epilog, too
  look_at_isolation job
  # with one GPU per node, or with nodes that no two jobs share, the second would wait for the first
  [[ $GPUS == 1 || $WHOLE_NODES == yes ]] || two_jobs_at_once
}

# A job without a GPU; where the site refuses such a job, a step without one, later and inside the allocation.
look_at_isolation() { # job, or step
  local before=$rc without=()
  [[ $1 == job ]] || without=(--gres=none)
  step isolation 1 --cpus-per-task=1 "${without[@]}" python3 "$probes/binding.py" no-gpu
  if [[ $1 == job && ! -s $raw/isolation.jsonl ]] && grep -q 'Unable to allocate resources' "$raw/isolation.err"; then
    rc=$before
    cp "$raw/isolation.err" "$raw/isolation-refused.stderr"
    export ISOLATION_REFUSED=yes
  fi
}

two_jobs_at_once() { # the first holds its GPUs until its standard input ends
  local deadline=$((SECONDS + BRINGUP_WAIT_S)) first hold probe=(python3 "$probes/binding.py")
  ! drilled two-jobs-one-gpu || probe=(env CUDA_VISIBLE_DEVICES=0 "${probe[@]}") # what a site's wrapper may do
  : >"$raw/first-job.jsonl"
  # singleton: of two runs at once, each would hold a GPU and wait for the other's
  exec {hold}> >(step first-job 1 --dependency=singleton --gpus-per-node=1 --cpus-per-task=1 "${probe[@]}" first)
  first=$!
  until (($(grep -c openable "$raw/first-job.jsonl") == USABLE_COUNT || SECONDS > deadline)) || ! kill -0 "$first" 2>/dev/null; do
    sleep 0.1
  done
  step second-job 1 --gpus-per-node=1 --cpus-per-task=1 "${probe[@]}" second </dev/null
  exec {hold}>&-
  wait "$first" || rc=$?
}

# MiB per node for the steps of the allocation: torch, and for each GPU a context; or the page cache of the files of storage,
# which counts as the job's and would be reclaimed meanwhile.
memory_of_steps() {
  local compute=$((1000 + 500 * GPUS)) storage=$((500 + 2 * ${BRINGUP_STORAGE_MIB:-64}))
  printf '%s\n' "$((compute > storage ? compute : storage))"
}

# A task ends with 3, and the others must not outlive it.
look_at_bad_exit() {
  local kill=1
  ! drilled bad-exit-ignored || kill=0
  srun --label --job-name=smoke-bad-exit "${where[@]}" --ntasks="$((USABLE_COUNT * 2))" --ntasks-per-node=2 --overcommit \
    --time=2 "${SRUN_SITE[@]}" --kill-on-bad-exit="$kill" python3 "$probes/scheduler.py" bad-exit \
    >"$raw/bad-exit.txt" 2>"$raw/bad-exit.stderr" || true
}

# The results folder, looked at from every node and from here; each step is the barrier for the next.
look_at_folder() {
  local folder=$raw/shared_fs token part
  token=$(tr -d - </proc/sys/kernel/random/uuid)
  mkdir "$folder"
  ! drilled looked-late || : >"$folder/late"
  step fs-look 1 python3 "$probes/shared_fs.py" look "$folder"
  python3 "$probes/shared_fs.py" reference "$folder" "$token" >"$raw/fs-reference.jsonl"
  step fs-node 1 python3 "$probes/shared_fs.py" node "$folder" "$token"
  python3 "$probes/shared_fs.py" check "$folder" "$token" "$raw/usable.txt" >"$raw/fs-check.jsonl"
  # ... and from node to node; which nodes they are comes through Slurm, as a node may not see this folder
  for part in write read change see; do
    step "coherence-$part" 1 python3 "$probes/coherence.py" "$part" "$folder" "$ROUNDS" < <(paste -sd, "$raw/nodes.txt" "$raw/usable.txt")
  done
}

look_at_compute() {
  step compute 1 --time=5 --gpus-per-node="$GPUS" --cpus-per-task=1 "$PYTHON" "$probes/compute.py"
}

look_at_storage() {
  local folder=$raw/storage mib=${BRINGUP_STORAGE_MIB:-64}
  mkdir "$folder"
  srun --label --job-name=smoke-storage --nodes=1 --ntasks=1 --nodelist="$(sed -n 1p "$raw/usable.txt")" --time=5 "${SRUN_SITE[@]}" \
    python3 "$probes/storage.py" "$folder" "$mib" alone >"$raw/storage-alone.jsonl" 2>"$raw/storage-alone.err" || rc=$?
  step storage-together 1 --time=5 python3 "$probes/storage.py" "$folder" "$mib" together
  rmdir --ignore-fail-on-non-empty "$folder"
  [[ -z ${SCRATCH_SITE:-} ]] || step scratch 1 --time=5 python3 "$probes/storage.py" "$SCRATCH_SITE" "$mib" scratch
}
