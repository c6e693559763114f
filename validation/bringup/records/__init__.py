"""Every record that goes to disk, and the only code that reads or writes them.

Strict on read: an unknown field, a missing field, NaN, a wrong type or version is a RecordError that names file and
field. Written once: a part file, then a link that fails when the name is taken. Only derived files may be replaced.
Observers (training) and the judge share this package and nothing else. Units are in the names; GB is 10^9, GiB is 2^30.

base: what a record is, reading, writing · run: a run, its verdicts, playbook, sweep, drills · training · summary: the
head of its metrics · daily · limits · preflight
"""

from bringup.records.base import (
    SCHEMA_VERSION,
    Limit,
    NonNegative,
    Outcome,
    Record,
    StrEnum,
    Value,
    Versioned,
    as_json,
    read_record,
    time_of,
    worst,
    write_record,
    write_text,
)
from bringup.records.daily import Asked, Baseline, Certificate, Certified, Condition, Group, Machine
from bringup.records.limits import CheckerAnswer, CheckerReport, CheckerRow, FaultLimit, LimitsReport, LimitTrial
from bringup.records.preflight import Preflight, PreflightAttempt, PreflightLook
from bringup.records.run import (
    Action,
    Answer,
    ClaimAnswer,
    Closed,
    Continued,
    Decision,
    DrillReport,
    DrillResult,
    Headline,
    HealthyRound,
    Kind,
    LeftOut,
    Mark,
    Measured,
    NotApplicable,
    Observation,
    Observations,
    Playbook,
    Run,
    Sign,
    SiteUsed,
    Step,
    Sweep,
    SweepRow,
    SweepRun,
    Verdict,
    Verdicts,
)
from bringup.records.summary import (
    REFERENCE_ARGS,
    REFERENCE_METRICS,
    Summary,
    differing_fields,
    scaling,
    scaling_against,
    summary_of,
    variant_of,
)
from bringup.records.training import (
    Advice,
    Attention,
    Blocks,
    Checkpoint,
    CheckpointFile,
    CheckpointRoom,
    CheckpointTimes,
    CollectiveTime,
    Communication,
    Environment,
    KernelClasses,
    Memory,
    MemoryCheck,
    ModelShape,
    ObservedStrategy,
    PredictedStrategy,
    RankTimes,
    Resumed,
    RunArgs,
    SaveInterval,
    Standstill,
    Startup,
    StepTime,
    Straggler,
    Tensor,
    TrainMetrics,
    Tuning,
    elements,
)
