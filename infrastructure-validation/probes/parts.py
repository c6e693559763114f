#!/usr/bin/env python3
"""What a step prints that measures several scales, shared out to the files that a step of its own for each would write.

Rank 0 of a scale says `begin PART` and `end PART` on both streams. PART is collectives-2, groups-2 or variant_ring-2.
A line of a task is of the part that is measured, if the task is in its scale. Other tasks wait for the widest scale, or
have not come so far: what they say is of that one. So is what srun says of them, and which scale a bad end is of.

Run, on the host of the script, where SCALE is PART:NAME:RANKS_PER_NODE:NODES, as collectives-2:2-nodes:8:0-1. NODES:
numbers of the nodes in the step, which has as many tasks on each node as the widest scale has ranks.
     srun --label … scaling.py RAW SCALE… 2>ERRORS | parts.py out RAW SCALE…
     parts.py errors RAW ERRORS EXIT_CODE SCALE…      when the step has ended; prints the number of each SCALE that is
                                                      left: not ended, and not that of the bad end
"""

import contextlib
import os
import re
import sys
from collections import namedtuple
from pathlib import Path

LABEL = re.compile(r" {0,9}(\d{1,9}): (.*)", re.DOTALL)
MESSAGE = re.compile(r"(begin|end) (\S+)\n?")
OF_SRUN = re.compile(r"srun: error: \S+: tasks? (\d{1,9})\b")
COLLECTIVES, GROUPS = "collectives-", "groups-"
AS_IT_IS = "surrogateescape"  # bytes that are no UTF-8


class Scale(namedtuple("Scale", "part name per_node nodes")):
    """part: collectives-2; name: 2-nodes; per_node: ranks; nodes: {number in the step: place among those of it}."""

    def rank(self, node, local):
        """The number of the rank in this scale; None: it is not in it."""
        if node not in self.nodes or local >= self.per_node:
            return None
        return self.nodes[node] * self.per_node + local

    def ranks(self):
        return len(self.nodes) * self.per_node

    def groups(self):
        """The part of the groups across its nodes. None: this is a variant."""
        return GROUPS + self.part[len(COLLECTIVES) :] if self.part.startswith(COLLECTIVES) else None

    def logs(self):
        """The folder of NCCL's logs, below raw/."""
        return f"nccl-{self.part[len(COLLECTIVES) :]}" if self.part.startswith(COLLECTIVES) else self.part


def scale_of(text):
    """`collectives-2:2-nodes:8:0-1,5` -> Scale. Raises ValueError."""
    part, name, per_node, numbers = text.split(":")
    nodes = []
    for first, _, last in (numbered.partition("-") for numbered in numbers.split(",")):
        nodes += range(int(first), int(last or first) + 1)
    return Scale(part, name, int(per_node), {number: place for place, number in enumerate(nodes)})


class Parts:
    """Follows a stream: of which part a line is, and which parts have ended."""

    def __init__(self, scales):
        self.tasks_per_node = max(scale.per_node for scale in scales)
        self.widest = max(scales, key=Scale.ranks)
        self.of_part = {part: scale for scale in scales for part in (scale.part, scale.groups()) if part}
        self.now, self.ended = None, set()

    def message(self, task, words):
        """`begin` or `end`, and the part of which rank 0 of its scale says so with these words. None: it does not."""
        match = MESSAGE.fullmatch(words)
        if match is None or match[2] not in self.of_part or self._rank(task, match[2]) != 0:
            return None
        verb, part = match.groups()
        self.now = part if verb == "begin" else None
        (self.ended.discard if verb == "begin" else self.ended.add)(part)
        return verb, part

    def part(self, task):
        """What this task measures."""
        return self.widest.part if self.now is None or self._rank(task, self.now) is None else self.now

    def label(self, task, part):
        """The number that the task would have in a step of this scale alone."""
        rank = self._rank(task, part)
        return task if rank is None else rank

    def _rank(self, task, part):
        return self.of_part[part].rank(*divmod(task, self.tasks_per_node))


def out(raw, scales, stream):
    """Write each fact into the file of its part when it comes, and the exit code 0 of collectives that have ended."""
    parts, files = Parts(scales), {}
    with contextlib.ExitStack() as until_the_end:
        for line in stream:
            match = LABEL.fullmatch(line)
            message = parts.message(int(match[1]), match[2]) if match else None
            if message is not None:
                verb, part = message
                _code(raw, part, 0 if verb == "end" else None)
                (raw / f"{part}.err").touch()  # the newest one says what a run is busy with
                continue
            part = parts.part(int(match[1])) if match else parts.now or parts.widest.part
            if part not in files:
                files[part] = until_the_end.enter_context((raw / f"{part}.jsonl").open("a", errors=AS_IT_IS))
            files[part].write(f"{parts.label(int(match[1]), part)}: {match[2]}" if match else line)
            files[part].flush()


def errors(raw, file, code, scales):
    """Share out what the step has left on standard error, and give a bad end to the part of the task that ended first.
    Return the numbers of the scales that are left."""
    parts, texts, first = Parts(scales), {}, None
    for line in re.findall(".*\n|.+$", file.read_text(errors=AS_IT_IS)):
        match, of_srun = LABEL.fullmatch(line), OF_SRUN.match(line)
        if match and parts.message(int(match[1]), match[2]) is not None:
            continue
        speaker = match or of_srun
        part = parts.part(int(speaker[1])) if speaker else parts.now or parts.widest.part
        texts.setdefault(part, []).append(line)
        first = first or (part if of_srun else None)
    for part, text in texts.items():
        (raw / f"{part}.err").write_text("".join(text), errors=AS_IT_IS)
    file.unlink()
    if code == 0 and parts.ended.issuperset(scale.part for scale in scales):
        return []
    failed = first or parts.now or parts.widest.part
    _code(raw, failed, code)
    interrupted = parts.of_part.get(
        parts.now
    )  # by what happened to a rank that only waited, unless it has failed itself
    return [
        number
        for number, scale in enumerate(scales)
        if scale is not parts.of_part[failed] and (scale is interrupted or scale.part not in parts.ended)
    ]


def _code(raw, part, code):
    """Of groups and of variants no gate asks for the exit code."""
    if not part.startswith(COLLECTIVES):
        return
    file = raw / f"{part}.rc"
    if code is not None:
        file.write_text(f"{code}\n")
    elif file.exists():  # it goes on: it has the groups behind it, and the end of the communicator
        file.unlink()


def main():
    verb, raw, *others = sys.argv[1:]
    if verb == "out":
        out(Path(raw), [scale_of(text) for text in others], os.fdopen(0, errors=AS_IT_IS, newline="\n"))
    else:
        file, code, *scales = others
        print(*errors(Path(raw), Path(file), int(code), [scale_of(text) for text in scales]))


if __name__ == "__main__":
    main()
