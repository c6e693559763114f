"""Whether CUDA starts in this process, and by which name a GPU of torch is known to the driver.

torch.cuda.device_count() asks NVML as long as CUDA was not started: of a driver that is there and a CUDA that does not
start it counts GPUs that no program gets. So CUDA is started first, and what it says is kept.
"""

import re

LONGEST = 160  # letters of the reason: a line of facts has room for them


def devices(torch):
    """(GPUs that CUDA gives this process, why it gives none)."""
    if not torch.backends.cuda.is_built():
        return 0, "this torch was built without CUDA"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:  # no driver, one that does not fit, no GPU
        return 0, reason(str(error))
    return torch.cuda.device_count(), None


def reason(text):
    """torch's own words; CUDA's error alone where it is quoted."""
    line = (text.strip() or "CUDA did not start").splitlines()[0]
    quoted = re.search(r"Error \d+: .*", line)
    return (quoted[0] if quoted else line)[:LONGEST]


def uuid(torch, device):
    """As nvidia-smi prints it; None where torch does not tell it."""
    known = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if known is None or str(known).startswith("GPU-"):
        return known and str(known)
    return f"GPU-{known}"


def fallback(listed, why):
    """In words: the driver of the node lists so many GPUs, and the CPU was used."""
    return f"the driver lists {listed} GPUs, torch sees none: {why or 'it did not say why'}"
