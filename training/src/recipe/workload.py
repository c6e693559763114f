"""What all training programs share: the meeting of the ranks, model and rows, Trainer's common arguments, the records.

An entrypoint calls the methods of Run in this order: meet, prepare, common_arguments, train.
"""

import functools
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import arrival
import gpus
import pulse
import torch
import transformers
import transport
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from bringup.kernel.characters import many
from bringup.kernel.records import write_record
from bringup.training.formulae import flops
from bringup.training.formulae.models import CHUNKED_LOSS
from bringup.training.records import ON, ObservedStrategy
from facts import node_name
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from transformers import PrinterCallback, Trainer, TrainerCallback

from recipe import communication, fast, group, memory, meter, observed_strategy, results, strategy, weights
from recipe.arguments import Args
from recipe.checkpoint.resume import Checkpoints, StopOnRequest
from recipe.data import Rows, open_rows, together
from recipe.fast.chunked_loss import ChunkedLoss
from recipe.hang import Watch
from recipe.rank import STOP, RankFacts, one_line, raised, refused, say_once
from recipe.strategy import Expected, NotPromised, Refused
from recipe.trajectory import Live

# ranks wait while one of their node tokenises, or all load; torchrun ends them sooner if that one dies
PATIENCE_S = 3600


class Run:
    """The run of this rank. `expected` is what the entrypoint promises, `hosts` (index = rank) where the ranks are."""

    def __init__(self, args: Args, expected: Expected, facts: RankFacts, started_s: float) -> None:
        self.args, self.expected, self.facts, self.started_s = args, expected, facts, started_s
        self.import_s = time.perf_counter() - started_s
        self.watch = Watch(args.run_dir, args.timeout_s, lambda message: raised(facts, "hung", message))

    def meet(self) -> None:
        """Join the process group, count its ranks and name their hosts; write run_args.json. A collective. Raises
        Refused where the ranks or hosts are not those that the strategy needs."""
        args, facts = self.args, self.facts
        begun = time.perf_counter()
        group.record_flight(args.run_dir / "raw")
        try:
            group.start(args.start_s)
        except arrival.Shared as error:
            raise NotPromised(str(error)) from None
        except arrival.Late as error:
            for late, host in error.late:
                facts.saw("train.rank.late", args.start_s, "s", f"{host or 'unknown'}/rank{late}", one_line(str(error)))
            raise
        self.process_group_s = time.perf_counter() - begun
        facts.saw("train.rank.device", observed_strategy.device_name(), "text")
        facts.saw("train.rank.driver_gpus", gpus.driver_count(), "count")
        begun = time.perf_counter()
        members = group.count_members()
        self.first_collective_s = time.perf_counter() - begun
        facts.saw("train.rank.world_size", members, "count")
        group.set_timeouts(args.timeout_s)  # all are there: from now on, who waits longer is in a hang
        if group.RANK == 0 and group.CUDA:
            nodes = group.WORLD // group.LOCAL_WORLD  # of NCCL's log, as the collectives phases name it
            facts.saw("nccl.backend", group.backend(), "text", "1-node" if nodes == 1 else f"{nodes}-nodes")
        if members != group.WORLD:
            raise NotPromised(
                f"expected {group.WORLD} ranks in one group, observed {members}: do all nodes get the same MASTER_ADDR "
                "and MASTER_PORT?",
                ("train.world_size", members, "count"),
            )
        self.bf16 = group.has_bf16() if args.bf16 is None else args.bf16
        # refused only now that there is a group: torchrun ends rank 0 before it says why when another rank ends first
        if args.reduce_dtype == "bfloat16" and not self.bf16:
            raise Refused(
                "--reduce-dtype bfloat16 needs --bf16, which is off by default on a CPU and on GPUs before Ampere"
            )
        self.hosts = group.gather(node_name())
        strategy.require_places(self.expected, self.hosts)
        self.tuning = fast.choose(args)
        self.resolved = results.run_args(args, self.expected, self.hosts, self.bf16, self.tuning)
        self.profile = flops.profile_of(args.run_dir)
        strategy.refuse_what_is_ignored(self.resolved)
        if group.RANK == 0:
            write_record(args.run_dir / "run_args.json", self.resolved)

    def prepare(self) -> tuple[Any, Rows]:
        """Make the model and the rows of tokens, equal on every rank; and what watches them. A collective. A model that
        is going to be sharded has no weights yet. Raises Refused on every rank when something is missing on one of
        them, or does not fit."""
        args = self.args
        begun = time.perf_counter()
        self.checkpoints = Checkpoints(args, self.resolved, self.facts, self.watch)
        self.checkpoints.find()
        with group.patience(PATIENCE_S, args.timeout_s):
            model = together(lambda: weights.without_memory(args), args)
            reads_checkpoint = self.checkpoints.begins_at is not None
            self.predicted = memory.footprint(model, self.resolved, reads_checkpoint=reads_checkpoint)
            memory.require(self.predicted.states.total, self.resolved, self.hosts)
            self.checkpoints.require_room(model)
            rows = open_rows(args, model.config, self.hosts)
            if not self.expected.sharded:
                weights.fill_alike(model, args)
        self.loss = ChunkedLoss(model) if self.tuning.get(CHUNKED_LOSS) == ON else None
        self.load_s = time.perf_counter() - begun
        self.stop = StopOnRequest(args.run_dir / STOP)
        self.clock = meter.Meter(lambda step: self.shown.after_step(step, self.checkpoints.trajectory, self.clock))
        self.clock.time_blocks(model)
        file, tokens_per_step = args.run_dir / "raw/progress.jsonl", args.global_batch * args.sequence_length
        self.shown = Live(file, args.steps, tokens_per_step, lambda speed: self._efficiency(speed).mfu)
        self.states, self.first_step = memory.ModelStates(), observed_strategy.FirstStep(self._around_first_step)
        return model, rows

    def fill(self, model: Any) -> None:
        """Fill in the weights of a model that has none yet, because it had to be sharded first. A collective."""
        begun = time.perf_counter()
        with group.patience(PATIENCE_S, self.args.timeout_s):
            weights.fill_alike(model, self.args)
        self.load_s += time.perf_counter() - begun

    def callbacks(self) -> list[TrainerCallback]:
        """Return what watches the training, in this order. Checkpoints are written by one of them."""
        watching = [self.first_step, self.watch, self.clock, self.states, self.checkpoints, self.stop]
        if self.tuning.get(fast.COMPILE) == ON:  # last: the first step has let go of the blocks by then
            watching.append(fast.CompileBlocks(self.args.timeout_s, self.loss))
        return watching

    def common_arguments(self) -> dict[str, Any]:
        """Return the TrainingArguments that all programs share: what is trained, and what Trainer leaves alone."""
        args = self.args
        return {
            "output_dir": str(args.run_dir / "checkpoints" if args.save_steps else args.run_dir),
            "max_steps": args.steps,
            "seed": args.seed,
            "data_seed": args.seed,
            "learning_rate": args.learning_rate,
            "lr_scheduler_type": "constant",
            "optim": results.OPTIMIZER,
            "max_grad_norm": results.MAX_GRAD_NORM,
            # without it every rank of a machine without a GPU trains alone, with exit code 0
            "use_cpu": not group.CUDA,
            "dataloader_drop_last": True,
            "dataloader_num_workers": args.dataloader_workers,
            "dataloader_pin_memory": group.CUDA,
            "remove_unused_columns": False,  # the row ids travel with the batch
            "log_level": "error",  # else Trainer sets the libraries back to warnings
            "log_level_replica": "error",
            "save_strategy": "no",  # recipe/checkpoint/resume.py says when
            # The rest is without the waits that Trainer puts into a step by default. It reads the loss from the device
            # to log it, and reads each to put a mean in the place of a NaN
            "logging_strategy": "no",
            "logging_nan_inf_filter": False,
            "disable_tqdm": True,  # the progress is in raw/progress.jsonl and on the screen
            "average_tokens_across_devices": False,  # all ranks wait for that sum, and each has equally many
            "ddp_bucket_cap_mb": args.ddp_bucket_cap_mb,
            "ddp_find_unused_parameters": False,  # else the graph is walked in every step
            "ddp_broadcast_buffers": False,  # all ranks wait for rank 0's before each step, and they are constants
            "dataloader_persistent_workers": args.dataloader_workers > 0,
            "accelerator_config": {
                "non_blocking": True,  # else a copy waits for the device, and its time would count as fetching
                "gradient_accumulation_kwargs": {"sync_each_batch": args.sync_each_batch},
            },
        }

    def train(self, trainer: Any) -> int:
        """Train, and write metrics.json (rank 0). Returns the number of optimizer steps done. Before the first step,
        after it, and at the end the model is observed; raises NotPromised where it is not what was promised."""
        args, checkpoints, clock = self.args, self.checkpoints, self.clock
        self.trainer = trainer
        trainer.remove_callback(PrinterCallback)
        sent_before = transport.interface_bytes()
        heart = pulse.Pulse()
        with memory.memory_by_part(trainer), fast.without_waits():
            checkpoints.train(trainer)
        step_times_s = clock.step_times_s()  # first: on a GPU it waits until everything is done
        self.shown.tell(clock)
        wall_time_s = time.perf_counter() - self.started_s

        checkpoints.trajectory.settle()
        if self.stop.step is not None and self.stop.step < args.steps:
            say_once(f"stopped on request after step {self.stop.step} of {args.steps}; its checkpoint is complete")
            return self.stop.step
        trained = self._observed()
        losses, own_steps = checkpoints.trajectory.loss, len(step_times_s)
        known = checkpoints.fields()
        first, warmup = len(losses) - own_steps + 1, min(args.warmup_steps, own_steps - 1)
        startup_s = (self.import_s, self.process_group_s, self.first_collective_s, self.load_s, step_times_s[0])
        ranks = group.gather(
            results.RankResult(
                step_times_s=step_times_s,
                own_times_s=clock.own,
                standstill=meter.standstill(heart.gaps(), clock.spans_s, clock.own, first, warmup),
                memory=meter.rank_memory(),
                environment=results.environment_of_rank(),
                sent=transport.sent_since(sent_before),
                states_bytes=self.states.total,
                startup_s=startup_s,
                checksum=memory.checksum(trainer.model_wrapped),
                steps_unix_s=clock.steps_unix_s(),
                rows=checkpoints.trajectory.rows,
            ),
            results.RankResult,
        )
        if group.RANK == 0:
            metrics = results.train_metrics(
                self.resolved, trained, self.predicted, ranks, wall_time_s, self._efficiency, **known
            )
            say_once(
                f"{metrics.tokens_per_s:.0f} tokens/s over all ranks, step p50 {1000 * metrics.step_time_s.p50:.1f} "
                f"ms, loss {losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} steps"
            )
            results.write(args.run_dir, self.resolved, metrics)  # after the line: the disk may be full
        # last, when the record is written: these steps may fail, and the model goes on learning in them
        group.gather(None)  # a rank that fails in them before rank 0 has written would end it
        with self.watch.patience((args.profiled_steps + 1) * args.timeout_s):
            measured = communication.measure(trainer, self.resolved, self.predicted.shape)
        if group.RANK == 0:
            results.write(args.run_dir, self.resolved, metrics.model_copy(update=measured), replace=True)
        return len(losses)

    def _efficiency(self, tokens_per_s: float) -> flops.Efficiency:
        """tokens_per_s: of one rank."""
        dtype, name = self.resolved.compute_dtype, results.gpu_name()
        shape, length = self.predicted.shape, self.args.sequence_length
        return flops.efficiency(shape, length, tokens_per_s, name, dtype, self.profile)

    def _observed(self) -> ObservedStrategy:
        left = weights.on_meta(self.trainer.model_wrapped)
        if left:
            raise NotPromised(f"expected weights in every parameter, observed none in {left[0]} ({len(left)} in all)")
        seen = observed_strategy.observe(self.trainer, self.first_step, self.checkpoints.trajectory.loss_dtype)
        strategy.require(seen, self.expected, self.resolved)
        return seen

    def _around_first_step(self) -> None:
        seen = self._observed()
        if seen.recomputed_layers is not None:
            return
        if isinstance(model := self.trainer.model_wrapped, DistributedDataParallel):
            # DDP makes gradients views of its buckets in a step's last micro-step only. Trainer's zero_grad() would
            # drop them, and those of the micro-steps before would need memory of their own
            model.zero_grad = functools.partial(model.zero_grad, set_to_none=False)  # type: ignore[method-assign]
        group.set_timeouts(self.args.timeout_s)  # again: the groups of the mesh exist only now
        meter.forget_peaks()
        if group.RANK == 0:
            self.facts.saw("train.strategy", seen.kind, "text", "job")
        by = f", collectives by {seen.backend}" if len(seen.hosts) > 1 else ""
        say_once(
            f"{seen.kind} on {many(len(seen.hosts), 'rank')} of {many(len(set(seen.hosts)), 'host')}{by}: "
            f"{seen.wrapper}, parameters {' '.join(seen.placements)}, {seen.parameters_local_max:,} of "
            f"{seen.parameters:,} on the fullest rank"
        )


