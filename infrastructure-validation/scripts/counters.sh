# shellcheck shell=bash
# Counters of the nodes of a job, before a load and after it, also after one that failed. Sourced after job.sh.
#
#   read_counters before|after GPUS   a task on each node, which sees so many GPUs; writes raw/counters-before.jsonl or -after
#
# It never ends a script and changes no exit code: what was not read is incomplete, and raw/counters-*.err says why.

read_counters() {
  # --overlap: what is left of a load that was killed may still hold its cores for a while
  timeout --foreground --kill-after=10 60 \
    srun --overlap --label --kill-on-bad-exit=0 --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --gpus-per-node="$2" "${SRUN_SITE[@]}" python3 infrastructure-validation/probes/counters.py "$1" \
    >"$RUN_DIR/raw/counters-$1.jsonl" 2>"$RUN_DIR/raw/counters-$1.err" </dev/null || true
}
