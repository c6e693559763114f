# shellcheck shell=bash
# cgroup v2: one hierarchy. The cluster has a cgroup in it, with one below it for each node, which is the root of all that the node
# sees: a cgroup namespace. Sourced by confinement.sh.

# Devices are confined by eBPF, which needs no controller. pids: Slurm 22.05 does not see the last controller of a list, and the kernel
# names pids after those that Slurm needs.
CONTROLLERS=(cpuset cpu memory pids)

hierarchy_lack() {
  local controller
  for controller in "${CONTROLLERS[@]}"; do
    has_word "$controller" "$CGROUP_ROOT/cgroup.controllers" || {
      echo "cgroup v2 at $CGROUP_ROOT has no controller $controller: a v1 hierarchy has it, or the kernel was started without it"
      return
    }
  done
  [ -w "$CGROUP_ROOT/cgroup.subtree_control" ] || { echo "$CGROUP_ROOT is read-only"; return; }
  # only the real root, which has no type, may both hold processes and hand on its controllers
  [ -e "$CGROUP_ROOT/cgroup.type" ] && [ -n "$(<"$CGROUP_ROOT/cgroup.procs")" ] || return 0
  echo "$CGROUP_ROOT is not the machine's own and holds processes (a container?), so it cannot hand on its controllers"
}

has_word() {  # WORD FILE
  [[ " $(<"$2") " == *" $1 "* ]]
}

# A node has no systemd, so slurmd has to make the cgroups of its jobs by itself.
plugin_settings() { echo "IgnoreSystemd=yes"; }

cluster_cgroups() { echo "$CGROUP_ROOT/$CGROUP"; }

# The machine's systemd may want to take back a controller that it has no use for. The kernel refuses, while a cgroup below has it.
make_cgroups() {
  hand_on_controllers "$CGROUP_ROOT"
  mkdir "$CGROUP_ROOT/$CGROUP"
  hand_on_controllers "$CGROUP_ROOT/$CGROUP"
}

hand_on_controllers() {  # FOLDER: to the cgroups below it
  echo "${CONTROLLERS[@]/#/+}" >"$1/cgroup.subtree_control"
}

# On the login host the cluster's cgroup takes the place of the root; on a node its own does.
mount_cgroups() {  # HOST FOLDER
  [ "$1" = ctl ] || { mount_own_cgroup "$2"; return; }
  mount --bind "$CGROUP_ROOT/$CGROUP" "$2"
}

# slurmd compares the first cgroup2 of /proc/1/mountinfo with /proc/1/cgroup, so no older mount may stay. slurmstepd goes to the root
# before it removes a job's cgroup; the root of a machine can hold it, and here init.scope stands in for it.
mount_own_cgroup() {  # FOLDER
  while umount --recursive --lazy /sys 2>/dev/null; do :; done
  mount -t cgroup2 cgroup2 "$1"
  mount --bind "$1/init.scope/cgroup.procs" "$1/cgroup.procs"
}

# The first thing on a node. Its init runs again as the root of a cgroup namespace, and makes what systemd would: a place for itself,
# for a cgroup that hands on its controllers holds no process, and a slice for Slurm. (EnableControllers would do the latter. Slurm 22.05
# does not know it, and does not start with it.)
own_cgroup() {  # NODE [inside]
  local at=$CGROUP_ROOT/$1
  if [ $# -eq 1 ]; then
    remove_cgroup "$at"  # what it had before it was powered off, with its limits
    mkdir "$at"
    echo $$ >"$at/cgroup.procs"
    exec unshare --cgroup bash "$SELF" __host "$1" inside
  fi
  mkdir "$at/init.scope" "$at/system.slice"
  join_cgroup "$1"
  hand_on_controllers "$at"
  hand_on_controllers "$at/system.slice"
}

join_cgroup() {  # NODE: on the login host, before a command goes to the node
  local procs=$CGROUP_ROOT/$1/init.scope/cgroup.procs
  [ ! -w "$procs" ] || echo $$ >"$procs"
}

inner_throttle() {  # NODE PERCENT|off: on the login host
  local at=$CGROUP_ROOT/$1/cpu.max quota_us=max period_us
  [ -w "$at" ] || no_throttle
  read -r _ period_us <"$at"
  [ "$2" = off ] || quota_us=$((period_us * $2 / 100))
  echo "$quota_us $period_us" >"$at"
}
