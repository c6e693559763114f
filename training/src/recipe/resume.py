"""When checkpoints are written and where a run begins: the policy above checkpoint.py.

A rehearsal proves that a checkpoint can be resumed before somebody needs it. Half way through, the state is saved,
wiped and read back. Then training goes on with what was read. So the later losses are those of a resumed training, and
the gates on them judge the checkpoint too.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bringup.errors import RecordError
from bringup.formulae.models import job_of
from bringup.records import Checkpoint, CheckpointTimes, Resumed, RunArgs, read_record
from transformers import TrainerCallback

from recipe import GIB, checkpoint, checkpoint_folders, checkpoint_room, group, training_state
from recipe.arguments import Args
from recipe.checkpoint import Read, Saved
from recipe.rank import RankFacts, one_line, say
from recipe.strategy import Refused
from recipe.trajectory import Trajectory
from recipe.watch import Watch

AUTO = "auto"


@dataclass(frozen=True)
class WholeCheckpoint:
    """A checkpoint that is whole, and the newer ones that are not."""

    folder: Path
    record: Checkpoint
    passed_over: list[str]


class Checkpoints(TrainerCallback):
    """All checkpoints of one run. The trainer calls save() and load(); `trajectory` is what they carry along."""

    def __init__(self, args: Args, resolved: RunArgs, hosts: list[str], facts: RankFacts, watch: Watch) -> None:
        self.args, self.resolved, self.hosts, self.facts, self.watch = args, resolved, hosts, facts, watch
        self.run = args.run_dir.resolve().name
        self.strategy = resolved.strategy
        self.recipe = {
            name: value for name, value in resolved.model_dump(mode="json").items() if name not in RunArgs.STRATEGY
        }
        self.root = self.rehearsal_root = self._root(args.run_dir.resolve())
        self.trajectory = Trajectory()
        self.rehearse_at = max(1, args.steps // 2) if args.rehearse_resume else 0
        self.not_rehearsed: str | None = None  # why not, where it was wanted
        self.begins_at: WholeCheckpoint | None = None
        self.random: dict[str, torch.Tensor] | None = None
        self.after_steps: list[int] = []  # a checkpoint was written
        self.last: Saved | None = None
        self.reads: list[tuple[int, Read]] = []  # bytes, what came back

    def find(self) -> None:
        """Where to begin. A collective. Raises Refused when --resume names a run that cannot be resumed."""
        if self.args.resume is not None:
            with self.watch.patience(self.args.checkpoint_timeout_s):
                self.begins_at = self._find()

    def _find(self) -> WholeCheckpoint | None:
        first = (self.args.run_dir if self.args.resume == AUTO else Path(str(self.args.resume))).resolve()
        # one rank looks and all follow: a folder may be seen by one node a little before another one sees it
        mine = self._candidates(first) if group.RANK == 0 else ([], False)
        candidates, requeued = group.from_first(mine, tuple[list[tuple[Path, Checkpoint | None, str]], bool])
        passed_over: list[str] = []
        too_late = 0
        for folder, record, unreadable in candidates:
            if record is not None and record.step >= self.args.steps:
                too_late = max(too_late, record.step)
                continue
            damage = [unreadable] if record is None else checkpoint.damage(folder, record, of_rank=False)
            damaged = [line for lines in group.gather(damage) for line in lines]
            if record is not None and not damaged:
                self._require_same_recipe(folder, record)
                self._tell(
                    f"resuming after step {record.step} from {folder}"
                    + (f"; passed over: {passed_over[0]}" if passed_over else "")
                )
                return WholeCheckpoint(folder, record, passed_over)
            passed_over.append(one_line(damaged[0]))
        why = (
            f"damaged: {passed_over[0]}"
            if passed_over
            else f"the newest is of step {too_late} of --steps {self.args.steps}: nothing is left to train"
            if too_late
            else "no finished checkpoint was found"
        )
        if self.args.resume != AUTO:
            raise Refused(f"--resume {self.args.resume}: {why}")
        if requeued:
            self._tell(f"starting at step 1, not where the attempt before ended: {why}")
        return None

    def require_room(self, model: Any) -> None:
        """Say what will be written, and refuse it where it cannot fit. A collective, before the model has weights."""
        args = self.args
        shards = job_of(self.resolved).shards
        self.size = checkpoint_room.size_of(model, shards, len(self.hosts), args.global_batch)
        largest = self.size.bytes(self.rehearse_at)
        floor, patience_s = checkpoint_room.ALONE_BYTES_PER_S, args.checkpoint_timeout_s
        limit = (
            f"--rehearse-at-most {args.rehearse_at_most} GiB"
            if largest > args.rehearse_at_most * GIB
            else f"can be read in --checkpoint-timeout {patience_s} s at {floor / 1e9:g} GB/s"
            if largest > patience_s * floor
            else None
        )
        if self.rehearse_at and not args.save_steps and limit is not None:
            self.not_rehearsed = (
                f"not rehearsed: its checkpoint would take {checkpoint_room.in_words(largest)}, more than {limit}"
            )
            self.rehearse_at = 0
            self._not_judged(self.not_rehearsed, "intact", "resumable")
            self._tell(self.not_rehearsed)
        if self.rehearse_at and not args.save_steps and args.rehearse_in is not None:
            scratch = args.rehearse_in.resolve() / args.run_dir.resolve().name
            problem = checkpoint_room.not_one_folder(scratch, self.hosts)
            self.rehearsal_root = self.root if problem else scratch
            if problem:
                self._tell(f"the rehearsal writes to {self.root}, because {problem}")
        first = 0 if self.begins_at is None else self.begins_at.record.step
        wanted = checkpoint_room.saves(first, args.steps, args.save_steps, args.keep_checkpoints, self.rehearse_at)
        self.room = checkpoint_room.require(self.size, wanted, self.rehearsal_root, self.hosts)
        if wanted.at_once:
            free = self.room.free_bytes
            self._tell(
                f"a checkpoint will take {checkpoint_room.in_words(self.room.predicted_bytes)}, {wanted.at_once} at a "
                f"time; free for them: {'unknown' if free is None else checkpoint_room.in_words(free)}"
            )

    def train(self, trainer: Any) -> None:
        """The trainer's own training, from where it begins. Of its own files it wants one, which says how far it is."""
        if self.begins_at is None:
            trainer.train()
            return
        own = {name: getattr(trainer.args, name) for name in ("logging_steps", "eval_steps", "save_steps")}
        state = own | {
            "global_step": self.begins_at.record.step,
            "train_batch_size": trainer.args.per_device_train_batch_size,
        }
        with tempfile.TemporaryDirectory(prefix="bringup-resume-") as folder:
            Path(folder, "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
            trainer.train(resume_from_checkpoint=folder)

    def load(self, trainer: Any) -> None:
        """Called by the trainer when model and optimizer are there. A collective."""
        if self.begins_at is None:
            return
        folder, record = self.begins_at.folder, self.begins_at.record
        with self.watch.patience(self.args.checkpoint_timeout_s):
            got = checkpoint.read(folder, record, trainer)
        self.random, self.trajectory.rows = checkpoint.read_own(folder, record)
        self.trajectory.loss, self.trajectory.grad_norm = list(record.loss), list(record.grad_norm)
        self.reads.append((record.bytes, got))
        self._report(0, "", len(got.differing), got.differing)
        if got.differing:
            raise Refused(
                f"{folder}: {len(got.differing)} of {got.compared} tensors are not what was saved, "
                f"{got.differing[0]} first"
            )

    def put_random_state(self) -> None:
        """Called by the trainer when the rows before were skipped."""
        if self.random is not None:
            training_state.put_random_state(self.random)
            self.random = None

    def save(self, trainer: Any) -> None:
        """Called by the trainer after the step it is to be of. A collective."""
        self.trajectory.settle()
        with self.watch.patience(self.args.checkpoint_timeout_s):
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
        step = trainer.state.global_step
        passing = step == self.rehearse_at and not self.args.save_steps and not trainer.control.should_training_stop
        root = self.rehearsal_root if passing else self.root
        try:
            saved = checkpoint.save(root, self.run, self.strategy, self.recipe, trainer, self.trajectory)
        except checkpoint.CheckpointError as error:
            raise checkpoint.CheckpointError(checkpoint_room.of_full(str(error), root, self.room)) from None
        self.last, folder, record = saved, saved.folder, saved.record
        self.after_steps.append(step)
        whole = self._rehearse(folder, record, trainer) if step == self.rehearse_at else True
        group.gather(step)  # until the last rank has read its own file: rank 0 removes them all
        if group.RANK == 0:
            if whole and passing:
                checkpoint_folders.remove(folder)  # it was wanted for the rehearsal alone
                if root != self.root:
                    with contextlib.suppress(OSError):
                        root.rmdir()
            else:
                checkpoint_folders.keep_newest(self.root, self.args.keep_checkpoints)

    def _rehearse(self, folder: Path, record: Checkpoint, trainer: Any) -> bool:
        """Save, wipe, read back, compare. False: a file is damaged already, so nothing was wiped."""
        damaged = checkpoint.damage(folder, record, of_rank=True)
        everyone = group.gather(damaged)
        if any(everyone):
            self._report(len(damaged), "; ".join(damaged), None, [])
            culprit = next(rank for rank, lines in enumerate(everyone) if lines)
            self._tell(f"the checkpoint of step {record.step} is damaged, not read back: {everyone[culprit][0]}")
            return False
        before = _fingerprints(trainer)
        training_state.wipe(trainer)
        if _fingerprints(trainer) == before:
            raise checkpoint.CheckpointError("the state cannot be wiped: reading it back would prove nothing")
        got = checkpoint.read(folder, record, trainer)
        random, _ = checkpoint.read_own(folder, record)
        training_state.put_random_state(random or {})
        after = _fingerprints(trainer)
        differing = sorted(name for name in before if after.get(name) != before[name])
        self.reads.append((record.bytes, Read(got.seconds, len(before), differing)))
        self._report(0, "", len(differing), differing)
        write_s = self.last.write_s if self.last else 0
        self._tell(
            f"checkpoint of step {record.step}: {record.bytes / GIB:.3f} GiB written in {write_s:.2f} s, "
            f"state wiped, read back in {got.seconds:.2f} s; {len(differing)} of {len(before)} tensors differ"
        )
        return True

    def save_s(self) -> tuple[float, str]:
        """Seconds that the next checkpoint is expected to take, and how that is known."""
        if self.last is not None:
            return self.last.write_s + self.last.checksum_s, "from the last save"
        rate = checkpoint_room.assumed_bytes_per_s(len(set(self.hosts)))
        return self.size.bytes(self.args.steps) / rate, f"from the predicted size at {rate / 1e9:g} GB/s"

    def fields(self) -> dict[str, Any]:
        """Of records.TrainMetrics: the steps so far, what checkpoints cost or why there is none, where it began. A
        collective."""
        times, reason = self._times()
        return {
            "steps_done": len(self.trajectory.loss),
            "loss": self.trajectory.loss,
            "grad_norm": self.trajectory.grad_norm,
            "checkpoint": times,
            "checkpoint_reason": reason,
            "resumed": self._resumed(),
        }

    def _times(self) -> tuple[CheckpointTimes | None, str | None]:
        differing = sum(group.gather(sum(len(got.differing) for _, got in self.reads)))
        compared = sum(group.gather(sum(got.compared for _, got in self.reads)))
        if self.last is None and not self.reads:
            return None, self.not_rehearsed or "no checkpoint was requested (--save-steps 0, --no-rehearse-resume)"
        last, (read_bytes, read) = self.last, self.reads[-1] if self.reads else (0, None)
        record = last.record if last is not None else self.begins_at.record if self.begins_at is not None else None
        ours = record is not None and (record.world_size, record.strategy) == (group.WORLD, self.strategy)
        predicted = self.size.bytes(record.step) if record is not None and ours else None
        return CheckpointTimes(
            written=len(self.after_steps),
            bytes=read_bytes if last is None else last.record.bytes,
            files=None if last is None else len(last.record.files),
            predicted_bytes=predicted,
            predicted_reason=None if predicted else "it was written by other ranks or another strategy",
            write_s=None if last is None else last.write_s,
            write_gib_per_s=None if last is None else last.record.bytes / GIB / last.write_s,
            checksum_s=None if last is None else last.checksum_s,
            read_s=None if read is None else read.seconds,
            read_gib_per_s=None if read is None else read_bytes / GIB / read.seconds,
            compared=compared if self.reads else None,
            differing=differing if self.reads else None,
            after_steps=self.after_steps,
        ), None

    def _resumed(self) -> Resumed | None:
        if self.begins_at is None:
            return None
        record = self.begins_at.record
        return Resumed(
            run=record.run,
            step=record.step,
            world_size=record.world_size,
            random_state=record.world_size == group.WORLD,
            passed_over=self.begins_at.passed_over,
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """By now Trainer has called load() and put_random_state(), through names that another version may change."""
        if self.begins_at is not None and (not self.reads or self.random is not None):
            raise Refused(
                f"expected the state after step {self.begins_at.record.step} from {self.begins_at.folder}, observed "
                "that Trainer did not ask for it: another version of transformers?"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step, every = state.global_step, self.args.save_steps
        if step == self.rehearse_at or (every and (step % every == 0 or step == self.args.steps)):
            control.should_save = True

    def _candidates(self, first: Path) -> tuple[list[tuple[Path, Checkpoint | None, str]], bool]:
        """(finished checkpoints of a run and of the attempts before it; were there such attempts).

        The latest step comes first. A checkpoint whose record cannot be read has the reason in its place.
        """
        attempts = checkpoint_folders.attempts(first)
        folders = []
        for attempt in attempts:
            finished, unfinished = checkpoint_folders.checkpoints_in(self._root(attempt))
            folders += finished
            if unfinished:
                self._tell(f"{self._root(attempt)}: {unfinished[0]} is an unfinished save, which counts as nothing")
        candidates: list[tuple[Path, Checkpoint | None, str]] = []
        for folder in sorted(folders, key=lambda path: path.name, reverse=True):
            try:
                candidates.append((folder, read_record(folder / checkpoint_folders.RECORD, Checkpoint), ""))
            except RecordError as error:
                candidates.append((folder, None, str(error)))
        return candidates, len(attempts) > 1

    def _root(self, run_dir: Path) -> Path:
        return (
            run_dir / "checkpoints"
            if self.args.checkpoint_dir is None
            else self.args.checkpoint_dir.resolve() / run_dir.name
        )

    def _require_same_recipe(self, folder: Path, record: Checkpoint) -> None:
        differing = [
            f"{name} {record.recipe.get(name)} there, {value} here"
            for name, value in self.recipe.items()
            if record.recipe.get(name) != value
        ]
        if differing:
            raise Refused(f"--resume: {folder} is of another training: {'; '.join(differing[:4])}")

    def _report(self, damaged: int, which: str, differing: int | None, names: list[str]) -> None:
        """For the gates: what this rank saw."""
        self.facts.saw("train.checkpoint.intact", damaged, "count", remark=which or None)
        if differing is None:
            self._not_judged("not read back: a file of the checkpoint is damaged", "resumable")
        else:
            self.facts.saw("train.checkpoint.resumable", differing, "count", remark=", ".join(names[:4]) or None)

    def _not_judged(self, why: str, *names: str) -> None:
        for name in names:
            self.facts.unknown(f"train.checkpoint.{name}", "count", why, f"{self.facts.at}/rank{group.RANK}")

    def _tell(self, text: str) -> None:
        if group.RANK == 0:
            say(text)


def _fingerprints(trainer: Any) -> dict[str, int]:
    """Fingerprints of all that this rank holds: tensors and random state."""
    return training_state.fingerprints_of_rank(training_state.tensors_of(trainer) | training_state.random_state())
