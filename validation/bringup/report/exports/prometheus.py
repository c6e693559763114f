"""Gauges for node_exporter's textfile collector. validation/monitoring has alert rules and a dashboard for them.

Labels join with what others measure: `node` is Slurm's name of the node, `gpu` the GPU of the subject.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bringup.judge import Judged
from bringup.plan import subjects as naming
from bringup.records import Outcome, Verdict, time_of, variant_of, worst
from bringup.records.grouped import grouped
from bringup.report import system
from bringup.report.collection import Collection
from bringup.report.text import plain

MEASURED = frozenset({"GB/s", "TFLOP/s", "us", "s", "share", "ratio", "%", "1/s", "nats"})  # units of what was measured
_GPU = re.compile(r"/gpu(\d+)$")
Series = tuple[str, ...]


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
        if verdict.unit in MEASURED and _number(verdict.value) is not None
    }
    place = ("subject", "node", "gpu")
    lines = [
        *_gauge(
            "bringup_verdicts",
            "verdicts by phase, gate and outcome",
            ("phase", "gate", "outcome"),
            Counter((phase, verdict.gate, str(verdict.outcome)) for phase, verdict in verdicts),
        ),
        *_gauge(
            "bringup_verdict_not_passed",
            "1 for every verdict that is neither a pass nor a number without a limit",
            ("phase", "gate", *place, "outcome"),
            {
                (phase, verdict.gate, *_place(verdict), str(verdict.outcome)): 1
                for phase, verdict in verdicts
                if not verdict.outcome.is_quiet
            },
        ),
        *_gauge(
            "bringup_observed",
            "what was measured, in the unit that the label names",
            ("phase", "gate", *place, "at", "unit"),
            {series: _number(verdict.value) for series, verdict in measured.items()},
        ),
        *_gauge(
            "bringup_limit",
            "the number that it was judged against",
            ("phase", "gate", *place, "at", "unit"),
            {series: _number(verdict.limit) for series, verdict in measured.items()},
        ),
        *_trainings(latest.values()),
        *_gauge(
            "bringup_not_applicable",
            "gates that the profile leaves out",
            ("phase",),
            {(phase,): len(judged.verdicts.not_applicable) for phase, judged in latest.items()},
        ),
        *_gauge(
            "bringup_answer",
            "1 for the answer to each of the six questions",
            ("question", "answer"),
            {(str(answer.question), str(answer.mark)): 1 for answer in collection.answers},
        ),
        *_gauge(
            "bringup_phase_exit_code",
            "0 pass, 1 fail, 2 could not tell",
            ("phase",),
            {(phase,): worst(outcomes_of_phase).exit_code for phase, outcomes_of_phase in outcomes.items()},
        ),
        *_gauge(
            "bringup_phase_opened_timestamp_seconds",
            "when the latest run was opened, unix time",
            ("phase",),
            {(phase,): time_of(run.run.opened_at).timestamp() for phase, run in latest.items()},
        ),
        *_gauge(
            "bringup_run_info",
            "1 for the latest run of a phase",
            ("phase", "run", "cluster", "profile", "commit", "slurm_job_id"),
            {_info(judged, cluster): 1 for judged in latest.values()},
        ),
    ]
    return "\n".join(lines) + "\n"


def _trainings(runs: Iterable[Judged]) -> list[str]:
    """Return metrics of trainings whose evidence holds. Another model, number of ranks, batch or variant is another
    series: an alert must not fire because somebody chose other options."""
    labels = ("phase", "strategy", "model", "ranks", "batch", "length", "variant")
    known = {
        (
            run.run.phase,
            metrics.observed.kind,
            metrics.model,
            str(metrics.world_size),
            str(args.global_batch),
            str(args.sequence_length),
            variant_of(args, metrics.observed),
        ): metrics
        for run in runs
        if run.training is not None and run.objection is None
        for args, metrics in ((run.training.args, run.training.metrics),)
    }
    steps: dict[Series, float | None] = {
        (*series, name): value
        for series, metrics in known.items()
        for name, value in (("50", metrics.step_time_s.p50), ("95", metrics.step_time_s.p95))
    }
    return [
        *_gauge(
            "bringup_train_tokens_per_second",
            "all ranks, steady window",
            labels,
            {series: metrics.tokens_per_s for series, metrics in known.items()},
        ),
        *_gauge("bringup_train_step_seconds", "time of a step, steady window", (*labels, "percentile"), steps),
        *_gauge(
            "bringup_train_mfu_ratio",
            "share of the peak FLOP/s; absent where the peak is not known",
            labels,
            {series: metrics.mfu for series, metrics in known.items()},
        ),
    ]


def _info(judged: Judged, cluster: str) -> Series:
    run = judged.run
    commit = (run.git_commit or "")[:12]
    return run.phase, run.name, cluster, judged.verdicts.profile, commit, run.slurm_job_id or ""


def _place(verdict: Verdict) -> Series:
    """subject, node, gpu. A pair, a scale and the job have no node."""
    named = naming.nodes_of(verdict.subject)
    of_a_node = len(named) == 1 and verdict.subject != naming.JOB and naming.nodes_of_scale(verdict.subject) is None
    gpu = _GPU.search(verdict.subject)
    return verdict.subject, named[0] if of_a_node else "", gpu[1] if gpu else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _gauge(name: str, says: str, labels: Sequence[str], samples: Mapping[Series, float | None]) -> list[str]:
    lines = [f"# HELP {name} {says}", f"# TYPE {name} gauge"]
    for values, number in samples.items():
        if number is not None:
            series = ",".join(f'{label}="{_label(value)}"' for label, value in zip(labels, values, strict=True))
            lines.append(f"{name}{{{series}}} {number:.15g}")
    return lines


def _label(text: str) -> str:
    return plain(text).replace("\\", r"\\").replace('"', r"\"")
