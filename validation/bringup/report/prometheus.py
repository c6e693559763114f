"""Gauges for node_exporter's textfile collector. validation/monitoring has alert rules and a dashboard for them.

Labels join with what others measure: `node` is Slurm's name of the node, `gpu` the GPU of the subject.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bringup.evidence.parsed import is_number
from bringup.judge import Judged
from bringup.plan import subjects as naming
from bringup.records import Outcome, TrainMetrics, Verdict, time_of, variant_of, worst
from bringup.records.grouped import grouped
from bringup.report import system
from bringup.report.collection import Collection
from bringup.report.text import plain

MEASURED = frozenset({"GB/s", "TFLOP/s", "us", "s", "share", "ratio", "%", "1/s", "nats"})  # units of what was measured
_GPU = re.compile(r"/gpu(\d+)$")
Series = tuple[str, ...]
Samples = Mapping[Series, object]  # what is no number is left out

_WORKLOAD = "phase strategy model ranks batch length variant"
GAUGES = {  # what it says, labels
    "verdicts": ("verdicts by phase, gate and outcome", "phase gate outcome"),
    "verdict_not_passed": (
        "1 for every verdict that is neither a pass nor a number without a limit",
        "phase gate subject node gpu outcome",
    ),
    "observed": ("what was measured, in the unit that the label names", "phase gate subject node gpu at unit"),
    "limit": ("the number that it was judged against", "phase gate subject node gpu at unit"),
    "train_tokens_per_second": ("all ranks, steady window", _WORKLOAD),
    "train_step_seconds": ("time of a step, steady window", f"{_WORKLOAD} percentile"),
    "train_mfu_ratio": ("share of the peak FLOP/s; absent where the peak is not known", _WORKLOAD),
    "not_applicable": ("gates that the profile leaves out", "phase"),
    "answer": ("1 for the answer to each of the six questions", "question answer"),
    "phase_exit_code": ("0 pass, 1 fail, 2 could not tell", "phase"),
    "phase_opened_timestamp_seconds": ("when the latest run was opened, unix time", "phase"),
    "run_info": ("1 for the latest run of a phase", "phase run cluster profile commit slurm_job_id"),
}


def prometheus(collection: Collection) -> str:
    """Write no metric twice: node_exporter would refuse the file. Of several runs of a phase the last one counts.

    Per gate: a count for each outcome. Per verdict: only what is not a pass, and what was measured.
    """
    verdicts = [(judged.run.phase, verdict) for judged in collection.judged for verdict in judged.verdicts.verdicts]
    latest = {judged.run.phase: judged for judged in sorted(collection.judged, key=lambda judged: judged.run.opened_at)}
    outcomes = grouped((judged.run.phase, judged.verdicts.outcome) for judged in collection.judged)
    for absent in collection.absent:
        outcomes.setdefault(absent.phase, []).append(Outcome.INCOMPLETE)
    cluster = system.cluster_name(collection.judged) or ""
    measured = {
        (judged.run.phase, verdict.gate, *_place(verdict), verdict.at or "", verdict.unit): verdict
        for judged in latest.values()
        for verdict in judged.verdicts.verdicts
        if verdict.unit in MEASURED and is_number(verdict.value)
    }
    info: dict[Series, int] = {}
    for phase, judged in latest.items():
        commit, job = (judged.run.git_commit or "")[:12], judged.run.slurm_job_id or ""
        info[phase, judged.run.name, cluster, judged.verdicts.profile, commit, job] = 1
    samples: dict[str, Samples] = {
        "verdicts": Counter((phase, verdict.gate, str(verdict.outcome)) for phase, verdict in verdicts),
        "verdict_not_passed": {
            (phase, verdict.gate, *_place(verdict), str(verdict.outcome)): 1
            for phase, verdict in verdicts
            if not verdict.outcome.is_quiet
        },
        "observed": {series: verdict.value for series, verdict in measured.items()},
        "limit": {series: verdict.limit for series, verdict in measured.items()},
        **_of_trainings(latest.values()),
        "not_applicable": {(phase,): len(judged.verdicts.not_applicable) for phase, judged in latest.items()},
        "answer": {(str(answer.question), str(answer.mark)): 1 for answer in collection.answers},
        "phase_exit_code": {(phase,): worst(of_phase).exit_code for phase, of_phase in outcomes.items()},
        "phase_opened_timestamp_seconds": {
            (phase,): time_of(judged.run.opened_at).timestamp() for phase, judged in latest.items()
        },
        "run_info": info,
    }
    return "".join(
        f"{line}\n" for name, (says, labels) in GAUGES.items() for line in _gauge(name, says, labels, samples[name])
    )


def _of_trainings(runs: Iterable[Judged]) -> dict[str, Samples]:
    """Return samples of trainings whose evidence holds. Another model, number of ranks, batch or variant is another
    series: an alert must not fire because somebody chose other options."""
    known: dict[Series, TrainMetrics] = {}
    for run in runs:
        if run.training is not None and run.objection is None:
            args, metrics = run.training.args, run.training.metrics
            workload = (str(metrics.world_size), str(args.global_batch), str(args.sequence_length))
            variant = variant_of(args, metrics.observed)
            known[(run.run.phase, metrics.observed.kind, metrics.model, *workload, variant)] = metrics
    times = {
        series: {"50": metrics.step_time_s.p50, "95": metrics.step_time_s.p95} for series, metrics in known.items()
    }
    return {
        "train_tokens_per_second": {series: metrics.tokens_per_s for series, metrics in known.items()},
        "train_step_seconds": {(*series, name): s for series, of_run in times.items() for name, s in of_run.items()},
        "train_mfu_ratio": {series: metrics.mfu for series, metrics in known.items()},
    }


def _place(verdict: Verdict) -> Series:
    """subject, node, gpu. A pair, a scale and the job have no node."""
    named = naming.nodes_of(verdict.subject)
    of_a_node = len(named) == 1 and verdict.subject != naming.JOB and naming.nodes_of_scale(verdict.subject) is None
    gpu = _GPU.search(verdict.subject)
    return verdict.subject, named[0] if of_a_node else "", gpu[1] if gpu else ""


def _gauge(name: str, says: str, labels: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP bringup_{name} {says}"
    yield f"# TYPE bringup_{name} gauge"
    for values, number in samples.items():
        if is_number(number):
            series = ",".join(f'{key}="{_label(value)}"' for key, value in zip(labels.split(), values, strict=True))
            yield f"bringup_{name}{{{series}}} {number:.15g}"


def _label(text: str) -> str:
    return plain(text).replace("\\", r"\\").replace('"', r"\"")
