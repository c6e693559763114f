"""What is the same in all training programs: arguments, data, measurements, checkpoints, records."""

import sys
from pathlib import Path

TRAINING = Path(__file__).resolve().parents[2]
GIB = 2**30
# the probes folder is not a package (its files run on any Python): found by its place
sys.path.append(str(TRAINING.parent / "infrastructure-validation" / "probes"))
