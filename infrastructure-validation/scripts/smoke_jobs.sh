# shellcheck shell=bash disable=SC2034,SC2154  # variables of and for smoke_test.sh
# Batch jobs that say by how they end what Slurm promises. Sourced by smoke_test.sh, after smoke_parts.sh.

anywhere_else() { # the nodes that were not requested: sbatch has no option for "any of these", so they are excluded
  sinfo --noheader --Node --format=%N | sort -u | { grep -vxF -f "$raw/usable.txt" || true; }
}

batch() { # NAME OPTIONS… COMMAND: a job of one task; prints its id, nothing when it was refused
  local name=$1 memory refused=$raw/refused-$1 deadline=$((SECONDS + patience))
  shift
  [[ ${#ONE_GPU_SITE[@]} == 0 ]] || forget_gpu_requests SBATCH # in a subshell: what calls it takes its output
  ask_memory 50 --mem
  # where a user may have only so many jobs (MaxSubmitJobs), the next one waits until one has ended
  until sbatch --parsable "${SBATCH_SITE[@]}" "${ONE_GPU_SITE[@]}" --job-name="smoke-$name" "${others[@]}" \
    --output="$raw/job-$name.log" --open-mode=append \
    --time=10 "${memory[@]}" "${@:1:$#-1}" --wrap "${!#}" 2>"$refused"; do
    grep -qE 'Max(Submit|Jobs)|job submit limit' "$refused" || break
    # with none of ours in the queue, an array has more tasks than may be submitted: no end of a job makes room
    [[ $* != *--array=* || -n $(squeue --me --noheader) ]] || break
    ((SECONDS < deadline)) || break
    sleep 2
  done
  cat "$refused" >>"$raw/jobs.err" # without a job its gates are incomplete
  rm "$refused"
}

# Slurm forgets a job 5 minutes after its end by default (MinJobAge), and the steps of this phase may take longer: what it says of
# each job is kept when the job ends. The patience begins when the steps are done: they may keep the jobs waiting.
watch() { # PATIENCE_S FILE=JOBID…
  local patience=$1
  shift
  "$PYTHON" -m bringup ended "$RUN_DIR" "${@/%/=3600}" 2>/dev/null & # collect_jobs asks again, and shows errors
  watchers+=("$!") awaited+=("${@/%/=$patience}")
}

collect_jobs() {
  ((${#watchers[@]} > 0)) || return 0
  kill "${watchers[@]}" 2>/dev/null || true # some have seen the end of all their jobs
  wait "${watchers[@]}" || true
  "$PYTHON" -m bringup ended "$RUN_DIR" "${awaited[@]}" || rc=$?
}

# Whether they fit beside the steps, which take all GPUs of the nodes: not where each has a node or a GPU of its own, and for long.
small_jobs_fit() {
  [[ $WHOLE_NODES == no && ${#ONE_GPU_SITE[@]} == 0 ]] && ! has_prolog
}

# What ten jobs that start one after the other need beyond their own time: where each takes a node, they do.
submit_small_jobs() {
  local patience=240
  small_jobs_fit || patience=$((patience + 20 * JOB_START_S))
  ! wanted jobs || { ask_segment && submit_jobs; }
  ! wanted warning || submit_warning_job
  ! wanted requeue || submit_requeue_job
}

submit_jobs() {
  local delay=() dependency=() failing=() failure='exit 7'
  ! drilled exit-code-lost || failure='exit 7 | true'
  array_last=3
  ! drilled slow-queue || delay=(--begin=now+40)
  ! drilled array-task-lost || array_last=2
  # each pair together: where few jobs may be submitted, the next waits, and of a job that Slurm has forgotten it drops the dependency
  exit_job=$(batch exit-code "${delay[@]}" "$failure")
  drilled no-dependency || failing=(--dependency="afterok:$exit_job")
  never_job=$(batch never "${failing[@]}" --kill-on-invalid-dep=yes true)
  before_job=$(batch before 'sleep 2')
  drilled no-dependency || dependency=(--dependency="afterok:$before_job")
  after_job=$(batch after "${dependency[@]}" true)
  memory_job=$(batch memory --mem=100M "exec python3 $probes/take_memory.py 300")
  array_job=$(batch array --array="0-$array_last" --output="$raw/array-%a.jsonl" "exec python3 $probes/scheduler.py array")
  watch "$((patience - 150))" "job-exit-code.txt=$exit_job" "job-memory.txt=$memory_job" "job-before.txt=$before_job" "job-after.txt=$after_job" \
    "job-never.txt=$never_job" "job-array.txt=${array_job:+${array_job}_$array_last}"
}

# Which nodes a job with --segment would get, where Slurm knows blocks (topology/block). Nothing is submitted.
ask_segment() {
  save segment.txt scontrol show topology # no file where it gives no answer
  grep -q '^BlockName=' "$raw/segment.txt" 2>/dev/null || return 0
  sbatch --test-only "${SBATCH_SITE[@]}" "${ONE_GPU_SITE[@]}" "${others[@]}" "${memory[@]}" --nodes=2 --segment=2 --wrap true 2>&1 |
    tail -n 1 >>"$raw/segment.txt" || true
}

# Begins a second time when Slurm allows it: two minutes later by default (cred_expire).
submit_requeue_job() {
  local requeue=(--requeue)
  ! drilled no-requeue || requeue=(--no-requeue)
  requeue_job=$(batch requeue "${requeue[@]}" --output="$raw/requeue.txt" "exec python3 $probes/scheduler.py attempt")
  watch "$patience" "job-requeue.txt=$requeue_job" # Slurm holds a requeued job back for two minutes by default
}

# The signal is due so many seconds after the job's start, and comes with Slurm's look at time limits before that: up to half a
# minute early, and once. Before the job's script has begun it is lost, so it is due when that has been at work for as long.
submit_warning_job() {
  local due=$((45 + JOB_START_S * 3 / 2)) minutes signal
  minutes=$(((due + JOB_START_S + 109) / 60)) # its program waits for 45 s after that, and ends before the limit
  signal=(--signal="B:USR1@$((60 * minutes - due))")
  ! drilled no-warning || signal=()
  warning_job=$(batch warning --time="$minutes" "${signal[@]}" --output="$raw/warning.jsonl" --error="$raw/warning.err" \
    "exec python3 $probes/scheduler.py warning $due")
  watch "$((patience - 120 + due))" "job-warning.txt=$warning_job"
}
