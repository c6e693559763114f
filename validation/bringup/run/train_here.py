"""A training on this machine, without Slurm: a workstation, or one node. It is planned, watched, closed and judged as a
phase script does it, and the programs are the same.

Lines of what runs beside the ranks, and of the ranks, get the label that srun gives to those of a node. Two launchers
stand for the two nodes that HSDP needs: their network is this machine's own, and its gate stays incomplete.
"""

import math
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from bringup.kernel.characters import many
from bringup.kernel.errors import UsageError
from bringup.kernel.plan.phases import PHASES, Phase
from bringup.kernel.plan.profile import Profile
from bringup.kernel.results import CLOSED, REPOSITORY
from bringup.run import auto_profile, programs, signature
from bringup.run import open as opening

PROBES = REPOSITORY / "infrastructure-validation/probes"
LABELLED = 'set -o pipefail; n=$1; shift; "$@" | sed --unbuffered "s/^/$n: /"'  # stdin stays that of the program
ENVIRONMENT = (
    'set -euo pipefail; die() { printf "bringup train: %s\\n" "$*" >&2; exit 2; }; '
    f"source {shlex.quote(str(REPOSITORY / 'training/env.sh'))};"
)
SECONDS_TO_END = 20  # of a watcher after the training
SECONDS_TO_SAVE = 120  # after SIGTERM: for a checkpoint, as the batch scripts leave before the time limit
INTERRUPTED = 130  # exit code of a shell's command after Ctrl-C
PROGRAMS = {  # strategy -> the program, and its own options
    "single": ("train_single_gpu.py",),
    "ddp": ("train_ddp_single_node.py",),
    "fsdp": ("train_fsdp_single_node.py",),
    "hsdp": ("train_fsdp_multi_node.py", "--hsdp"),
}


def phase_of(strategy: str) -> Phase:
    """Return the phase as which a strategy is planned and judged here: that on the fewest nodes."""
    return min((each for each in PHASES.values() if each.strategy == strategy), key=lambda phase: phase.min_nodes)


@dataclass(frozen=True)
class Request:
    strategy: str  # of PROGRAMS
    ranks: int | None  # None: one per GPU
    profile: Profile
    profile_name: str  # or its path
    options: list[str]  # of the program
    results: Path | None = None  # folder of the runs; None: the phase's own
    batch_for: int | None = None  # ranks: a multiple of those of each run that shares the batch; None: its own


