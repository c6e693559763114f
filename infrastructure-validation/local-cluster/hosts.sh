# shellcheck shell=bash
# The hosts: what runs inside the namespaces. The login host "ctl" is the cluster's pid 1; each node is a pid 1 below it.
# Functions named inner_* are verbs that `cluster` calls on itself inside. Sourced by `cluster`.

new_namespaces() {  # ARRAY: fills in the options of unshare(1)
  local -n options=$1
  options=(-m -u -n -i -p --mount-proc --propagation private --fork --kill-child)
  # one user namespace, around the whole cluster; map-current-user: Slurm fails as the "root" of a user namespace
  [ $EUID = 0 ] || [ -n "${BRINGUP_INSIDE:-}" ] || options=(-U --map-current-user --keep-caps "${options[@]}")
}

# ARRAY: fills in an env(1) in which every daemon starts, whatever the caller's environment is.
# --default-signal: a script's background process ignores SIGINT, and each job of the cluster would inherit that.
clean_environment() {
  local -n clean_env=$1
  # shellcheck disable=SC2034  # the caller's array
  clean_env=(env -i --default-signal PATH="$STATE/bin:${PATH#"$STATE/bin:"}" HOME="${HOME:-/}" LANG=C.UTF-8
    BRINGUP_INSIDE=1 BRINGUP_CLUSTER="$STATE" SLURM_CONF="$STATE/slurm.conf" ${BRINGUP_VENV:+"BRINGUP_VENV=$BRINGUP_VENV"})
}

client_environment() {
  local confined model site
  # shellcheck disable=SC2086  # names of variables
  [ -z "${SLURM_JOB_ID:-}" ] || unset ${!SLURM_@}  # we run in a job of another cluster; srun would look for it in this one
  read -r _ _ confined model site <"$STATE/shape"
  export PATH=$STATE/bin:$PATH SLURM_CONF=$STATE/slurm.conf BRINGUP_CLUSTER=$STATE BRINGUP_INSIDE=1
  export BRINGUP_LOAD_S=${BRINGUP_LOAD_S:-3} # nothing here gets warm
  [ ! -e "$HERE/sites/$site.site.yaml" ] || export BRINGUP_SITE=${BRINGUP_SITE:-$HERE/sites/$site.site.yaml}
  if [ "$model" != "$PLACEHOLDER" ]; then
    export BRINGUP_PROFILE=${BRINGUP_PROFILE:-simulated-${model%%+*}$(! has_cuda "$model" || echo -cuda)}
  elif [ "$confined" = confined ]; then
    export BRINGUP_PROFILE=${BRINGUP_PROFILE:-local-cpu}
  else
    export BRINGUP_PROFILE=${BRINGUP_PROFILE:-local-cpu-unconfined}
  fi
}

# The machine's own where there is one: what PATH finds may be a slow shim, or lie where only this user can read.
system_python() { if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi; }

start_host() {  # NAME: ctl or nI; recorded as NAME, its pid 1, and NAME.outer, the parent of that
  local name=$1 namespaces clean outer init=''
  new_namespaces namespaces
  clean_environment clean
  setsid "${clean[@]}" unshare "${namespaces[@]}" bash "$SELF" __host "$name" \
    >"$STATE/log/$name.host.log" 2>&1 </dev/null 9<&- &
  outer=$!
  record "$name.outer" "$outer"
  while [ -z "$init" ] && recorded "$name.outer" >/dev/null; do
    read -r init _ 2>/dev/null <"/proc/$outer/task/$outer/children" || sleep 0.01
  done
  [ -z "$init" ] || record "$name" "$init"
}

