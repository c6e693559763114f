"""A user's program under torchrun that knows nothing of bringup: an all-reduce and a checkpoint, as in any training.

    torchrun … plain_torch.py FOLDER STEPS [--exit]

FOLDER: shared. What it leaves there, and in /tmp and /dev/shm, is as of plain_program.py.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from plain_program import EVERY, PER_STEP_S, keep_files, note_step

folder, last = Path(sys.argv[1]), int(sys.argv[2])
Path("/tmp/plain-program.pid").write_text(str(os.getpid()))
print("torch is there", flush=True)
dist.init_process_group("gloo")
rank = dist.get_rank()
if "--exit" in sys.argv and rank == 0:
    sys.exit("a mistake in the program")
checkpoint = folder / "checkpoint.pt"
state = {"step": 0, "weight": torch.ones(1 << 19)}  # 2 MiB
if checkpoint.exists():
    state = torch.load(checkpoint)
while state["step"] < last:
    gradient = state["weight"] @ state["weight"] * state["weight"] / len(state["weight"])
    dist.all_reduce(gradient)
    state["weight"] -= 1e-3 * gradient
    state["step"] += 1
    keep_files(state["step"])
    time.sleep(PER_STEP_S)
    if rank == 0:
        if state["step"] % EVERY == 0:
            torch.save(state, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
        note_step(folder, state["step"])
dist.destroy_process_group()
