"""What Slurm's commands answer: healthy, degraded, cut off, empty, refused, and no such command. Only whole answers count."""

from functools import partial

import pytest
from bringup.evidence import slurm
from runs_for_tests import FIXTURES, add_derived

SLURM = FIXTURES / "slurm"
exit_code = partial(slurm.job, quantity="q", field="ExitCode")


def read(name):
    return (SLURM / name).read_text()


def value(parser, text, quantity):
    """What the parser saw, None when it saw nothing."""
    found = [one.value for one in parser(text, "f").observations if one.quantity == quantity]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("parser", "file", "quantity", "says"),
    [
        (slurm.ping, "ping.txt", "slurm.controller.primary", "UP"),
        (slurm.config, "config.txt", "slurm.config.SlurmdTimeout", "12 sec"),
        (exit_code, "job-exit-code.txt", "q", "7:0"),
        (slurm.mpi_list, "mpi-list.txt", "slurm.mpi.plugins", ["pmix", "none", "cray_shasta", "pmi2", "pmix_v4"]),
    ],
)
class TestAnAnswer:
    def test_that_is_whole_is_read(self, parser, file, quantity, says):
        assert value(parser, read(file), quantity) == says
        assert parser(read(file), "f").problems == []

    def test_that_was_cut_off_says_the_same_or_nothing_and_is_a_problem(self, parser, file, quantity, says):
        text = read(file).rstrip() + "\n"
        step = max(1, len(text) // 200)
        for end in range(1, len(text) - 1, step):
            parsed = parser(text[:end], "f")
            seen = value(parser, text[:end], quantity)
            assert seen in (None, says) or (
                isinstance(seen, list) and set(seen) < set(says)
            )  # whole plugins, the last are missing
            assert parsed.problems or text[:end].endswith("\n")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "\n",
            "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n",
            "bash: line 1: scontrol: command not found\n",
        ],
        ids=["empty", "a blank line", "refused", "tool absent"],
    )
    def test_that_is_none_is_a_problem_and_no_observation(self, parser, file, quantity, says, text):
        parsed = parser(text, "f")
        assert parsed.observations == []
        assert parsed.problems != []


@pytest.mark.parametrize(
    ("parser", "file", "old", "new", "quantity", "says"),
    [
        (slurm.ping, "ping.txt", "UP", "DOWN", "slurm.controller.primary", "DOWN"),
        (
            slurm.config,
            "config.txt",
            "Devices        = yes",
            "Devices        = No",
            "slurm.config.ConstrainDevices",
            "no",
        ),
        (exit_code, "job-exit-code.txt", "ExitCode=7:0", "ExitCode=0:9", "q", "0:9"),
        (
            slurm.mpi_list,
            "mpi-list.txt",
            "\tpmix\n",
            "",
            "slurm.mpi.plugins",
            ["none", "cray_shasta", "pmi2", "pmix_v4"],
        ),
    ],
)
def test_a_degraded_answer_is_read_as_it_is(parser, file, old, new, quantity, says):
    text = read(file)
    assert old in text
    assert value(parser, text.replace(old, new, 1), quantity) == says


def test_a_file_of_an_administrator_may_end_without_a_line_feed():
    text = "CgroupPlugin=autodetect\n# nothing\nConstrainDevices=yes"
    assert value(slurm.cgroup_conf, text, "slurm.config.ConstrainDevices") == "yes"


class TestPrologsOfNewerVersions:
    """They are numbered there, and none is no line at all."""

    def audit(self, *, prolog):
        lines = [line for line in read("config.txt").splitlines() if not line.startswith(("Prolog  ", "Epilog  "))]
        at = next(number for number, line in enumerate(lines) if line.startswith("PrologEpilogTimeout"))
        parsed = slurm.config("\n".join([*lines[:at], *prolog, *lines[at:], ""]), "f")
        add_derived(parsed)
        return {one.quantity: one.value for one in parsed.observations}

    def test_a_numbered_one_is_read_and_the_first_stands_for_all(self):
        said = self.audit(
            prolog=["Prolog[0]               = /etc/slurm/prolog.d/*", "Prolog[1]               = /etc/slurm/second"]
        )
        assert said["slurm.config.Prolog"] == "/etc/slurm/prolog.d/*"
        assert said["slurm.audit.prolog"] is True

    def test_none_is_none_and_no_missing_answer(self):
        said = self.audit(prolog=[])
        assert said["slurm.audit.prolog"] is False
        assert said["slurm.audit.epilog"] is False

    def test_an_answer_without_that_part_says_nothing(self):
        parsed = slurm.config("ClusterName = x\n", "f")
        add_derived(parsed)
        assert [one for one in parsed.observations if "audit" in one.quantity] == []


@pytest.mark.parametrize(
    ("default", "is_there"),
    [("none", True), ("(null)", True), ("pmix", True), ("pmix_v4", True), ("pmix_v5", False), ("pmi9", False)],
)
def test_a_default_mpi_plugin_is_there_when_it_is_listed_or_a_version_of_pmix_or_no_plugin(default, is_there):
    """Slurm 23.11 and later print (null) for none; versions of pmix stand on a line of their own."""
    parsed = slurm.config(f"MpiDefault              = {default}\n", "f")
    parsed.add(slurm.mpi_list(read("mpi-list.txt"), "g"))
    add_derived(parsed)
    assert {one.quantity: one.value for one in parsed.observations}["slurm.audit.mpi_default_there"] is is_there
