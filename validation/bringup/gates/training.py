"""Gates of phases 4 to 6: training. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fixed, FromProfile, Gate, Requested
from bringup.phases import PHASES
from bringup.records import Outcome

_ALL = tuple(phase.stem for phase in PHASES.values() if phase.is_training)
_PARALLEL = tuple(stem for stem in _ALL if PHASES[stem].strategy != "single")
_SHARDED = tuple(stem for stem in _ALL if PHASES[stem].strategy in ("fsdp", "hsdp"))
_ACROSS = tuple(stem for stem in _ALL if PHASES[stem].min_nodes > 1)
_REPLICATED = tuple(stem for stem in _ALL if PHASES[stem].strategy in ("ddp", "hsdp"))
_ONE = "docs/03-training-single-node.md#"
_DDP = "docs/04-training-ddp-design.md#"
_FSDP = "docs/05-training-fsdp-design.md#"

TRAINING = (
    Gate(id="train.exit_code", phases=_ALL, question=5, per="job",
         proves="the training step ended by itself, without an error",
         quantity="run.exit_code", unit="count", rule="equals", expect=Fixed(0), fix=_ONE + "exit-code"),
    Gate(id="train.rank.finished", phases=_ALL, question=6, per="rank",
         proves="the rank trained to the end, on the node it was planned for",
         quantity="train.rank.state", unit="text", rule="equals", expect=Fixed("finished"), fix=_DDP + "rank-finished"),
    Gate(id="train.world_size", phases=_ALL, question=5, per="job",
         proves="that many ranks trained together (counted inside the process group)",
         quantity="train.world_size", unit="count", rule="equals", expect=Requested("world_size"), fix=_DDP + "world-size"),
    Gate(id="train.transport", phases=_ACROSS, question=5, per="job", min_nodes=2,
         proves="training's own bytes between nodes went over the interconnect that the profile names",
         quantity="train.transport", unit="text", rule="one_of", expect=FromProfile(), needs=("train.world_size",),
         stops=(), fix=_DDP + "transport"),  # slow is not wrong
    Gate(id="train.strategy", phases=_ALL, question=5, per="job",
         proves="what trained is what the name says, read from the model",
         quantity="train.strategy.kind", unit="text", rule="equals", expect=Requested("strategy"), fix=_FSDP + "strategy"),
    Gate(id="train.variant", phases=_ALL, question=5, per="job",
         proves="resharding, data types, offload and recomputation are those that were asked for, read from the model and a step",
         quantity="train.variant.differences", unit="count", rule="equals", expect=Fixed(0), needs=("train.strategy",),
         fix=_FSDP + "variant"),
    Gate(id="train.loss.fell", phases=_ALL, question=5, per="job",
         proves="the loss fell",
         quantity="train.loss.drop", unit="nats", rule="at_least", expect=FromProfile(), needs=("train.exit_code",),
         fix=_ONE + "loss"),
    Gate(id="train.samples.repeated", phases=_ALL, question=5, per="job",
         proves="no two ranks trained on the same row",
         quantity="train.samples.repeated", unit="count", rule="equals", expect=Fixed(0), fix=_DDP + "samples"),
    Gate(id="train.checkpoint.intact", phases=_ALL, question=5, per="rank",
         proves="what the rank wrote into a checkpoint reads back as it was written",
         quantity="train.checkpoint.damaged", unit="count", rule="equals", expect=Fixed(0), fix=_ONE + "checkpoint-intact"),
    Gate(id="train.checkpoint.resumable", phases=_ALL, question=5, per="rank",
         proves="parameters, optimizer and random state came back from a checkpoint bit for bit",
         quantity="train.checkpoint.differing", unit="count", rule="equals", expect=Fixed(0),
         needs=("train.checkpoint.intact",), fix=_ONE + "checkpoint-resumable"),
    Gate(id="train.loss.agrees", phases=_PARALLEL, question=5, per="job",
         proves="the loss of every step agrees with the one-GPU run of the same recipe",
         quantity="train.loss.reference_gap", unit="nats", rule="at_most", expect=FromProfile(),
         needs=("train.strategy",), fix=_DDP + "loss-agrees"),
    Gate(id="train.grad_norm.agrees", phases=_PARALLEL, question=5, per="job",
         proves="the gradient norm of every step agrees with the one-GPU run: a wrong scale that Adam and clipping hide",
         quantity="train.grad_norm.reference_gap", unit="ratio", rule="at_most", expect=FromProfile(),
         needs=("train.strategy",), fix=_DDP + "gradient-norm-agrees"),
    Gate(id="train.scaling", phases=_PARALLEL, question=5, per="job",
         proves="tokens/s per rank stay near those of the one-GPU run",
         quantity="train.scaling.efficiency", unit="share", rule="at_least", expect=FromProfile(),
         needs=("train.world_size", "train.strategy"), stops=(), fix=_DDP + "scaling"),  # slow is not wrong
    Gate(id="train.straggler", phases=_PARALLEL, question=6, per="rank",
         proves="the rank's own work, in which it waits for nobody, takes no longer than that of its peers",
         quantity="train.rank.slowdown", unit="ratio", rule="at_most", expect=FromProfile(), stops=(), fix=_DDP + "straggler"),
    Gate(id="train.replicas.difference", phases=_REPLICATED, question=5, per="job",
         proves="the replicas hold the same parameters at the end",
         quantity="train.replicas.difference", unit="sum", rule="equals", expect=Fixed(0.0), fix=_DDP + "replicas"),
    Gate(id="train.shard.size", phases=_SHARDED, question=5, per="job",
         proves="no rank holds more of the parameters than its share",
         quantity="train.shard.excess", unit="ratio", rule="at_most", expect=FromProfile(),
         needs=("train.strategy",), fix=_FSDP + "shard-size"),
    Gate(id="train.memory.states", phases=_ALL, question=5, per="job",
         proves="parameters, gradients and optimizer take the memory that was predicted for this strategy",
         quantity="train.memory.states", unit="ratio", rule="between", expect=Fixed([0.85, 1.15]), fix=_FSDP + "memory-states"),
    Gate(id="train.memory.peak", phases=_ALL, question=5, per="job",
         proves="PyTorch's peak of device memory is the predicted one",
         quantity="train.memory.peak", unit="ratio", rule="between", expect=Fixed([0.85, 1.15]), severity=Outcome.WARN,
         needs=("train.memory.states",), fix=_FSDP + "memory-peak"),
    Gate(id="train.shard.inside_node", phases=("run_hsdp_2node",), question=5, per="job",
         proves="every shard group sits inside one host",
         quantity="train.shard.groups_across_hosts", unit="count", rule="equals", expect=Fixed(0),
         needs=("train.strategy",), fix="docs/05-training-fsdp-multiple-node.md#inside-node"),
)
