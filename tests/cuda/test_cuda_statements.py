"""Each statement about CUDA is on one page, with the run that executed it or why none did."""

from cuda_statements import ROOT, Known, everything


def test_the_statements_of_the_project_are_seen():
    names = {(each.file, each.name) for each in everything(ROOT)}
    assert len(names) > 120
    silent = [name for name in {file for file, _ in names} if "cuda" not in (ROOT / name).read_text().lower()]
    assert silent == []  # lines.py would not look at them
    assert ("training/src/recipe/meter.py", "forget_peaks: torch.cuda.reset_peak_memory_stats()") in names
    assert ("infrastructure-validation/probes/bench.py", "Bench.synchronize: self.torch.cuda.synchronize()") in names


def test_the_page_is_what_the_records_say():
    assert Known().problems() == []
