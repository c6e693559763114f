"""A user's distributed program that knows nothing of bringup: steps in lockstep, a checkpoint, standard library only.

    srun --ntasks-per-node=1 --kill-on-bad-exit=1 python3 plain_program.py FOLDER STEPS

FOLDER: shared. Rank 0 sends 2 MiB to each other rank and gets them back in every step; each rank computes, and keeps a
file in /tmp and in /dev/shm, as data loaders do. A checkpoint every 5 steps; it goes on from there.
"""

import os
import socket
import sys
import time
from pathlib import Path

PORT, PIECE, EVERY = 29411, bytes(2 << 20), 5
WORK = 60_000  # iterations of a step's arithmetic
PER_STEP_S = 0.15


def main() -> None:
    folder, last = Path(sys.argv[1]), int(sys.argv[2])
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    Path("/tmp/plain-program.pid").write_text(str(os.getpid()))
    if "--exit" in sys.argv and rank == 0:
        sys.exit("a mistake in the program")
    links = listen(world) if rank == 0 else [connect(os.environ["MASTER_ADDR"])]
    checkpoint = folder / "checkpoint"
    begin = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in range(begin + 1, last + 1):
        exchange(links, rank)
        compute()
        keep_files(step)
        if "--memory" in sys.argv and rank == 0 and step == 3:
            held = bytearray(8 << 30)
            held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
        if "--hang" in sys.argv and rank == 0 and step == 3:
            time.sleep(3600)
        time.sleep(PER_STEP_S)
        if rank == 0:
            if step % EVERY == 0:
                part = folder / "checkpoint.part"
                part.write_text(str(step))
                part.replace(checkpoint)
            note_step(folder, step)


def keep_files(step: int) -> None:
    for place in ("/tmp", "/dev/shm"):
        Path(place, f"plain-program.{step % 2}").write_bytes(PIECE)
        Path(place, f"plain-program.{(step + 1) % 2}").unlink(missing_ok=True)


def note_step(folder: Path, step: int) -> None:
    with (folder / "steps").open("a") as steps:
        print(step, time.time(), file=steps)
    print(f"step {step}", flush=True)


def listen(world: int) -> list[socket.socket]:
    server = socket.create_server(("", PORT))
    return [server.accept()[0] for _ in range(world - 1)]


def connect(address: str) -> socket.socket:
    for _ in range(300):
        try:
            return socket.create_connection((address, PORT), timeout=None)
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no answer from {address}")


def exchange(links: list[socket.socket], rank: int) -> None:
    for link in links:
        if rank == 0:
            link.sendall(PIECE)
        left = len(PIECE)
        while left:
            arrived = link.recv(min(left, 1 << 16))
            if not arrived:
                sys.exit("the other rank is not there any more")
            left -= len(arrived)
        if rank != 0:
            link.sendall(PIECE)


def compute() -> None:
    value = 1
    for number in range(WORK):
        value = (value * 31 + number) % 1_000_003


if __name__ == "__main__":
    main()
