# shellcheck shell=bash
# The sampler beside a load: CPU, memory, GPUs and network of every node of a job. Sourced after job.sh.
#
#   start_monitor GPUS   on all nodes, which see so many GPUs; writes raw/monitor.csv
#   stop_monitor         what the samplers said until then is there

# shellcheck source=infrastructure-validation/scripts/watchers.sh
source infrastructure-validation/scripts/watchers.sh

start_monitor() {
  # up to 64 nodes once a second, then as much rarer as there are more: 64 nodes of 8 GPUs write 60 KB a second
  local period=$(((SLURM_JOB_NUM_NODES + 63) / 64))
  start_watcher monitor.csv "$1" "$PYTHON" infrastructure-validation/probes/monitor.py until-eof "$period"
}

stop_monitor() {
  end_watcher monitor.csv
}
