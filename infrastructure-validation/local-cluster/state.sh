# shellcheck shell=bash
# The state folder, and the processes recorded in it. Sourced by `cluster`.

MARK=.bringup-cluster  # tells a state folder from any other: only a marked one is ever removed

locate_state() {
  STATE=${BRINGUP_CLUSTER:-/tmp/bringup-$EUID-$(short_hash "$CHECKOUT")}
  STATE=$(realpath -ms -- "$STATE")
  STATE=$(readlink -m -- "${STATE%/*}/")/${STATE##*/}  # links above it are followed; one in its own place is refused
  STATE=${STATE/#\/\//\/}
  # no white space, quotes or commas: slurm.conf cannot carry them; 80: a unix socket's path may have 108 bytes
  [[ $STATE =~ ^[A-Za-z0-9/._+@-]+$ && ${#STATE} -le 80 ]] ||
    die "the state folder must be a path of at most 80 plain characters, got '$STATE'; set BRINGUP_CLUSTER"
  # shellcheck disable=SC2034  # for confinement.sh
  CGROUP=bringup-$(short_hash "$STATE")
  SEEN=''  # a folder that another user makes after this look is not used
  if [ -e "$STATE" ] || [ -L "$STATE" ]; then
    [ ! -L "$STATE" ] || die "$STATE is a link; set BRINGUP_CLUSTER to a folder"
    refuse_of_others "$STATE"
    [ -e "$STATE/$MARK" ] || [ -z "$(ls -A "$STATE")" ] ||
      die "$STATE is neither empty nor a cluster's folder; set BRINGUP_CLUSTER to another"
    SEEN=1
  fi
}

# Programs are run from the state folder, by root too, and its default name can be predicted. So nobody else may write to it.
refuse_of_others() {  # FOLDER
  local owner mode
  read -r owner mode < <(stat -L -c '%u %a' -- "$1")
  [ "$owner" = "$EUID" ] || die "$STATE belongs to another user; set BRINGUP_CLUSTER to a folder of your own"
  ((!(8#$mode & 8#022))) || die "$STATE can be written by others (mode $mode, expected 700); look at what is in it, then remove it"
}

# Who can write to a folder above can put another one in its place, unless the folder is sticky, as /tmp is.
refuse_replaceable() {
  local folder=$STATE owner mode
  while [ "$folder" != / ]; do
    folder=$(dirname -- "$folder")
    read -r owner mode < <(stat -c '%u %a' -- "$folder")
    [ "$owner" = 0 ] || [ "$owner" = "$EUID" ] || is_unmapped "$owner" ||
      die "$folder, above the state folder, belongs to user $owner; set BRINGUP_CLUSTER to a folder elsewhere"
    ((!(8#$mode & 8#022) || 8#$mode & 8#1000)) ||
      die "$folder, above the state folder, can be written by others (mode $mode); set BRINGUP_CLUSTER to a folder elsewhere"
  done
}

is_unmapped() {  # USER: in a user namespace the machine's root is shown as this one
  local count
  read -r _ _ count </proc/self/uid_map
  [ "$count" != 4294967295 ] && [ "$1" = "$(</proc/sys/kernel/overflowuid)" ]
}

short_hash() { local sum; sum=$(printf %s "$1" | sha256sum); echo "${sum:0:8}"; }

# One `up` or `down` at a time. The folder may be removed while we wait for its lock, hence the loop.
lock_state() {
  while :; do
    (umask 077; mkdir -p -- "$STATE") || die "$STATE cannot be made; set BRINGUP_CLUSTER to another folder"
    exec 9<"$STATE/."  # a folder, and no FIFO that would keep us waiting
    refuse_of_others /dev/fd/9
    flock -w 60 9 || die "another 'cluster up' or 'down' has held $STATE for a minute; wait for it, or stop it"
    [ ! "$STATE" -ef /dev/fd/9 ] || break
  done
  [ ! -L "$STATE" ] || die "$STATE is a link; set BRINGUP_CLUSTER to a folder"
  refuse_replaceable
  SEEN=1
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
  # no start time: it had ended before it could be recorded, and its number may be another process's by now
  read -r pid began 2>/dev/null <"$STATE/run/$1" && [ -n "$began" ] && [ "$(start_time "$pid")" = "$began" ] && echo "$pid"
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

cluster_init() { [ -n "$SEEN" ] && [ -e "$STATE/run/ready" ] && recorded ctl; }

# The death of its pid 1 takes every process, mount and interface of the cluster with it.
tear_down() {
  kill_recorded ctl
  kill_recorded ctl.outer
  end_machines
  remove_cgroups
}
