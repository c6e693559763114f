"""The answers as gauges for node_exporter's textfile collector."""

import contextlib

import own_files

UNPRINTABLE = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
GAUGES = (
    ("bringup_health_fault", "fault", "1: a check of this node found a fault; 0: it did not"),
    ("bringup_health_unknown", "unknown", "1: a check of this node could not tell; 0: it could"),
)


def write(folder, seen):
    with contextlib.suppress(OSError):  # a full disk is no fault of this check's
        own_files.replace(folder / "bringup-health.{node}.prom".format(**seen), text(seen))


def text(seen):
    node = _label("node", seen["node"])
    lines = []
    for name, outcome, help in GAUGES:
        lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
        for each in seen["answers"]:
            labels = ",".join((node, _label("gate", each["gate"]), _label("action", each["action"])))
            lines.append("{}{{{}}} {}".format(name, labels, int(each["outcome"] == outcome)))
    for name, help, value in (
        ("bringup_health_timestamp_seconds", "when this node was asked last", seen["at"]),
        ("bringup_health_duration_seconds", "how long all checks of this node took", seen["seconds"]),
    ):
        lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge", f"{name}{{{node}}} {value}"]
    return "\n".join(lines) + "\n"


def _label(name, value):
    return f'{name}="{str(value).translate(UNPRINTABLE)}"'
