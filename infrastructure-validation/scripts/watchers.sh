# shellcheck shell=bash
# Programs that watch every node of a job while it works. Sourced by monitor.sh and counters.sh.
#
#   start_watcher FILE GPUS PROGRAM…   on all nodes, which see so many GPUs; writes raw/FILE, and raw/STEM.err
#   end_watcher FILE                   what it wrote until then is there; nothing happens where none was started
#
# They never end a script and change no exit code: what was not watched is incomplete, and raw/STEM.err says why.
declare -A watcher_inputs=() watcher_processes=()

start_watcher() {
  local file=$1 gpus=$2 input
  shift 2
  # a signal would not do: srun sends SIGKILL to the tasks when it gets SIGTERM. The watchers end with their standard input
  exec {input}> >(exec srun --overlap --label --kill-on-bad-exit=0 --nodes="$SLURM_JOB_NUM_NODES" \
    --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --gpus-per-node="$gpus" "${SRUN_SITE[@]}" "$@" \
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
