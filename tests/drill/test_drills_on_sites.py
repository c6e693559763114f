"""Clusters like a site: what their files say is read."""

import re

from bringup.results import REPOSITORY

FILES = {
    path.stem: path.read_text()
    for path in (REPOSITORY / "infrastructure-validation/local-cluster/sites").glob("*.conf")
}


def test_a_line_of_a_site_has_a_verb_that_is_known():
    script = (REPOSITORY / "infrastructure-validation/local-cluster/sites.sh").read_text()
    script += (REPOSITORY / "infrastructure-validation/local-cluster/hosts.sh").read_text()
    script += (REPOSITORY / "infrastructure-validation/local-cluster/cluster").read_text()
    verbs = {line.split()[0] for text in FILES.values() for line in text.splitlines() if not line.startswith("#")}
    read = {"prolog", "epilog"} | set(re.findall(r'site_says "\$\w+" "?([a-z-]+)', script))
    assert verbs <= read
