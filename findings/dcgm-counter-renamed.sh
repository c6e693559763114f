#!/usr/bin/env bash
# prometheus_client renames counters of the DCGM exporter when it reads them
#
# One would guess: that text_string_to_metric_families gives the samples of an exporter's page by the names that
# stand on it.
#
# What happens: DCGM_FI_DEV_PCIE_REPLAY_COUNTER, a counter without _total, comes back as
# DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total: a look-up by the exporter's name finds nothing, as if the GPU had no
# replays, and a page written again has other series than Prometheus stores.
#
# Why: build_metric in prometheus_client/parser.py turns counters of the text format into OpenMetrics, where their
# samples end in _total.
#
# What to do: look a counter up by both names, and never write a parsed page out again for the same dashboards.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile prometheus-client==0.26.0

cat > probe.py <<'END'
from importlib.metadata import version

from prometheus_client.parser import text_string_to_metric_families

PAGE = """\
# HELP DCGM_FI_DEV_PCIE_REPLAY_COUNTER Total number of PCIe retries.
# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0"} 3
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0"} 79
"""
print("prometheus-client", version("prometheus-client"))
for family in text_string_to_metric_families(PAGE):
    for sample in family.samples:
        print(family.type, sample.name, sample.value)
END

expected=$(
  cat <<'END'
prometheus-client 0.26.0
counter DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total 3
gauge DCGM_FI_DEV_XID_ERRORS 79
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
