"""Nothing lets a step wait for the device, blocks compile once, and what differs on a GPU: as far as a CPU shows it."""

import json
import os
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import warm_python
from programs import ROOT, ran
from recipe import fast as recipes
from recipe import group, meter, observed_strategy, program
from recipe.arguments import Args
from recipe.checkpoint import resume
from recipe.fast import CompileBlocks
from recipe.strategy import Refused
from torch._dynamo.utils import counters
from transformers import AutoConfig, AutoModelForCausalLM, masking_utils

pytestmark = pytest.mark.filterwarnings("default")

# a training in which a look at position ids is an error, and every copy of a batch says whether it is waited for
WATCHED = """
import json, runpy, sys
import accelerate.data_loader as loading
import transformers.masking_utils

def looked_at(*args, **kwargs):
    raise AssertionError("position ids were read back from the device")

transformers.masking_utils.find_packed_sequence_indices = looked_at
send, copies = loading.send_to_device, []

def watched(batch, device, non_blocking=False, **kwargs):
    copies.append(non_blocking)
    return send(batch, device, non_blocking=non_blocking, **kwargs)

loading.send_to_device = watched
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("copies", json.dumps(copies))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "raw").mkdir()
    program = [str(ROOT / "training" / "src" / "train_single_gpu.py"), "--run-dir", str(folder), "--steps", "3"]
    command = [warm_python.python(), "-c", WATCHED, *program]
    yield ran(command, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_no_step_of_a_training_looks_at_position_ids(watched):
    assert watched.returncode == 0, watched.stdout + watched.stderr


def test_no_copy_of_a_batch_is_waited_for(watched):
    copies = json.loads(watched.stdout.partition("copies ")[2])
    assert len(copies) >= 3
    assert set(copies) == {True}


def test_what_is_replaced_in_the_libraries_is_there_again_afterwards():
    before = masking_utils.find_packed_sequence_indices
    with recipes.without_waits():
        assert masking_utils.find_packed_sequence_indices("positions") is None
    assert masking_utils.find_packed_sequence_indices is before


def test_a_name_that_another_version_does_not_have_is_recorded(monkeypatch):
    """Its wait is back in every step, so the record must not claim that it is gone."""
    plain = Args(**dict.fromkeys(Args.__dataclass_fields__) | {"recipe": "plain"})
    assert recipes.choose(plain)[recipes.NO_LOOK] == "on"
    monkeypatch.delattr(masking_utils, "find_packed_sequence_indices")
    with recipes.without_waits():
        assert not hasattr(masking_utils, "find_packed_sequence_indices")
    state = recipes.choose(plain)[recipes.NO_LOOK]
    assert "transformers.masking_utils.find_packed_sequence_indices is not in this version" in state


def test_a_training_that_was_not_given_its_checkpoint_does_not_begin():
    record = SimpleNamespace(step=6)
    checkpoints: Any = SimpleNamespace(begins_at=("step-6", record), reads=[(1, None)], random=None)
    begin = resume.Checkpoints.on_step_begin
    begin(checkpoints, None, None, None)
    for lost in ({"reads": []}, {"random": {"torch": None}}):
        with pytest.raises(Refused, match="expected the state after step 6 from step-6"):
            begin(SimpleNamespace(**vars(checkpoints) | lost), None, None, None)


def model_of(layers: int, **changes: int) -> Any:
    config = json.loads((ROOT / "training/models/tiny.json").read_text())
    config |= {"num_hidden_layers": layers, "use_cache": False, **changes}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).train()


def test_many_blocks_are_compiled_once_after_the_hooks_of_the_first_step_are_gone(monkeypatch):
    compiling = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: compiling(self, backend="eager", **options))
    torch._dynamo.reset()
    counters.clear()
    layers, accumulation = 12, 2  # Dynamo compiles one code eight times at most
    model = model_of(layers)
    first_step, clock = observed_strategy.FirstStep(lambda: None), meter.Meter(lambda step: None)
    clock.time_blocks(model)
    callbacks = [first_step, clock, CompileBlocks(60)]
    ids = torch.zeros(1, 32, dtype=torch.long)

    def each(event: str, step: int) -> None:
        for callback in callbacks:
            getattr(callback, event)(None, SimpleNamespace(global_step=step), None, model=model)

    each("on_train_begin", 0)
    try:
        with torch._dynamo.config.patch(error_on_recompile=True):
            for step in (1, 2, 3):
                for _ in range(accumulation):
                    model(input_ids=ids, labels=ids).loss.backward()
                each("on_step_end", step)
                assert counters["stats"]["unique_graphs"] == (0 if step == 1 else 1)
    finally:
        each("on_train_end", 3)
        torch._dynamo.reset()
    assert first_step.forwards == [accumulation] * layers


def test_ranks_wait_longer_for_one_another_in_the_step_that_compiles(monkeypatch):
    """One node with a cold cache took two minutes; --timeout is one by default."""
    timeouts: list[int] = []
    monkeypatch.setattr(recipes.group, "set_timeouts", timeouts.append)
    monkeypatch.setattr(recipes, "decoder_layers", lambda model: [])
    waited: list[int] = []
    callback = CompileBlocks(60)
    monkeypatch.setattr(recipes.group, "wait_for_device", lambda: waited.append(callback.steps))
    in_step = []
    for _ in range(4):
        callback.on_step_begin(None, None, None)
        in_step.append(timeouts[-1:])
        callback.on_optimizer_step(None, None, None)
        callback.on_step_end(None, None, None, model=None)
    # the second step compiles, whatever a checkpoint of the first one set
    assert in_step == [[], [600], [60], [60]]
    assert timeouts == [600, 60]
    assert waited == [1], "and ends when the device has: the host is ahead of it"


def test_under_ddp_a_block_is_compiled_as_one_graph(monkeypatch):
    """DDP's optimizer would cut it at buckets of gradients, and what is cut apart is not fused."""
    graphs: list[torch.fx.GraphModule] = []

    def counted(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    compiling = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: compiling(self, backend=counted, **options))
    torch._dynamo.reset()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with torch._dynamo.config.patch(optimize_ddp=torch._dynamo.config.optimize_ddp):  # to put it back
            model = model_of(layers=2, intermediate_size=8192)  # a matrix has 2 MiB
            model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
            CompileBlocks(60).on_step_end(None, None, None, model=model)
            ids = torch.zeros(1, 32, dtype=torch.long)
            model(input_ids=ids, labels=ids).loss.backward()
            # DDP's reducer must not be the last that holds the group: torch 2.13 frees that with Python's lock in hand,
            # for which a thread of gloo may wait that has another lock, and both wait for ever
            del model
    finally:
        dist.destroy_process_group()
        torch._dynamo.reset()
    assert len(graphs) == 1


@pytest.mark.parametrize(("capability", "bf16"), [((7, 0), False), ((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_bfloat16_that_a_gpu_would_emulate_is_not_the_default(monkeypatch, capability, bf16):
    """A V100 has none: torch computes it in float32, slower than float32 itself."""
    monkeypatch.setattr(group, "CUDA", True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    major, minor = capability
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=major, minor=minor))
    assert group.has_bf16() is bf16


def test_the_flight_recorder_is_set_by_the_names_that_this_torch_does_not_call_deprecated(monkeypatch, tmp_path):
    """torch 2.13 warns on every rank about TORCH_NCCL_TRACE_BUFFER_SIZE. Older than 2.10 is refused (program.LEAST)."""
    assert program.LEAST["torch"] >= (2, 9)
    monkeypatch.setattr(group, "CUDA", True)
    monkeypatch.setattr(os, "environ", {})
    group.record_flight(tmp_path)
    assert os.environ == {
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/flight/rank_",
    }
