"""What ranks tell each other is data, never pickles: who reaches the ports of a group could run code with a pickle.

torch is handed in. All ranks call the same function with bytes of their own; a length above MOST_BYTES is a
RuntimeError on every rank.
"""

MOST_BYTES = 64 * 2**20  # of one rank: the results of a training of 100,000 steps take a tenth


def gather(torch, dist, device, data):
    """The bytes of every rank, index = rank."""
    own = torch.tensor([len(data)], device=device)
    lengths = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, own)
    lengths = [_bounded(int(length), rank) for rank, length in enumerate(lengths)]
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    padded[: len(data)] = _tensor(torch, data, device)
    everyone = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(everyone, padded)
    return [_bytes(everyone[rank][:length]) for rank, length in enumerate(lengths)]


def _bounded(length, rank):
    if not 0 < length <= MOST_BYTES:
        raise RuntimeError(f"rank {rank} has {length} bytes to tell, expected 1 to {MOST_BYTES}")
    return length


def _tensor(torch, data, device):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)


def _bytes(tensor):
    return tensor.cpu().numpy().tobytes()
