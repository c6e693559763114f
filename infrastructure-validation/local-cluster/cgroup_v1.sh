# shellcheck shell=bash
# cgroup v1: a hierarchy for each of what Slurm limits, and the cluster has a cgroup in each of them. Sourced by confinement.sh.

HIERARCHIES=(cpuset memory devices freezer)
CPU_TIME=cpu  # a further one, not of Slurm: with it the CPU time of a node can be held back; without it the rest works

hierarchy_lack() {
  local hierarchy at
  for hierarchy in "${HIERARCHIES[@]}"; do
    at=$CGROUP_ROOT/$hierarchy
    [ -e "$at/cgroup.procs" ] || { echo "no cgroup v1 hierarchy at $at, and no cgroup v2 at $CGROUP_ROOT"; return; }
    [ -w "$at" ] || { echo "$at is read-only"; return; }
  done
}

plugin_settings() { :; }

cluster_cgroups() { printf "$CGROUP_ROOT/%s/$CGROUP\n" "${HIERARCHIES[@]}" "$CPU_TIME"; }

make_cgroups() {
  local hierarchy file
  for hierarchy in "${HIERARCHIES[@]}"; do mkdir "$CGROUP_ROOT/$hierarchy/$CGROUP"; done
  for file in cpuset.cpus cpuset.mems; do  # a new cpuset is empty, and nothing can run in it
    cat "$CGROUP_ROOT/cpuset/$file" >"$CGROUP_ROOT/cpuset/$CGROUP/$file"
  done
  [ ! -w "$CGROUP_ROOT/$CPU_TIME" ] || mkdir "$CGROUP_ROOT/$CPU_TIME/$CGROUP" 2>/dev/null || :
}

# On the login host the cluster's cgroups take the place of the machine's hierarchies; a node sees what the login host sees.
mount_cgroups() {  # HOST FOLDER
  local hierarchy
  [ "$1" = ctl ] || { mount --rbind "$CGROUP_ROOT" "$2"; return; }
  mount -t tmpfs -o size=64k,mode=755 tmpfs "$2"
  for hierarchy in "${HIERARCHIES[@]}" "$CPU_TIME"; do
    [ -d "$CGROUP_ROOT/$hierarchy/$CGROUP" ] || continue
    mkdir "$2/$hierarchy"
    mount --bind "$CGROUP_ROOT/$hierarchy/$CGROUP" "$2/$hierarchy"
  done
}

# The first thing on a node: all that it will run is in one cgroup, and in full CPU time, for it was perhaps powered off throttled.
own_cgroup() {  # NODE
  local at=$CGROUP_ROOT/$CPU_TIME/$1
  [ -w "${at%/*}" ] || return 0
  mkdir -p "$at"
  echo -1 >"$at/cpu.cfs_quota_us"
  join_cgroup "$1"
}

join_cgroup() {  # NODE: on the login host, before a command goes to the node
  local procs=$CGROUP_ROOT/$CPU_TIME/$1/cgroup.procs
  [ ! -w "$procs" ] || echo $$ >"$procs"
}

inner_throttle() {  # NODE PERCENT|off: on the login host
  local at=$CGROUP_ROOT/$CPU_TIME/$1 quota_us=-1
  [ -w "$at/cpu.cfs_quota_us" ] || no_throttle
  [ "$2" = off ] || quota_us=$(($(<"$at/cpu.cfs_period_us") * $2 / 100))
  echo "$quota_us" >"$at/cpu.cfs_quota_us"
}
