"""Train an own model on own data with transformers' Trainer: on a CPU, a GPU, a node, N nodes. It is made to be copied:
it needs torch, transformers, accelerate and datasets, and no other file. What Trainer is told stands here: change it.
    python starter.py --model MODEL --data DATA --out OUT
    torchrun --standalone --nproc-per-node 8 starter.py --strategy fsdp --model MODEL --data DATA --out OUT --resume
MODEL   a hub name or a folder, with its tokenizer; with --random only its config is used
DATA    JSON lines: {"text"}, or {"messages": [{"role", "content"}, ...]}, or {"instruction", "input", "output"}
OUT     checkpoint-N, where --resume goes on; model/, which from_pretrained() loads; arguments.json, of its training
"""

import argparse
import json
import sys
import time
from os import getenv
from pathlib import Path

import numpy as np
import torch
from accelerate import DistributedType, ParallelismConfig, PartialState, init_empty_weights
from datasets import load_dataset
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

RANK, WORLD, NODE = int(getenv("RANK", "0")), int(getenv("WORLD_SIZE", "1")), int(getenv("LOCAL_WORLD_SIZE", "1"))
READS = []  # what is read now, as the last; none from the first step on. A library's traceback does not name it
SAME = ["model", "data", "random", "sequence_length", "global_batch", "learning_rate"]  # Trainer resumes with any
CHAT = """{% for turn in messages %}{{ turn.role }}:\n{{ turn.content }}{{ eos_token if turn.role == 'assistant' }}
{% endfor %}{{ 'assistant:\n' if add_generation_prompt }}"""  # for a tokenizer without a template; exported with it


def require(is_so: bool, words: str) -> None:
    """End with exit code 2 and one line where it is not so."""
    if not is_so:
        print(f"starter.py: {words}", file=sys.stderr)
        sys.exit(2)


def encode(document: dict, tokenizer) -> dict[str, list[int]]:
    """Return tokens of a document. Of a text all are learnt; of a conversation its last answer (-100: not learnt)."""
    if document.get("text") is not None:
        ids = [*tokenizer(document["text"])["input_ids"], tokenizer.eos_token_id]
        return {"input_ids": ids, "labels": ids, "position_ids": list(range(len(ids)))}
    question = "\n\n".join(filter(None, (document.get("instruction"), document.get("input"))))
    alpaca = [{"role": "user", "content": question or None}, {"role": "assistant", "content": document.get("output")}]
    turns = document.get("messages") or alpaca
    missing = any(turn.get("content") is None for turn in turns)  # a template prints "None", and that would be learnt
    assert not missing, f"a line has {[*document]}, expected text, messages with content, or instruction and output"
    asked = tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True)["input_ids"]
    ids = tokenizer.apply_chat_template(turns)["input_ids"]
    assert ids[: len(asked)] == asked, "this chat template shows a question otherwise when it is answered"
    # positions begin anew, so the model masks the other documents of a row; texts go without: fast kernels take no mask
    return {"input_ids": ids, "labels": [-100] * len(asked) + ids[len(asked) :], "position_ids": list(range(len(ids)))}


