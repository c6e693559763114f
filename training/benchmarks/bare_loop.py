"""The same training without Trainer, on one device: model, rows, precision, optimizer and clipping of the recipe.

overhead.py compares Trainer with this plain loop. It is also the shortest statement of what the recipe computes.
It prints one JSON line: tokens_per_s in the steady window, step_p50_s, fastest_step_s, first and last loss.
The options are those of train_single_gpu.py.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "src"))

from recipe import arguments
from recipe.rank import RankFacts, node_name


def main() -> None:
    args, _ = arguments.parse(__doc__ or "", takes_hsdp=False, sharded=False)
    import torch
    from recipe import group, meter, prepare, results
    from recipe.nowait import without_waits

    model, rows = prepare.prepare(args, [node_name()], RankFacts("bare", io.StringIO()), lambda *_, **__: None)
    model = model.to(group.DEVICE).train()
    order = torch.randperm(
        len(rows), generator=torch.Generator().manual_seed(args.seed)
    ).tolist()  # that of accelerate's sampler
    loader = torch.utils.data.DataLoader(
        torch.utils.data.Subset(rows, order),
        batch_size=args.per_device_batch,
        drop_last=True,
        num_workers=args.dataloader_workers,
        pin_memory=group.CUDA,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    bf16 = group.CUDA if args.bf16 is None else args.bf16
    batches = iter(loader)
    ends, losses = [meter.now()], []
    with without_waits():  # like the program that it is compared with
        for _ in range(args.steps):
            total = torch.zeros((), device=group.DEVICE)
            for _ in range(args.gradient_accumulation):
                batch = next(batches)
                ids, labels = (batch[name].to(group.DEVICE, non_blocking=True) for name in ("input_ids", "labels"))
                with torch.autocast(group.DEVICE.type, dtype=torch.bfloat16, enabled=bf16):
                    loss = model(input_ids=ids, labels=labels).loss / args.gradient_accumulation
                loss.backward()
                total += loss.detach()
            torch.nn.utils.clip_grad_norm_(model.parameters(), results.MAX_GRAD_NORM)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
            ends.append(meter.now())
    if group.CUDA:
        torch.cuda.synchronize()
    steps = [meter.seconds(a, b) for a, b in itertools.pairwise(ends)]
    steady = meter.steady_window([steps], ["here"], args.warmup_steps, args.global_batch * args.sequence_length)
    print(
        json.dumps(
            {
                "tokens_per_s": steady.tokens_per_s,
                "step_p50_s": steady.step_time_s.p50,
                "fastest_step_s": min(steady.steps_s),
                "first_loss": losses[0].item(),
                "last_loss": losses[-1].item(),
            }
        )
    )


if __name__ == "__main__":
    main()
