"""What a person has to know about the gates of checkpoints."""

from __future__ import annotations

from bringup.checks.training.guides import SINGLE_GPU
from bringup.plan.guide import Guide
from bringup.records import Action

INTACT = Guide(
    title="Checkpoint intact",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "On each rank: the number of files of a checkpoint that have another size or CRC-32 when they are read "
        "again than when the rank wrote them. A resumed run counts its share of the files that it resumed from. "
        "With a damaged file nothing is wiped, and training goes on without the checkpoint."
    ),
    why="A damaged checkpoint is noticed only when it is needed.",
    usually_means=(
        "The storage lost or changed what was written: a full quota that was not reported when the file was closed, "
        "a client that lost its connection, a failing disk. Incomplete with `not found out`: the rank did not "
        "finish. Incomplete without evidence: the run had `--no-rehearse-resume`, or fewer steps than the rehearsal "
        "needs."
    ),
    next=(
        "grep -h checkpoint {run}/raw/rank*.jsonl {run}/raw/launch.log",
        "bringup run smoke --nodelist {nodes}",
    ),
    by_hand="The second command tests the same storage without training.",
)

RESUMABLE = Guide(
    title="Checkpoint resumable",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "On each rank: the number of tensors of parameters, optimizer state and random state that have other bits "
        "than before, after they were set to zero and read back. A resumed run counts those that are not what was "
        "saved. It is not judged on a rank whose files are damaged."
    ),
    why="A training that resumes with an incomplete state gives no error, and learns worse.",
    usually_means=(
        "A library does not bring back what it saved: other versions of torch, transformers or accelerate than the "
        "pinned ones, or an optimizer whose state is not all tensors. Incomplete: a file was damaged, or the rank "
        "did not finish."
    ),
    next=(
        "grep -h train.checkpoint.resumable {run}/raw/rank*.jsonl",
        '.venv/bin/python -m pip list | grep -E "^(torch|transformers|accelerate) "',
        "grep -E '^(torch|transformers|accelerate)' training/constraints.txt",
    ),
)

SIZE = Guide(
    title="Checkpoint size",
    page=SINGLE_GPU,
    action=Action.CONFIGURE,
    observes=(
        "The bytes of all files of the last checkpoint that the run wrote, divided by what was predicted before the "
        "first step. A resumed run that wrote none takes the one that it began with. The prediction counts the model "
        "and not the checkpoint: every tensor of its state by its own data type, two moments and a step for each "
        "trained parameter, what torch takes to store a part of a tensor, and the random states. Expected: 0.95 to "
        "1.05, in both directions. Not exact is the file that names all parts: it is an allowance."
    ),
    why=(
        "*Checkpoint resumable* compares what was saved with what came back. A tensor that was never saved is in "
        "neither. And the size decides how much room and how much time before a time limit a training needs."
    ),
    usually_means=(
        "Less: a part of the state is not saved (0.67: one of the two moments; 0.33: the parameters alone), or it has "
        "a narrower data type. More: a tensor is saved by every rank that holds it, the optimizer keeps more than "
        "AdamW does, or its states are not sharded. Incomplete: no checkpoint was written, or the one that was read "
        "is of other ranks or of another strategy."
    ),
    next=("grep -A16 '\"checkpoint\"' {run}/metrics.json", "grep -h checkpoint {run}/raw/launch.log"),
    by_hand="`checkpoint.json` in a checkpoint that was kept (`--save-steps`) names its tensors and its files.",
)
