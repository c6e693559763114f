"""Two training steps from a fixed seed: the same bits on every device of one kind. torch is handed in.

The inputs are whole numbers from a seeded generator, divided by a power of two: they are the same on every machine. The
steps use matrix products, softmax, normalisation and their gradients, by algorithms that give the same bits each time.
So a device that gives other bits than its peers, or than itself a moment ago, computes wrongly and says nothing
(silent data corruption). Devices are compared only with devices of their kind: another model, library or instruction
set may round differently and be right.
"""

import ctypes
import hashlib
import os
import platform

from inventory import CPUINFO, cpu_model

SEED = 20240229
STEPS = 2
REPEATS = 3
LEARNING_RATE = 2.0**-6
SCALE = 2.0**-8
LARGE, SMALL = (8, 512, 2048), (2, 64, 128)  # sequences, tokens of each, width
ROOM = 4 * 2**30  # bytes that a GPU has for the large one, which takes half of them
BLOCKS = 2
HEADS = 8
DETERMINISTIC_CUBLAS = ":4096:8"  # docs.nvidia.com/cuda/cublas, "Results reproducibility"


def prepare():
    """Before torch starts CUDA: cuBLAS reads its workspace setting once."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", DETERMINISTIC_CUBLAS)


def shape(torch, device):
    """The same on all devices of one kind."""
    large = device.type == "cuda" and torch.cuda.get_device_properties(device).total_memory >= ROOM
    return LARGE if large else SMALL


def kind(torch, device):
    """What has to be equal before bits can be compared."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        small = ", small steps" if shape(torch, device) == SMALL else ""
        of_gpu = (
            f"{properties.name}, {properties.multi_processor_count} SMs, compute {properties.major}.{properties.minor}"
        )
        return f"{of_gpu}, torch {torch.__version__}, CUDA {torch.version.cuda}{small}"
    try:
        model = cpu_model(CPUINFO.read_text())
    except OSError:
        model = None
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{model or platform.machine()}, {capability}, torch {torch.__version__}"


def digests(torch, device, spoiled):
    """What each repetition gave, in words: the losses bit by bit and a hash of the gradients. spoiled: a drill changes
    one bit of the last one."""
    was = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    if device.type == "cpu":
        torch.set_num_threads(1)  # how a sum is divided among threads changes how it is rounded
    try:
        return [digest(torch, device, spoiled and repeat == REPEATS - 1) for repeat in range(REPEATS)]
    finally:
        torch.use_deterministic_algorithms(was[0])
        torch.set_num_threads(was[1])


def digest(torch, device, spoiled):
    generator = torch.Generator().manual_seed(SEED)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    sequences, tokens, width = shape(torch, device)

    def exact(*shape):
        integers = torch.randint(-128, 129, shape, generator=generator)
        return (integers.to(torch.float32) * SCALE).to(device, dtype)

    data, target = exact(sequences, tokens, width), exact(sequences, tokens, width)
    weights = []
    for _ in range(BLOCKS):
        weights += [exact(width, 3 * width), exact(width, width), exact(width, 4 * width), exact(4 * width, width)]
    weights = [(weight * width**-0.5).detach().requires_grad_() for weight in weights]
    losses = []
    for _ in range(STEPS):
        loss = (forward(torch, data, weights) - target).float().square().mean()
        gradients = torch.autograd.grad(loss, weights)
        losses.append(loss.item())
        weights = [
            (weight - LEARNING_RATE * gradient).detach().requires_grad_()
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
    parts = [gradient.detach().to("cpu").contiguous() for gradient in gradients]
    if spoiled:
        parts[0].view(torch.uint8).view(-1)[0] ^= 1
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(ctypes.string_at(part.data_ptr(), part.numel() * part.element_size()))
    return f"losses {' '.join(float(loss).hex() for loss in losses)} gradients {hashed.hexdigest()[:32]}"


def forward(torch, hidden, weights):
    """Blocks of attention and a perceptron, each with its normalisation before it, as transformers have them."""
    functional = torch.nn.functional
    sequences, tokens, width = hidden.shape
    for block in range(BLOCKS):
        mixed, out, up, down = weights[4 * block : 4 * block + 4]
        query, key, value = (
            part.view(sequences, tokens, HEADS, width // HEADS).transpose(1, 2)
            for part in (functional.layer_norm(hidden, (width,)) @ mixed).split(width, dim=-1)
        )
        scores = (query @ key.transpose(-1, -2)).float() * (width // HEADS) ** -0.5
        attended = scores.softmax(dim=-1).to(hidden.dtype) @ value
        hidden = hidden + attended.transpose(1, 2).reshape(sequences, tokens, width) @ out
        hidden = hidden + functional.gelu(functional.layer_norm(hidden, (width,)) @ up) @ down
    return hidden