class RecipeTrainer(Trainer):
    """transformers' Trainer with two additions: FSDP2 on a CPU, and the results and rows of each step.

    It is a Trainer because people train with it, so its behaviour is the one to prove. It adds about a millisecond of
    Python per step to a bare loop.
    """

    def __init__(self, run: Run, **kwargs: Any) -> None:
        self.run, self.checkpoints, self.clock = run, run.checkpoints, run.clock
        self.trajectory = run.checkpoints.trajectory
        # a rank has one GPU: with several in sight of one process Trainer would wrap the model in DataParallel
        kwargs["args"]._n_gpu = min(1, kwargs["args"].n_gpu)
        super().__init__(callbacks=run.callbacks(), data_collator=torch.utils.data.default_collate, **kwargs)

    def create_accelerator_and_postprocess(self) -> None:
        """Build the Accelerator; on a CPU, so that FSDP2 is not dropped.

        Given a plugin, accelerate changes MULTI_GPU and its like to FSDP, but not MULTI_CPU: there DDP would train. So
        MULTI_CPU has another name while the Accelerator is built. strategy.require sees at the model that it worked.
        """
        if self.args.fsdp and self.args.device.type == "cpu":
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_XPU
        # with bf16=False TrainingArguments keep what `accelerate launch` put into the environment
        self.args.mixed_precision = "bf16" if self.args.bf16 else "no"
        super().create_accelerator_and_postprocess()
        # one copy of the gradients under DDP: its buckets (Run keeps them there)
        self.accelerator.ddp_handler.gradient_as_bucket_view = True

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        """Refuse what has no weights yet and will not be sharded: FSDP did not reach Trainer, or was lost there."""
        if weights.on_meta(model):
            kind = "ddp" if group.WORLD > 1 else "single"
            seen = f"{self.accelerator.distributed_type.name}, {type(model).__name__}, {strategy.PLAIN}, no weights yet"
            raise strategy.other_kind(self.run.expected, kind, seen)
        super()._move_model_to_device(model, device)

    def create_optimizer(self, model: Any = None) -> Any:
        """Number parameters on the meta device in the place of addresses, by which accelerate finds their shards."""
        for number, parameter in enumerate(self.model.parameters(), start=1):  # type: ignore[union-attr]
            if parameter.device.type == "meta":
                parameter.data_ptr = lambda number=number: number
        return super().create_optimizer(model)

    def create_scheduler(self, *args: Any, **kwargs: Any) -> Any:
        """Fill in the weights in the first call after sharding, and before a checkpoint is read into the model."""
        self.run.fill(self.model)
        return super().create_scheduler(*args, **kwargs)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        return super().get_batch_samples(self.clock.timed(epoch_iterator), num_batches, device)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        rows = inputs.pop("row")
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.run.first_step.after_micro_step(model)
        self.trajectory.add(rows, loss)
        return loss

    def _clip_grad_norm(self, model: Any) -> Any:  # the only place where the norm before clipping passes by
        norm = super()._clip_grad_norm(model)
        self.trajectory.add_norm(norm)
        return norm

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.checkpoints.save(self)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Nothing yet: model and optimizer are read in one go, when both are there."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        self.checkpoints.load(self)

    def _load_rng_state(self, checkpoint: str | None) -> None:  # called after the rows before were skipped
        self.checkpoints.put_random_state()


