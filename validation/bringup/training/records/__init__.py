"""Records of a training. The training programs write them, the judge reads them.

training: arguments, metrics, checkpoints · summary: the head of the metrics · advice: what is computed before.
"""

from bringup.training.records.advice import *
from bringup.training.records.summary import *
from bringup.training.records.training import *
