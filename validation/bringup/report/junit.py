"""JUnit XML, for CI systems."""

from xml.etree import ElementTree as xml

from bringup.kernel.characters import for_xml
from bringup.kernel.judge import Judged
from bringup.kernel.records import Outcome
from bringup.report.collection import Collection
from bringup.report.text import headline, plain, remedy, scope, sentence

_KINDS = {"fail": "failure", "incomplete": "error", "rehearsed": "skipped", "partly": "skipped", "not asked": "skipped"}
"""Outcome or mark -> the element; of others system-out, which passes."""


def junit(collection: Collection) -> str:
    """Write one suite per run, one case per verdict. fail: failure; incomplete: error (we could not tell); not
    applicable: skipped.

    A warning passes, with its words in system-out. The elements are those that Jenkins' and GitLab's readers share.
    """
    suites = xml.Element("testsuites", name="bringup")
    for judged in collection.judged:
        _add_run(suites, judged)
    if collection.absent:
        suite = xml.SubElement(suites, "testsuite", name="not run")
        for absent in collection.absent:
            _add(suite, absent.phase, "the phase", "error", absent.why)
    _add_answers(suites, collection)
    for suite in suites:
        counted = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
        for count, path in (counted | {"skipped": "testcase/skipped"}).items():
            suite.set(count, str(len(suite.findall(path))))
    for count in ("tests", "failures", "errors"):  # the schema of Jenkins knows no skipped here
        suites.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    xml.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suites, encoding="unicode") + "\n"


def _add_run(suites: xml.Element, judged: Judged) -> None:
    name, begun = _text(f"{judged.run.phase} {judged.run.name}"), judged.run.opened_at.rstrip("Z")
    suite = xml.SubElement(suites, "testsuite", name=name, timestamp=begun)
    for verdict in judged.verdicts.verdicts:
        kind = _KINDS.get(verdict.outcome, "system-out")
        says, more = sentence(verdict), f"{verdict.evidence}; {remedy(verdict)}"
        warned = f"warning: {says}; {remedy(verdict)}"
        quiet = {Outcome.PASS: "", Outcome.NO_LIMIT: f"without a limit: {says}", Outcome.WARN: warned}
        _add(suite, _group(judged, verdict.gate), verdict.subject, kind, quiet.get(verdict.outcome, says), more)
    for entry in judged.verdicts.not_applicable:
        _add(suite, _group(judged, entry.gate), "not applicable", "skipped", entry.reason)


def _add_answers(suites: xml.Element, collection: Collection) -> None:
    """Write a case per statement of the six questions. One that was not asked, or is not proven, is skipped."""
    suite = xml.SubElement(suites, "testsuite", name="the six questions")
    properties = xml.SubElement(suite, "properties")
    decision = f"{collection.headline.decision}: {collection.headline.because}"
    for name, value in (("headline", headline(collection.headline)), ("decision", decision)):
        xml.SubElement(properties, "property", name=f"bringup.{name}", value=_text(value))
    for answer in collection.answers:
        for claim in answer.claims:
            kind = _KINDS.get(claim.mark, "system-out")
            says = f"{claim.mark.word}: {scope(claim)}" if kind == "skipped" else scope(claim)
            _add(suite, f"question {answer.question}", claim.says, kind, says)


def _group(judged: Judged, gate: str) -> str:
    """Group cases as CI systems do: phase, then gate. Gates of discovery and smoke begin with their phase."""
    return gate if gate.startswith(f"{judged.run.phase}.") else f"{judged.run.phase}.{gate}"


def _add(suite: xml.Element, group: str, name: str, kind: str, says: str, more: str = "") -> None:
    case = xml.SubElement(suite, "testcase", classname=_text(group), name=_text(name))
    if kind in ("failure", "error"):
        xml.SubElement(case, kind, message=_text(says), type=kind).text = _text(more) or None
    elif kind == "skipped":
        xml.SubElement(case, kind, message=_text(says))
    elif says:
        xml.SubElement(case, kind).text = _text(says)


def _text(text: str) -> str:
    return for_xml(plain(text))
