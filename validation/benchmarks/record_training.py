"""Record tests/fixtures/training anew: the records of real trainings of the tiny model, one of each phase.

After a change of RunArgs or TrainMetrics, in a minute or two:

    PYTHONPATH=tests python validation/benchmarks/record_training.py
"""

import shutil
import sys
import tempfile
from pathlib import Path

from real_trainings import SOURCE, Finished, launch, one_node, two_nodes

RECORDS = Path(__file__).resolve().parents[2] / "tests/fixtures/training"
WORKLOAD = ("--steps", "12", "--global-batch", "64")


def runs(folder: Path) -> dict[str, Finished]:
    def multi(name: str, entrypoint: str, *options: str) -> Finished:
        return two_nodes(folder / name, 2, entrypoint, *WORKLOAD, *options)

    return {
        "run_1gpu": launch(folder / "1", [[sys.executable, str(SOURCE / "train_single_gpu.py"), *WORKLOAD]]),
        "run_ddp_1node": one_node(folder / "2", "train_ddp_single_node", *WORKLOAD),
        "run_ddp_2node": multi("3", "train_ddp_multi_node"),
        "run_fsdp_1node": one_node(folder / "4", "train_fsdp_single_node", *WORKLOAD),
        "run_fsdp_2node": multi("5", "train_fsdp_multi_node"),
        "run_hsdp_2node": multi("6", "train_fsdp_multi_node", "--hsdp"),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for stem, run in runs(Path(scratch)).items():
            if set(run.codes) != {0}:
                sys.exit(f"{stem} ended with {run.codes}: {run.output[-2000:]}")
            for file in ("run_args.json", "metrics.json"):
                shutil.copyfile(run.folder / file, RECORDS / stem / file)
            print(f"{stem}: {run.seconds:.0f} s")
