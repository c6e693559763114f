# shellcheck shell=bash
# Verbs that every phase script sources. It launches nothing on a node: the srun lines stay in the scripts, in plain sight.
#
#   need_repository             the working directory is the repository root, with its .venv; sets PYTHON
#   keep_log                    inside a batch job: move its log to slurm-logs/; sets SCREEN
#   choose_nodes [OPTION…]      on a login host: sets NODES, NODE_COUNT, GPUS (per node), USABLE, USABLE_COUNT (lists: n[0-3]);
#                               with --sharing also WHOLE_NODES: yes where no two jobs share a node;
#                               with --phase PHASE those of its partition, which has to take its job
#   run_begin PHASE OPTION…      write the plan (`bringup open`); sets RUN_DIR, PLANNED, and what the site file says
#   is_planned GATE             whether the run is judged on it: a part that no gate asks for is not run
#   run_end RC                  close the run, judge it, write report.md, print the verdict; returns 0, 1 or 2
#   save FILE COMMAND…          keep a command's answer in raw/; when it fails, no file: absence is not evidence
#   gpus_on_node                what Slurm granted on this node
#   cpus_per_rank RANKS         cores of a rank, where so many share a node
#   rank0_of LIST               the node of n[0,3] on which Slurm places rank 0
#   placed STEM TASKS LIST      write down on which nodes the step STEM runs, with how many tasks each, where its name does not
#                               say it (kernel/facts/reading.py): a fact counts only from the node that it is about
#   unfinished PROBE FILE NODE… the nodes on which the probe left no closing line
#   names_of LIST, short_of     n[0-2] -> a name per line, and back: 4,096 names are too long for a variable or an option
#   need_connections LIST       on a login host: stop with one line if what LIST's first node sends does not reach this host
#
# Environment: BRINGUP_SITE (name or path of a site file), BRINGUP_PROFILE (name or path; default auto), BRINGUP_VENV (venv.sh),
# BRINGUP_RUN_NAME, BRINGUP_WAIT_S (seconds that a step may wait for busy nodes; default 120), BRINGUP_JUDGE_LATER
# (`bringup run` sets it: it judges the run itself, when the job has ended), BRINGUP_START_S (probes/arrival.py),
# BRINGUP_HANG_S (probes/progress.py).
BRINGUP_GIVEN=$(compgen -e) # the variables that the user set win over the site file; those that scripts set do not
: "${BRINGUP_WAIT_S:=120}"

# Messages are read, and so are decimal points: all programs of the run speak English. UTF-8 stays, for names of files.
export LC_ALL=C.UTF-8 SLURM_TIME_FORMAT=standard
unset LANGUAGE

# Where a site sets SBATCH_EXPORT=NONE, sbatch and srun would keep PATH, RUN_DIR and BRINGUP_* from what they start.
unset SBATCH_EXPORT
export SLURM_EXPORT_ENV=ALL
# Labels say which node a line is from, lines come whole, a step has the memory of its job: whatever the user's shell holds.
# shellcheck disable=SC2046  # names without blanks
unset $(grep -v '^#' "${BASH_SOURCE[0]%/*}/cleared-variables")

# The soft limit of open files is 1024 in most login shells, and Slurm hands it on (PropagateResourceLimits=ALL, the default).
raise_open_files() {
  local hard enough=65536
  hard=$(ulimit -Hn)
  [[ $hard == unlimited || $hard -gt $enough ]] || enough=$hard
  [[ $(ulimit -Sn) == unlimited || $(ulimit -Sn) -ge $enough ]] || ulimit -Sn "$enough"
}
raise_open_files