@record  # torchrun finds the exception of a rank in the file this writes
def run_rank(train: Callable[[Run], int], run: Run) -> int:
    """Call train(run), which returns its optimizer steps, and end the group. Returns the exit code: 0; 2 when it
    refuses what it was given; 1 when it is not what its name promises."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # of libraries, N ranks times; what matters here is checked and raised
    facts, code, steps = run.facts, 0, 0
    try:
        steps = train(run)
    except NotPromised as error:  # every rank is here: all of them judged the same gathered facts
        # by all: where groups are apart, Slurm may end rank 0's before it comes here
        for quantity, value, unit in error.seen:
            facts.saw(quantity, value, unit, "job", one_line(error.how))
        say_once(f"refused: {error}", stream=sys.stderr)
        raised(facts, "refused", str(error))
        code = 1
    except Refused as error:
        refused(facts, str(error))
        code = 2
    group.close()  # together, so that every rank leaves with this exit code
    run.watch.close()
    if code:
        return code
    if steps < run.args.steps:  # no end and no fault: the run goes on elsewhere
        why = f"stopped on request after step {steps} of {run.args.steps}, with a checkpoint"
        facts.unknown("train.rank.state", "text", why)
    else:
        facts.saw("train.rank.state", "finished", "text")
    facts.finish()
    return 0
