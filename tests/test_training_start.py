"""The weights that a training starts from: equal in every strategy, never whole on a rank that shards; and the room."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import predict
import pytest
import torch
import torch.distributed as dist
from bringup.kernel.records import read_record
from bringup.training.records import RunArgs
from loops import case_for_each
from programs import ROOT, tree
from recipe import memory, weights, workload
from recipe.data import DataError
from recipe.strategy import Refused
from runs_for_tests import FIXTURES
from torch.distributed.tensor import DTensor, debug
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

# torch and transformers warn about their own insides; what is tested here is ours
pytestmark = pytest.mark.filterwarnings("default")

SMALL = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "head_dim": 12, "vocab_size": 70, "max_position_embeddings": 64}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "smollm3": {"tie_word_embeddings": True, "pad_token_id": 3},
    "qwen2": {"tie_word_embeddings": False},  # with biases
    "qwen3": {"tie_word_embeddings": True},  # norms of queries and keys
    "gemma3_text": {"tie_word_embeddings": True, "sliding_window": 8},  # two rotary embeddings, a scaled embedding
    "mixtral": {"tie_word_embeddings": False, "num_local_experts": 4},  # three-dimensional weights
}


@pytest.fixture(params=CONFIGS)
def config_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_config(tmp_path, request.param)


def write_config(folder: Path, model_type: str) -> Path:
    AutoConfig.for_model(model_type, **SMALL, **CONFIGS[model_type]).save_pretrained(folder)
    return folder / "config.json"


def arguments(config_file: Path | None, **changes: Any) -> Any:
    """As much of Args as weights.py reads."""
    given = {"model_config": config_file, "model": "small", "attention": "sdpa", "seed": 42}
    return SimpleNamespace(**given | changes)


@contextmanager
def one_of(ranks: int, rank: int) -> Iterator[None]:
    """This process as one rank of many. Collectives move nothing."""
    debug._clear_sharding_prop_cache()  # it holds the mesh of the rank before, which a real process never was
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def shards_of(args: Any, strategy: str, ranks: int, rank: int, *, recompute: bool = False) -> dict[str, Any]:
    """Name -> (rows of the whole tensor, the shard) of a model that was sharded by accelerate and then filled."""
    nodes = 2 if strategy == "hsdp" else 1
    step = predict.Step("small", strategy, nodes, ranks // nodes, 8, activation_checkpointing=recompute)
    with one_of(ranks, rank):
        model = predict.sharded(step, weights.without_memory(args), predict.mesh_of(step))
        assert set(weights.on_meta(model)) == {name for name, _ in model.named_parameters()}
        torch.manual_seed(rank)  # ranks need not be in one random state
        weights.fill(model, args)
        assert weights.on_meta(model) == []
        if model.config.tie_word_embeddings:
            assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
        assert all(isinstance(p, DTensor) for p in model.parameters())
        local = {name: (weights.rows_of(p), p.to_local().detach().clone()) for name, p in model.named_parameters()}
        shards = {weights.plain_name(name): shard for name, shard in local.items()}
        return shards | {weights.plain_name(name): (..., buffer.clone()) for name, buffer in model.named_buffers()}


def whole_of(args: Any) -> Any:
    model = weights.without_memory(args)
    weights.fill(model, args)
    return model


@case_for_each(("fsdp", 3, False), ("hsdp", 4, False), ("fsdp", 2, True))
def test_shards_of_all_ranks_are_the_weights_of_one_gpu(config_file, strategy, ranks, recompute):
    args = arguments(config_file)
    model = whole_of(args)
    whole = dict(model.named_parameters()) | dict(model.named_buffers())
    covered = {name: torch.zeros(p.shape) for name, p in model.named_parameters()}
    for rank in range(ranks):
        shards = shards_of(args, strategy, ranks, rank, recompute=recompute)
        assert set(shards) == set(whole)
        for name, (rows, shard) in shards.items():
            assert torch.equal(whole[name][rows], shard), name
            if rows is not ...:
                covered[name][rows] += 1
    copies = 2 if strategy == "hsdp" else 1
    assert all(bool((count == copies).all()) for count in covered.values())


def test_weights_are_spread_as_transformers_spreads_them(config_file):
    torch.manual_seed(1)
    usual = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config_file), dtype=torch.float32)
    ours = whole_of(arguments(config_file))
    assert {name: p.shape for name, p in ours.named_parameters()} == {n: p.shape for n, p in usual.named_parameters()}
    for (name, mine), theirs in zip(ours.named_parameters(), usual.parameters(), strict=True):
        assert float(mine.detach().std()) == pytest.approx(float(theirs.detach().std()), rel=0.15, abs=1e-9), name
        assert float(mine.detach().mean()) == pytest.approx(float(theirs.detach().mean()), abs=2e-3), name
    for (name, mine), theirs in zip(ours.named_buffers(), usual.buffers(), strict=True):
        assert torch.equal(mine, theirs), name


def test_a_tied_embedding_keeps_its_row_of_padding_at_zero(tmp_path):
    embedding = whole_of(arguments(write_config(tmp_path, "smollm3"))).get_input_embeddings()
    assert embedding.padding_idx == 3
    assert not embedding.weight[3].any()
    assert embedding.weight[4].any()


def test_blocks_differ_from_each_other_and_another_seed_gives_other_weights(tmp_path):
    file = write_config(tmp_path, "llama")
    first, again, other = (whole_of(arguments(file, seed=seed)).model for seed in (1, 1, 2))
    query = [block.self_attn.q_proj.weight for block in first.layers]
    assert not torch.equal(query[0], query[1])
    assert torch.equal(query[0], again.layers[0].self_attn.q_proj.weight)
    assert not torch.equal(query[0], other.layers[0].self_attn.q_proj.weight)


def test_the_random_state_of_the_training_is_left_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    whole_of(arguments(write_config(tmp_path, "llama")))
    assert torch.equal(torch.rand(3), expected)


def test_a_rank_never_has_more_memory_than_its_shard_and_the_largest_part(tmp_path):
    class Live(TorchDispatchMode):
        """The most bytes that tensors made inside hold at one time."""

        def __init__(self) -> None:
            super().__init__()
            self.live: dict[int, tuple[StorageWeakRef, int]] = {}
            self.most = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type != "meta":
                    storage = tensor.untyped_storage()
                    self.live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
            self.live = {at: kept for at, kept in self.live.items() if not kept[0].expired()}
            self.most = max(self.most, sum(size for _, size in self.live.values()))
            return out

    file = write_config(tmp_path, "llama")
    file.write_text(file.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 40'))
    args = arguments(file)
    empty = weights.without_memory(args)
    whole, part = 4 * sum(p.numel() for p in empty.parameters()), 4 * 2 * empty.lm_head.weight.numel()
    assert len(empty.model.layers) == 40
    with Live() as counted:
        shards_of(args, "fsdp", 8, 0)
    shard = whole / 8
    assert shard < counted.most < 2.2 * shard + 1.2 * part  # the test itself clones the shard
    assert counted.most < whole / 2


def test_a_parameter_that_the_model_does_not_initialise_is_an_error_and_not_garbage(tmp_path):
    args = arguments(write_config(tmp_path, "llama"))
    model = weights.without_memory(args)
    model.model.layers[1].forgotten = torch.nn.Parameter(torch.empty(4, device="meta"))
    with pytest.raises(DataError, match=r"model.layers.1.forgotten of LlamaForCausalLM is left without"):
        weights.fill(model, args)


def test_a_model_that_is_left_without_weights_never_trains(tmp_path):
    model = weights.without_memory(arguments(write_config(tmp_path, "llama")))
    run: Any = object.__new__(workload.Run)
    run.trainer = SimpleNamespace(model_wrapped=model)
    with pytest.raises(Refused, match=r"observed none in model.embed_tokens.weight \(21 in all\)"):
        run._observed()


# --- a hub model


@pytest.mark.parametrize("model_type", ["llama", "smollm3"])
@pytest.mark.parametrize("size", ["1GB", "40KB"], ids=["one file", "several files"])
def test_a_rank_reads_its_shard_of_a_hub_model(tmp_path, model_type, size):
    model = whole_of(arguments(write_config(tmp_path, model_type)))
    folder = tmp_path / "saved/model"
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=size)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (size == "40KB")
    expected = dict(model.float().named_parameters())
    args = arguments(None, model=str(folder))
    for rank in range(3):
        for name, (rows, shard) in shards_of(args, "fsdp", 3, rank).items():
            if name in expected:
                assert torch.equal(expected[name][rows], shard), name
    named = [(name, size) for name, size, _ in weights.identity(str(folder), model)]
    assert named == sorted((path.name, path.stat().st_size) for path in folder.glob("*.safetensors"))


def test_weights_that_are_no_numbers_are_named_before_a_gpu_is_blamed(tmp_path):
    model = whole_of(arguments(write_config(tmp_path, "llama")))
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    model.save_pretrained(tmp_path / "saved/model")
    args = arguments(None, model=str(tmp_path / "saved/model"))
    with pytest.raises(DataError, match=r"hold NaN or Inf \(model\.layers\.1\.mlp\.up_proj\.weight\): take"):
        whole_of(args)


def test_a_folder_without_weights_or_with_other_names_is_refused_for_what_it_is(tmp_path):
    file = write_config(tmp_path, "llama")
    whole_of(arguments(file)).model.save_pretrained(tmp_path / "base/model")  # without its head, and other names
    for folder, says in ((tmp_path, "has no safetensors files"), (tmp_path / "base/model", "do not hold every param")):
        args = arguments(None, model=str(folder))
        with pytest.raises(DataError, match=says):
            weights.identity(args.model, weights.without_memory(args))


def test_files_of_one_name_and_size_with_other_weights_are_other_files(tmp_path):
    """FSDP would mix them: each rank reads only its own rows."""
    keys = []
    for node, seed in (("n0", 1), ("n1", 2)):
        model = whole_of(arguments(write_config(tmp_path, "llama"), seed=seed))
        model.save_pretrained(tmp_path / node / "model")
        keys.append(weights.identity(str(tmp_path / node / "model"), model))
    assert [entry[:2] for entry in keys[0]] == [entry[:2] for entry in keys[1]]
    assert keys[0] != keys[1]


# --- room


GIB = 2**30


def asked(**changes: Any) -> RunArgs:
    args = read_record(FIXTURES / "training/run_fsdp_1node/run_args.json", RunArgs)
    large = {"model": "llama3-70b", "compute_dtype": "bfloat16", "per_device_batch": 1}
    return args.model_copy(update=large | changes)


@pytest.fixture(scope="module")
def llama70b() -> Any:
    return weights.without_memory(arguments(ROOT / "training/models/llama3-70b.json"))


def required(monkeypatch, of_model, *, device_gib=None, host_gib=500.0, hosts=("n0",), **changes) -> float:
    """What a rank of this run needs in GiB, where there is so much free; Refused where it is more."""
    monkeypatch.setattr(memory.group, "CUDA", device_gib is not None)
    monkeypatch.setattr(memory.torch.cuda, "mem_get_info", lambda device: (int((device_gib or 0) * GIB), 80 * GIB))
    monkeypatch.setattr(memory, "host_available", lambda: (int(host_gib * GIB), "MemAvailable"))
    monkeypatch.setattr(memory.group, "gather", lambda value, _: [value] * len(hosts))
    resolved = asked(**changes)
    needed = memory.footprint(of_model, resolved).states.total
    memory.require(needed, resolved, list(hosts))
    return needed / GIB


ON_CARDS = {"device_gib": 79.0, "ranks_per_node": 8}
ON_EIGHT = {"strategy": "fsdp", "nodes": 8, "ranks_per_node": 8}
TOGETHER = ON_EIGHT | {"host_gib": 100.0, "hosts": ("n0",) * 8 + ("n1",) * 8}
ALONE = {"strategy": "single", "ranks_per_node": 1, "host_gib": 23.0}


@case_for_each(
    (ON_CARDS | {"strategy": "ddp"}, r"llama3-70b as .*1051.3 GiB of device memory .*`bringup advise` says"),
    (ON_CARDS | {"strategy": "fsdp"}, "device memory per rank, observed 79.0 GiB free"),
    (ALONE, r"llama3-70b as .*10\d\d\.\d GiB of host memory.*`bringup advise`"),
    # all ranks of a node share its memory
    (TOGETHER, r"expected room for 1\d\d\.\d GiB of host memory for 8 ranks of a node, observed 100.0 GiB"),
)
def test_what_cannot_fit_is_refused_with_both_numbers(llama70b, monkeypatch, how, says):
    with pytest.raises(Refused, match=says) as refused:
        required(monkeypatch, llama70b, **how)
    assert "\n" not in str(refused.value)


def test_what_fits_on_its_gpu_needs_no_memory_of_the_host(llama70b, monkeypatch):
    assert 16 < required(monkeypatch, llama70b, device_gib=79.0, host_gib=9.0, **ON_EIGHT) < 79


def test_a_model_whose_activations_are_not_known_is_judged_by_its_states(tmp_path):
    model = weights.without_memory(arguments(write_config(tmp_path, "mixtral")))
    predicted = memory.footprint(model, asked(strategy="single", ranks_per_node=1, nodes=1))
    assert (predicted.peak, "mixture of experts" in (predicted.reason or "")) == (None, True)
    assert predicted.states.total == 16 * sum(p.numel() for p in model.parameters())


FILES = f"inactive_file {GIB // 2}\n{{0}}active_file {GIB // 2}"
V2 = {
    "proc/self/cgroup": "0::/job/step",
    "sys/fs/cgroup/job/step/memory.max": "max",
    "sys/fs/cgroup/job/memory.max": f"{10 * GIB}",
    "sys/fs/cgroup/job/memory.current": f"{4 * GIB}",
    "sys/fs/cgroup/job/memory.stat": "anon 5\n" + FILES.format(""),
}
V1 = {
    "proc/self/cgroup": "3:cpu:/x\n2:memory:/outside/job",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{10 * GIB}",
    "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{4 * GIB}",
    "sys/fs/cgroup/memory/job/memory.stat": "cache 5\ntotal_" + FILES.format("total_"),
}


@pytest.mark.parametrize(("cgroup", "gib"), [(V2, 7), (V1, 7), ({"proc/self/cgroup": "0::/"}, 20)])
def test_host_memory_is_what_the_kernel_or_a_cgroup_still_gives(tmp_path, cgroup, gib):
    tree(tmp_path, {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {20 * 2**20} kB", **cgroup})
    available, says = memory.host_available(tmp_path)
    assert available == gib * GIB
    assert (says == "MemAvailable") == (gib == 20)