# Where a site wants a GPU request with every job (SBATCH_GPUS_PER_NODE, SALLOC_GPUS_PER_NODE), Slurm hands it on to the steps.
# Each step here says itself what it needs, and one of them that it needs none.
forget_gpu_requests() { # SALLOC, SBATCH, SLURM: of these variables; a gres that is no GPU stays
  local command gres
  for command in "$@"; do
    gres=${command}_GRES
    gres=$(tr , '\n' <<<"${!gres:-}" | { grep -vE '^(gres[:/])?gpu\b' || true; } | paste -sd, -)
    unset "${command}_"{GPUS,GPUS_PER_NODE,GPUS_PER_SOCKET,GPUS_PER_TASK,TRES_PER_TASK,GRES}
    [[ -z $gres ]] || export "${command}_GRES=$gres"
  done
}
[[ -z ${SLURM_JOB_ID:-} ]] ||
  unset SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_GRES \
    {SLURM,SRUN}_{TRES,GPU}_BIND # --gpus-per-task=1 of the job: from Slurm 26.05 on a step of one task sees one of its GPUs

# What the site file says, for command lines (docs/01-environment.md). An array cannot be exported: a script that salloc starts
# reads them from SITE_ARRAYS. CONTAINER stands last before a torch program; without a container it is empty.
# shellcheck disable=SC2034  # for the scripts that source this file
SRUN_SITE=() SALLOC_SITE=() SBATCH_SITE=() ONE_GPU_SITE=() CHECKPOINTS_SITE=() FOLDERS_SITE=() CONTAINER=()
eval "${SITE_ARRAYS:-}"
[[ -z ${SLURM_JOB_ID:-} ]] || unset SLURM_CONSTRAINT # srun would ask each step for it, and takes only one feature there

# Exit code 1 says that the cluster failed a gate. Only a verdict says that: whatever else ends a script means that we cannot tell.
concluded=no
trap 'code=$?; forget_container; [[ $concluded == yes ]] || ((code == 0 || code > 128)) || exit 2' EXIT

# pyxis unpacks a named image once, for all steps of the job, and keeps it on the nodes afterwards (unless the site's
# container_scope is job: then it removes it itself, under another name).
forget_container() {
  local option
  [[ -n ${SLURM_JOB_ID:-} ]] || return 0
  for option in "${CONTAINER[@]}"; do
    [[ $option == --container-name=* ]] || continue
    timeout --kill-after=5 60 srun --kill-on-bad-exit=0 --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --time=2 "${SRUN_SITE[@]}" \
      enroot remove --force "pyxis_${option#*=}" </dev/null >/dev/null 2>&1 || true
  done
}

die() { # message…
  printf '%s: %s\n' "${SLURM_JOB_NAME:-${0##*/}}" "$*" >&2
  exit 2
}