inner_host() {  # NAME [inside]: the pid 1 of a host; inside: of what own_cgroup has made
  local name=$1 nodes gpus confined model site
  read -r nodes gpus confined model site <"$STATE/shape"
  [ "$name" = ctl ] || [ "$confined" = unconfined ] || own_cgroup "$@"
  hostname "$name"
  ip link set lo up
  if [ "$name" = ctl ]; then
    login_host "$nodes" "$confined" "$model"
  else
    node_host "$name" "$(gpus_of "$site" "$name" "$gpus")" "$confined" "$model" "$site"
  fi
  while :; do sleep infinity & wait $! || :; done  # bash as pid 1 also reaps orphans
}

login_host() {  # NODES CONFINED MODEL
  local nodes=$1 i
  mount --bind "$STATE/etc/hosts" /etc/hosts
  [ "$3" = "$PLACEHOLDER" ] || make_linker_cache
  private_sys ctl "$2"
  ip link add br0 type bridge
  ip addr add "$NET.0.1/16" dev br0
  ip link set br0 up
  munged --force --socket="$STATE/run/munge.sock" --key-file="$STATE/etc/munge.key" --pid-file="$STATE/run/munged.pid" \
    --log-file="$STATE/log/munged.log" --seed-file="$STATE/run/munge.seed" --num-threads=4
  slurmctld -i
  for ((i = 0; i < nodes; i++)); do boot_node "n$i"; done
  until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ]; do
    kill -0 "$(<"$STATE/run/slurmctld.pid")" 2>/dev/null || die "slurmctld has ended"
    for ((i = 0; i < nodes; i++)); do
      recorded "n$i" >/dev/null || die "n$i has ended: $(tail -n 1 "$STATE/log/n$i.host.log")"
    done
    sleep 0.05
  done
  : >"$STATE/run/ready"
}

mac_address() {  # NUMBER of a node -> a locally administered one
  printf '02:00:00:00:%02x:%02x\n' "$(($1 / 256))" "$(($1 % 256))"
}

