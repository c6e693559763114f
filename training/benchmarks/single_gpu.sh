#!/usr/bin/env bash
# Everything of the playbook that one GPU can show, without Slurm: discovery, binding, matmul, NCCL with one rank, training plain and fast.
# Proves:         probes and training run on this GPU; its memory, matmul rate, tokens/s and MFU; Trainer computes what plain PyTorch computes.
# Does not prove: anything about a second GPU. NCCL with one rank only starts.
# Usage:          training/benchmarks/single_gpu.sh OUT [PART…]     parts: discovery binding nccl matmul equal plain fast (default: these)
#                 Writes OUT/<part>/…: facts as JSON lines, run_args.json, metrics.json; OUT/parts.txt: exit code and seconds of each.
# Environment:    PYTHON (default .venv/bin/python); CUDA_VISIBLE_DEVICES (its first is taken; default 0)
#                 SINGLE_GPU_ARGS (default: smollm3-3b, 8,192 tokens, 4 rows per step one at a time, 30 steps of which 10 warm up;
#                 below 100 GiB of GPU memory with activation checkpointing, without which that model needs 90)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${1:?usage: single_gpu.sh OUT [discovery|binding|nccl|matmul|equal|plain|fast…]}"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
parts=("$@")
((${#parts[@]} > 0)) || parts=(discovery binding nccl matmul equal plain fast)
: "${PYTHON:=$PWD/.venv/bin/python}"
export PYTHONPATH=$PWD/validation${PYTHONPATH:+:$PYTHONPATH} TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555 # as srun sets them
in_sight=${CUDA_VISIBLE_DEVICES:-0}
export CUDA_VISIBLE_DEVICES=${in_sight%%,*} # one GPU, where Slurm or the shell shows several
probes=infrastructure-validation/probes

if [[ -z ${SINGLE_GPU_ARGS:-} ]]; then
  SINGLE_GPU_ARGS="--model smollm3-3b --sequence-length 8192 --global-batch 4 --gradient-accumulation 4 --steps 30 --warmup-steps 10 \
    --no-rehearse-resume --timeout 300"
  mib=$(nvidia-smi --id=0 --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null) || mib=
  [[ -z $mib ]] || ((mib > 100 * 1024)) || SINGLE_GPU_ARGS+=" --activation-checkpointing"
fi
read -r -a workload <<<"$SINGLE_GPU_ARGS"

train() { # folder, options
  local folder=$1
  shift
  mkdir -p "$folder/raw"
  "$PYTHON" training/src/train_single_gpu.py --run-dir "$folder" "${workload[@]}" "$@"
}

run_part() { # part, folder
  case $1 in
    discovery) mkdir -p "$2/raw" && "$PYTHON" "$probes/inventory.py" --raw "$2/raw" ;;
    binding) "$PYTHON" "$probes/binding.py" task ;;
    nccl) "$PYTHON" "$probes/collectives.py" 1-node "$2" ;;
    matmul) "$PYTHON" "$probes/compute.py" ;;
    equal) "$PYTHON" training/benchmarks/equality.py --strategies single --table "$2/equality.md" ;;
    plain) train "$2" ;;
    fast) train "$2" --recipe fast ;;
    *)
      echo "single_gpu: $1: expected discovery, binding, nccl, matmul, equal, plain or fast" >&2
      return 2
      ;;
  esac
}

worst=0
for part in "${parts[@]}"; do
  mkdir -p "$out/$part"
  SECONDS=0 rc=0
  run_part "$part" "$out/$part" >"$out/$part/stdout.txt" 2>"$out/$part/stderr.txt" || rc=$?
  ((rc <= worst)) || worst=$rc
  printf '%s: exit code %d, %d s\n' "$part" "$rc" "$SECONDS" | tee -a "$out/parts.txt"
  tail -n 1 "$out/$part/stdout.txt"
done
for run in "$out/plain" "$out/fast"; do
  [[ ! -f $run/metrics.json ]] || "$PYTHON" - "${run#"$out"/}" "$run/metrics.json" <<'PY'
import json, sys
m = json.load(open(sys.argv[2]))
memory = m["memory"]["device_reserved_gib"]
print(f"{sys.argv[1]}: {m['tokens_per_s']:,.0f} tokens/s on {m['gpu0']}, MFU {m['mfu']} ({m['mfu_reason'] or m['peak_source']}), "
      f"step p50 {m['step_time_s']['p50']:.3f} s, reserved {memory} GiB, loss {m['loss'][0]:.4f} to {m['loss'][-1]:.4f}")
PY
done
exit "$worst"
