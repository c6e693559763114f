"""With a device: after forget_peaks a training's peak of memory is its own, and not that of what was there before.

python validation/benchmarks/peaks.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEFORE_GIB, OWN_GIB = 1.0, 0.25


def main() -> str | None:
    """What is wrong, or None."""
    sys.path[:0] = [str(ROOT / "training/src"), str(ROOT / "infrastructure-validation/probes")]
    import torch
    from recipe import group, meter

    if not group.CUDA:
        return "peaks.py: torch sees no device, so there is no peak"
    for gib in (BEFORE_GIB, OWN_GIB):
        meter.forget_peaks()
        held = torch.empty(int(gib * 2**30), dtype=torch.uint8, device=group.DEVICE)
        del held
    peak = meter.rank_memory()
    allocated, reserved = peak.device_allocated_gib, peak.device_reserved_gib
    if not OWN_GIB <= (allocated or 0) <= (reserved or 0) < BEFORE_GIB:
        return f"peaks.py: expected a peak of {OWN_GIB} GiB, observed {allocated} allocated, {reserved} reserved"
    return None


if __name__ == "__main__":
    sys.exit(main())
