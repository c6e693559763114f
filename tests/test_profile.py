"""Profiles: expected numbers with unit and source."""

import pytest
from bringup.kernel import results
from bringup.kernel.errors import FileError
from bringup.kernel.plan import catalogue as gates
from bringup.kernel.plan import profile, transports
from bringup.kernel.plan.profile import load, parse
from loops import case_for_each, for_each
from runs_for_tests import discovery
from trained_runs import change

GOOD = """
schema_version: 1
name: here
description: a test
expect:
  nccl.transport: {one_of: [rdma-verbs], unit: text, source: "a test"}
"""
MISSPELT = GOOD.replace("nccl.transport", "nccl.trasport")


def ruled(rule: str) -> str:
    return GOOD.replace("one_of: [rdma-verbs]", rule)


def not_here(gate: str) -> str:
    return f"{GOOD}not_applicable:\n  - gate: {gate}\n    reason: a test\n"


@for_each(
    ("name: [", "not valid YAML"),
    ("just text", "the file is a str"),
    ("", "the file is empty"),
    ("!!python/object/apply:os.system ['true']", "not valid YAML"),
    ("[1, 2]", "the file is a list"),
    (GOOD + "name: again", r"here.yaml:7: name is given twice, first in line 3"),
    (GOOD + '  nccl.transport: {one_of: [NET], unit: text, source: "a test"}', "transport is given twice"),
    (ruled("one_of: [rdma-verbs], one_of: [NET]"), r"here.yaml:6: one_of is given twice"),
    (ruled("at_lest: 3"), r"transport\.at_lest: there is no such key; did you mean at_least\?"),
    (ruled("at_least: 1e5"), r"at_least: YAML reads 1e5 as a text; write 100000"),
    (ruled("at_least: many"), r"at_least: Input should be a valid number"),
    (ruled("at_least: '380'"), r"YAML reads 380 as a text; write 380 without quotes"),
    (ruled("at_least: 3, from_nodes: {'16': 3}"), r"from_nodes\.16: YAML reads 16 as a text; write 16 without quotes"),
    (ruled("at_least: 3, from_nodes: {16: 1e5}"), r"from_nodes\.16: YAML reads 1e5 as a text; write 100000"),
    (ruled("at_least: {share_of_celing: 0.9}"), r"yaml:6: .*\.share_of_celing: .*; did you mean share_of_ceiling\?"),
    (ruled("at_least: {share_of_ceiling: 90}"), "less than or equal to 1"),
    (ruled("at_most: 3, from_nodes: {2: {share_of_ceiling: 0.9}}"), "share_of_ceiling is a floor"),
    (ruled("at_least: 3, at: 8GB"), "'8GB' is neither the size.*write it as 8GiB"),
    (ruled("at_least: 3, from_nodes: {0: 3}"), "greater than or equal to 1"),
    (GOOD.replace("name: here", "name: here\nextends: []"), "extends"),
    (GOOD + "machine: {mfu: {valu: 1, source: abc}}", r"machine\.mfu\.value: is missing|did you mean value"),
    (GOOD + "machine: {gpu_memory: 80}", "did you mean gpu_memory_gib"),
    (GOOD + "expects: {}", "did you mean expect"),
    (GOOD.replace("name: here\n", ""), "name: is missing"),
    (GOOD + "x: " + "[" * 100_000, "not valid YAML"),
    (GOOD.replace('source: "a test"', ""), "source"),
    (GOOD.replace("unit: text, ", ""), "unit"),
    (ruled("one_of: [rdma-verbs], at_least: 3"), "exactly one"),
    (GOOD.replace("one_of: [rdma-verbs], ", ""), "exactly one"),
    (ruled("one_off: [IB]"), "one_off"),
    (GOOD.replace("n: 1", "n: 9"), "schema_version: 9 is unknown to this version of bringup, which knows 1"),
    (GOOD + "not_applicable: [{gate: ib.rate}]", "reason"),
)
def test_a_profile_that_cannot_be_used_is_refused_with_the_key(text, says):
    with pytest.raises(FileError, match=says) as error:
        parse(text, "here.yaml")
    assert "\n" not in str(error.value)
    assert "here.yaml" in str(error.value)


