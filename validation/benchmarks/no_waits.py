"""Run a training program with devices; in its timed steps, torch raises an error where the host would wait for one.

    python validation/benchmarks/no_waits.py training/src/train_single_gpu.py --run-dir FOLDER --steps 22

torch.cuda.set_sync_debug_mode("error") makes the error. Only of a copy that does not block, to memory that is not
pinned, torch knows nothing: there CUDA's own call waits. It is on from the end of step FIRST to the end of the middle
step, after which the checkpoint is written: that may wait. Without a device nothing would be held: an error, too.
"""

import runpy
import sys
from pathlib import Path

FIRST = 3  # the steps before may make what is made once
ROOT = Path(__file__).resolve().parents[2]


def main(program: str) -> None:
    sys.path[:0] = [str(ROOT / "training/src"), str(ROOT / "infrastructure-validation/probes")]
    import torch
    from recipe import meter

    if not torch.cuda.is_available():
        sys.exit("no_waits.py: torch sees no device, so no step can wait for one")
    plain = meter.Meter.on_step_end

    def on_step_end(self, args, state, control, **kwargs) -> None:
        plain(self, args, state, control, **kwargs)
        timed = FIRST <= state.global_step < state.max_steps // 2
        torch.cuda.set_sync_debug_mode("error" if timed else "default")

    copy = torch.Tensor.copy_

    def copy_(self, source, non_blocking=False):
        to_host = non_blocking and source.is_cuda and not self.is_cuda
        if to_host and torch.cuda.get_sync_debug_mode() and not self.is_pinned():
            raise RuntimeError("a synchronizing copy: the memory of the host is not pinned")
        return copy(self, source, non_blocking)

    torch.Tensor.copy_ = copy_  # type: ignore[method-assign]
    meter.Meter.on_step_end = on_step_end  # type: ignore[method-assign]  # the same with a switch behind it
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    main(sys.argv[0])
