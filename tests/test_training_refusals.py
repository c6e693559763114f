"""What the programs refuse to train: in one line, on every rank, before a number is written."""

from programs import ROOT
from real_trainings import ACCELERATE, ON_CPU, one_node, require_not_promised, require_refused
from tiers import in_test_all

FSDP_1NODE = str(ROOT / "training/accelerate/fsdp_1node_8gpu.yaml")
ZERO2 = [*ACCELERATE, FSDP_1NODE, *ON_CPU, "--num_processes", "2", "--fsdp_reshard_after_forward", "false"]


def test_accelerate_launch_that_says_something_else_is_refused_in_one_line(tmp_path):
    run = one_node(tmp_path / "refused", "train_fsdp_single_node", launcher=ZERO2)
    require_refused(run, "says fsdp_reshard_after_forward: false, this program has true; change the one or")


@in_test_all
def test_accelerate_launch_and_the_program_may_say_the_same(tmp_path):
    run = one_node(tmp_path / "zero2", "train_fsdp_single_node", "--no-reshard-after-forward", launcher=ZERO2)
    assert run.codes == [0], run.output
    assert run.metrics().observed.reshard_after_forward is False


def test_fsdp_entrypoint_refuses_to_train_as_ddp(tmp_path):
    run = one_node(tmp_path / "refused", "train_fsdp_single_node", drill="no-fsdp")
    require_not_promised(run, "expected fsdp, observed ddp (MULTI_CPU, LlamaForCausalLM, plain, no weights yet)")
    assert run.value(0, "train.strategy") == "ddp"
    shown = run.facts(0)["train.strategy"]["why"]  # the verdict's own sentence says what was expected
    assert shown.startswith("MULTI_CPU, LlamaForCausalLM, plain, no weights yet: was FSDP handed to the Trainer")
    assert "step 1/" not in run.output


def test_a_model_that_cannot_fit_is_refused_by_every_rank_before_it_is_made(tmp_path):
    run = one_node(tmp_path / "refused", "train_fsdp_single_node", "--model", "llama3-70b")
    require_refused(run, "llama3-70b as fsdp on 2 ranks: expected room for 1")
    assert "GiB of host memory for 2 ranks of a node, observed" in run.facts(0)["train.rank.state"]["why"]


def test_recomputation_that_was_asked_for_and_is_not_there_is_refused_after_one_step(tmp_path):
    options = ("train_fsdp_single_node", "--activation-checkpointing")
    run = one_node(tmp_path / "refused", *options, drill="no-checkpointing")
    require_not_promised(run, "recomputed layers of 4: asked 4, observed 0")
    assert run.value(0, "train.variant") == 1


def test_multi_node_entrypoint_refuses_one_host(tmp_path):
    run = one_node(tmp_path / "one-host", "train_ddp_multi_node")
    require_not_promised(run, "expected ddp across 2 or more hosts, observed 2 ranks on 1 host (n0)")
