"""A name of torch, transformers or accelerate that the CUDA build lacks is seen, and a call that does not fit."""

import re
from pathlib import Path

from loops import for_each
from torch_names import File, main
from torch_surface import FILE, Surface, pins, signature_of

SURFACE = Surface()


def wrong(text: str) -> list[str]:
    return [what for _, what in sorted(File(text, SURFACE).wrong)]


def test_every_name_that_the_project_uses_is_there_and_fits_its_call(capsys) -> None:
    code = main([])
    written = capsys.readouterr().out
    assert code == 0, written
    names, calls = re.findall(r"(\d+) names and (\d+) calls, 0 wrong", written)[0]
    assert int(names) > 600  # a check that understands nothing would pass
    assert int(calls) > 300


def test_the_list_belongs_to_the_versions_that_are_pinned() -> None:
    assert SURFACE.outdated() is None
    assert set(pins()) <= set(SURFACE.versions)
    assert SURFACE.versions["cuda"]


def test_a_list_of_other_versions_says_which_command_makes_it_anew(tmp_path: Path) -> None:
    old = tmp_path / "surface.jsonl"
    old.write_text(FILE.read_text().replace(f'"torch":"{pins()["torch"]}"', '"torch":"2.9.0"', 1))
    message = Surface(old).outdated()
    assert message is not None
    assert f"torch 2.9.0, pinned {pins()['torch']}: make it anew: make surface" in message


def test_every_way_to_call_in_the_list_can_be_read() -> None:
    ways = {
        way
        for place in SURFACE.places.values()
        for text in place["names"].values()
        for way in text[text.find("(") :].partition("->")[0].split("|")
        if "(" in text
    }
    assert len(ways) > 1000
    for way in ways:
        signature_of(way)


@for_each(
    "text, says",
    [
        ("import torch\ntorch.cuda.max_memory_reserve()", "there is no torch.cuda.max_memory_reserve"),
        ("import torch.distributed as dist\ndist.all_reduce_multigpu([1])", "all_reduce_multigpu"),  # until torch 2.1
        ("from torch.cuda import Evnt", "there is no torch.cuda.Evnt"),
        ("from transformers import Trainr", "transformers.Trainr is not listed"),
        ("import torch.cudart", "torch.cudart is not listed"),
        ("import torch\nx = torch.float61", "there is no torch.float61"),
        ("import torch.distributed as dist\nop = dist.ReduceOp.AVERAGE", "ReduceOp.AVERAGE"),
        ("import torch\ntorch.backends.cuda.matmul.allow_bf61 = False", "torch.backends.cuda.matmul.allow_bf61"),
        ("import torch\ntorch.cuda.Event(timing=True)", "unexpected keyword argument 'timing'"),
        ("import torch\ntorch.cuda.set_device()", "missing a required argument: 'device'"),
        ("import torch\ntorch.cuda.synchronize(0, 1)", "too many positional arguments"),
        ("import torch\ntorch.zeros(2, devise='cuda')", "unexpected keyword argument 'devise'"),
        ("import torch\ntorch.full((2,))", "missing a required argument"),
        ("import torch.distributed as dist\ndist.all_reduce(op=None)", "missing a required argument: 'tensor'"),
        ("from transformers import TrainingArguments\nTrainingArguments(bf61=True)", "'bf61'"),
        (
            "from transformers import TrainingArguments\nTrainingArguments(evaluation_strategy=1)",
            "evaluation_strat",
        ),  # until 4.45
        ("from accelerate import ParallelismConfig\nParallelismConfig(dp_size=2)", "'dp_size'"),
        # of what is not a module
        ("import torch\ne = torch.cuda.Event()\ne.recod()", "there is no torch.cuda.streams.Event.recod"),
        (
            "import torch\ndef f(a: torch.cuda.Event, b):\n  a.elapsed_time()",
            "missing a required argument: 'end_event'",
        ),
        ("import torch\ndef f(a: 'torch.Tensor | None'):\n  a.is_cude", "there is no torch.Tensor.is_cude"),
        ("import torch\nx = (torch.ones(2).double() + 1)[0].cpux()", "there is no torch.Tensor.cpux"),
        (
            "import torch\nclass A:\n  def __init__(self): self.s = torch.cuda.Stream()\n  def f(self): self.s.wait()",
            ".wait",
        ),
        ("import torch\nsize = torch.cuda.get_device_properties(0).memory", "_CudaDeviceProperties.memory"),
        ("import torch\ngetattr(torch.cuda, 'nam', None)", "there is no torch.cuda.nam"),
        (
            "def keep(c10d, cuda):\n  getattr(c10d, '_dump_nccl' if cuda else '_dump_fr_trace_json')",
            "_dump_nccl is not",
        ),
        ("import torch.distributed as dist\ndist.all_reduce(1, async_op=True).wate()", "Work.wate"),
        # the probes hand torch over
        ("def f(torch):\n  torch.cuda.synchronise()", "there is no torch.cuda.synchronise"),
        ("class A:\n  def __init__(self, torch): self.torch = torch\n  def f(self): self.torch.emty(3)", "torch.emty"),
        (
            "from transformers import Trainer\nclass A(Trainer):\n  def f(self): super().train_step()",
            "Trainer.train_step",
        ),
        ("from transformers import Trainer\nclass A(Trainer):\n  def f(self): self.get_batch()", "Trainer.get_batch"),
    ],
)
def test_a_mistake_is_named(text: str, says: str) -> None:
    mistakes = wrong(text)
    assert len(mistakes) == 1, mistakes
    assert says in mistakes[0]


@for_each(
    "text",
    [
        "import torch\nlist_of = {}\ntorch.zeros(2, 3, device='cuda', dtype=torch.int32, pin_memory=True)",
        "import torch\ntorch.zeros(*[2, 3], **{'device': 'cuda'})",
        "import torch\ndef f(a: torch.Tensor):\n  if isinstance(a, str): a.upper()",  # narrower than annotated
        "from torch.nn import Module\ndef f(m: Module):\n  m.layers[0].anything()",  # a module makes names up
        "def f(host):\n  torch = host.torch\n  torch.cuda.split('.')",  # a text of that name
        "import torch\ntorch = 'x'\ntorch.upper()",
        "from transformers import Trainer\nclass A(Trainer):\n  def f(self): self.mine = 1\n  def g(self): self.mine",
        "import torch\nwith torch.cuda.stream(torch.cuda.Stream()) as s:\n  s.anything()",
    ],
)
def test_what_is_right_or_not_known_is_no_mistake(text: str) -> None:
    assert wrong(text) == []


def test_a_mistake_is_printed_with_its_file_and_line(tmp_path: Path, capsys) -> None:
    file = tmp_path / "program.py"
    file.write_text("import torch\n\ntorch.cuda.sychronize()\n")
    assert main([str(file)]) == 1
    assert f"{file}:3: there is no torch.cuda.sychronize" in capsys.readouterr().out
