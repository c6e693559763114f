"""An answer that says that there is nothing to tell: one rule for all questions to NVML and to nvidia-smi.

A GPU may lack the thing, and a driver may have retired the question: from 590 on there is no clock for applications.
What that means stands in MEANS. A quantity that is not in its table stays unknown, and alone: no error counter is 0
because nobody counts any more, and MIG may be on in a driver that does not say so.
"""

LACKS, RETIRED = 3, 26  # NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_DEPRECATED
MEANS = {
    LACKS: {
        "discovery.gpu.mig": "not supported",
        "discovery.gpu.fabric": "not supported",
        "discovery.gpu.ecc_mode": "not supported",
        "discovery.gpu.recovery_action": "not supported",
        "discovery.gpu.clock_cap": 0,
    },
    RETIRED: {"discovery.gpu.clock_cap": 0},  # who cannot set a clock has set none
}
REMARKS = {LACKS: "this GPU has no such thing", RETIRED: "this driver has retired the question"}
WORDS = {  # of nvidia-smi, without brackets, in small letters
    "n/a": LACKS,
    "not supported": LACKS,
    "requested functionality has been deprecated": RETIRED,
    "deprecated": RETIRED,
}


def kind_of_error(nvml, error):
    """LACKS, RETIRED or None. A pynvml that is older than the code has no class for it."""
    if isinstance(error, nvml.NVMLError_NotSupported):
        return LACKS
    return RETIRED if getattr(error, "value", None) == RETIRED else None


def kind_of_words(text):
    """The same, of a cell of nvidia-smi."""
    return WORDS.get(text.strip("[]").rstrip(".").lower())


def says(facts, quantity, unit, kind, words, subject):
    """Write what such an answer means: a value with its remark, or unknown with the words."""
    if quantity in MEANS.get(kind, {}):
        facts.saw(quantity, MEANS[kind][quantity], unit, subject, remark=f"{REMARKS[kind]}: {words}")
    elif kind == RETIRED:
        facts.unknown(quantity, unit, f"{REMARKS[kind]}: {words}", subject)
    else:
        facts.unknown(quantity, unit, words, subject)