def pack(documents: dict[str, list[list[int]]], length: int) -> dict[str, np.ndarray]:
    """Cut full rows from documents one after the other. What is left of some thousand documents is dropped."""
    joined = {name: np.concatenate(each) for name, each in documents.items()}
    return {name: each[: len(each) // length * length].reshape(-1, length) for name, each in joined.items()}


def load_model(name: str, random: bool, empty: bool) -> torch.nn.Module:
    """Load in float32: an update is often smaller than the distance of two bfloat16 numbers, and would be lost."""
    torch.manual_seed(0)  # random weights are the same on every rank
    if not random and not empty:
        return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    with init_empty_weights(include_buffers=False) if empty else torch.device("cpu"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name), dtype=torch.float32)
    if empty:  # each has an address, by which accelerate knows it; memory is taken where something is written
        model._apply(lambda tensor: torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor)
        model.tie_weights()
    return model


class Observed(TrainerCallback):
    """Trainer trains DDP where FSDP is lost on the way, and goes on with NaN: look before step 1, and at each loss."""

    def on_train_begin(self, args, state, control, **kwargs):
        cut = "(Replicate(), Shard(dim=0))" if args.parallelism_config else "(Shard(dim=0),)" if args.fsdp else "whole"
        seen = args.world_size, {str(getattr(each, "placements", "whole")) for each in kwargs["model"].parameters()}
        require(seen == (WORLD, {cut}), f"expected {WORLD} rank(s) and parameters {cut}, observed {seen}")

    def on_step_begin(self, args, state, control, **kwargs):
        READS.clear()

    def on_log(self, args, state, control, logs, **kwargs):
        assert np.isfinite([*logs.values()]).all(), f"step {state.global_step}: {logs}: nothing is exported"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--data", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--strategy", choices=["ddp", "fsdp", "hsdp"], default="ddp", help="one rank takes none")
    numbers = {"--sequence-length": 2048, "--global-batch": 64, "--rows-at-once": 1, "--steps": -1, "--save-steps": 500}
    for name, default in (numbers | {"--learning-rate": 2e-5, "--processes": 0}).items():
        parser.add_argument(name, type=type(default), default=default, help=f"{default}")
    for name in ("--random", "--resume", "--activation-checkpointing"):
        parser.add_argument(name, action="store_true")
    args = parser.parse_args()
    for name in ("sequence_length", "global_batch", "rows_at_once", "save_steps"):
        require(getattr(args, name) > 0, f"--{name.replace('_', '-')} {getattr(args, name)}: expected 1 or more")
    strategy, cuda = args.strategy if WORLD > 1 else "single", torch.cuda.is_available()
    sharded, bf16 = strategy in ("fsdp", "hsdp"), cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    micro_steps, left = divmod(args.global_batch, args.rows_at_once * WORLD)
    require(not left, f"--global-batch is no multiple of {args.rows_at_once} row(s) x {WORLD} rank(s)")
    require(bool(getenv("LOCAL_RANK")) or torch.cuda.device_count() < 2, "torchrun, please: else it is DataParallel")
    whole = sorted(Path(args.out).glob("checkpoint-*/trainer_state.json"), key=lambda each: (len(str(each)), each))
    newest = whole[-1].parent if whole else None
    require(args.resume or not whole, f"{newest} would be deleted in time: --resume, or another --out")
    checkpoint = [f"{newest} (move it away, and --resume goes on from the one before)"] if whole else []
    READS.extend(checkpoint)
    # Trainer would train a step more at each start, and delete a checkpoint for it
    is_over = bool(whole) and 0 < args.steps <= json.loads(whole[-1].read_text())["global_step"]
    mesh = ParallelismConfig(dp_replicate_size=WORLD // NODE, dp_shard_size=NODE)
    training = TrainingArguments(
        output_dir=args.out,
        num_train_epochs=0 if is_over else 1,  # 0: load the newest checkpoint, and export it
        max_steps=-1 if is_over else args.steps,
        per_device_train_batch_size=args.rows_at_once,
        gradient_accumulation_steps=micro_steps,  # only the last one communicates gradients
        learning_rate=args.learning_rate,  # of AdamW (optim=); gradients are clipped to a norm of 1 (max_grad_norm=)
        lr_scheduler_type="cosine",
        warmup_steps=0.03,  # below 1: a share of the steps
        weight_decay=0.1,  # Trainer leaves out biases and norms
        bf16=bf16,  # single, ddp: autocast. fsdp, hsdp: the policy below
        use_cpu=not cuda,  # else each rank of a machine without a GPU trains alone
        activation_checkpointing=args.activation_checkpointing and not sharded,
        ddp_find_unused_parameters=False,  # else the graph is walked in each step
        ddp_timeout=2 * 3600,  # s (on a CPU 1800); the others wait while rank 0 tokenises. A hang is noticed as late
        fsdp=sharded,
        fsdp_config={
            "version": 2,  # fully_shard() for each block, then for the rest
            "reshard_after_forward": True,  # ZeRO-3; False keeps gathered weights until the backward pass: ZeRO-2
            "activation_checkpointing": args.activation_checkpointing,
            "cpu_ram_efficient_loading": True,  # rank 0 alone has the weights, and sends each shard
            "state_dict_type": "SHARDED_STATE_DICT",  # each rank writes its own part of a checkpoint
        },
        parallelism_config=mesh if strategy == "hsdp" else None,  # shards inside a node; fsdp: over all ranks
        dataloader_drop_last=True,  # full batches only, on all ranks
        save_steps=args.save_steps,
        save_total_limit=2,
        logging_steps=1,  # each reads the loss from the device. More: train_loss is right for a multiple of it alone
        logging_nan_inf_filter=False,  # else 0 is logged for NaN
        disable_tqdm=True,
    )
    if sharded and cuda and bf16:  # accelerate's own policy reduces gradients in bfloat16, and casts the output to it
        training.fsdp_plugin_args["mixed_precision_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    if sharded and not cuda:  # on a CPU accelerate drops FSDP without a word; under another name it does not
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_XPU
    READS.append(f"the tokenizer of {args.model}")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.chat_template = tokenizer.chat_template or CHAT
    READS.append(args.data)
    with training.main_process_first(local=False):  # the others read what it leaves in the cache, which all nodes see
        lines = load_dataset("json", data_files=args.data, split="train")
        by = {"num_proc": args.processes or None}  # that tokenise; packed by one, so that rows are the same
        tokens = lines.map(encode, fn_kwargs={"tokenizer": tokenizer}, remove_columns=lines.column_names, **by)
        chats = "text" not in lines.column_names or lines.data.column("text").null_count > 0  # texts go without
        rows = tokens.map(pack, batched=True, batch_size=10_000, fn_kwargs={"length": args.sequence_length})
    require(len(rows) >= args.global_batch, f"{len(rows)} rows of {args.sequence_length} tokens are no step")
    here, record = {name: getattr(args, name) for name in SAME} | {"rows": len(rows)}, Path(args.out, "arguments.json")
    READS.append(record)
    there = json.loads(record.read_text()) if whole and record.exists() else here
    differ = [f"{name} {there.get(name)} there, {here[name]} here" for name in here if there.get(name) != here[name]]
    require(not differ, f"--resume: {newest} is of another training: {'; '.join(differ)}")
    READS.append(args.model)
    model = load_model(args.model, args.random, empty=sharded and RANK > 0)
    READS[:] = checkpoint
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=rows.with_format("torch", columns=["input_ids", "labels"] + chats * ["position_ids"]),
        data_collator=torch.utils.data.default_collate,  # Trainer's would add a mask
        processing_class=tokenizer,  # exported with the model
        callbacks=[Observed],
    )
    if RANK == 0 and not whole:
        record.write_text(json.dumps(here))
    if is_over:
        print(f"nothing is left to train: {newest} has the {args.steps} steps, and is exported")
    trainer.train(resume_from_checkpoint=str(newest) if whole else None)
    READS.clear()
    if sharded:  # else nothing is exported. Rank 0 gathers the whole model in host memory
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(f"{args.out}/model")  # float32; from_pretrained(dtype=torch.bfloat16) halves it
    trainer.accelerator.wait_for_everyone()
    time.sleep(0.3)  # gloo's threads let go of their last tensor; else a process ends with SIGABRT now and then
    trainer.accelerator.end_training()


if __name__ == "__main__":
    try:
        main()
    except (Exception, CheckpointException) as error:  # which is no Exception, and ends with what a rank said
        if not READS or isinstance(error, torch.OutOfMemoryError):
            raise
        while error.__cause__ is not None and error.__cause__.__traceback__:  # one of another process has none
            error = error.__cause__
        words = str(error).splitlines() or [type(error).__name__]
        require(False, f"{READS[-1]} cannot be read: {words[-isinstance(error, CheckpointException)]}")
