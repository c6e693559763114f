# shellcheck shell=bash
# The virtual nodes: machines under QEMU, each with a kernel of its own. Sourced by `cluster`; state.sh records their processes.

VIRTUAL=$HERE/virtual
GUEST_CHECKOUT=/shared/bringup # what the machines see of the checkout, over NFS from n0

is_virtual() { [[ -n $SEEN && -r $STATE/shape && $(<"$STATE/shape") == virtual* ]]; }

virtual_up() {  # [--nodes N] [--memory MIB]
  local nodes=2 memory=1280 image began shape i
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1 wants a number"
    case $1 in
      --nodes) positive_number "$1" "$2"; nodes=$2 ;;
      --memory) [[ $2 =~ ^[1-9][0-9]{2,4}$ ]] || die "--memory wants MiB, got '$2'"; memory=$2 ;;
      *) die "up --virtual has no option '$1'; see 'cluster help'" ;;
    esac
    shift 2
  done
  [ "$nodes" -le 8 ] || die "--nodes $nodes: at most 8 virtual nodes"
  shape="virtual $nodes $memory"
  for i in qemu-system-x86_64 qemu-img ssh; do
    command -v "$i" >/dev/null || die "$i is not installed: apt-get install qemu-system-x86 qemu-utils openssh-client"
  done
  image=$(bash "$VIRTUAL/image.sh" | tee /dev/stderr | tail -n 1)
  [ -e "$image/done" ] || die "image.sh made no image of the virtual nodes: read its lines above"
  lock_state
  if is_virtual && recorded switch >/dev/null; then
    [ "$(<"$STATE/shape")" = "$shape" ] || die "up already with another shape ($(<"$STATE/shape")); run 'cluster down' first"
    push_checkout
    echo "cluster: already up; the checkout was copied again"
    return
  fi
  ! cluster_init >/dev/null || die "up already with another shape ($(<"$STATE/shape")); run 'cluster down' first"
  tear_down
  began=$SECONDS
  trap 'exit 130' INT TERM HUP
  trap 'trap "" INT TERM HUP; tear_down; remove_state' EXIT
  make_state "$shape"
  ln -s "$image" "$STATE/image"
  mkdir -m 700 "$STATE/lan"
  install -m 600 "$image/key" "$STATE/etc/key"
  start_process switch "$(system_python)" -I "$VIRTUAL/switch.py" "$STATE/lan"
  for ((i = 0; i < nodes; i++)); do
    qemu-img create -q -f qcow2 -b "$image/root.img" -F raw "$STATE/node/n$i.qcow2"
    qemu-img create -q -f qcow2 -b "$image/scratch.img" -F raw "$STATE/node/n$i.scratch.qcow2"
    start_machine "n$i"
  done
  for ((i = 0; i < nodes; i++)); do wait_for "n$i"; done
  echo "cluster: all machines answer, after $((SECONDS - began)) s"
  push_checkout
  until [ "$(machine n0 root sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ]; do
    ((SECONDS - began < 1800)) || { show_failure; die "the nodes are not idle after half an hour; their consoles are in $STATE/log"; }
    sleep 2
  done
  trap - EXIT INT TERM HUP
  echo "cluster: up, $nodes virtual nodes, in $((SECONDS - began)) s"
}

start_process() {  # NAME COMMAND...: recorded, and a child of nobody
  setsid "${@:2}" >"$STATE/log/$1.log" 2>&1 </dev/null 9<&- &
  record "$1" $!
}

