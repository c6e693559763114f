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
choose_nodes "$@" --sharing
others=$(anywhere_else) || die "sinfo gave no list of nodes"
node_mib=$(least_memory) || die "sinfo gave no memory of $USABLE"
ask_memory 50 --mem-per-cpu # of every step that does not say otherwise
rounds=$("$PYTHON" -m bringup pairs --files --nodes "$NODES") || exit 2
whole=()
[[ $WHOLE_NODES == no ]] || whole=(--whole-nodes)
run_begin smoke --nodes "$NODES" --allocated "$USABLE" --gpus-per-node "$GPUS" "${whole[@]}"
probes=infrastructure-validation/probes
raw=$RUN_DIR/raw
where=(--nodes="$USABLE_COUNT" --nodelist="$USABLE" --immediate="$BRINGUP_WAIT_S")
rc=0
watchers=() awaited=() # processes that wait for the jobs; the jobs
parts=" ${BRINGUP_SMOKE_PARTS:-jobs warning requeue binding folder compute storage} "
wanted() { [[ $parts == *" $1 "* ]]; }

save ping.txt scontrol ping
save scontrol-node.txt scontrol --oneliner show node
save scontrol-partition.txt scontrol --oneliner show partition
! wanted requeue || submit_requeue_job
! wanted jobs || submit_jobs
! wanted binding || look_at_binding
! wanted warning || submit_warning_job
! wanted folder || look_at_folder
! wanted compute || look_at_compute
! wanted storage || look_at_storage
collect_jobs
run_end "$rc"
