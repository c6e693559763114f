"""What our readers say of real output, sample by sample, against the label of each (fixtures/real/index.yaml)."""

import re

import pytest
import real_output
from bringup.readers.known.signatures import SIGNATURES
from loops import for_each
from real_output import FIXTURES, INDEX, PAGE, READERS

SAMPLES = real_output.index()


@for_each(*SAMPLES, ids=lambda sample: sample.file)
def test_a_sample_is_read_as_its_label_says_or_as_its_known_miss(sample):
    for check in real_output.checks(sample):
        miss = sample.misses.get(check.quantity)
        if miss is None:
            assert check.outcome == "right", f"{check.quantity}: read {check.reads}, right is {check.right}"
        else:
            expected = frozenset(miss.reads) if check.quantity == "signs" else miss.reads
            assert check.outcome != "right", f"{check.quantity} is read right now: take the miss out of the index"
            assert check.reads == expected, f"{check.quantity}: the miss reads otherwise now"


def test_the_index_names_each_sample_once_and_no_sample_is_forgotten():
    files = [sample.file for sample in SAMPLES]
    assert len(files) == len(set(files)) >= 60
    there = {path.relative_to(FIXTURES).as_posix() for path in (FIXTURES / "real").rglob("*") if path.is_file()}
    assert there - set(files) == {"real/index.yaml", "real/README.md"}


@for_each(*SAMPLES, ids=lambda sample: sample.file)
def test_every_label_names_its_program_and_source_and_a_miss_its_reason(sample):
    assert sample.program and sample.source
    assert sample.signs <= set(SIGNATURES)
    for quantity, miss in sample.misses.items():
        assert quantity in sample.says or quantity == "signs"
        assert miss.why


"""Readers of one format: of any other they must say no value."""


@for_each(*SAMPLES, ids=lambda sample: sample.file)
def test_every_reader_takes_every_sample_and_finds_nothing_in_a_foreign_one(sample):
    for name, read in READERS.items():
        values = read(sample.text)
        if name in ("nccl_tests", "topology", "slurm_nodes", "sysfs") and name != sample.reader:
            assert {key: value for key, value in values.items() if value is not None} == {}, name


@for_each(*SAMPLES, ids=lambda sample: sample.file)
def test_a_sample_is_small_and_holds_no_address_that_is_somebodys(sample):
    text = sample.text
    assert len(text) < 16_000
    for address in re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])").findall(text):
        assert address.startswith(("10.", "127.", "172.", "192.168.", "0.")), address
    assert re.search(r"[\w.]+@[\w-]+\.(com|org|net|edu|de|fr|io)\b|hf_[A-Za-z]{6}|/home/(?!u\b)\w+", text) is None


def test_the_page_is_what_the_index_and_the_readers_say():
    assert PAGE.read_text(encoding="utf-8") == real_output.page(), f"{PAGE.name}: run `make generated`"


def test_a_label_with_a_key_that_nobody_reads_is_an_error(tmp_path, monkeypatch):
    slip = INDEX.read_text(encoding="utf-8").replace(", says:", ", say:", 1)
    (tmp_path / "index.yaml").write_text(slip, encoding="utf-8")
    monkeypatch.setattr(real_output, "INDEX", tmp_path / "index.yaml")
    with pytest.raises(ValueError, match=r"unknown \['say'\]"):
        real_output.index()