start_machine() {  # NAME: with a console in log/NAME.log, a cable to the switch, and a loopback port for ssh
  local name=$1 number=${1#n} nodes memory port accel=tcg
  read -r _ nodes memory <"$STATE/shape"
  ! grep -qwE 'vmx|svm' /proc/cpuinfo || [ ! -w /dev/kvm ] || accel=kvm
  port=$(system_port)
  echo "$port" >"$STATE/run/$name.port"
  rm -f "$STATE/lan/$name" "$STATE/run/$name".*.ssh
  start_process "$name" qemu-system-x86_64 -accel "$accel" -cpu max,la57=off -smp 1 -m "$memory" -display none -serial stdio -no-reboot \
    -kernel "$STATE/image/vmlinuz" -initrd "$STATE/image/initramfs.gz" \
    -append "console=ttyS0 quiet loglevel=4 net.ifnames=0 mitigations=off random.trust_cpu=on systemd.show_status=0 panic=0 \
systemd.machine_id=$(printf '%032x' $((16#62726e67 + number))) bringup.node=$number bringup.nodes=$nodes bringup.memory=$memory" \
    -fw_cfg "name=opt/bringup/guest,file=$VIRTUAL/guest.sh" \
    -drive "file=$STATE/node/$name.qcow2,if=virtio,cache=unsafe" -drive "file=$STATE/node/$name.scratch.qcow2,if=virtio,cache=unsafe" \
    -netdev "dgram,id=lan,local.type=unix,local.path=$STATE/lan/$name,remote.type=unix,remote.path=$STATE/lan/switch" \
    -device "virtio-net-pci,netdev=lan,mac=$(mac_address "$number")" \
    -netdev "user,id=out,restrict=on,net=10.0.2.0/24,hostfwd=tcp:127.0.0.1:$port-10.0.2.$((100 + number)):22" \
    -device "virtio-net-pci,netdev=out,mac=$(mac_address "$((256 + number))")" -device virtio-rng-pci \
    -qmp "unix:$STATE/run/$name.qmp,server=on,wait=off"
}

system_port() {  # a free port of loopback
  "$(system_python)" -Ic 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

wait_for() {  # NAME: until it answers; then a connection a user stays open, which later commands share: a new one takes seconds
  local user options
  for user in root bringup; do
    ssh_options "$1" "$user"
    until ssh "${options[@]}" -MNf "$user@127.0.0.1" >/dev/null 2>&1 9<&-; do
      recorded "$1" >/dev/null || die "$1 has ended: $(tail -n 1 "$STATE/log/$1.log")"
      sleep 2
    done
  done
}

ssh_options() {  # NODE USER: fills in the caller's `options`
  options=(-i "$STATE/etc/key" -p "$(<"$STATE/run/$1.port")" -o ControlPath="$STATE/run/$1.$2.ssh" -o IdentitiesOnly=yes -o HostKeyAlias=node
    -o UserKnownHostsFile="$STATE/image/known_hosts" -o LogLevel=ERROR -o ConnectTimeout=60 -o BatchMode=yes)
}

machine() {  # NODE USER COMMAND...
  local command options
  ssh_options "$1" "$2"
  [ ! -t 0 ] || options+=(-t)
  printf -v command '%q ' "${@:3}"
  # shellcheck disable=SC2029  # quoted for the shell there
  ssh "${options[@]}" "$2@127.0.0.1" "$command"
}

push_checkout() {  # what git knows or would add; the environment is there
  (cd "$CHECKOUT" && git ls-files -z --cached --others --exclude-standard | tar c --null --ignore-failed-read -T - 2>/dev/null) |
    machine n0 bringup sh -c "cd /srv$GUEST_CHECKOUT && find . -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} + && tar x"
}

virtual_verb() {  # VERB [ARGUMENT...]
  local verb=$1 node=${2:-} nodes
  read -r _ nodes _ <"$STATE/shape"
  case $verb in
    on | off | boot | slurmd) [[ $node =~ ^n[0-7]$ && ${node#n} -lt $nodes ]] || die "$verb wants a node from n0 to n$((nodes - 1)), got '$node'" ;;
  esac
  case $verb in
    sh)
      shift
      [ $# -gt 0 ] || set -- bash -l
      machine n0 bringup sh -c "cd $GUEST_CHECKOUT && export BRINGUP_LOAD_S=3${BRINGUP_PROFILE:+ BRINGUP_PROFILE=$BRINGUP_PROFILE} && exec \"\$@\"" sh "$@"
      ;;
    on) shift 2; machine "$node" root "$@" ;;
    off)
      recorded "$node" >/dev/null || die "$node is off already; run 'cluster boot $node' to power it on"
      kill_recorded "$node"
      ;;
    boot)
      ! recorded "$node" >/dev/null || die "$node is on already"
      start_machine "$node"
      wait_for "$node"
      ;;
    slurmd) slurmd_verb "$node" "${3:-}" ;;
    status)
      echo "cluster: $nodes virtual nodes, in $STATE"
      machine n0 root sinfo -N -o '%N %T %G %E'
      ;;
    *) die "virtual nodes have no '$verb'; see 'cluster help'" ;;
  esac
}

slurmd_verb() {  # NODE VERB
  case $2 in
    stop | start) machine "$1" root systemctl "$2" slurmd ;;
    kill) machine "$1" root systemctl kill --kill-who=main -s KILL slurmd ;;
    pause) machine "$1" root systemctl kill --kill-who=main -s STOP slurmd ;;
    cont) machine "$1" root systemctl kill --kill-who=main -s CONT slurmd ;;
    *) die "use: cluster slurmd NODE stop|kill|start|pause|cont" ;;
  esac
}

end_machines() {  # their disks and sockets lie in the state folder, which goes with them
  local name
  for name in n{0..7} switch; do kill_recorded "$name"; done
}
