"""transformers' Trainer with two additions: FSDP2 on a CPU, and the results and rows of each step.

It is a Trainer because people train with it, so its behaviour is the one to prove. It adds about a millisecond of
Python per step to a bare loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from transformers import Trainer

from recipe import group, strategy, weights

if TYPE_CHECKING:
    from recipe.workload import Run


class RecipeTrainer(Trainer):
    """Adds the loss, gradient norm and rows of every step to the run's trajectory."""

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
        # one copy of the gradients under DDP: its buckets (workload.Run keeps them there)
        self.accelerator.ddp_handler.gradient_as_bucket_view = True

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        """Refuse what has no weights yet and will not be sharded: FSDP did not reach Trainer, or was lost there."""
        if weights.on_meta(model):
            kind = "ddp" if group.WORLD > 1 else "single"
            raise strategy.other_kind(
                self.run.expected,
                kind,
                f"{self.accelerator.distributed_type.name}, {type(model).__name__}, {strategy.PLAIN}, no weights yet",
            )
        super()._move_model_to_device(model, device)

    def create_optimizer(self, model: Any = None) -> Any:
        """Give parameters on the meta device a number in the place of an address, by which accelerate finds their
        shards."""
        for number, parameter in enumerate(self.model.parameters(), start=1):
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
