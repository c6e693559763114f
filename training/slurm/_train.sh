# shellcheck shell=bash
# What the six training scripts do: plan, launch, judge. Sourced by run_*.sbatch at the root of the repository.
# Each of them sets
#   phase      run_ddp_2node: the name under which the run is planned and judged
#   program    training/src/train_*.py
#   strategy   options of the program that make it this strategy
# "$@" are the user's options.

# shellcheck source=infrastructure-validation/scripts/job.sh
source infrastructure-validation/scripts/job.sh
# shellcheck source=infrastructure-validation/scripts/counters.sh
source infrastructure-validation/scripts/counters.sh
need_repository
keep_log
# shellcheck source=training/env.sh
source training/env.sh
# shellcheck source=training/slurm/attempt.sh
source training/slurm/attempt.sh

# 1. The plan: what this run is judged on. A workload that cannot work is refused here.
case ${program:?} in
  *_single_gpu.py) nodes=1 gpus=1 ;;
  *_single_node.py) nodes=1 gpus=$(gpus_on_node) ;;
  *_multi_node.py) nodes=$SLURM_JOB_NUM_NODES gpus=$(gpus_on_node) ;;
  *) die "$program: expected a program of training/src" ;;
esac
# shellcheck disable=SC2154  # strategy: the script that sources this file sets it
choose_workload "$program" "$((nodes * gpus))" "${strategy[@]}" "$@"
# BRINGUP_NODES: the nodes that were wanted, when some of them cannot take a job (bringup run sets it)
run_begin "${phase:?}" --nodes "${BRINGUP_NODES:-$SLURM_JOB_NODELIST}" --gpus-per-node "$gpus" --ranks-per-node "$gpus" --argv "$@"

# 2. What starts the ranks: on each node one launcher, which starts a rank per GPU.
meet() { # where the launchers of all nodes meet
  mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  MASTER_ADDR=${hosts[0]:?scontrol show hostnames said nothing}
  MASTER_PORT=$(port 0)
  export MASTER_ADDR MASTER_PORT
}
torchrun=(--nproc-per-node "$gpus" --max-restarts 0 --log-dir "$RUN_DIR/raw/torchrun")
# shellcheck disable=SC2016  # SLURM_NODEID, MASTER_ADDR and MASTER_PORT expand in each task, not here
case ${BRINGUP_LAUNCHER:-torchrun}-$program in
  *_single_gpu.py) launcher=(python) ;; # one rank, no launcher
  accelerate-*)
    meet
    kind=${phase#run_}
    launcher=(bash -c 'source training/env.sh || exit 2
      exec accelerate launch --machine_rank "$SLURM_NODEID" --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" "$@"' accelerate
      --config_file training/accelerate/"${kind%%_*}"_*.yaml --num_machines "$nodes" --num_processes "$((nodes * gpus))")
    [[ $kind != hsdp* ]] || launcher+=(--parallelism_config_dp_replicate_size "$nodes" --parallelism_config_dp_shard_size "$gpus")
    read -r -a given <<<"${ACCELERATE_OPTIONS:-}"
    launcher+=("${given[@]}") # the last one counts: with --shard-size give both sizes of the mesh here
    ;;
  torchrun-*_single_node.py) launcher=(python training/src/launcher.py --standalone "${torchrun[@]}") ;;
  torchrun-*_multi_node.py)
    meet
    # Static rendezvous: node rank = SLURM_NODEID, so the ranks of a node are consecutive.
    # launcher.py is torchrun, and names a node that does not start within BRINGUP_START_S (training/env.sh).
    launcher=(bash -c 'source training/env.sh || exit 2
      exec python training/src/launcher.py --node-rank "$SLURM_NODEID" \
        --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$@"' torchrun
      --nnodes "$nodes" --rdzv-conf timeout="$BRINGUP_START_S" "${torchrun[@]}")
    ;;
  *) die "BRINGUP_LAUNCHER: expected torchrun or accelerate, got ${BRINGUP_LAUNCHER:-}" ;;
esac

# 3. The training. A rank that dies ends the job within seconds. In an exclusive job a step sees GPUs only when it asks for them.
rc=0
begin_attempt
srun --label --kill-on-bad-exit=1 --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
  --gpus-per-node="$gpus" --cpus-per-task="$(cpus_per_rank 1)" "${SRUN_SITE[@]}" "${CONTAINER[@]}" \
  "${launcher[@]}" "$program" --run-dir "$RUN_DIR" --resume auto \
  "${strategy[@]}" "${CHECKPOINTS_SITE[@]}" "${workload[@]}" "$@" \
  2>&1 | tee "$RUN_DIR/raw/launch.log" &
wait_for_step $! || rc=$?

# 4. The verdict.
end_attempt "$rc"
