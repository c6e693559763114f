# shellcheck shell=bash
# The environment of a training job. Sourced twice: by the batch script, and by each task (only there is the node's own
# network known). Whatever is already set stays; change it on the command line: NCCL_DEBUG=INFO sbatch training/slurm/….

# The workload of all six scripts: the defaults of training/src/recipe/arguments.py, then a batch that suits the ranks, then
# BRINGUP_TRAIN_ARGS (unless it is set: the workload of the profile), then the options after the script's name; the later ones win.
# The batch is a multiple of the ranks from 32 rows on, and of twice the ranks up to 64 rows, so that a step is more than one micro-step
# and what every step costs (the update, the last buckets): 32 for 1 to 16 ranks in powers of two, 36 for 6, 64 for 32 and 64, 80 for 40.
# Runs whose losses are compared need the same batch, so BRINGUP_TRAIN_RANKS names a number that the ranks of each of them divide: those
# of the largest (`bringup run` sets it), or a common multiple. Without it, each script counts its own. What cannot work is refused here, before any rank is started.
choose_workload() { # entrypoint, ranks, options of the script; sets `workload`; ends the script with exit code 2 and one line
  local entrypoint=$1 ranks=$2 most=${BRINGUP_TRAIN_RANKS:-$2} least batch
  shift 2
  [[ $most =~ ^[1-9][0-9]{0,5}$ ]] || die "BRINGUP_TRAIN_RANKS=$most: expected a number of ranks"
  least=$((most > 16 ? (most < 32 ? 2 * most : 64) : 32))
  batch=$(((least - 1 + most) / most * most))
  [[ -n ${BRINGUP_TRAIN_ARGS+set} ]] || BRINGUP_TRAIN_ARGS=$("$PYTHON" -m bringup workload) || exit 2
  read -r -a workload <<<"--global-batch $batch $BRINGUP_TRAIN_ARGS"
  WORLD_SIZE=$ranks "$PYTHON" "$entrypoint" --check "${workload[@]}" "$@" || exit 2
}

: "${OMP_NUM_THREADS:=1}" # ranks share the cores; without a value torchrun sets 1 as well, and warns
: "${TOKENIZERS_PARALLELISM:=false}" # it warns in every data-loader worker, and the ranks are parallelism enough
: "${PYTHONUNBUFFERED:=1}" # a killed rank's last line counts

# torch's caching allocator then grows its segments, and what was freed in one size is used for another. The older name still counts.
[[ -n ${PYTORCH_CUDA_ALLOC_CONF:-} ]] || export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
: "${TORCH_CPP_LOG_LEVEL:=ERROR}" # otherwise every connection warns on a cluster without reverse DNS

# Seconds that launchers and ranks wait for one another at the start. From a cold shared filesystem, imports take minutes.
: "${BRINGUP_START_S:=600}"
if [[ ! $BRINGUP_START_S =~ ^[1-9][0-9]{0,4}$ ]]; then
  printf 'BRINGUP_START_S=%s: expected a number of seconds\n' "$BRINGUP_START_S" >&2
  exit 2
fi

# N ranks must not ask the hub at once, and compute nodes often cannot: fetch first, on a host that can, with
#   hf download OWNER/MODEL; hf download --repo-type dataset OWNER/DATASET
# HF_HOME unset means ~/.cache/huggingface. Either way it has to be on a filesystem that all nodes see.
: "${HF_HUB_OFFLINE:=1}"

: "${NCCL_DEBUG:=WARN}" # INFO names the transport of every channel
unset NCCL_DEBUG_FILE # srun labels what comes from where; files per rank would hide it

if [[ ${NCCL_INSPECTOR_ENABLE:-0} == 1 && -n ${RUN_DIR:-} ]]; then # NCCL's Inspector plugin, where NCCL_PROFILER_PLUGIN names it
  : "${NCCL_INSPECTOR_DUMP_DIR:=$RUN_DIR/raw/inspector}" "${NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS:=1000000}"
  export NCCL_INSPECTOR_DUMP_DIR NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS
fi