def train(request: Request) -> tuple[Path, int]:
    """Train; return (closed folder, exit code of the launcher). Raises UsageError, RunError before a folder is made."""
    phase = phase_of(request.strategy)
    opening.refuse_without_torch(phase, None)
    ranks = 0 if request.ranks is None else choose_ranks(request.strategy, request.ranks, 0)
    planned = _planned(request, ranks) if ranks else None  # first: what asks torch takes seconds
    names = gpus()
    ranks = choose_ranks(request.strategy, request.ranks, len(names))
    source, workload, environment = planned or _planned(request, ranks)
    here = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]  # as the ranks call it
    nodes = [here] if phase.min_nodes == 1 else [f"{here}-{index}" for index in range(phase.min_nodes)]
    folder = opening.open_run(
        phase,
        nodes=nodes,
        gpus_per_node=ranks // len(nodes),
        profile=auto_profile.here(request.profile, nodes, names),
        results=request.results,
        argv=["bringup train", request.strategy, "--ranks", str(ranks), *request.options],
    )
    environment["RUN_DIR"] = str(folder)  # by which records of another run, and ranks of one, are known
    print(f"{phase.stem}: {folder}", flush=True)
    stop = folder / "stop"
    options = ["--run-dir", str(folder), *workload, *request.options]
    commands = launchers(request.strategy, ranks, folder, [source, *options], free_port())
    environments = [
        environment | ({} if len(nodes) == 1 else {"SLURMD_NODENAME": node}) | _gpus_of(index, ranks // len(nodes))
        for index, node in enumerate(nodes)
    ]
    code = INTERRUPTED
    try:
        with _watched(folder / "raw", environments):
            code = _run(commands, environments, folder / "raw/launch.log", stop)
    finally:
        opening.close_run(folder, code)
    signature.sign(folder / CLOSED, lambda why: print(f"bringup: {why}", file=sys.stderr, flush=True))
    return folder, code


def resumed_on(request: Request, ranks: int) -> Iterator[tuple[Path, int]]:
    """Yield the training, and then its second half from the checkpoint in its middle, on another number of ranks: each
    with its exit code. The second is not made where the first failed. Raises as train()."""
    first = request.ranks or choose_ranks(request.strategy, None, len(gpus()))
    both = [choose_ranks(request.strategy, each, 0) for each in (first, ranks)]
    request = replace(request, batch_for=math.lcm(*both), options=[*request.options, "--save-steps", "half"])
    _planned(request, ranks)  # what the second cannot do is refused before the first is paid for
    choose_ranks(request.strategy, ranks, len(gpus()))
    folder, code = train(request)
    yield folder, code
    if code == 0:
        yield train(replace(request, ranks=ranks, options=[*request.options, "--resume", str(folder)]))


def choose_ranks(strategy: str, wanted: int | None, there: int) -> int:
    """Choose the ranks. there: GPUs that torch sees; 0: they compute on the CPU. Raises UsageError for wrong ones."""
    nodes = phase_of(strategy).min_nodes
    least = 1 if strategy == "single" else 2 * nodes  # without so many the strategy is another one
    ranks = wanted or (1 if strategy == "single" else there)
    if ranks == 0:
        raise UsageError(f"train {strategy}: torch sees no GPU here; say how many ranks train on the CPU: --ranks 2")
    if strategy == "single" and ranks > 1:
        raise UsageError(f"train single is one rank, {ranks} requested; several are ddp, fsdp or hsdp")
    if there and ranks > there:
        seen = f"torch sees {many(there, 'GPU')} here, and each rank needs one"
        raise UsageError(f"train {strategy} --ranks {ranks}: {seen}")
    if ranks < least or ranks % nodes:
        even = "an even number of ranks, " if nodes > 1 else ""
        why = ": two groups, and in each two ranks that shard" if nodes > 1 else ""
        raise UsageError(f"train {strategy} needs {even}{least} or more{why}; {ranks} requested")
    return ranks


def launchers(strategy: str, ranks: int, folder: Path, program: list[str], port: int) -> list[list[str]]:
    """Return the command of each node: torchrun, or Python alone for one rank."""
    if strategy == "single":
        return [[sys.executable, *program]]
    nodes = phase_of(strategy).min_nodes
    torchrun = [sys.executable, str(REPOSITORY / "training/src/launcher.py"), "--nproc-per-node", str(ranks // nodes)]
    torchrun += ["--max-restarts", "0", "--log-dir", str(folder / "raw/torchrun")]
    if nodes == 1:
        return [[*torchrun, "--standalone", *program]]
    meet = ["--nnodes", str(nodes), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    return [[*torchrun, *meet, "--node-rank", str(node), *program] for node in range(nodes)]


def gpus() -> list[str]:
    """Name the GPUs that torch sees here. Raises UsageError where it cannot be imported."""
    question = "import torch.cuda as c; print(*map(c.get_device_name, range(c.device_count())), sep=chr(10))"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"torch cannot be used in {sys.prefix}: {last}")
    return [name for name in answer.stdout.splitlines() if name]


def _gpus_of(node: int, share: int) -> dict[str, str]:
    """Return the GPUs of a launcher's ranks: the first ones in sight, or where there are two launchers its part."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range((node + 1) * share)))).split(",")
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[node * share : (node + 1) * share])}


def _planned(request: Request, ranks: int) -> tuple[str, list[str], dict[str, str]]:
    """Plan (the program's file, its own options and its workload, the environment). training/env.sh chooses the
    workload, and the program checks it. Raises UsageError with the program's line if it cannot train so."""
    program, *options = PROGRAMS[request.strategy]
    environment = {"GLOO_SOCKET_IFNAME": "lo", **os.environ, "BRINGUP_PROFILE": request.profile_name}
    if request.batch_for is not None:
        environment.setdefault("BRINGUP_TRAIN_RANKS", str(request.batch_for))
    source = str(REPOSITORY / "training/src" / program)
    script = f'{ENVIRONMENT} choose_workload "$@"; printf "%s\\n" "${{workload[@]}}"'
    chosen = subprocess.run(
        ["bash", "-c", script, "train", source, str(ranks), *options, *request.options],
        env={**environment, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if chosen.returncode:
        raise UsageError((chosen.stderr.strip().splitlines() or ["training/env.sh chose no workload"])[-1])
    return source, [*options, *chosen.stdout.split("\n")[:-1]], environment


def free_port() -> int:
    """Return one below those that Linux hands out by itself: nobody gets it before the launcher has started."""
    while True:
        port = 10_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port


@contextmanager
def _watched(raw: Path, environments: list[dict[str, str]]) -> Iterator[None]:
    """Counters before and after, and the sampler and the watch over Xids beside what runs: as attempt.sh has them."""
    with ExitStack() as running:
        _count(raw, "before", environments)
        begun = time.monotonic()
        for file, program in (("monitor.csv", ["monitor.py", "until-eof", "1"]), ("xids.jsonl", ["xids.py"])):
            running.enter_context(_watcher(raw / file, program, environments))
        try:
            yield
        finally:
            (raw / "train.seconds").write_text(f"{time.monotonic() - begun:.1f}\n")
    _count(raw, "after", environments)


def _labelled(node: int, program: list[str]) -> list[str]:
    return ["bash", "-c", LABELLED, "train", str(node), *program]


def _count(raw: Path, moment: str, environments: list[dict[str, str]]) -> None:
    with (raw / f"counters-{moment}.jsonl").open("wb") as out, (raw / f"counters-{moment}.err").open("wb") as err:
        for node, environment in enumerate(environments):
            command = _labelled(node, [sys.executable, str(PROBES / "counters.py"), moment])
            subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False)
            out.flush()


@contextmanager
def _watcher(file: Path, program: list[str], environments: list[dict[str, str]]) -> Iterator[None]:
    """One on each node. It ends with its standard input."""
    with file.open("ab") as out, file.with_suffix(".err").open("ab") as err:
        command = [sys.executable, str(PROBES / program[0]), *program[1:]]
        watchers = [
            programs.start(_labelled(node, command), environment, stdin=subprocess.PIPE, stdout=out, stderr=err)
            for node, environment in enumerate(environments)
        ]
        try:
            yield
        finally:
            for watcher in watchers:
                if watcher.child.stdin is not None:
                    watcher.child.stdin.close()
            for watcher in watchers:
                with suppress(subprocess.TimeoutExpired):
                    watcher.child.wait(SECONDS_TO_END)
                programs.end(watcher)


def _run(commands: list[list[str]], environments: list[dict[str, str]], log: Path, stop: Path) -> int:
    """Run the launchers; their lines go to the screen and, labelled, to `log`. When one fails the others are ended.
    After SIGTERM the ranks have time for a checkpoint (`stop` tells them). Return the first exit code but 0."""
    with log.open("w", encoding="utf-8") as out, ExitStack() as ends:
        ends.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, lambda *_: stop.touch()))
        running = []
        for node, (command, environment) in enumerate(zip(commands, environments, strict=True)):
            launcher = programs.start(
                ["bash", "-c", f'{ENVIRONMENT} exec "$@"', "train", *command],
                environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            copier = threading.Thread(target=_copy, args=(launcher.child, node, out))
            copier.start()
            ends.callback(copier.join)
            ends.callback(programs.end, launcher, by=signal.SIGHUP)  # at SIGTERM they would write a checkpoint
            running.append(launcher.child)
        while any(launcher.poll() is None for launcher in running):
            if any(launcher.poll() for launcher in running) or _is_late(stop):
                break
            time.sleep(0.1)
        return next((code for launcher in running if (code := launcher.poll())), 0)


def _is_late(stop: Path) -> bool:
    with suppress(OSError):
        return time.time() - stop.stat().st_mtime > SECONDS_TO_SAVE
    return False


def _copy(launcher: subprocess.Popen[str], node: int, out: IO[str]) -> None:
    assert launcher.stdout is not None
    with launcher.stdout as lines:
        for line in lines:
            print(line, end="", flush=True)
            out.write(f"{node}: {line}")
