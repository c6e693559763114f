#!/usr/bin/env bash
# PyYAML turns the PCI addresses of some GPUs into numbers
#
# One would guess: that the eight addresses of a node's GPUs, written without quotes, are eight strings.
#
# What happens: those whose bus has no hexadecimal letter become a float, the others stay text, so that a list of
# addresses has two types, and a look-up by address finds only some GPUs.
#
# Why: YAML 1.1 has floats of base 60 (1:30.5), and PyYAML's resolver takes digits and colons that end in a point
# for one; a bus above 59 in decimal digits, as 0000:87:00.0, is text again.
#
# What to do: quote addresses, dump them with PyYAML itself (it quotes them), and check the type where they are
# read.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile PyYAML==6.0.4

cat > probe.py <<'END'
import yaml

print("PyYAML", yaml.__version__)
gpus = "0000:05:00.0 0000:1b:00.0 0000:43:00.0 0000:52:00.0 0000:87:00.0 0000:9d:00.0 0000:c3:00.0 0000:d1:00.0"
for address in gpus.split():
    print(address, "->", repr(yaml.safe_load(address)))
print("dumped:", yaml.safe_dump(["0000:05:00.0"]).strip())
END

expected=$(
  cat <<'END'
PyYAML 6.0.4
0000:05:00.0 -> 300.0
0000:1b:00.0 -> '0000:1b:00.0'
0000:43:00.0 -> 2580.0
0000:52:00.0 -> 3120.0
0000:87:00.0 -> '0000:87:00.0'
0000:9d:00.0 -> '0000:9d:00.0'
0000:c3:00.0 -> '0000:c3:00.0'
0000:d1:00.0 -> '0000:d1:00.0'
dumped: - '0000:05:00.0'
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