export BRINGUP_START_S OMP_NUM_THREADS TOKENIZERS_PARALLELISM PYTHONUNBUFFERED HF_HUB_OFFLINE NCCL_DEBUG TORCH_CPP_LOG_LEVEL

# With --kill-on-bad-exit srun ends the step when a task fails, and can lose what that task printed just before.
refuse_node() { # message
  printf '%s\n' "$1" >&2
  sleep 1
  exit 2
}

# Before torchrun makes raw/ by itself: where the folder of results is another one, the ranks would write into that.
if [[ -n ${RUN_DIR:-} && -n ${SLURM_PROCID:-} && -n ${MASTER_ADDR:-} ]]; then
  fault=
  [[ -w $RUN_DIR/raw ]] || fault='run folder cannot be written'
  [[ -e $RUN_DIR/run.json ]] || fault='no such run folder'
  if [[ -n $fault ]]; then
    refuse_node "$RUN_DIR: $fault, seen from ${SLURMD_NODENAME:-$HOSTNAME}; is it on a filesystem that all nodes share?"
  fi
fi

# One line, before torchrun's traceback of many, whose end is lost when srun ends the step because this task has failed.
without_environment() { # prints what this node's Python environment lacks; nothing when it lacks nothing
  local interpreter=$1/bin/python torchrun=$1/bin/torchrun
  if [[ -n ${CONTAINER_PYTHON:-} ]]; then # we are inside the site's container, which brings its own
    interpreter=$(command -v "$CONTAINER_PYTHON") torchrun=$(command -v torchrun) || true
  fi
  if [[ ! -x $interpreter || ! -x $torchrun ]]; then
    printf 'no Python environment at %s' "$1" # without this check a torchrun of the system would be found
  elif ! "$interpreter" -c 'import sys; from importlib.util import find_spec
sys.exit(any(getattr(find_spec(name), "origin", None) is None for name in ("torch", "transformers", "accelerate", "datasets")))' \
    2>/dev/null; then
    printf 'no Python environment at %s that can be used (torch or transformers or accelerate or datasets is missing)' "$1"
  fi
}
if [[ -n ${SLURM_PROCID:-} && -n ${MASTER_ADDR:-} ]]; then
  # shellcheck source=infrastructure-validation/scripts/venv.sh
  source infrastructure-validation/scripts/venv.sh
  venv=$(venv_folder)
  [[ $venv == /* ]] || venv=$PWD/$venv
  fault=$(without_environment "$venv")
  if [[ -n $fault && -n ${CONTAINER_PYTHON:-} ]]; then
    refuse_node "the container on ${SLURMD_NODENAME:-$HOSTNAME} cannot train: its image needs python and torchrun on the PATH, with torch, transformers, accelerate, datasets and pydantic"
  elif [[ -n $fault ]]; then
    refuse_node "$fault, seen from ${SLURMD_NODENAME:-$HOSTNAME}; is it on a filesystem that all nodes share? run 'make venv', or set BRINGUP_VENV"
  fi
fi

# The interface that leads to the master; on the master, the one that has its address. Empty when it cannot be said.
interface_to() { # host name or address
  local address own
  address=$(getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }')
  own=$(ip -4 -oneline route get "${address:-none}" 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
  [[ -n $own && $own != 127.* ]] || return 0
  ip -4 -oneline address show to "$own" 2>/dev/null | awk 'NR == 1 { print $2 }'
}

# gloo (ranks without a GPU) listens where the host's own name points, which is 127.0.1.1 on many installations. NCCL chooses
# by itself; set NCCL_SOCKET_IFNAME when it chooses the wrong network. Both are yours: a value that is set is kept.
if [[ -n ${MASTER_ADDR:-} && -z ${GLOO_SOCKET_IFNAME:-} ]]; then
  GLOO_SOCKET_IFNAME=$(interface_to "$MASTER_ADDR")
  if [[ -n $GLOO_SOCKET_IFNAME ]]; then export GLOO_SOCKET_IFNAME; else unset GLOO_SOCKET_IFNAME; fi
fi
