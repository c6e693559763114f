# shellcheck shell=bash
# The state folder, and the processes recorded in it. Sourced by `cluster`.

MARK=.bringup-cluster  # tells a state folder from any other: only a marked one is ever removed

locate_state() {
  STATE=${BRINGUP_CLUSTER:-/tmp/bringup-$EUID-$(short_hash "$CHECKOUT")}
  STATE=$(readlink -m -- "$STATE")
  # no white space, quotes or commas: slurm.conf cannot carry them; 80: a unix socket's path may have 108 bytes
  [[ $STATE =~ ^[A-Za-z0-9/._+@-]+$ && ${#STATE} -le 80 ]] ||
    die "the state folder must be a path of at most 80 plain characters, got '$STATE'; set BRINGUP_CLUSTER"
  # shellcheck disable=SC2034  # for confinement.sh
  CGROUP=bringup-$(short_hash "$STATE")
  [ ! -e "$STATE" ] || [ -O "$STATE" ] || die "$STATE belongs to another user; set BRINGUP_CLUSTER to a folder of your own"
  [ ! -e "$STATE" ] || [ -e "$STATE/$MARK" ] || [ -z "$(ls -A "$STATE")" ] ||
    die "$STATE is neither empty nor a cluster's folder; set BRINGUP_CLUSTER to another"
}

short_hash() { local sum; sum=$(printf %s "$1" | sha256sum); echo "${sum:0:8}"; }

# One `up` or `down` at a time. The folder may be removed while we wait for its lock, hence the loop.
lock_state() {
  while :; do
    (umask 077; mkdir -p "$STATE")
    exec 9<"$STATE"
    flock -w 60 9 || die "another 'cluster up' or 'down' has held $STATE for a minute; wait for it, or stop it"
    [ ! "$STATE" -ef /dev/fd/9 ] || break
  done
  : >"$STATE/$MARK"
}

make_state() {  # SHAPE
  rm -rf "${STATE:?}"/*
  mkdir -m 755 "$STATE"/{bin,etc,log,node,run,spool,ctld}
  echo "$1" >"$STATE/shape"
}

remove_state() { rm -rf "$STATE"; }

# A process is recorded as "number start-time": the start time tells it from a later one with the same number.
start_time() {  # PID: fails for what has ended, zombies included
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -ra stat <<<"${stat##*) }"
  [[ ${stat[0]} != [ZX] ]] && echo "${stat[19]}"
}

record() { echo "$2 $(start_time "$2")" >"$STATE/run/$1.tmp" && mv "$STATE/run/$1.tmp" "$STATE/run/$1"; }  # NAME PID

recorded() {  # NAME: its process id, if that very process still lives
  local pid began
  read -r pid began 2>/dev/null <"$STATE/run/$1" && [ "$(start_time "$pid")" = "$began" ] && echo "$pid"
}

kill_recorded() {  # NAME: returns when it is gone
  local pid tick
  pid=$(recorded "$1") || return 0
  kill -KILL "$pid" 2>/dev/null || :
  for ((tick = 0; tick < 500; tick++)); do
    recorded "$1" >/dev/null || return 0
    sleep 0.02
  done
  die "process $pid ($1) did not end within 10 s of SIGKILL; look at it with 'ps -o pid,stat,wchan,args -p $pid'"
}

cluster_init() { [ -e "$STATE/run/ready" ] && recorded ctl; }

# The death of its pid 1 takes every process, mount and interface of the cluster with it.
tear_down() {
  kill_recorded ctl
  kill_recorded ctl.outer
  remove_cgroups
}