need_repository() {
  [[ -r infrastructure-validation/scripts/job.sh ]] ||
    die "$PWD is not the root of the bringup repository; cd there and submit again"
  local venv
  # shellcheck source=infrastructure-validation/scripts/venv.sh
  source infrastructure-validation/scripts/venv.sh
  venv=$(venv_folder)
  [[ $venv == /* ]] || venv=$PWD/$venv
  PYTHON=$venv/bin/python
  [[ -x $PYTHON ]] ||
    die "no Python environment at $venv (seen from ${SLURMD_NODENAME:-$HOSTNAME}); run 'make venv', or set BRINGUP_VENV"
  export PATH=$venv/bin:$PATH
}

# Slurm (before 23.02) does not create the folder of --output and fails the job without a message when it is missing. So the
# scripts write to the submission directory, where an error is seen, and move the log once they know where they are. `bringup run`
# writes it to slurm-logs/ from the start, where a node may write that sees the checkout read-only. It is moved there, too: Slurm
# begins a requeued job with an empty log of the same name.
keep_log() {
  [[ -n ${SLURM_JOB_ID:-} ]] || die "this is a batch script; submit it: sbatch $0"
  local log="$SLURM_JOB_NAME-$SLURM_JOB_ID.out" attempt=""
  ((${SLURM_RESTART_COUNT:-0} == 0)) || attempt=-r$SLURM_RESTART_COUNT
  mkdir -p slurm-logs 2>/dev/null || true
  [[ -d slurm-logs && -w slurm-logs ]] ||
    die "$PWD/slurm-logs: no folder that can be written, seen from ${SLURMD_NODENAME:-$HOSTNAME}; the jobs' logs go there"
  [[ -f $log ]] || log=slurm-logs/${log%.out}.log
  [[ -f $log ]] || return 0 # --output was another one
  SCREEN=$PWD/slurm-logs/$SLURM_JOB_NAME-$SLURM_JOB_ID$attempt.out
  mv -- "$log" "$SCREEN"
}

choose_nodes() { # [--nodes N | --nodelist LIST]
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '/^# Proves/,/^[^#]/{ s/^# \{0,1\}//p }' "$0" # the header, up to the first command
    exit 0
  fi
  local assignments
  assignments=$("$PYTHON" -m bringup nodes "$@") || exit 2
  eval "$assignments" # quoted by Python
  export NODES NODE_COUNT GPUS USABLE USABLE_COUNT
}

run_begin() { # phase, options of `bringup open`
  local phase=$1 assignments
  shift
  assignments=$(BRINGUP_GIVEN=$BRINGUP_GIVEN "$PYTHON" -m bringup open "$phase" "$@") || exit 2
  eval "$assignments" # quoted by Python
  SITE_ARRAYS=$(declare -p SRUN_SITE CONTAINER)
  export RUN_DIR PLANNED SITE_ARRAYS
  printf '%s: %s\n' "$phase" "$RUN_DIR"
}

is_planned() { # gate
  [[ " $PLANNED " == *" $1 "* ]]
}

load_modules() { # names
  local name file
  set +u # they are not made for -u
  for file in /etc/profile.d/{lmod,z00_lmod,modules}.sh; do
    # shellcheck disable=SC1090  # the site's own
    declare -F module >/dev/null || [[ ! -r $file ]] || source "$file" || true
  done
  declare -F module >/dev/null || die "the site file names modules, and there is no command 'module' on $HOSTNAME"
  for name; do
    module load "$name" || die "module load $name failed on $HOSTNAME"
    # some versions end with 0 also when they did not find it
    [[ :${LOADEDMODULES:-}/ == *":$name"[:/]* ]] || die "module load $name loaded nothing on $HOSTNAME"
  done
  set -u
  export PATH=${PYTHON%/*}:$PATH
}

source_setup() { # file
  set +u
  # shellcheck disable=SC1090  # the site's own
  source "$1" || die "$1, the setup file of the site, ended with $?"
  set -u
  export PATH=${PYTHON%/*}:$PATH
}

run_end() { # exit code of the phase's work
  local verdict=0 only=()
  [[ -z ${BRINGUP_JUDGE_LATER:-} ]] || only=(--only)
  concluded=yes
  [[ ! -f ${SCREEN:-} ]] || cp -- "$SCREEN" "$RUN_DIR/raw/batch.log" # the log itself bears a job's number, which comes again
  "$PYTHON" -m bringup close "$RUN_DIR" --exit-code "$1" "${only[@]}" || verdict=$?
  return "$verdict"
}

save() { # file, command…
  local file=$RUN_DIR/raw/$1
  shift
  if "$@" >"$file.part" 2>"$file.stderr"; then
    mv -- "$file.part" "$file"
    [[ -s $file.stderr ]] || rm -f -- "$file.stderr"
  else
    rm -f -- "$file.part"
  fi
}

slurm_folder() { # where slurm.conf lies
  dirname "${SLURM_CONF:-/etc/slurm/slurm.conf}"
}

gpus_on_node() { # --exclusive grants all of them
  [[ ${SLURM_GPUS_ON_NODE:-} =~ ^[1-9][0-9]*$ ]] ||
    die "Slurm granted no GPU on ${SLURMD_NODENAME:-this node}; is Gres=gpu configured? (scontrol show node)"
  printf '%s\n' "$SLURM_GPUS_ON_NODE"
}

cpus_per_rank() { # ranks per node; the cores of the smallest node of the job shared out, at least one
  local cpus least granted=${SLURM_JOB_CPUS_PER_NODE:-${SLURM_CPUS_ON_NODE:?Slurm granted no cores}} # 64(x2),48
  least=${granted%%[(,]*}
  for cpus in ${granted//,/ }; do
    cpus=${cpus%%(*}
    least=$((cpus < least ? cpus : least))
  done
  printf '%s\n' "$((least / $1 > 0 ? least / $1 : 1))"
}

names_of() { # n[0-2] -> a name per line
  scontrol show hostnames "$1"
}

short_of() { # a name per line on standard input -> n[0-2]
  scontrol show hostlist /dev/stdin
}

# Ranks follow the node list, as those of torchrun do. On Slurm 26.05 (not yet on 24.11) tasks that are placed in blocks follow switches and
# blocks of the topology instead, so a step with several ranks on a node says --distribution=plane=RANKS.
rank0_of() { # n[0,3]: whatever the order they are listed in, the list of the job has its own
  awk 'NR == FNR { wanted[$0]; next } $0 in wanted && !found++' <(names_of "$1") <(names_of "$SLURM_JOB_NODELIST")
}

placed() { # stem of the step's files, tasks per node, n[0,3]
  printf '%s %s\n' "$2" "$(names_of "$3" | paste -sd, -)" >"$RUN_DIR/raw/$1.step"
}

unfinished() { # probe, file of facts, nodes
  local ended="s/.*{\"probe\": \"$1\", \"at\": \"\([^\"]*\)\", \"end\": .*/\1/p" file=$2
  shift 2
  printf '%s\n' "$@" | grep -vxF -f <(sed -n "$ended" -- "$file") || true
}

has_prolog() {
  scontrol show config | grep -qE '^Prolog(\[0\])? *= /'
}

# Nodes connect to the srun of this host. Where a firewall stops them, each step would be silent for its whole time limit.
need_connections() { # n[0-3]
  local node name=smoke-answer-$$ silent_s=0 patience=20 asked tenths
  node=$(names_of "$1" | sed -n 1p)
  ! has_prolog || patience=120
  srun --quiet --job-name="$name" --nodes=1 --ntasks=1 --nodelist="$node" --immediate=20 --time=5 "${SRUN_SITE[@]}" true \
    </dev/null >/dev/null 2>&1 &
  asked=$!
  for ((tenths = 1; silent_s < patience; tenths++)); do
    kill -0 "$asked" 2>/dev/null || return 0 # also where it was refused: the steps say why
    sleep 0.1
    ((tenths % 50 == 0)) || continue # a node that boots or waits is not RUNNING
    if [[ $(squeue --noheader --me --name="$name" --format=%T) == RUNNING ]]; then silent_s=$((silent_s + 5)); else silent_s=0; fi
  done
  kill -KILL "$asked" 2>/dev/null || true
  wait "$asked" 2>/dev/null || true
  scancel --me --name="$name" || true
  die "$node runs a job of srun, and $HOSTNAME heard nothing of it in $patience s: does a firewall stop what nodes send to this host?" \
    "Open it for them (SrunPortRange in slurm.conf names the ports), or start bringup on a node (salloc, then ssh there)"
}

# Every job has its own, so that two jobs on one node do not meet. Below 32768, where Linux begins to hand out ports by itself
# (net.ipv4.ip_local_port_range).
port() { # offset
  printf '%s\n' "$((20000 + SLURM_JOB_ID % 1200 * 10 + $1 % 10))"
}

end_within() { # seconds, process: its exit code; a process that takes longer gets SIGTERM, and SIGKILL 10 seconds later
  local tenths
  for ((tenths = 10 * $1; tenths > 0; tenths--)); do
    kill -0 "$2" 2>/dev/null || break
    sleep 0.1
  done
  kill -TERM "$2" 2>/dev/null || true
  for ((tenths = 100; tenths > 0; tenths--)); do
    kill -0 "$2" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$2" 2>/dev/null || true # an srun that waits for a node without an answer; Slurm ends its tasks with the job
  wait "$2"
}

nanoseconds() { # since 1970; bash 4.4 has no EPOCHREALTIME
  date +%s%N
}

elapsed() { # nanoseconds at the start -> seconds with one decimal
  local tenths=$((($(nanoseconds) - $1) / 100000000))
  printf '%d.%d\n' "$((tenths / 10))" "$((tenths % 10))"
}