boot_node() {  # NAME: on the login host
  local node=$1
  rm -f "$STATE/run/slurmd.$node.pid"
  ip link del "v$node" 2>/dev/null || :  # the kernel removes the link of a node that was powered off, but not at once
  # a node keeps its MAC address, as hardware does: for half a minute its neighbours send to the one that they know
  ip link add "v$node" type veth peer name "p$node" address "$(mac_address "${node#n}")"
  ip link set "v$node" master br0 up
  start_host "$node"
  ip link set "p$node" netns "$(recorded "$node")" name eth0
}

node_host() {  # NAME GPUS CONFINED MODEL SITE; slurmd is a child, so "slurmd died" and "the node died" are different faults
  local node=$1 model
  private_sys "$node" "$3"
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
  ip addr add "$(address "${node#n}")/16" dev eth0
  ip link set eth0 up
  mkdir -p "$STATE/node/$node" "$STATE/spool/$node"
  private_dev "$STATE/node/$node" "$2" "$3" "$(slices_of "$5" "$node")"
  private_memory_controller "$STATE/node/$node/system"
  private_folder "$STATE/node/$node/tmp" /tmp 1g
  cat /proc/sys/kernel/random/uuid >"$STATE/node/$node/boot_id"
  mount --bind "$STATE/node/$node/boot_id" /proc/sys/kernel/random/boot_id
  if [ -e /etc/machine-id ]; then # of the machine; a node has its own, from its number, as it keeps it when it boots again
    printf '%032x\n' "$((16#62726e67 + ${node#n}))" >"$STATE/node/$node/machine-id"
    mount --bind "$STATE/node/$node/machine-id" /etc/machine-id
  fi
  # the GPUs of the machine itself, where it has some, are not this node's
  [ ! -d /proc/driver/nvidia ] || mount -t tmpfs -o size=4k,mode=755 tmpfs /proc/driver/nvidia
  model=$4
  [ "$(slices_of "$5" "$node")" = 0 ] || model+=+mig
  [ "$4" = "$PLACEHOLDER" ] || simulate_node "$node" "$model" "$2"
  [ "$(site_says "$5" closed)" != kernel-log ] || rm /dev/kmsg  # jobs are root's here: what is not there, no job reads
  [ "$(site_says "$5" checkout)" != read-only ] || read_only_checkout
  slurmd -N "$node" -d "$STATE/bin/slurmstepd"
}

private_folder() {  # BUILD TARGET SIZE: a tmpfs of the node's own over TARGET
  local build=$1 target=$2 shared
  mkdir -p "$build"
  mount -t tmpfs -o "size=$3,mode=1777" tmpfs "$build"
  # these are on every node, also where they lie beneath TARGET; BRINGUP_VENV: an environment outside the checkout
  for shared in "$STATE" "$CHECKOUT" ${BRINGUP_VENV:+"$BRINGUP_VENV"}; do
    [[ $shared == "$target"/* ]] || continue
    mkdir -p "$build${shared#"$target"}"
    mount --bind "$shared" "$build${shared#"$target"}"
  done
  move_mount "$build" "$target"
}

# As root of the node, too. Without the folders that a run writes to, which stay the shared ones.
read_only_checkout() {
  local folder
  mount --bind "$CHECKOUT" "$CHECKOUT"
  for folder in validation/results training/results slurm-logs; do
    mkdir -p "$CHECKOUT/$folder"
    mount --bind "$CHECKOUT/$folder" "$CHECKOUT/$folder"
  done
  mount -o remount,bind,ro "$CHECKOUT"
}

private_dev() {  # FOLDER GPUS CONFINED SLICES
  local dev=$1/dev gpus=$2 entry major i slice
  mkdir -p "$dev"
  mount -t tmpfs -o size=1m,mode=755 tmpfs "$dev"
  for entry in null zero full random urandom tty; do
    : >"$dev/$entry"
    mount --bind "/dev/$entry" "$dev/$entry"
  done
  # a kernel log of its own: the kernel's is one for all nodes, and what it says of the machine's devices is not about them
  printf '6,0,0,-;%s: the placeholder node boots\n' "$(uname -sr)" >"$dev/kmsg"
  mkdir "$dev/pts" "$dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$dev/pts"
  ln -s pts/ptmx "$dev/ptmx"
  ln -s /proc/self/fd "$dev/fd"
  for entry in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${entry%:*}" "$dev/${entry#*:}"; done
  major=$(placeholder_major)
  for ((i = 0; i < gpus; i++)); do placeholder "$dev/nvidia$i" "$3" "$major" "$i"; done
  [ "$4" = 0 ] || mkdir "$dev/nvidia-caps"
  for ((slice = 0; slice < gpus * $4; slice++)); do
    placeholder "$dev/nvidia-caps/nvidia-cap$slice" "$3" "$major" "$((128 + slice))"
  done
  move_mount "$dev" /dev
  private_folder "$1/shm" /dev/shm 2g
}

placeholder() {  # PATH CONFINED MAJOR MINOR
  if [ "$2" = confined ]; then
    mknod -m 666 "$1" c "$3" "$4"
  else  # no right to make devices; Slurm wants something that is one
    : >"$1"
    mount --bind /dev/null "$1"
  fi
}

# A memory controller of the node's own, which counts what a drill makes it count: that of the machine is one for all nodes,
# and many a machine shows none.
private_memory_controller() {  # BUILD
  local entry
  mkdir -p "$1"
  mount -t tmpfs -o size=64k,mode=755 tmpfs "$1"
  for entry in /sys/devices/system/*/; do
    mkdir "$1/$(basename "$entry")"
    [[ $entry == */edac/ ]] || mount --rbind "$entry" "$1/$(basename "$entry")"
  done
  mkdir -p "$1/edac/mc/mc0"
  echo 0 | tee "$1/edac/mc/mc0/ce_count" >"$1/edac/mc/mc0/ue_count"
  move_mount "$1" /sys/devices/system
}

# NVIDIA's number, or one no driver here answers to: opening a placeholder must never reach a real GPU.
placeholder_major() {
  local major
  for major in 195 {240..254}; do
    grep -q "^ *$major " /proc/devices || { echo "$major"; return; }
  done
  die "no free device number for the placeholder GPUs; use 'cluster up --unconfined'"
}

move_mount() {  # FROM TO: without root, mount(8) moves and then complains, so look at the result
  local device
  device=$(stat -c %d "$1")
  mount -n --move "$1" "$2" 2>/dev/null || [ "$(stat -c %d "$2")" = "$device" ]
}

inner_on() {  # NODE CMD...: from the login host into a node
  local init
  init=$(recorded "$1") || die "$1 is off; run 'cluster boot $1'"
  join_cgroup "$1"
  exec "$(system_python)" -I "$HERE/enter.py" "$init" "${@:2}"
}

inner_nfs-like() {  # HOST FOLDER: on the login host
  if [ "$1" = ctl ]; then inner_mount-nfs-like "$2"; else inner_on "$1" bash "$SELF" __mount-nfs-like "$2"; fi
}

# FOLDER, over itself: a name that was missing stays missing for 30 s (acdirmin), attributes stay for 3 s (acregmin). Locks are forwarded,
# as NFS does; undone by umount.
inner_mount-nfs-like() {
  local output caches=negative_timeout=30,entry_timeout=30,attr_timeout=3
  command -v bindfs >/dev/null || die "nfs-like: bindfs is not installed; run 'make setup'"
  [ -d "$1" ] || die "nfs-like: $(hostname) sees no folder $1"
  [ -c /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229 2>/dev/null || die "nfs-like: no right to make /dev/fuse; run as root"
  output=$(bindfs --multithreaded --enable-lock-forwarding -o "$caches" "$1" "$1" 2>&1) ||
    die "nfs-like: bindfs cannot mount (is there a kernel module fuse?): $(head -n 1 <<<"$output")"
}

inner_off() {
  recorded "$1" >/dev/null || die "$1 is off already; run 'cluster boot $1' to power it on"
  kill_recorded "$1"
  kill_recorded "$1.outer"
}

inner_boot() {
  local tick
  ! recorded "$1" >/dev/null || die "$1 is on already"
  boot_node "$1"
  for ((tick = 0; tick < 500; tick++)); do
    [ ! -s "$STATE/run/slurmd.$1.pid" ] || return 0
    recorded "$1" >/dev/null || break
    sleep 0.02
  done
  die "$1 did not boot: $(tail -n 1 "$STATE/log/$1.host.log" "$STATE/log/slurmd.$1.log")"
}

inner_slurmd() { inner_on "$1" bash "$SELF" __daemon "$1" "$2"; }

inner_daemon() {  # NODE VERB: on the node itself, where the number in slurmd's pid file means something
  local file=$STATE/run/slurmd.$1.pid pid clean tick
  pid=$(cat "$file" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = slurmd ] || pid=''
  if [ "$2" = start ]; then
    [ -z "$pid" ] || die "slurmd runs already on $1"
    clean_environment clean
    "${clean[@]}" slurmd -N "$1" -d "$STATE/bin/slurmstepd"
    return
  fi
  [ -n "$pid" ] || die "no slurmd runs on $1; run 'cluster slurmd $1 start'"
  case $2 in
    stop) kill -TERM "$pid" ;;
    kill) kill -KILL "$pid" ;;
    pause) kill -STOP "$pid" ;;
    cont) kill -CONT "$pid" ;;
  esac
  [[ $2 == stop || $2 == kill ]] || return 0
  for ((tick = 0; tick < 500; tick++)); do
    start_time "$pid" >/dev/null || return 0
    sleep 0.02
  done
  die "slurmd on $1 (process $pid there) did not end within 10 s; is it paused? run 'cluster slurmd $1 cont'"
}
