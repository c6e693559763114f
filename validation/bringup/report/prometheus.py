"""Gauges for node_exporter's textfile collector. validation/monitoring has alert rules and a dashboard for them.

Labels join with what others measure: `node` is Slurm's name of the node, `gpu` the GPU of the subject.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import subjects as naming
from bringup.kernel.records import Outcome, Verdict, grouped, known, time_of, worst
from bringup.report import system
from bringup.report.collection import Collection
from bringup.report.text import plain
from bringup.training.records import TrainMetrics, variant_of
from bringup.training.records.folder import records_of

MEASURED = frozenset({"GB/s", "TFLOP/s", "us", "s", "share", "ratio", "%", "1/s", "nats"})  # units of what was measured
_GPU = re.compile(r"/gpu(\d+)$")
Series = tuple[str, ...]
Samples = Mapping[Series, object]  # what is no number is left out

GAUGES = known("gauges", dict[str, dict[str, str]])


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
        "run_info": {(phase, *_info(judged, cluster)): 1 for phase, judged in latest.items()},
    }
    return "".join(line for name, gauge in GAUGES.items() for line in _gauge(name, **gauge, samples=samples[name]))


def _of_trainings(runs: Iterable[Judged]) -> dict[str, Samples]:
    """Return samples of trainings whose evidence holds. Another model, number of ranks, batch or variant is another
    series: an alert must not fire because somebody chose other options."""
    known: dict[Series, TrainMetrics] = {}
    for run in runs:
        if (records := records_of(run)) is not None and run.objection is None:
            args, metrics = records.args, records.metrics
            workload = (str(metrics.world_size), str(args.global_batch), str(args.sequence_length))
            variant = variant_of(args, metrics.observed)
            known[(run.run.phase, metrics.observed.kind, metrics.model, *workload, variant)] = metrics
    times = {series: {"50": each.step_time_s.p50, "95": each.step_time_s.p95} for series, each in known.items()}
    return {
        "train_tokens_per_second": {series: metrics.tokens_per_s for series, metrics in known.items()},
        "train_step_seconds": {(*series, name): s for series, of_run in times.items() for name, s in of_run.items()},
        "train_mfu_ratio": {series: metrics.mfu for series, metrics in known.items()},
    }


def _info(judged: Judged, cluster: str) -> Series:
    run = judged.run
    return run.name, cluster, judged.verdicts.profile, (run.git_commit or "")[:12], run.slurm_job_id or ""


def _place(verdict: Verdict) -> Series:
    """subject, node, gpu. A pair, a scale and the job have no node."""
    named = naming.nodes_of(verdict.subject)
    of_a_node = len(named) == 1 and verdict.subject != naming.JOB and naming.nodes_of_scale(verdict.subject) is None
    gpu = _GPU.search(verdict.subject)
    return verdict.subject, named[0] if of_a_node else "", gpu[1] if gpu else ""


def _gauge(name: str, says: str, labels: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP bringup_{name} {says}\n# TYPE bringup_{name} gauge\n"
    for values, number in samples.items():
        if is_number(number):
            series = ",".join(f'{key}="{_label(value)}"' for key, value in zip(labels.split(), values, strict=True))
            yield f"bringup_{name}{{{series}}} {number:.15g}\n"


def _label(text: str) -> str:
    return plain(text).replace("\\", r"\\").replace('"', r"\"")
