"""Every record that goes to disk, and the only code that reads or writes them.

Strict on read: an unknown field, a missing field, NaN, a wrong type or version is a RecordError that names file and
field. Written once: a part file, then a link that fails when the name is taken. Only derived files may be replaced.
Observers (training) and the judge share this package and nothing else. Units are in the names; GB is 10^9, GiB is 2^30.

base: what a record is, reading, writing · run: a run and its verdicts · training: run_args, metrics, checkpoint · drill
· advice
"""

from bringup.records.advice import Advice, PredictedStrategy
from bringup.records.base import (
    SCHEMA_VERSION,
    Limit,
    NonNegative,
    Outcome,
    Record,
    Value,
    Versioned,
    as_json,
    read_record,
    worst,
    write_record,
    write_text,
)
from bringup.records.drill import DrillReport, DrillResult, HealthyRound
from bringup.records.run import (
    Answer,
    ClaimAnswer,
    Closed,
    Continued,
    Kind,
    Mark,
    NotApplicable,
    Observation,
    Observations,
    Playbook,
    Run,
    Sign,
    Step,
    Verdict,
    Verdicts,
)
from bringup.records.training import (
    Checkpoint,
    CheckpointFile,
    CheckpointTimes,
    Memory,
    MemoryCheck,
    ObservedStrategy,
    RankTimes,
    Resumed,
    RunArgs,
    Startup,
    StepTime,
    Straggler,
    TrainMetrics,
    Tuning,
)

__all__ = [
    "SCHEMA_VERSION",
    "Advice",
    "Answer",
    "Checkpoint",
    "CheckpointFile",
    "CheckpointTimes",
    "ClaimAnswer",
    "Closed",
    "Continued",
    "DrillReport",
    "DrillResult",
    "HealthyRound",
    "Kind",
    "Limit",
    "Mark",
    "Memory",
    "MemoryCheck",
    "NonNegative",
    "NotApplicable",
    "Observation",
    "Observations",
    "ObservedStrategy",
    "Outcome",
    "Playbook",
    "PredictedStrategy",
    "RankTimes",
    "Record",
    "Resumed",
    "Run",
    "RunArgs",
    "Sign",
    "Startup",
    "Step",
    "StepTime",
    "Straggler",
    "TrainMetrics",
    "Tuning",
    "Value",
    "Verdict",
    "Verdicts",
    "Versioned",
    "as_json",
    "read_record",
    "worst",
    "write_record",
    "write_text",
]
