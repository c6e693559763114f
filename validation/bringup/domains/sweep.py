"""The sweep of single nodes: whose ranks came to the end, whose devices gave other bits, what `dcgmi diag` says."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from bringup.kernel.facts.fold import by_node, ended_by_slurm
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.records import Observation, Run, grouped
from bringup.readers.dcgm import DOUBTFUL

_PARTS = ("sweep_device", "seeded_step", "sustained_load", "node_sweep")


def ranks(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive sweep.ranks per node: ranks that finished every part; of the others, the last part that they finished."""
    ended = {part: by_node(observed.of(f"probe.{part}.finished")) for part in _PARTS}
    for node, begun in by_node(observed.of("sweep.gpu.device")).items():
        counts = {part: sum(1 for fact in ended[part].get(node, []) if fact.value is True) for part in _PARTS}
        short = next((f"{part}: {counts[part]} finished" for part in _PARTS if counts[part] < len(begun)), None)
        least = min(counts.values())
        by_slurm = ended_by_slurm(observed, "sweep") if least < run.gpus_per_node else None
        derived.saw("sweep.ranks", node, None if by_slurm else least, "count", begun[0].evidence, by_slurm or short)


def same_bits(derived: Parsed, observed: Seen, run: Run) -> None:
    for where in ("cpu", "gpu"):
        _same_bits(derived, observed, where, run.gpus_per_node)


def _same_bits(derived: Parsed, observed: Seen, where: str, ranks: int) -> None:
    """sweep.step.cpu and sweep.step.gpu per node: devices whose seeded step differs in any bit from its own repetition,
    or from most devices of the same kind on all nodes. Unknown if a device of the node gave no answer."""
    quantity = f"sweep.gpu.step.{where}"
    kinds = {fact.subject: str(fact.value) for fact in observed.of(f"{quantity}.kind") if fact.value is not None}
    answers = observed.by_subject(quantity)
    first = {subject: str(facts[0].value) for subject, facts in answers.items() if facts[0].value is not None}
    of_kinds = grouped((kinds[subject], answer) for subject, answer in first.items() if subject in kinds)
    common = {kind: _most(of_kind) for kind, of_kind in of_kinds.items()}
    differences: dict[str, list[str]] = defaultdict(list)
    unknown: dict[str, str] = {}
    for subject, facts in answers.items():
        node, _, device = subject.partition("/")
        missing = next((fact.why or "no answer" for fact in facts if fact.value is None), None)
        if missing is not None or subject not in kinds:
            unknown.setdefault(node, f"{device or subject}: {missing or 'its kind did not arrive'}")
            continue
        if len({str(fact.value) for fact in facts}) > 1:
            differences[node].append(f"{device} differs from itself")
            continue
        usual = common[kinds[subject]]
        if usual is None:
            differences[node].append(f"{device}: devices of its kind differ, and no majority agrees")
        elif first[subject] != usual[0]:
            differences[node].append(f"{device} differs from {usual[1]} of {usual[2]} of its kind")
    for node, facts in by_node(observed.of(quantity)).items():
        devices = {fact.subject for fact in facts}
        if len(devices) < ranks:
            unknown.setdefault(node, f"{len(devices)} of {ranks} ranks said it")
        kind = kinds.get(facts[0].subject, "")
        value = len(differences[node]) if differences[node] or node not in unknown else None
        remark = "; ".join(differences[node]) or unknown.get(node) or f"{len(devices)} of {kind}"
        derived.saw(f"sweep.step.{where}", node, value, "count", facts[0].evidence, remark)


def _most(answers: Sequence[str]) -> tuple[str, int, int] | None:
    """Return (the most common result, its count, the number of results); None if no more than half agree."""
    value, count = Counter(answers).most_common(1)[0]
    return (value, count, len(answers)) if 2 * count > len(answers) else None


_TEST = "dcgm.test."


def dcgm(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive sweep.dcgm.gpus, sweep.dcgm.failed and sweep.dcgm.doubtful per node. Unknown, with the reason, if there is
    no answer; `failed` is also unknown if no test ran."""
    counted = observed.by_subject("dcgm.gpus")
    missing = [*observed.of("dcgm.ended"), *observed.of("dcgm.answer")]
    without = {fact.subject: fact for fact in missing if fact.value is not True}
    for node, why in without.items():
        for quantity in ("gpus", "failed", "doubtful"):
            derived.saw(f"sweep.dcgm.{quantity}", node, None, "count", why.evidence, why.why)
    for node, tests in by_node(observed.under(_TEST)).items():
        if node not in without:
            _gpus(derived, node, counted.get(node, []), tests)
            _results(derived, node, tests, counted.get(node, []))


def _gpus(derived: Parsed, node: str, counted: list[Observation], tests: list[Observation]) -> None:
    if counted:
        derived.saw("sweep.dcgm.gpus", node, counted[0].value, "count", counted[0].evidence)
        return
    number = len({test.subject for test in tests if test.subject.startswith(f"{node}/gpu")})
    why = "GPUs that a test names" if number else "the answer of dcgmi names no GPU"
    derived.saw("sweep.dcgm.gpus", node, number or None, "count", tests[0].evidence, why)


def _results(derived: Parsed, node: str, tests: list[Observation], counted: list[Observation]) -> None:
    failed = [test for test in tests if test.value == "fail"]
    doubtful = [test for test in tests if test.value in ("skip", "warn", DOUBTFUL)]
    unknown = next((test for test in tests if test.value is None), None)
    where, number = tests[0].evidence, None
    if failed:
        number, why = len(failed), _words(failed)
    elif unknown is not None:
        why = f"{_name(unknown)}: {unknown.why}"
    elif (lacking := _not_of_all_gpus(tests, counted)) is not None:
        why = lacking
    elif all(test.value == "skip" for test in tests):
        why = f"DCGM skipped every test: {_words(tests)}"
    else:
        ran, kinds = sum(test.value != "skip" for test in tests), {test.quantity for test in tests}
        number, why = 0, f"{ran} results of {len(kinds)} tests"
    derived.saw("sweep.dcgm.failed", node, number, "count", where, why)
    derived.saw("sweep.dcgm.doubtful", node, len(doubtful), "count", where, _words(doubtful) if doubtful else None)


def _not_of_all_gpus(tests: list[Observation], counted: list[Observation]) -> str | None:
    """Say which test names GPUs, and fewer of them than DCGM counted."""
    count = counted[0].value if counted else None
    for test, results in grouped((test.quantity, test.subject) for test in tests if "/gpu" in test.subject).items():
        if is_number(count) and len(set(results)) < int(count):
            return f"{test.removeprefix(_TEST)} has results of {len(set(results))} of {count} GPUs"
    return None


def _name(test: Observation) -> str:
    """Name it as `gpu3: memory`."""
    device = test.device
    name = test.quantity.removeprefix(_TEST)
    return f"{device}: {name}" if device else name


def _words(tests: list[Observation]) -> str:
    remarks = (f" ({test.why})" if test.why and test.value != "skip" else "" for test in tests)
    return first_few([f"{_name(test)} {test.value}{why}" for test, why in zip(tests, remarks, strict=True)])
