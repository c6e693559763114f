#!/usr/bin/env bash
# Proves:         the scheduler runs work on every node, binds and confines GPUs, cores and memory, keeps its promises about exit
#                 codes, arrays, dependencies, time limits and requeues; the results folder is one folder on all nodes, and not
#                 slow; every GPU multiplies rightly and as fast as its peers.
# Does not prove: what happens under load of others, or after an hour; that a training step works.
# Usage:          bash infrastructure-validation/scripts/smoke_test.sh [--nodes N | --nodelist n[0-3]]
#                 (on a login host; default: all nodes of the default partition)
# Environment:    BRINGUP_SMOKE_PARTS: which parts run (default: jobs warning requeue binding folder
#                 compute storage); what is left out is incomplete. BRINGUP_STORAGE_MIB: size of the
#                 file that each node writes (default 64)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
# shellcheck source=infrastructure-validation/scripts/smoke_parts.sh
source infrastructure-validation/scripts/smoke_parts.sh
# shellcheck source=infrastructure-validation/scripts/smoke_jobs.sh
source infrastructure-validation/scripts/smoke_jobs.sh
need_repository
probes=infrastructure-validation/probes
rc=0
all_parts=(jobs warning requeue binding folder compute storage)
parts=" ${BRINGUP_SMOKE_PARTS:-${all_parts[*]}} "
wanted() { [[ $parts == *" $1 "* ]]; }

steps() { # inside the allocation; NODES, USABLE, USABLE_COUNT, GPUS, ROUNDS and RUN_DIR come from outside it
  local raw=$RUN_DIR/raw where=(--nodes="$USABLE_COUNT") memory=()
  [[ -z ${ISOLATION_REFUSED:-} ]] || look_at_isolation step
  ! wanted binding || look_at_bad_exit
  ! wanted folder || look_at_folder
  ! wanted storage || look_at_storage
  ! wanted compute || look_at_compute # last: it alone imports torch
}

if [[ ${1:-} == --inside ]]; then
  steps
  exit "$rc"
fi
choose_nodes "$@" --phase smoke --sharing
node_mib=$(least_memory) || die "sinfo gave no memory of $USABLE"
need_connections "$USABLE"
ROUNDS=$("$PYTHON" -m bringup pairs --files --nodes "$NODES") || exit 2
whole_nodes=()
[[ $WHOLE_NODES == no ]] || whole_nodes=(--whole-nodes)
run_begin smoke --nodes "$NODES" --allocated "$USABLE" --gpus-per-node "$GPUS" "${whole_nodes[@]}"
export ROUNDS SCRATCH_SITE # run_begin sets the second one, where the site has a scratch folder
# salloc and srun here say which GPUs they need: Slurm 26.05 takes no gres of GPUs beside that, and "none" would become some
forget_gpu_requests SALLOC SLURM
raw=$RUN_DIR/raw
where=(--nodes="$USABLE_COUNT" --nodelist="$USABLE" --immediate="$BRINGUP_WAIT_S")
names_of "$NODES" >"$raw/nodes.txt"
for part in "${all_parts[@]}"; do wanted "$part" || echo "$part" >>"$raw/parts-left-out.txt"; done
names_of "$USABLE" >"$raw/usable.txt"
anywhere_else >"$raw/others.txt" || die "sinfo gave no list of nodes"
others=()
[[ ! -s $raw/others.txt ]] || others=(--exclude="$raw/others.txt") # a file, as it has a / in it
watchers=() awaited=() # processes that wait for the jobs; the jobs
JOB_START_S=0          # what a job takes before its program runs, at most: the site's prolog

save ping.txt scontrol ping
save scontrol-node.txt scontrol --oneliner show node
save scontrol-partition.txt scontrol --oneliner show partition
ask_memory 50 --mem-per-cpu # of every job that does not say otherwise
! wanted binding || look_at_binding
! small_jobs_fit || submit_small_jobs
if wanted binding || wanted folder || wanted compute || wanted storage; then
  # per GPU: beside --mem, Slurm waits until DefMemPerGPU of every GPU is free (seen with 22.05)
  ask_memory "$(memory_of_steps)" --mem-per-gpu "$GPUS"
  export SALLOC_TIMELIMIT="${SALLOC_TIMELIMIT:-30}" # minutes; a partition with a shorter limit refuses more
  # a core per node is enough; the jobs that are still under way need some as well
  salloc --quiet --job-name=smoke-steps "${where[@]}" --ntasks-per-node=1 --gpus-per-node="$GPUS" "${memory[@]}" \
    "${SALLOC_SITE[@]}" bash "${BASH_SOURCE[0]}" --inside </dev/null || rc=$?
fi
small_jobs_fit || submit_small_jobs # they would have kept the steps waiting
collect_jobs
run_end "$rc"
