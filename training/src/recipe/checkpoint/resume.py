"""When checkpoints are written, how large they will be, and where a run begins.

A rehearsal proves that a checkpoint can be resumed before somebody needs it. Half way through, the state is saved,
wiped and read back. Training goes on with what was read, so the gates on later losses judge the checkpoint too.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import folders
import torch
import torch.distributed as dist
from bringup.training.formulae.models import job_of
from bringup.training.records import Checkpoint, CheckpointTimes, Resumed, RunArgs
from transformers import TrainerCallback

from recipe import GIB, group
from recipe.arguments import Args
from recipe.checkpoint import files, state
from recipe.data import DataError, together
from recipe.hang import Watch
from recipe.memory import checksum
from recipe.rank import RankFacts, say_once
from recipe.strategy import Refused
from recipe.trajectory import Sent, Trajectory

MIB = 2**20
PART_BYTES = 1820  # that torch 2.13 adds to a stored part of a tensor, in its file and in .metadata
RANK_BYTES = 5056 + 2 * PART_BYTES  # random state of a rank, and its rows without their numbers
KEPT = 2  # of the newest: the last one may be damaged
PATIENCE_S = 1800  # that ranks wait for one another while a checkpoint is written or read


def bytes_of(model: Any, shards: int, ranks: int) -> int:
    """Return the size of a checkpoint without its record and the numbers of rows. `shards`: ranks that share one copy
    of the states; a tensor is stored in as many parts as its rows are cut into. Tied weights are stored under each of
    their names, and have one pair of moments."""
    weights = list(model.state_dict().values())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    stored = [*weights, *trained, *trained, *(torch.zeros(()) for _ in trained)]  # torch keeps a step in float32
    parts = sum(min(shards, tensor.shape[0]) if tensor.dim() else 1 for tensor in stored)
    return sum(tensor.nbytes for tensor in stored) + parts * PART_BYTES + ranks * RANK_BYTES


def require_free(largest: int, count: int, root: Path) -> None:
    """Refuse, on every rank, `count` checkpoints that cannot fit; say the rest. A collective. largest: bytes of one."""

    def look() -> str:
        cure = "make room there, give another --checkpoint-dir, or leave checkpoints out (--no-rehearse-resume)"
        try:
            root.mkdir(parents=True, exist_ok=True)
            free = folders.left(str(root), with_quota=False).space
        except OSError as error:
            raise DataError(f"checkpoints: {root} cannot be written: {error.strerror}: {cure}") from error
        if free is None:
            return "unknown"
        if count * largest > free * GIB:
            room = f"{in_words(count * largest)} (predicted, {count} at a time) in {root}"
            raise DataError(f"checkpoints: expected room for {room}, observed {in_words(free * GIB)} free: {cure}")
        return in_words(free * GIB)

    left = together(look)
    say_once(f"a checkpoint will take {in_words(largest)}, {count} at a time; free for them: {left}")


def in_words(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"


class Checkpoints(TrainerCallback):
    """All checkpoints of one run. The trainer calls save() and load(); `trajectory` is what they carry along.

    begins_at: folder and record of the checkpoint that the run goes on from; resumed: what metrics.json says of it.
    """

    def __init__(self, args: Args, resolved: RunArgs, facts: RankFacts, watch: Watch) -> None:
        self.args, self.resolved, self.facts, self.watch = args, resolved, facts, watch
        self.run_dir = args.run_dir.resolve()
        self.recipe = resolved.model_dump(mode="json", exclude=set(RunArgs.STRATEGY))
        self.root = self._root(self.run_dir)
        self.trajectory = Trajectory()
        self.checksum: float | None = None  # before the rehearsal, which makes replicas alike again
        self.rehearse_at = max(1, args.steps // 2) if args.rehearse_resume else 0
        self.begins_at: tuple[Path, Checkpoint] | None = None
        self.resumed: Resumed | None = None
        self.random: torch.Tensor | None = None  # to be restored
        self.after_steps: list[int] = []  # a checkpoint was written
        self.last: files.Saved | None = None
        self.reads: list[files.Read] = []

    def _root(self, run_dir: Path) -> Path:
        folder = self.args.checkpoint_dir
        return run_dir / "checkpoints" if folder is None else folder.resolve() / run_dir.name

    def find(self) -> None:
        """Find where to begin. A collective. Raises Refused when --resume names a run that cannot be resumed."""
        if (asked := self.args.resume) is None:
            return
        newest: tuple[Path | None, Checkpoint | None, list[str]] = (None, None, [])
        if group.RANK == 0:  # one looks and all follow: a folder may be seen by one node a little before another one
            attempts = files.attempts(self.run_dir if asked == "auto" else Path(asked).resolve())
            newest = files.newest_whole(map(self._root, attempts), self.args.steps)
        folder, record, lines = group.gather(newest, tuple[Path | None, Checkpoint | None, list[str]])[0]
        if folder is not None and record is not None:
            there = record.recipe
            differing = [name for name, value in self.recipe.items() if there.get(name) != value]
            if differing:
                words = "; ".join(f"{name} {there.get(name)} there, {self.recipe[name]} here" for name in differing[:4])
                raise Refused(f"--resume: {folder} is of another training: {words}")
            self.begins_at = folder, record
            self.resumed = Resumed(run=record.run, step=record.step, world_size=record.world_size, passed_over=lines)
            passed = f"; passed over: {lines[0]}" if lines else ""
            say_once(f"resuming after step {record.step} from {folder}{passed}")
        elif asked == "auto":
            say_once(f"starting at step 1: {lines[0]}")
        else:
            raise Refused(f"--resume {asked}: {lines[0]}")

    def require_room(self, model: Any) -> None:
        """Say what will be written, and refuse it where it cannot fit. A collective, before the model has weights."""
        self.empty_bytes = bytes_of(model, job_of(self.resolved).shards, group.WORLD)
        # each is written before the oldest is removed
        if count := KEPT + 1 if self.args.save_steps else min(self.rehearse_at, 1):
            require_free(self._bytes(self.args.steps), count, self.root)

    def _bytes(self, step: int) -> int:
        """Predict the size of the checkpoint after a step. It holds the number of each row so far."""
        return self.empty_bytes + 8 * step * self.args.global_batch

    def train(self, trainer: Any) -> None:
        """Run the trainer's own training, from where it begins: it wants a file which says how far that is."""
        if self.begins_at is None:
            trainer.train()
            return
        begins = {"global_step": self.begins_at[1].step, "train_batch_size": self.args.per_device_batch}
        with tempfile.TemporaryDirectory(prefix="bringup-resume-") as folder:
            Path(folder, "trainer_state.json").write_text(json.dumps(begins), encoding="utf-8")
            trainer.train(resume_from_checkpoint=folder)

    def load(self, trainer: Any) -> None:
        """Read the checkpoint. Called by the trainer when model and optimizer are there. A collective."""
        if self.begins_at is None:
            return
        folder, record = self.begins_at
        with self.watch.patience(PATIENCE_S):
            got = files.read(folder, record, trainer)
        self.random, self.trajectory.rows = got.random, got.rows
        self.trajectory.loss, self.trajectory.grad_norm = list(record.loss), list(record.grad_norm)
        self.facts.saw("train.checkpoint.intact", 0, "count")
        self._came_back(got)
        if got.differing:
            raise Refused(
                f"--resume: {len(got.differing)} of {got.compared} tensors in {folder} are not what was saved, "
                f"{got.differing[0]} first; remove this folder, and the checkpoint before it is taken"
            )

    def put_random_state(self) -> None:
        """Restore the random state. Called by the trainer when the rows before were skipped."""
        if self.random is not None:
            state.put_random_state(self.random)
            self.random = None

    def save(self, trainer: Any) -> None:
        """Write a checkpoint. Called by the trainer after the step it is to be of. A collective."""
        step = trainer.state.global_step
        self.trajectory.settle()
        with self.watch.patience(PATIENCE_S):
            self.last = saved = files.save(
                self.root, self.run_dir.name, self.resolved.strategy, self.recipe, trainer, self.trajectory
            )
            self.after_steps.append(step)
            whole = self._rehearse(saved, trainer) if step == self.rehearse_at else True
            group.gather(step)  # until the last rank has read its own file: rank 0 removes them all
        # wanted for the rehearsal alone
        alone = step == self.rehearse_at and not self.args.save_steps and not trainer.control.should_training_stop
        for old in files.newest_first([self.root])[0 if whole and alone else KEPT :] if group.RANK == 0 else ():
            shutil.rmtree(old, ignore_errors=True)  # half removed, it counts as damaged

    def _rehearse(self, saved: files.Saved, trainer: Any) -> bool:
        """Wipe the state, read it back, compare. False: a file is damaged already, so nothing was wiped."""
        folder, record = saved.folder, saved.record
        own = files.damage(folder, [file for file in record.files if file.rank == group.RANK])
        self.facts.saw("train.checkpoint.intact", len(own), "count", remark="; ".join(own) or None)
        damaged = [line for lines in group.gather(own) for line in lines]
        if damaged:
            why = "not read back: a file of the checkpoint is damaged"
            self.facts.unknown("train.checkpoint.resumable", "count", why)
            say_once(f"the checkpoint of step {record.step} is damaged, not read back: {damaged[0]}")
            return False
        before, self.checksum = state.of_rank(trainer), checksum(trainer.model_wrapped)
        state.wipe(trainer)
        if state.of_rank(trainer) == before:
            raise state.CheckpointError("the state cannot be wiped: reading it back would prove nothing")
        got = files.read(folder, record, trainer)
        state.put_random_state(got.random)  # type: ignore[arg-type]  # the same ranks read it
        after = state.of_rank(trainer)
        differing = sorted(name for name in before if after.get(name) != before[name])
        self._came_back(got._replace(compared=len(before), differing=differing))
        say_once(
            f"checkpoint of step {record.step}: {record.bytes / GIB:.3f} GiB written in {saved.write_s:.2f} s, "
            f"state wiped, read back in {got.seconds:.2f} s; {len(differing)} of {len(before)} tensors differ"
        )
        return True

    def _came_back(self, got: files.Read) -> None:
        self.reads.append(got)
        names = ", ".join(got.differing[:4])
        self.facts.saw("train.checkpoint.resumable", len(got.differing), "count", remark=names or None)

    def fields(self) -> dict[str, Any]:
        """Return fields of records.TrainMetrics: steps so far, what checkpoints cost, where it began. A collective."""
        some = self.last is not None or bool(self.reads)
        return {
            "parameter_checksums_rehearsed": None if self.checksum is None else group.gather(self.checksum),
            "steps_done": len(self.trajectory.loss),
            "loss": self.trajectory.loss,
            "grad_norm": self.trajectory.grad_norm,
            "checkpoint": self._times() if some else None,
            "checkpoint_reason": None if some else "no checkpoint was requested (--save-steps 0, --no-rehearse-resume)",
            "resumed": self.resumed,
        }

    def _times(self) -> CheckpointTimes:
        compared = sum(group.gather(sum(got.compared for got in self.reads)))
        differing = sum(group.gather(sum(len(got.differing) for got in self.reads)))
        last, read = self.last, self.reads[-1] if self.reads else None
        record = last.record if last is not None else self.begins_at[1]  # type: ignore[index]  # else none was read
        ours = (record.world_size, record.strategy) == (group.WORLD, self.resolved.strategy)
        return CheckpointTimes(
            write_s=last and last.write_s,
            write_gib_per_s=last and record.bytes / GIB / last.write_s,
            checksum_s=last and last.checksum_s,
            bytes=record.bytes,
            predicted_bytes=self._bytes(record.step) if ours else None,
            predicted_reason=None if ours else "it was written by other ranks or another strategy",
            read_gib_per_s=read and read.bytes / GIB / read.seconds,
            compared=read and compared,
            differing=read and differing,
            after_steps=self.after_steps,
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse a start without load() and put_random_state(): another version of Trainer may call them otherwise."""
        if self.begins_at is not None and (not self.reads or self.random is not None):
            raise Refused(
                f"expected the state after step {self.begins_at[1].step} from {self.begins_at[0]}, observed "
                "that Trainer did not ask for it: another version of transformers?"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step, every = state.global_step, self.args.save_steps
        if step == self.rehearse_at or (every and (step % every == 0 or step == self.args.steps)):
            control.should_save = True


class StopOnRequest(TrainerCallback):
    """Ends early, together, with a checkpoint: when a file appears, which a batch script makes when Slurm warns it.

    Rank 0 looks for the file. All agree on the step by a small all_reduce, which begins at the end of a step and is
    read at the end of the next, so that no step of a GPU waits for it. `step`: after which it stopped.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.step: int | None = None
        self._flag = torch.zeros(1, dtype=torch.int32, device=group.DEVICE if dist.is_initialized() else "cpu")
        self._sent: Sent | None = None  # the flag of the step before
        # beside the compute stream: there its copy would wait for every kernel that is queued
        self._side = torch.cuda.Stream() if group.CUDA else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.step is not None:
            return
        if self._sent is not None and self._sent.wait().values[0].item():
            self.step = state.global_step
            control.should_save = control.should_training_stop = True
            return
        self._flag.fill_(int(group.RANK == 0 and self.file.exists()))
        work = dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True) if dist.is_initialized() else None
        with torch.cuda.stream(self._side):  # without a GPU none: it waits here
            if work is not None:
                work.wait()
            self._sent = Sent(self._flag)
