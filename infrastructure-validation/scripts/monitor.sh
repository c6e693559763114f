# shellcheck shell=bash
# The sampler beside a load: CPU, memory, GPUs and network of every node of a job. Sourced after job.sh.
#
#   start_monitor GPUS   on all nodes, which see so many GPUs; writes raw/monitor.csv
#   stop_monitor         what the samplers said until then is there
#
# It never ends a script and changes no exit code: what was not sampled is incomplete, and raw/monitor.err says why.

start_monitor() {
  # up to 64 nodes once a second, then as much rarer as there are more: 64 nodes of 8 GPUs write 60 KB a second
  local period=$(((SLURM_JOB_NUM_NODES + 63) / 64))
  # a signal would not do: srun sends SIGKILL to the tasks when it gets SIGTERM. The samplers end with their standard input
  exec {monitor_input}> >(exec srun --overlap --label --kill-on-bad-exit=0 --nodes="$SLURM_JOB_NUM_NODES" \
    --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --gpus-per-node="$1" \
    "${SRUN_SITE[@]}" "$PYTHON" infrastructure-validation/probes/monitor.py until-eof "$period" \
    >"$RUN_DIR/raw/monitor.csv" 2>"$RUN_DIR/raw/monitor.err")
  monitor_process=$!
}

stop_monitor() {
  exec {monitor_input}>&-
  end_within 20 "$monitor_process" || true
}
