"""The one workload: model, precision, data and its order, optimizer, clipping. Differences of strategies are marked.

Imported after the arguments were accepted, because its imports take seconds. run() is the whole life of a rank.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import accelerate
import arrival
import gpus
import pulse
import torch
import transformers
import transport
from bringup.records import ObservedStrategy, write_record
from facts import node_name
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import PrinterCallback, TrainingArguments

from recipe import fast, group, live, meter, observe, results, standstill, strategy
from recipe.arguments import Args
from recipe.finite import FiniteCheck
from recipe.held import HeldStates
from recipe.nowait import without_waits
from recipe.oom import memory_by_part
from recipe.prepare import prepare
from recipe.rank import RankFacts, one_line, raised
from recipe.resume import Checkpoints
from recipe.stopping import StopOnRequest
from recipe.strategy import Expected, Refused
from recipe.trainer import RecipeTrainer
from recipe.watch import Watch

OLDEST_TORCH = (2, 10)  # older ones average gradients wrongly, or report a wrong norm, under FSDP2 on gloo

Say = Callable[..., None]


@record  # torchrun finds the exception of a rank in the file this writes
def run(args: Args, expected: Expected, facts: RankFacts, say: Say, started_s: float) -> int:
    """Train, and write run_args.json and metrics.json (rank 0). Returns the exit code: 0, or 2 when it refuses."""
    import_s = time.perf_counter() - started_s
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # of libraries, N ranks times; what matters here is checked and raised
    watch = Watch(args.run_dir, args.timeout_s, lambda message: raised(facts, "hung", message))
    try:
        steps = train(args, expected, facts, say, started_s, import_s, watch)
    except Refused as refused:  # every rank is here: all of them judged the same gathered facts
        if group.RANK == 0:
            say(f"refused: {refused}", stream=sys.stderr)
        for (
            quantity,
            value,
            unit,
        ) in refused.seen:  # by all: where groups are apart, Slurm may end rank 0's before it comes here
            facts.saw(quantity, value, unit, "job", one_line(str(refused)))
        facts.saw("train.rank.state", "refused", "text")
        facts.saw("train.rank.error", one_line(str(refused)), "text")
        facts.finish()
        group.close()  # together, so that every rank leaves with this exit code
        watch.close()
        return 2
    group.close()
    watch.close()
    if steps < args.steps:  # no end and no fault: the run goes on elsewhere
        facts.unknown(
            "train.rank.state",
            "text",
            f"stopped on request after step {steps} of {args.steps}, with a checkpoint",
            f"{facts.at}/rank{group.RANK}",
        )
    else:
        facts.saw("train.rank.state", "finished", "text")
    facts.saw("train.rank.steps", steps, "count")
    facts.finish()
    return 0


def train(
    args: Args,
    expected: Expected,
    facts: RankFacts,
    say: Say,
    started_s: float,
    import_s: float,
    watch: Watch,
) -> int:
    """The run between the imports and the end of the group. Returns the number of optimizer steps done."""
    require_versions()
    bf16 = group.CUDA if args.bf16 is None else args.bf16
    if args.reduce_dtype == "bfloat16" and not bf16:
        raise Refused("--reduce-dtype bfloat16 needs --bf16, which is off by default on a CPU")

    begun = time.perf_counter()
    group.record_flight(args.run_dir / "raw")
    try:
        group.start(args.start_s, tensors_on_host=args.cpu_offload)
    except arrival.Late as error:
        for late, host in error.late:
            facts.saw("train.rank.late", args.start_s, "s", f"{host or 'unknown'}/rank{late}", one_line(str(error)))
        raise
    process_group_s = time.perf_counter() - begun
    facts.saw("train.rank.device", observe.device_name(), "text")
    facts.saw("train.rank.driver_gpus", gpus.driver_count(), "count")
    begun = time.perf_counter()
    members = group.count_members()
    first_collective_s = time.perf_counter() - begun
    facts.saw("train.rank.world_size", members, "count")
    group.set_timeouts(args.timeout_s)  # all are there: from now on, who waits longer is in a hang
    if group.RANK == 0 and group.CUDA:
        nodes = group.WORLD // group.LOCAL_WORLD  # of NCCL's log, as the collectives phases name it
        facts.saw("nccl.backend", group.backend(), "text", "1-node" if nodes == 1 else f"{nodes}-nodes")
    if members != group.WORLD:
        raise Refused(
            f"expected {group.WORLD} ranks in one group, observed {members}: do all nodes get the same MASTER_ADDR "
            "and MASTER_PORT?",
            ("train.world_size", members, "count"),
        )
    group.require_average()
    hosts = group.gather(node_name())
    strategy.require_places(expected, hosts)
    args, tuning = fast.choose(args)
    resolved = results.run_args(args, expected, hosts, bf16, tuning)
    if group.RANK == 0:
        write_record(args.run_dir / "run_args.json", resolved)

    begun = time.perf_counter()
    model, rows = prepare(args, hosts, facts, say)
    load_s = time.perf_counter() - begun

    def observed() -> ObservedStrategy:
        seen = observe.observe(trainer, first_step, trainer.loss_dtype())
        strategy.require(seen, expected, resolved)
        return seen

    def around_first_step() -> None:
        seen = observed()
        if seen.recomputed_layers is not None:
            return
        group.set_timeouts(args.timeout_s)  # again: the groups of the mesh exist only now
        meter.forget_peaks()
        if group.RANK == 0:
            facts.saw("train.strategy", seen.kind, "text", "job")
            say(
                f"{seen.kind} on {members} rank(s), {len(set(hosts))} host(s), {seen.backend}; {seen.wrapper} "
                f"{' '.join(seen.placements)}; {seen.parameters_local_max} of {seen.parameters} parameters per rank"
            )

    def after_step(step: int) -> None:
        shown.after_step(step, trainer, clock)

    checkpoints = Checkpoints(args, resolved, facts, watch)
    checkpoints.find()
    stop = StopOnRequest(args.stop_file)
    clock = meter.Meter(after_step)
    clock.time_blocks(model)
    shown = live.Live(
        args.run_dir / "raw/progress.jsonl",
        args.steps,
        args.global_batch * args.sequence_length,
        say,
        live.mfu_of(model.config, args.sequence_length, resolved.compute_dtype),
    )
    finite_check = FiniteCheck()
    states = HeldStates()
    first_step = observe.FirstStep(around_first_step)
    trainer = RecipeTrainer(
        model=model,
        args=training_arguments(args, expected, hosts, bf16, fast.trainer_arguments(args, tuning)),
        train_dataset=rows,
        data_collator=torch.utils.data.default_collate,
        callbacks=[first_step, watch, clock, states, finite_check, checkpoints, stop, *fast.callbacks(tuning)],
        reduce_dtype=getattr(torch, args.reduce_dtype),
        cpu_offload=args.cpu_offload,
        checkpoints=checkpoints,
        clock=clock,
    )
    finite_check.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    group.set_timeouts(args.timeout_s)
    sent_before = transport.interface_bytes()
    heart = pulse.Pulse()
    with memory_by_part(trainer), contextlib.nullcontext() if args.recipe == "stock" else without_waits():
        checkpoints.train(trainer)
    step_times_s = clock.step_times_s()  # first: on a GPU it waits until everything is done
    shown.tell(clock)
    wall_time_s = time.perf_counter() - started_s

    checkpoints.trajectory.settle(trainer)
    if stop.step is not None and stop.step < args.steps:
        if group.RANK == 0:
            say(f"stopped on request after step {stop.step} of {args.steps}; its checkpoint is complete")
        return stop.step
    trained = observed()
    losses, grad_norms = checkpoints.trajectory.loss, checkpoints.trajectory.grad_norm
    checkpoint_times = checkpoints.times()
    own_times_s, own_steps = clock.own_times_s(), len(step_times_s)
    carried = results.transport_of(
        trained, group.gather(transport.sent_since(sent_before)), len(step_times_s)
    )  # of this run's own
    ranks = group.gather(
        results.RankResult(
            step_times_s=step_times_s,
            own_times_s=own_times_s,
            standstill=standstill.of_rank(
                heart.gaps(),
                clock.spans_s,
                own_times_s,
                first=len(losses) - own_steps + 1,
                warmup=min(args.warmup_steps, own_steps - 1),
            ),
            memory_gib=meter.rank_memory_gib(),
            states_bytes=states.total,
            startup_s=(import_s, process_group_s, first_collective_s, load_s, step_times_s[0]),
            checksum=trainer.parameter_checksum(),
            rows=checkpoints.trajectory.rows,
            padding=checkpoints.trajectory.padding,
        )
    )
    if group.RANK == 0:
        metrics = results.train_metrics(
            resolved,
            trained,
            model.config,
            ranks,
            losses,
            grad_norms,
            wall_time_s,
            carried,
            checkpoint=checkpoint_times,
            resumed=checkpoints.resumed(),
        )
        write_record(args.run_dir / "metrics.json", metrics)
        say(
            f"{metrics.tokens_per_s:.0f} tokens/s over all ranks, step p50 {metrics.step_time_s.p50 * 1000:.1f} ms, "
            f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} steps"
        )
    return len(losses)


def require_versions() -> None:
    """Refuse a torch whose FSDP2 is known to be wrong."""
    have = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if have < OLDEST_TORCH:
        raise Refused(
            f"expected torch {'.'.join(map(str, OLDEST_TORCH))} or newer, observed {torch.__version__}: older ones sum "
            "gradients instead of averaging them (2.7, 2.8) or report a wrong norm (2.9); run `make venv`"
        )


def training_arguments(
    args: Args, expected: Expected, hosts: list[str], bf16: bool, tuned: dict[str, Any]
) -> TrainingArguments:
    """Trainer's arguments. Equal in every strategy down to the line that says otherwise."""
    differs: dict[str, Any] = {"ddp_backend": group.backend()} if group.WORLD > 1 else {}
    if expected.sharded:
        differs |= sharding(args, expected, hosts)
    arguments = TrainingArguments(
        output_dir=str(args.run_dir / "checkpoints" if args.save_steps else args.run_dir),
        max_steps=args.steps,
        seed=args.seed,
        data_seed=args.seed,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        optim=results.OPTIMIZER,
        max_grad_norm=results.MAX_GRAD_NORM,
        bf16=bf16,
        use_cpu=not group.CUDA,  # without it every rank of a machine without a GPU trains alone, with exit code 0
        average_tokens_across_devices=True,
        dataloader_drop_last=True,
        dataloader_num_workers=args.dataloader_workers,
        dataloader_pin_memory=group.CUDA,
        remove_unused_columns=False,  # the row ids travel with the batch
        include_num_input_tokens_seen="no",
        save_strategy="steps" if args.save_steps else "no",
        save_steps=args.save_steps or 500,
        report_to=[],
        **tuned,
        # from here on: what a strategy changes
        per_device_train_batch_size=args.per_device_batch,
        gradient_accumulation_steps=args.gradient_accumulation,
        **recomputation(args.activation_checkpointing and not expected.sharded),
        ddp_timeout=args.timeout_s,
        **differs,
    )
    arguments.mixed_precision = (
        "bf16" if bf16 else "no"
    )  # with bf16=False it is what `accelerate launch` put into the environment
    return arguments