@case_for_each(
    (MISSPELT, r"yaml:6: expect\.nccl\.trasport: no .*; did you mean nccl\.transport\?"),
    (
        GOOD + "not_applicable:\n  - gate: nccl.gdr\n    reason: a test\n  - gate: nccl.nick\n    reason: a test\n",
        r"here.yaml:10: not_applicable\.1\.gate\.0: no .*; did you mean nccl\.nics\?; `bringup gates` lists",
    ),
    (not_here("[fabric.*,\n      nccl.nick.*]"), r"yaml:9: not_applicable\.0\.gate\.1: no gate .* nccl\.nick\.\*"),
    (not_here("fabric.*\n    except: [nccl.gdr]"), r"here.yaml:9: not_applicable\.0\.except\.0: .* names no nccl\.gdr"),
    (
        GOOD + '  nccl.all_reduce.busbw:\n    at_least: 3200\n    unit: Gb/s\n    source: "a test"\n',
        r"here.yaml:9: expect\.nccl\.all_reduce\.busbw\.unit: Gb/s is not the unit of nccl\.all_reduce\.busbw: "
        "give the number in GB/s and write that",
    ),
    (
        GOOD + '  nccl.all_reduce.busbw: {at_most: 380, unit: GB/s, source: "a test"}\n',
        r"here.yaml:7: expect\.nccl\.all_reduce\.busbw\.at_most: .* the gate is at_least: a profile gives the",
    ),
    (
        GOOD + '  nccl.gdr: {at_least: {share_of_ceiling: 0.9}, unit: share, source: "a test"}\n',
        r"here.yaml:7: expect\.nccl\.gdr: nccl\.gdr has no ceiling; share_of_ceiling goes with nccl\.all_reduce",
    ),
    (GOOD + '  nccl.nvls: {equals: "yes", unit: flag, source: "a test"}\n', "'yes' is not true or false"),
    (GOOD + '  discovery.gpu.nvlinks: {equals: "18", unit: count, source: "a test"}\n', "'18' is not a number"),
    (GOOD + '  nccl.step: {equals: 0, unit: count, source: "a test"}\n', "takes no number from a profile"),
)
def test_what_no_gate_can_use_is_refused_with_file_line_and_key(tmp_path, text, says):
    path = tmp_path / "here.yaml"
    path.write_text(text)
    with pytest.raises(FileError, match=says) as error:
        load(str(path))
    assert "\n" not in str(error.value)


def test_what_is_wrong_in_a_profile_that_is_extended_is_told_of_that_file(tmp_path):
    (tmp_path / "base.yaml").write_text(MISSPELT)
    (tmp_path / "top.yaml").write_text("schema_version: 1\nname: top\ndescription: a test\nextends: base.yaml\n")
    with pytest.raises(FileError, match=r"base\.yaml:6: expect\.nccl\.trasport"):
        load(str(tmp_path / "top.yaml"))


@for_each(
    *((name, "write rdma-verbs") for name in ("IB", "IBext_v8", "InfiniBand", "RoCE", "UCX", "NCCL RDMA Plugin v10")),
    *((name, "write efa") for name in ("AWS Libfabric", "Libfabric", "OFI", "EFA")),
    *((name, "write gcp") for name in ("FasTrak", "gIB", "GPUDirectTCPX_v7")),
    *((name, "write sockets") for name in ("Socket", "TCP", "FastSocket")),
    ("rdma-verb", r"there is no transport 'rdma-verb'; did you mean rdma-verbs\?"),
    ("Mesh", "there are rdma-verbs, .*; a plugin of no class is written unknown:NAME"),
    ("tcp:", "tcp:INTERFACE"),
)
def test_a_transport_by_the_name_of_a_plugin_is_refused_with_what_to_write(written, says):
    for gate in transports.GATES:
        text = GOOD.replace("nccl.transport", gate).replace("[rdma-verbs]", f'["rdma-verbs", "{written}"]')
        with pytest.raises(FileError, match=rf"here.yaml:6: expect\.{gate}\.one_of\.1: .*{says}"):
            parse(text, "here.yaml")


@for_each(*transports.NAMES, "tcp:eth0", "unknown:Mesh", "efa+sockets")
def test_every_class_of_transport_can_be_named(written):
    assert parse(GOOD.replace("rdma-verbs", written), "here.yaml").expect["nccl.transport"].one_of == [written]
    units = {gate.id: gate.unit for gate in gates.GATES.values() if gate.id.endswith(".transport")}
    assert units == dict.fromkeys(transports.GATES, "text")


def test_a_run_that_was_recorded_with_a_plugins_name_is_refused_with_what_to_write(tmp_path, monkeypatch, refused):
    """A run of before: its own copy of the profile says `one_of: [IB]`."""
    folder = discovery(tmp_path, monkeypatch)
    old = GOOD.replace("rdma-verbs", "IB")
    (folder / "profile.yaml").write_text(old)
    change(folder, "run.json", profile_sha256=results.sha256(old))
    says = refused("judge", folder)
    assert "profile.yaml:6: expect.nccl.transport.one_of.0: a profile names the class of a transport: for 'IB' " in says
    assert "write rdma-verbs; judge it with --profile NAME" in says


def test_a_profile_may_extend_several(tmp_path):
    (tmp_path / "one.yaml").write_text(GOOD.replace("name: here", "name: one"))
    efa = GOOD.replace("name: here", "name: two").replace("rdma-verbs", "efa")
    (tmp_path / "two.yaml").write_text(efa + "not_applicable: [{gate: nccl.gdr, reason: a test}]\n")
    top = tmp_path / "top.yaml"
    top.write_text("schema_version: 1\nname: top\ndescription: a test\nextends: [local-cpu, one.yaml, two.yaml]\n")
    loaded = load(str(top))
    assert loaded.expect["nccl.transport"].one_of == ["efa"]
    assert loaded.reason_not_applicable("nccl.gdr") == "a test"
    assert "nccl.all_reduce.busbw" in loaded.expect
    assert loaded.name == "top"


