"""Clusters like a site: what is declared of them is what their files say, and a site's own lack is no false alarm."""

import re

from bringup.drill import sites
from bringup.plan.catalogue import DECLARED, GATES
from bringup.records import Kind, Outcome
from bringup.results import REPOSITORY
from factory import a_verdict

FILES = {
    path.stem: path.read_text()
    for path in (REPOSITORY / "infrastructure-validation/local-cluster/sites").glob("*.conf")
}


def test_every_site_of_the_local_cluster_is_tried_with_as_many_nodes_as_it_has():
    assert {name: site.nodes for name, site in sites.SITES.items()} == {
        name: int(re.search(r"^nodes (\d+)$", text, re.MULTILINE)[1]) for name, text in FILES.items()
    }
    assert set(sites.DRILLED) <= set(DECLARED)
    assert {gate for site in sites.SITES.values() for gate in (*site.lacks, *site.unknown)} <= set(GATES)


def test_a_line_of_a_site_has_a_verb_that_is_known():
    script = (REPOSITORY / "infrastructure-validation/local-cluster/sites.sh").read_text()
    script += (REPOSITORY / "infrastructure-validation/local-cluster/hosts.sh").read_text()
    script += (REPOSITORY / "infrastructure-validation/local-cluster/cluster").read_text()
    verbs = {line.split()[0] for text in FILES.values() for line in text.splitlines() if not line.startswith("#")}
    read = {"prolog", "epilog"} | set(re.findall(r'site_says "\$\w+" "?([a-z-]+)', script))
    assert verbs <= read


def test_what_a_site_lacks_fails_and_is_no_false_alarm_and_its_absence_is_one():
    def alarms(gate, outcome):
        trial = sites.SiteResult("dgx", verdicts=[a_verdict(gate, "job", outcome, kind=Kind.JUDGED)])
        return [verdict.gate for verdict in trial.false_alarms]

    assert alarms("smoke.cpu.bound", Outcome.WARN) == []
    assert alarms("smoke.cpu.bound", Outcome.INCOMPLETE) == ["smoke.cpu.bound"]
    assert alarms("discovery.nofile", Outcome.FAIL) == ["discovery.nofile"]
    assert alarms("discovery.nofile", Outcome.PASS) == []
