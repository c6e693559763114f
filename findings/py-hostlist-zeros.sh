#!/usr/bin/env bash
# py-hostlist renames nodes whose numbers begin with zeros
#
# One would guess: that it reads and writes Slurm's host lists as scontrol show hostnames and scontrol show
# hostlist do.
#
# What happens: compress_range loses every leading zero (n08 becomes n8); expand keeps those of n[008-010], loses
# those of n[098-101] and n[1,03], adds one to n[00-1], and makes n005 of the 5 in n[5,100-101].
#
# Why: expand in hostlist/hostlist.py counts every zero of a range's first number instead of its width, and the
# others go through int().
#
# What to do: use python-hostlist or ClusterShell, which keep the zeros, or scontrol; note that python-hostlist is
# imported by the same name, hostlist, so only one of the two can be installed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile py-hostlist==0.0.2.dev0

cat > probe.py <<'END'
from importlib.metadata import version

from hostlist import hostlist

print("py-hostlist", version("py-hostlist"))
for nodes in ("n08,n09,n10", "n098,n099,n100"):
    print(nodes, "->", hostlist.compress_range(nodes.split(",")))
for nodes in ("n[008-010]", "n[098-101]", "n[1,03]", "n[00-1]", "n[5,100-101]"):
    print(nodes, "->", hostlist.expand(nodes))
END

expected=$(
  cat <<'END'
py-hostlist 0.0.2.dev0
n08,n09,n10 -> n[8-10]
n098,n099,n100 -> n[98-100]
n[008-010] -> n008,n009,n010
n[098-101] -> n98,n99,n100,n101
n[1,03] -> n1,n3
n[00-1] -> n000,n001
n[5,100-101] -> n005,n100,n101
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