def test_a_pattern_excludes_each_gate_that_it_matches_and_the_reason_of_one_that_is_named_counts_more():
    rest = "    except: [nccl.variant.nic.busbw]\n  - {gate: nccl.variant.ring.busbw, reason: its own}\n"
    parsed = parse(not_here("[nccl.gdr, nccl.variant.*]") + rest, "here.yaml")
    variants = {gate for gate in gates.GATES if gate.startswith("nccl.variant.")} - {"nccl.variant.nic.busbw"}
    expected = dict.fromkeys({"nccl.gdr", *variants}, "a test") | {"nccl.variant.ring.busbw": "its own"}
    assert {entry.gate: entry.reason for entry in parsed.not_applicable} == expected


def test_an_unknown_profile_is_refused_with_the_names_there_are():
    with pytest.raises(FileError, match="local-cpu"):
        load("nowhere")
    with pytest.raises(FileError, match="no such file"):
        load("/tmp/not there.yaml")


def test_extends_adds_and_replaces_and_what_is_expected_again_is_applicable_again(tmp_path):
    path = tmp_path / "site one.yaml"
    scaling = 'expect:\n  train.scaling: {at_least: 0.9, unit: share, source: "a test"}'
    path.write_text(GOOD.replace("name: here", "name: here\nextends: local-cpu").replace("expect:", scaling))
    loaded = load(str(path))
    assert loaded.expect["nccl.transport"].expected == ["rdma-verbs"]
    assert "nccl.all_reduce.busbw" in loaded.expect
    assert profile.parse(profile.dump(loaded), "dumped") == loaded
    assert loaded.reason_not_applicable("train.scaling") is None
    assert load("local-cpu").reason_not_applicable("train.scaling") is not None


@for_each(
    ("unit: text", "unit: Gb/s", r"nccl.transport.*Gb/s.*text"),
    (
        "expect:",
        'expect:\n  nccl.all_reduce.busbw: {at_most: 380, at: 8GiB, unit: GB/s, source: "a test"}',
        r"all_reduce.busbw is declared as at_most, the gate is at_least",
    ),
)
def test_a_profile_without_a_file_is_held_to_the_gates_before_anything_runs(old, new, says):
    with pytest.raises(FileError, match=says):
        profile.check(parse(GOOD.replace(old, new), "here"))


SHIPPED = profile.names()
BASES = {"gpu-nodes", "efa"}  # to be extended by a profile with the facts of a machine
# of the local cluster's
PARTS = {"local-nodes", "simulated-nodes", "programs-on-cpu", "simulated-programs-on-cpu", "placeholder-gpus"}


@for_each(*SHIPPED)
def test_every_profile_that_is_shipped_keeps_to_the_gates_and_is_the_same_in_a_runs_folder(name):
    loaded = load(name, strict=False)
    assert loaded.name == name
    if name in BASES:
        with pytest.raises(FileError, match=r"share_of_ceiling needs machine\.gpus_per_node"):
            load(name)
    else:
        assert load(name) == loaded
    assert profile.parse(profile.dump(loaded), "profile.yaml") == loaded
    sources = [entry.source for entry in loaded.expect.values()]
    sources += [fact.source for _, fact in loaded.machine if fact is not None]
    assert all(len(source) > 10 for source in sources)


def test_no_gpu_profile_leaves_a_gate_of_the_fabric_open():
    """Everything that `generic` leaves undeclared has a number, or a reason why it does not apply."""
    open_in_generic = {gate.id for gate in gates.GATES.values() if gate.expect == "profile"} - {*load("generic").expect}
    # auto: before a discovery; cpu: no GPU and no fabric
    for name in set(SHIPPED) - BASES - PARTS - {"generic", "auto"}:
        loaded = load(name)
        known = set(loaded.expect) | {entry.gate for entry in loaded.not_applicable}
        left = {"nccl.pair.slowest.between", "nccl.launch"}  # how leaf switches are oversubscribed: the site's own
        left |= {"smoke.compute.host_to_device"} if name == "gb200-nvl72" else set()
        assert open_in_generic - known <= left, name


@pytest.mark.parametrize("name", ["local-cpu", "generic"])
def test_the_number_of_every_gate_of_smoke_is_declared_or_excluded(name):
    here = load(name)
    asked = [gate.id for gate in gates.of_phase("smoke") if gate.expect == "profile" and gate.id not in here.expect]
    open_ones = {gate for gate in asked if here.reason_not_applicable(gate) is None}
    # no number holds for GPUs that nobody has named
    of_gpus = {f"smoke.compute.{name}" for name in ("tflops", "device_to_device", "device", "memory")}
    assert open_ones == (of_gpus if name == "generic" else set())
