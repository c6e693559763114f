#!/usr/bin/env python3
"""A stand-in for `dcgmi diag -r LEVEL -j`: the JSON of DCGM 4, or of DCGM 3, about a simulated node.

Keys of the state file:
    gpus=8                         how many GPUs there are
    dcgm.gpus=7                    how many of them DCGM lists (default: all)
    dcgm.version=4.5.2             3.3.9: the format of DCGM 3
    dcgm.<test>=fail:gpu3          that test fails on that GPU: software, memory, pcie, diagnostic, memory_bandwidth,
                                   targeted_stress, targeted_power; also skip, warn or doubt; without :gpuN on all
    dcgm.error=WORDS               the diagnostic does not run: they are its runtime error
    dcgm.hang=SECONDS              it takes so long
    dcgm.cut=1                     its answer ends in the middle
"""

import json
import sys
import time

from tools import known_keys

TESTS = (  # level from which it runs, category, name in DCGM 4, name in DCGM 3
    (1, "Deployment", "software", "Persistence Mode"),
    (2, "Hardware", "memory", "GPU Memory"),
    (2, "Integration", "pcie", "PCIe"),
    (3, "Hardware", "diagnostic", "Diagnostic"),
    (3, "Stress", "memory_bandwidth", "Memory Bandwidth"),
    (3, "Stress", "targeted_stress", "Targeted Stress"),
    (3, "Stress", "targeted_power", "Targeted Power"),
)
DEPLOYMENT_3 = (
    "Denylist",
    "NVML Library",
    "CUDA Main Library",
    "Permissions and OS Blocks",
    "Persistence Mode",
    "Environment Variables",
    "Page Retirement/Row Remap",
    "Graphics Processes",
    "Inforom",
)
STATUS = {"fail": "Fail", "skip": "Skip", "warn": "Warn", "doubt": "Pass"}
WARNINGS = {  # words, id, category and severity as DCGM has them
    "software": (
        "Persistence Mode: Persistence mode for GPU {gpu} is disabled. Enable persistence mode by running "
        '"nvidia-smi -i <gpuId> -pm 1 " as root.',
        29,
        8,
        5,
    ),
    "memory": ("A double bit ECC error was detected on GPU {gpu}: 1 in the last 60 seconds.", 6, 5, 2),
}
OTHER = ("The test {test} did not reach its target on GPU {gpu}.", 23, 7, 1)
DRIVER = "570.148.08"
ISOLATE, ERROR = 205, 226  # exit codes: DCGM_ST_NVVS_ISOLATE_ERROR and DCGM_ST_NVVS_ERROR


def main():
    arguments, known = sys.argv[1:], known_keys()
    if arguments[:2] != ["diag", "-r"] or arguments[3:] != ["-j"]:
        sys.exit("stand-in: only `dcgmi diag -r LEVEL -j` is known")
    time.sleep(float(known.get("dcgm.hang", "0")))
    four = not known.get("dcgm.version", "4.5.2").startswith("3.")
    if "dcgm.error" in known:
        name = "DCGM Diagnostic" if four else "DCGM GPU Diagnostic"
        document = {name: {"runtime_error": known["dcgm.error"], "version": known.get("dcgm.version", "4.5.2")}}
    else:
        tests = [test for test in TESTS if test[0] <= int(arguments[2])]
        document = (of_dcgm_4 if four else of_dcgm_3)(
            tests, known, int(known.get("dcgm.gpus") or known.get("gpus", "8"))
        )
    text = json.dumps(document, indent="\t", separators=(",", " : "))
    print(text[: len(text) // 2] if "dcgm.cut" in known else text)
    failed = any(key.startswith("dcgm.") and value.startswith("fail") for key, value in known.items())
    sys.exit(ERROR if "dcgm.error" in known else ISOLATE if failed else 0)


def outcome(known, test, gpu):
    """(status, warnings) of a test on a GPU."""
    result, _, where = known.get(f"dcgm.{test}", "pass").partition(":")
    if result == "pass" or (where and where != f"gpu{gpu}"):
        return "Pass", []
    if result == "skip":
        return "Skip", []
    words, number, category, severity = WARNINGS.get(test, OTHER)
    return STATUS[result], [
        {
            "error_category": category,
            "error_id": number,
            "error_severity": severity,
            "warning": words.format(gpu=gpu, test=test),
        }
    ]


def of_dcgm_4(tests, known, gpus):
    categories = []
    for category in dict.fromkeys(test[1] for test in tests):
        listed = []
        for _, _, name, _ in (test for test in tests if test[1] == category):
            results, worst = [], "Pass"
            for gpu in range(gpus):
                status, warnings = outcome(known, name, gpu)
                entry = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
                results.append({**entry, **({"warnings": warnings} if warnings else {})})
                worst = status if status != "Pass" and worst != "Fail" else worst
            listed.append({"name": name, "results": results, "test_summary": {"status": worst}})
        categories.append({"category": category, "tests": listed})
    entities = [{"device_id": "2330", "entity_id": gpu, "serial_num": f"165{gpu:010}"} for gpu in range(gpus)]
    return {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": DRIVER, "version": known.get("dcgm.version", "4.5.2")},
    }


def of_dcgm_3(tests, known, gpus):
    """Its first level has one result for all GPUs, whose warnings name their GPU and are called otherwise."""
    categories = []
    for category in dict.fromkeys(test[1] for test in tests):
        listed = []
        for _, _, test, name in (test for test in tests if test[1] == category):
            results = [(gpu, *outcome(known, test, gpu)) for gpu in range(gpus)]
            if category != "Deployment":
                entries = [
                    {"gpu_id": str(gpu), "status": status, **({"warnings": warnings} if warnings else {})}
                    for gpu, status, warnings in results
                ]
                listed.append({"name": name, "results": entries})
                continue
            bad = next((result for result in results if result[1] != "Pass"), None)
            for each in DEPLOYMENT_3:
                entry = {"status": "Pass"}
                if each == name and bad is not None:
                    warnings = [
                        {("warnings" if key == "warning" else key): value for key, value in warning.items()}
                        for warning in bad[2]
                    ]
                    entry = {"gpu_id": bad[0], "status": bad[1], "warnings": warnings}
                listed.append({"name": each, "results": [entry]})
        categories.append({"category": category, "tests": listed})
    return {
        "DCGM GPU Diagnostic": {"test_categories": categories},
        "Driver Version Detected": DRIVER,
        "GPU Device IDs": ["2330"] * gpus,
        "version": known["dcgm.version"],
    }


if __name__ == "__main__":
    main()
