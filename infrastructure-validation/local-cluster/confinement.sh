# shellcheck shell=bash
# Real limits on jobs: each cluster has a cgroup of its own, and inside the cluster that is all there is of them. What
# depends on the version of cgroups is in cgroup_v1.sh and cgroup_v2.sh, which define the same functions. Sourced by `cluster`.

: "${CGROUP_ROOT:=/sys/fs/cgroup}"  # the tests set another
# The root of cgroup v2 and each cgroup below it have this file, so the answer is the same on the machine and on a confined host.
# v1 has it at most beside its hierarchies, for a v2 without controllers.
if [ -e "$CGROUP_ROOT/cgroup.controllers" ]; then CGROUP_VERSION=v2; else CGROUP_VERSION=v1; fi
# shellcheck source-path=SCRIPTDIR source=cgroup_v2.sh
. "${BASH_SOURCE[0]%/*}/cgroup_$CGROUP_VERSION.sh"

confinement_lack() {  # prints why jobs cannot be confined here; nothing if they can
  if [ $EUID != 0 ]; then
    echo "not run by root"
  elif ! has_plugin "$CGROUP_VERSION"; then
    echo "this Slurm ($(slurmd -V)) has no plugin cgroup/$CGROUP_VERSION"
  else
    hierarchy_lack
  fi
}

# Plugins are in the folder of Slurm's own library. A slurmd that tells no such folder is taken for one that has them.
has_plugin() {  # VERSION
  local library
  library=$(ldd "$(command -v slurmd)" 2>/dev/null | sed -n 's/.* => \(.*libslurmfull\.so\) .*/\1/p') || :
  [ -z "$library" ] || [ -e "${library%/*}/cgroup_$1.so" ]
}

cgroup_conf() {  # CONFINED
  if [ "$1" = confined ]; then
    echo "CgroupPlugin=cgroup/$CGROUP_VERSION"
    plugin_settings
    printf '%s\n' ConstrainDevices=yes ConstrainRAMSpace=yes "ConstrainCores=$CORES"
  # slurmd 22.05 wants a plugin even when nothing uses it, and autodetection fails without a hierarchy.
  # Slurm 26.05 says that cgroup/v1 will go; 24.05 and later can do without a plugin
  elif has_plugin v1; then
    echo "CgroupPlugin=cgroup/v1"
  else
    echo "CgroupPlugin=disabled"
  fi
}

remove_cgroups() {  # after the last process has ended
  local at all
  mapfile -t all < <(cluster_cgroups)
  for at in "${all[@]}"; do remove_cgroup "$at"; done
}

remove_cgroup() {  # FOLDER, with all below it; the kernel may need a moment to let go of them
  local tick
  for ((tick = 0; tick < 100; tick++)); do
    [ -d "$1" ] || return 0
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
  done
  die "cannot remove the cgroup $1; see which processes are in it with 'find $1 -name cgroup.procs -exec cat {} +'"
}

# A fresh sysfs shows only the devices of this host's network. It hides the cgroups, so they are put where they belong.
private_sys() {  # HOST CONFINED
  local hold=$STATE/node/hold
  if [ "$2" = unconfined ]; then
    mount -t sysfs sysfs /sys
    mount -t tmpfs -o size=64k tmpfs /sys/fs/cgroup
    return
  fi
  mkdir -p "$hold"
  mount_cgroups "$1" "$hold"
  mount -t sysfs sysfs /sys
  mount --move "$hold" /sys/fs/cgroup
}

no_throttle() { die "throttle needs root and a cgroup that counts the node's CPU time; 'cluster up' says what is lacking"; }
