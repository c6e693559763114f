# shellcheck shell=bash
# One attempt of a training job that Slurm may end before its work is done. Sourced by the batch scripts, after job.sh and
# counters.sh.
#
#   begin_attempt       read the counters of the nodes, before the step; start the sampler beside it
#   wait_for_step PID   wait for the step, and hear USR1 meanwhile (#SBATCH --signal=B:USR1@120: two minutes before the time
#                       limit, or sent by hand: scancel --batch --signal=USR1 JOBID): the ranks then write a checkpoint and end
#                       And TERM: to the step (preemption with a grace time, scancel --signal=TERM), or to all (a plain
#                       scancel, which leaves KillWait of slurm.conf, 30 s). At --signal=TERM --full srun kills the ranks at once
#   end_attempt RC      stop the sampler, read the counters again, close the run and judge it; when it was stopped so, requeue the
#                       job, which goes on from its checkpoint
#
# The step runs in the background because bash hears a signal only between commands, and while it waits.
# BRINGUP_REQUEUE=0: a job that was stopped ends there.

# shellcheck source=infrastructure-validation/scripts/monitor.sh
source infrastructure-validation/scripts/monitor.sh

stop_step() { # why
  signalled=yes
  printf '%s: %s; the ranks write a checkpoint and end\n' "$SLURM_JOB_NAME" "$1"
  touch -- "$RUN_DIR/stop"
}

asked_to_end() {
  stop_step 'this job got SIGTERM and ends'
  # Slurm gives no reason here. This file does: a rank that ends now is no fault of the cluster
  printf '%s\n' "${SLURMD_NODENAME:-$HOSTNAME}" >"$RUN_DIR/raw/sigterm.txt"
}

begin_attempt() {
  trap 'stop_step "the time limit is near"' USR1 # from here on: the counters take a second
  trap asked_to_end TERM
  read_counters before "$(gpus_on_node)"
  attempt_begun=$(nanoseconds)
  start_monitor "$(gpus_on_node)"
}

wait_for_step() { # process id
  local rc signalled
  while :; do
    signalled=no rc=0
    wait "$1" || rc=$?
    [[ $signalled == yes ]] || break # otherwise it was the signal that ended the waiting, not the step
  done
  trap '' USR1 TERM # nothing is left to stop
  return "$rc"
}

end_attempt() { # exit code of the step
  local verdict=0
  elapsed "$attempt_begun" >"$RUN_DIR/raw/train.seconds"
  stop_monitor
  read_counters after "$(gpus_on_node)"
  run_end "$1" || verdict=$?
  [[ $1 == 0 && -e $RUN_DIR/stop && ! -e $RUN_DIR/metrics.json ]] || return "$verdict"
  if [[ ${BRINGUP_REQUEUE:-1} == 1 ]] && scontrol requeue "$SLURM_JOB_ID"; then
    printf '%s: stopped with a checkpoint and requeued\n' "$SLURM_JOB_NAME"
    sleep 120 # Slurm ends this script; the next attempt is another one
  fi
  printf '%s: stopped with a checkpoint; go on with: sbatch … --resume %q\n' "$SLURM_JOB_NAME" "$RUN_DIR"
  return "$verdict"
}
