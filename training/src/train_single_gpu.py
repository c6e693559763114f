"""One GPU, one process: the reference for everything else.

What it holds          all parameters, gradients and optimizer states, and the whole global batch
What moves per step    nothing leaves the device
What it proves         data, model, optimizer and checkpoint work together; every strategy has to reproduce its loss;
                       its tokens/s are the denominator of every scaling number
Does not prove         anything about a second GPU
Launch                 sbatch training/slurm/run_1gpu.sbatch
                       python training/src/train_single_gpu.py --run-dir RUN_DIR
"""

from recipe import program
from recipe.strategy import Expected

EXPECTED = Expected("single")

if __name__ == "__main__":
    program.main(EXPECTED, __doc__)
