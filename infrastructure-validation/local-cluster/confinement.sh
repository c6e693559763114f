# shellcheck shell=bash
# Real limits on jobs, by cgroup v1: each cluster has a subtree of its own in the four hierarchies that Slurm uses, and
# inside the cluster that subtree is all there is. Sourced by `cluster`.

HIERARCHIES=(cpuset memory devices freezer)

confinement_lack() {  # prints why jobs cannot be confined here; nothing if they can
  local hierarchy at
  [ $EUID = 0 ] || { echo "not run by root"; return; }
  for hierarchy in "${HIERARCHIES[@]}"; do
    at=/sys/fs/cgroup/$hierarchy
    [ -e "$at/cgroup.procs" ] || { echo "no cgroup v1 hierarchy at $at"; return; }
    if [ ! -w "$at" ] || ! findmnt -n -O rw "$at" >/dev/null; then
      echo "$at is read-only"
      return
    fi
  done
}

make_cgroups() {
  local hierarchy file
  for hierarchy in "${HIERARCHIES[@]}"; do mkdir "/sys/fs/cgroup/$hierarchy/$CGROUP"; done
  for file in cpuset.cpus cpuset.mems; do  # a new cpuset is empty, and nothing can run in it
    cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$CGROUP/$file"
  done
}

remove_cgroups() {  # after the last process has ended; the kernel may need a moment to let go of them
  local hierarchy at tick
  for hierarchy in "${HIERARCHIES[@]}"; do
    at=/sys/fs/cgroup/$hierarchy/$CGROUP
    for ((tick = 0; tick < 100; tick++)); do
      [ -d "$at" ] || continue 2
      find "$at" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
    done
    die "cannot remove the cgroup $at; see which processes are in it with 'find $at -name cgroup.procs -exec cat {} +'"
  done
}

# On the login host: the cluster's subtrees take the place of the machine's hierarchies.
narrow_cgroups() {
  local hierarchy hold=$STATE/node/hold
  mkdir "$hold"
  mount -t tmpfs -o size=64k,mode=755 tmpfs "$hold"
  for hierarchy in "${HIERARCHIES[@]}"; do
    mkdir "$hold/$hierarchy"
    mount --bind "/sys/fs/cgroup/$hierarchy/$CGROUP" "$hold/$hierarchy"
  done
  mount --move "$hold" /sys/fs/cgroup
}

# A fresh sysfs shows only the devices of this host's network. It hides the cgroups, so they are carried over.
private_sys() {  # CONFINED
  local hold=$STATE/node/hold
  if [ "$1" = confined ]; then
    mount --rbind /sys/fs/cgroup "$hold"
    mount -t sysfs sysfs /sys
    mount --move "$hold" /sys/fs/cgroup
  else
    mount -t sysfs sysfs /sys
    mount -t tmpfs -o size=64k tmpfs /sys/fs/cgroup
  fi
}
