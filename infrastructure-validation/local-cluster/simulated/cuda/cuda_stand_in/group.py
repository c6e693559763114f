"""ProcessGroupNCCL: a name that torch.distributed takes from its C part, over the native part."""

from __future__ import annotations

import datetime
from typing import Any

from cuda_stand_in import node
from cuda_stand_in.names import NCCL, refuse_the_rest

TIMEOUT = datetime.timedelta(minutes=10)  # of NCCL, unless a caller gives one


def put(native: Any) -> None:
    """Before torch.distributed.distributed_c10d is imported."""
    import torch
    import torch._C._distributed_c10d as c10d

    def gloo(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
        group = c10d.ProcessGroupGloo(c10d.PrefixStore("nccl", store), rank, size, timeout=timeout)
        group._set_sequence_number_for_group()
        return group

    gpus = node.visible_gpus()

    def connect(store: Any, rank: int, size: int, device: int) -> None:
        """Where the group was given its device at once, ranks tell each other their GPU. The words are NCCL's."""
        by_rank, own = c10d.PrefixStore("gpus", store), str(gpus[device].uuid)
        by_rank.set(str(rank), own)
        for other in range(size):
            if other != rank and by_rank.get(str(other)).decode() == own:
                raise torch._C._DistBackendError(
                    f"NCCL error in: the stand-in's group, invalid usage, NCCL version {'.'.join(map(str, NCCL))}\n"
                    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
                    f"Duplicate GPU detected : rank {rank} and rank {other} both on CUDA device {gpus[device].bus:x}000"
                )

    native.process_group(native, gloo, connect)
    kept: list[Any] = []

    class Options(c10d.Backend.Options):  # type: ignore[misc]
        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__("nccl", TIMEOUT)
            kept.append(self)  # the native part keeps the part that is in C++, and hands this object out again
            self.is_high_priority_stream = is_high_priority_stream
            self.split_from, self.split_color, self.config = None, 0, None

        def __deepcopy__(self, memo: Any) -> Options:
            other = Options(self.is_high_priority_stream)
            other._timeout, other.group_name = self._timeout, self.group_name
            other.global_ranks_in_group = list(self.global_ranks_in_group)
            return other

    native.ProcessGroupNCCL.Options = Options
    c10d.ProcessGroupNCCL = native.ProcessGroupNCCL
    c10d._DEFAULT_PG_NCCL_TIMEOUT = TIMEOUT
    # the flight recorder is the one of all process groups, here filled by gloo
    c10d._dump_nccl_trace_json = lambda includeCollectives=None, onlyActive=None: c10d._dump_fr_trace_json(
        includeCollectives, onlyActive
    )
    refuse_the_rest(c10d, "torch._C._distributed_c10d")