def recomputation(wanted: bool) -> dict[str, bool]:
    """The option without FSDP: activation_checkpointing in transformers 5.23, gradient_checkpointing in older ones."""
    names = TrainingArguments.__dataclass_fields__
    return {"activation_checkpointing" if "activation_checkpointing" in names else "gradient_checkpointing": wanted}


def sharding(args: Args, expected: Expected, hosts: list[str]) -> dict[str, Any]:
    """FSDP2: shard over all ranks; HSDP: over the ranks of a host, with a replica per host.

    transformers ignores a key it does not know, so nothing here is believed until the placements are seen.
    """
    keywords: dict[str, Any] = {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "reshard_after_forward": args.reshard_after_forward,
            "state_dict_type": "SHARDED_STATE_DICT",
            "activation_checkpointing": args.activation_checkpointing,
            "cpu_ram_efficient_loading": False,  # every rank built the same weights, and that was checked
        },
    }
    if expected.kind == "hsdp":
        per_host = {hosts.count(host) for host in hosts}
        if per_host == {1} or len(per_host) > 1:
            raise Refused(
                f"expected hsdp with the same number of ranks, 2 or more, on each host, observed {sorted(per_host)}: "
                f"{strategy.ADVICE['hsdp']}"
            )
        shards = per_host.pop()
        keywords["parallelism_config"] = accelerate.ParallelismConfig(
            dp_replicate_size=len(hosts) // shards, dp_shard_size=shards
        )
    return keywords
