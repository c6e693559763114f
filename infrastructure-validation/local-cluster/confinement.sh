# shellcheck shell=bash
# Real limits on jobs, by cgroup v1: each cluster has a subtree of its own in the four hierarchies that Slurm uses, and
# inside the cluster that subtree is all there is. Sourced by `cluster`.

HIERARCHIES=(cpuset memory devices freezer)
CPU_TIME=cpu  # a further one, not of Slurm: with it the CPU time of a node can be held back; without it the rest works

confinement_lack() {  # prints why jobs cannot be confined here; nothing if they can
  local hierarchy at
  [ $EUID = 0 ] || { echo "not run by root"; return; }
  [ "$(cgroup_plugin)" = cgroup/v1 ] || { echo "this Slurm ($(slurmd -V)) has no plugin cgroup/v1"; return; }
  for hierarchy in "${HIERARCHIES[@]}"; do
    at=/sys/fs/cgroup/$hierarchy
    [ -e "$at/cgroup.procs" ] || { echo "no cgroup v1 hierarchy at $at"; return; }
    if [ ! -w "$at" ] || ! findmnt -n -O rw "$at" >/dev/null; then
      echo "$at is read-only"
      return
    fi
  done
}

# For cgroup.conf. Slurm 26.05 says that cgroup/v1 will go; 24.05 and later can do without a plugin when nothing is confined.
# Plugins are in the folder of Slurm's own library. A slurmd that tells no such folder is taken for one that has the plugin.
cgroup_plugin() {
  local library
  library=$(ldd "$(command -v slurmd)" 2>/dev/null | sed -n 's/.* => \(.*libslurmfull\.so\) .*/\1/p') || :
  if [ -z "$library" ] || [ -e "${library%/*}/cgroup_v1.so" ]; then echo cgroup/v1; else echo disabled; fi
}

make_cgroups() {
  local hierarchy file
  for hierarchy in "${HIERARCHIES[@]}"; do mkdir "/sys/fs/cgroup/$hierarchy/$CGROUP"; done
  for file in cpuset.cpus cpuset.mems; do  # a new cpuset is empty, and nothing can run in it
    cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$CGROUP/$file"
  done
  [ ! -w /sys/fs/cgroup/$CPU_TIME ] || mkdir "/sys/fs/cgroup/$CPU_TIME/$CGROUP" 2>/dev/null || :
}

remove_cgroups() {  # after the last process has ended; the kernel may need a moment to let go of them
  local hierarchy at tick
  for hierarchy in "${HIERARCHIES[@]}" $CPU_TIME; do
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
  for hierarchy in "${HIERARCHIES[@]}" $CPU_TIME; do
    [ -d "/sys/fs/cgroup/$hierarchy/$CGROUP" ] || continue
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

# On a node, before its daemon starts: all that it will run is in a cgroup of its own.
own_cpu_time() {  # NODE
  [ -w /sys/fs/cgroup/$CPU_TIME ] || return 0
  mkdir -p "/sys/fs/cgroup/$CPU_TIME/$1"
  echo $$ >"/sys/fs/cgroup/$CPU_TIME/$1/cgroup.procs"
}

full_cpu_time() {  # NODE: one that was powered off was perhaps throttled
  [ ! -w "/sys/fs/cgroup/$CPU_TIME/$1/cpu.cfs_quota_us" ] || echo -1 >"/sys/fs/cgroup/$CPU_TIME/$1/cpu.cfs_quota_us"
}

inner_throttle() {  # NODE PERCENT|off: on the login host
  local at=/sys/fs/cgroup/$CPU_TIME/$1 quota=-1
  [ -w "$at/cpu.cfs_quota_us" ] || die "throttle needs root and a cgroup v1 hierarchy at /sys/fs/cgroup/cpu"
  [ "$2" = off ] || quota=$(($(<"$at/cpu.cfs_period_us") * $2 / 100))
  echo "$quota" >"$at/cpu.cfs_quota_us"
}
