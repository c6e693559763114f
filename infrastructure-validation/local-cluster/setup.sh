#!/bin/bash
# Installs what the local cluster needs on Debian (12 and later) and Ubuntu (24.04; from universe). Does nothing when all of it
# is there. On other systems it installs nothing, and says what is not there.
set -euo pipefail

PACKAGES=(slurmctld slurmd slurm-client munge iproute2 nftables util-linux python3-venv shellcheck faketime bindfs gcc g++ libc6-dev)
COMMANDS=(slurmctld slurmd sinfo munged ip tc nft unshare flock hostname shellcheck faketime bindfs gcc g++) # where there is no dpkg
DAEMONS=(slurmctld slurmd munge)
POLICY=/usr/sbin/policy-rc.d

say() { echo "setup: $*" >&2; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  lacking=()
  for command in "${COMMANDS[@]}"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$command" >/dev/null || lacking+=("$command")
  done
  [ ${#lacking[@]} -gt 0 ] || exit 0
  say "not found: ${lacking[*]}; this is not a Debian system: install by hand Slurm (slurmctld, slurmd, clients), munge, iproute2" \
    "with tc, nftables, util-linux, hostname, shellcheck, faketime, bindfs, gcc and g++ with the headers of C, and Python 3.11 or newer"
  ! command -v dnf >/dev/null || say "many of them are in EPEL and CRB: dnf install epel-release && dnf config-manager --set-enabled crb;" \
    "then PYTHON=python3.12 make setup"
  exit 2
fi

missing=()
for package in "${PACKAGES[@]}"; do installed "$package" || missing+=("$package"); done
[ ${#missing[@]} -gt 0 ] || [ ! -e /etc/hosts ] || exit 0

as_root=()
if [ $EUID != 0 ]; then
  command -v sudo >/dev/null || { say "missing: ${missing[*]:-/etc/hosts}; run this as root, there is no sudo"; exit 2; }
  as_root=(sudo)
fi

if [ ! -e /etc/hosts ]; then  # a minimal system has none; the cluster's hosts put theirs over it
  echo '127.0.0.1 localhost' | "${as_root[@]}" tee /etc/hosts >/dev/null
  say "there was no /etc/hosts; made one, with localhost"
fi
[ ${#missing[@]} -gt 0 ] || exit 0

# The cluster starts daemons of its own; the machine must not run any. While policy-rc.d answers 101, packages start none.
# It removes itself where this script was killed before it could.
own_policy=''
remove_policy() { [ -z "$own_policy" ] || "${as_root[@]}" rm -f "$POLICY"; }
trap remove_policy EXIT
if [ ! -e "$POLICY" ]; then
  own_policy=1
  # shellcheck disable=SC2016 # $0 is that of the file
  printf '#!/bin/sh\n[ ! -d /proc/%d ] || exit 101\nrm -f "$0"\n' $$ | "${as_root[@]}" tee "$POLICY" >/dev/null
  "${as_root[@]}" chmod 755 "$POLICY"
fi

log=$(mktemp)
say "installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  say "apt-get failed; its whole output is in $log"
  exit 2
fi
rm -f "$log"

# Nor at the next boot. Only what was installed just now: a machine that already runs Slurm is left as it is.
if command -v systemctl >/dev/null; then
  for package in "${missing[@]}"; do
    [[ " ${DAEMONS[*]} " != *" $package "* ]] || "${as_root[@]}" systemctl --quiet disable --now "$package" 2>/dev/null || :
  done
fi
