#!/usr/bin/env bash
# Proves:         the scheduler runs work on every node, binds and confines GPUs, cores and memory, hands exit codes back,
#                 and the results folder is one folder on all nodes.
# Does not prove: speed of anything; that GPUs compute; filesystem locking.
# Usage:          bash infrastructure-validation/scripts/smoke_test.sh [--nodes N | --nodelist n[0-3]]
#                 (on a login host; default: all nodes of the default partition)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
need_repository
choose_nodes "$@"
run_begin smoke --nodes "$NODES" --gpus-per-node "$GPUS"
probes=infrastructure-validation/probes
raw=$RUN_DIR/raw
where=(--nodes="$USABLE_COUNT" --nodelist="$USABLE" --immediate="$BRINGUP_WAIT_S")
rc=0

save ping.txt scontrol ping
save scontrol-node.txt scontrol --oneliner show node

# two jobs that must end badly, submitted first and looked at last
exit_job=$(sbatch --parsable --job-name=smoke-exit --output="$raw/job-exit-code.log" --time=2 --mem=50M --wrap 'exit 7') || rc=$?
memory_job=$(sbatch --parsable --job-name=smoke-memory --output="$raw/job-memory.log" --time=2 --mem=100M \
  --wrap "exec python3 $probes/take_memory.py 300") || rc=$?

# each task gets one GPU and one core
srun --label --job-name=smoke-binding "${where[@]}" --ntasks="$((USABLE_COUNT * GPUS))" --ntasks-per-node="$GPUS" \
  --gpus-per-task=1 --cpus-per-task=1 --mem-per-cpu=50M --time=2 python3 "$probes/binding.py" task \
  >"$raw/binding.jsonl" 2>"$raw/binding.err" || rc=$?
# a job that asks for no GPU
srun --label --job-name=smoke-isolation "${where[@]}" --ntasks="$USABLE_COUNT" --ntasks-per-node=1 \
  --cpus-per-task=1 --mem-per-cpu=50M --time=2 python3 "$probes/binding.py" no-gpu \
  >"$raw/isolation.jsonl" 2>"$raw/isolation.err" || rc=$?

# the results folder, looked at from every node and from here; each step is the barrier for the next
on_nodes=(srun --label --job-name=smoke-fs "${where[@]}" --ntasks="$USABLE_COUNT" --ntasks-per-node=1 --mem-per-cpu=50M --time=2
  python3 "$probes/shared_fs.py")
folder=$raw/shared_fs
token=$(tr -d - </proc/sys/kernel/random/uuid)
mkdir "$folder"
"${on_nodes[@]}" look "$folder" >"$raw/fs-look.jsonl" 2>"$raw/fs-look.err" || rc=$?
python3 "$probes/shared_fs.py" reference "$folder" "$token" >"$raw/fs-reference.jsonl"
"${on_nodes[@]}" node "$folder" "$token" >"$raw/fs-node.jsonl" 2>"$raw/fs-node.err" || rc=$?
python3 "$probes/shared_fs.py" check "$folder" "$token" "$USABLE" >"$raw/fs-check.jsonl"

save_ended_job job-exit-code.txt "$exit_job"
save_ended_job job-memory.txt "$memory_job"
run_end "$rc"
