"""One GPU, one process: the reference for everything else.

What it holds          all parameters, gradients and optimizer states, and the whole global batch
What moves per step    nothing leaves the device
What it proves         data, model, optimizer and checkpoint work together; every strategy has to reproduce its loss;
                       its tokens/s are the denominator of every scaling number
Does not prove         anything about a second GPU
Launch                 sbatch training/slurm/run_1gpu.sbatch
                       python training/src/train_single_gpu.py --run-dir RUN_DIR
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recipe import program
from recipe.strategy import Expected

if TYPE_CHECKING:
    from recipe.workload import Run

# What must be observed, or the program refuses: one rank, and a model that nothing wraps and whose parameters are
# whole.
EXPECTED = Expected("single")


def train(run: Run) -> int:
    """Train on one rank. Returns the optimizer steps done."""
    # here: torch and transformers take seconds, and --help and --check need neither
    from recipe.workload import RecipeTrainer
    from transformers import TrainingArguments

    # 1. The ranks join one process group, are counted in it, and say on which host they are. Two ranks: refused.
    run.meet()
    args = run.args

    # 2. The model, in float32 from one seed on every rank: nothing broadcasts it, so its values are compared over the
    #    ranks. And rows of tokens, packed full: this rank reads all of them.
    model, rows = run.prepare()

    # 3. The strategy: none. Trainer moves the model to the GPU and calls it as it is.
    trainer = RecipeTrainer(
        run,
        model=model,
        train_dataset=rows,
        args=TrainingArguments(
            **run.common_arguments(),  # steps, seed, AdamW, a constant rate, clipping, loader: recipe/workload.py
            # autocast: products in bfloat16, everything else and the weights in float32
            bf16=run.bf16,
            # one step = accumulation x rows at once; gradients of the micro-steps are summed in place
            per_device_train_batch_size=args.per_device_batch,
            gradient_accumulation_steps=args.gradient_accumulation,
            # recomputed in the backward pass, block by block: a third more work, activations of one block at a time
            activation_checkpointing=args.activation_checkpointing,
        ),
    )

    # 4. Trained. Before the first step, after it and at the end the model is looked at: nothing wraps it, one rank.
    #    Written: raw/rank<R>.jsonl while it runs, run_args.json and, when all steps are done, metrics.json.
    return run.train(trainer)


if __name__ == "__main__":
    program.main(train, __doc__, EXPECTED)
