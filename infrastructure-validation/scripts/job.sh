# shellcheck shell=bash
# Verbs that every phase script sources. It launches nothing on a node: the srun lines stay in the scripts, in plain sight.
#
#   need_repository            the working directory is the repository root, with its .venv; sets PYTHON
#   keep_log                   inside a batch job: move its log to slurm-logs/
#   run_begin PHASE [OPTION…]  write the plan (`bringup open`); sets RUN_DIR
#   run_end                    close the run, judge it, write report.md, print the verdict; returns 0, 1 or 2
#
# Environment: BRINGUP_PROFILE (name or path; default generic), BRINGUP_VENV (default .venv), BRINGUP_RUN_NAME.

die() { # message…
  printf '%s: %s\n' "${SLURM_JOB_NAME:-${0##*/}}" "$*" >&2
  exit 2
}

need_repository() {
  [[ -r infrastructure-validation/scripts/job.sh ]] ||
    die "$PWD is not the root of the bringup repository; cd there and submit again"
  local venv=${BRINGUP_VENV:-$PWD/.venv}
  PYTHON=$venv/bin/python
  [[ -x $PYTHON ]] || die "no Python environment at $venv (seen from ${SLURMD_NODENAME:-$HOSTNAME}); run 'make setup', or set BRINGUP_VENV"
  PATH=$venv/bin:$PATH
  export PATH
}

# Slurm (before 23.02) does not create the folder of --output and fails the job without a word when it is missing. So the
# scripts write to the submission directory, where an error is seen, and move the log once they know where they are.
keep_log() {
  local log="$SLURM_JOB_NAME-$SLURM_JOB_ID.out"
  mkdir -p slurm-logs
  [[ ! -f $log ]] || mv -- "$log" slurm-logs/
}

run_begin() { # phase, options of `bringup open`
  local phase=$1
  shift
  RUN_DIR=$("$PYTHON" -m bringup open "$phase" "$@" -- "$0") || exit 2
  export RUN_DIR
  printf '%s: %s\n' "$phase" "$RUN_DIR"
}

run_end() { # exit code of the phase's work
  local verdict=0
  "$PYTHON" -m bringup close "$RUN_DIR" --exit-code "$1" || verdict=$?
  return "$verdict"
}

gpus_on_node() { # what Slurm granted on this node; --exclusive grants all of them
  [[ ${SLURM_GPUS_ON_NODE:-} =~ ^[1-9][0-9]*$ ]] ||
    die "Slurm granted no GPU on ${SLURMD_NODENAME:-this node}; is Gres=gpu configured? (scontrol show node)"
  printf '%s\n' "$SLURM_GPUS_ON_NODE"
}
