# shellcheck shell=bash
# Counters of the nodes of a job, before a load and after it, also after one that failed. Sourced after job.sh.
#
#   read_counters before|after GPUS   a task on each node, which sees so many GPUs; writes raw/counters-before.jsonl or -after
#
# Between the two, NVML's events of Xids are watched on all nodes: raw/xids.jsonl.
# It never ends a script and changes no exit code: what was not read is incomplete, and raw/counters-*.err says why.

# shellcheck source=infrastructure-validation/scripts/watchers.sh
source infrastructure-validation/scripts/watchers.sh

read_counters() {
  [[ $1 != before ]] || start_watcher xids.jsonl "$2" python3 infrastructure-validation/probes/xids.py
  [[ $1 != after ]] || end_watcher xids.jsonl
  # --overlap: what is left of a load that was killed may still hold its cores for a while
  timeout --foreground --kill-after=10 60 \
    srun --overlap --label --kill-on-bad-exit=0 --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --gpus-per-node="$2" "${SRUN_SITE[@]}" python3 infrastructure-validation/probes/counters.py "$1" \
    >"$RUN_DIR/raw/counters-$1.jsonl" 2>"$RUN_DIR/raw/counters-$1.err" </dev/null || true
  [[ $1 != before ]] || until_watched
}

until_watched() { # on all nodes; or it has ended, or a minute has passed, as long as the counters may take
  local tenths watched
  for ((tenths = 600; tenths > 0; tenths--)); do
    watched=$(grep -cF '"load.event.gpus"' "$RUN_DIR/raw/xids.jsonl" 2>/dev/null) || watched=${watched:-0}
    ((watched < SLURM_JOB_NUM_NODES)) || break
    kill -0 "${watcher_processes[xids.jsonl]}" 2>/dev/null || break
    sleep 0.1
  done
}
