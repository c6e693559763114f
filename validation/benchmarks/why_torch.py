"""A user's program under torchrun: rank 2 raises, the others wait for it in a collective."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 2:
    raise ValueError("batch 7 has 3 columns, expected 4")
dist.all_reduce(torch.ones(4))
