"""JUnit XML, for CI systems."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree as xml

from bringup.characters import for_xml
from bringup.judge import Judged
from bringup.records import Mark, Outcome
from bringup.report.collection import Collection
from bringup.report.text import headline, plain, remedy, scope, sentence


def junit(collection: Collection) -> str:
    """Write one suite per run, one case per verdict. fail: failure; incomplete: error (we could not tell); not
    applicable: skipped.

    A warning passes, with its words in system-out. The elements are those that Jenkins' and GitLab's readers share.
    """
    suites = xml.Element("testsuites", name="bringup")
    for judged in collection.judged:
        suites.append(_suite(judged))
    if collection.absent:
        suite = xml.SubElement(
            suites,
            "testsuite",
            name="not run",
            tests=str(len(collection.absent)),
            errors=str(len(collection.absent)),
            failures="0",
            skipped="0",
        )
        for absent in collection.absent:
            _problem(_case(suite, absent.phase, "the phase"), "error", absent.why)
    suites.append(_answers(collection))
    for count in ("tests", "failures", "errors"):  # the schema of Jenkins knows no skipped here
        suites.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    xml.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suites, encoding="unicode") + "\n"


def _answers(collection: Collection) -> xml.Element:
    """Write a case per claim of the six questions. What was not asked, or only rehearsed, is skipped and not passed."""
    claims = [(answer, claim) for answer in collection.answers for claim in answer.claims]
    counts = Counter(claim.mark for _, claim in claims)
    open_ends = (Mark.REHEARSED, Mark.PARTLY, Mark.NOT_ASKED)
    suite = xml.Element(
        "testsuite",
        name="the six questions",
        tests=str(len(claims)),
        failures=str(counts[Mark.FAIL]),
        errors=str(counts[Mark.INCOMPLETE]),
        skipped=str(sum(counts[mark] for mark in open_ends)),
    )
    properties = xml.SubElement(suite, "properties")
    for name, value in (
        ("bringup.headline", headline(collection.headline)),
        ("bringup.decision", f"{collection.headline.decision}: {collection.headline.because}"),
    ):
        xml.SubElement(properties, "property", name=name, value=_text(value))
    for answer, claim in claims:
        case = _case(suite, f"question {answer.question}", claim.says)
        if claim.mark is Mark.FAIL:
            _problem(case, "failure", scope(claim))
        elif claim.mark is Mark.INCOMPLETE:
            _problem(case, "error", scope(claim))
        elif claim.mark in open_ends:
            xml.SubElement(case, "skipped", message=_text(f"{claim.mark}: {scope(claim)}"))
        else:
            xml.SubElement(case, "system-out").text = _text(scope(claim))
    return suite


def _suite(judged: Judged) -> xml.Element:
    counts = Counter(verdict.outcome for verdict in judged.verdicts.verdicts)
    skipped = judged.verdicts.not_applicable
    suite = xml.Element(
        "testsuite",
        name=_text(f"{judged.run.phase} {judged.run.name}"),
        timestamp=judged.run.opened_at.rstrip("Z"),
        tests=str(counts.total() + len(skipped)),
        failures=str(counts[Outcome.FAIL]),
        errors=str(counts[Outcome.INCOMPLETE]),
        skipped=str(len(skipped)),
    )
    for verdict in judged.verdicts.verdicts:
        case = _case(suite, _group(judged, verdict.gate), verdict.subject)
        if verdict.outcome is Outcome.FAIL:
            _problem(case, "failure", sentence(verdict), f"{verdict.evidence}; {remedy(verdict)}")
        elif verdict.outcome is Outcome.INCOMPLETE:
            _problem(case, "error", sentence(verdict), f"{verdict.evidence}; {remedy(verdict)}")
        elif verdict.outcome is Outcome.NO_LIMIT:
            xml.SubElement(case, "system-out").text = _text(f"without a limit: {sentence(verdict)}")
        elif verdict.outcome is Outcome.WARN:
            xml.SubElement(case, "system-out").text = _text(f"warning: {sentence(verdict)}; {remedy(verdict)}")
    for entry in skipped:
        xml.SubElement(
            _case(suite, _group(judged, entry.gate), "not applicable"), "skipped", message=_text(entry.reason)
        )
    return suite


def _group(judged: Judged, gate: str) -> str:
    """Group cases as CI systems do: phase, then gate. Gates of discovery and smoke begin with their phase."""
    return gate if gate.startswith(f"{judged.run.phase}.") else f"{judged.run.phase}.{gate}"


def _case(suite: xml.Element, group: str, name: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=_text(group), name=_text(name))


def _problem(case: xml.Element, kind: str, message: str, more: str = "") -> None:
    xml.SubElement(case, kind, message=_text(message), type=kind).text = _text(more) or None


def _text(text: str) -> str:
    return for_xml(plain(text))
