# shellcheck shell=bash
# Programs that watch every node of a job while it works. Sourced by monitor.sh and counters.sh.
#
#   start_watcher FILE GPUS PROGRAM…   on all nodes, which see so many GPUs; writes raw/FILE, and raw/STEM.err
#   end_watcher FILE                   what it wrote until then is there; nothing happens where none was started
#
# They never end a script and change no exit code: what was not watched is incomplete, and raw/STEM.err says why.
declare -A watcher_inputs=() watcher_processes=()

# Before Slurm 22.05 --overlap shared cores alone: a load would wait for the GPUs that its watcher holds.
steps_share_gpus() {
  local version
  version=$(scontrol --version 2>/dev/null) || return 0
  [[ ! $version =~ ([0-9]+)\.([0-9]+) ]] || ((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]} >= 2205))
}

start_watcher() {
  local file=$1 granted=(--gpus-per-node="$2") input
  shift 2
  steps_share_gpus || granted=(--gres=none)  # what it cannot see then, it says
  # --wait=0: one node that has nothing to watch does not end the others
  # a signal would not do: srun sends SIGKILL to the tasks when it gets SIGTERM. The watchers end with their standard input
  exec {input}> >(exec srun --overlap --label --kill-on-bad-exit=0 --wait=0 --nodes="$SLURM_JOB_NUM_NODES" \
    --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "${granted[@]}" "${SRUN_SITE[@]}" "$@" \
    >"$RUN_DIR/raw/$file" 2>"$RUN_DIR/raw/${file%.*}.err")
  watcher_processes[$file]=$! watcher_inputs[$file]=$input
}

end_watcher() {
  local input=${watcher_inputs[$1]:-}
  [[ -n $input ]] || return 0
  exec {input}>&-
  end_within 20 "${watcher_processes[$1]}" || true
  unset "watcher_inputs[$1]"
}
