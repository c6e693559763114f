# shellcheck shell=bash
# Simulated GPU nodes: what a driver, NVML, nvidia-smi and RDMA ports would say comes from one file per node. Sourced by `cluster`.
#
# Every change is a mount of the node's own, over files in its own /run: nothing outlives the node.

PLACEHOLDER=placeholder  # the GPU model of a cluster that simulates none
SIMULATED=$HERE/simulated
OF_NODE=/run/bringup-simulated  # simulated/state.py and simulated/nvml.c look for the state file here

check_simulation() {  # MODEL GPUS
  local models traits trait
  models=$(cd "$SIMULATED/models" && echo *) traits=$(cd "$SIMULATED/traits" && echo *)
  models=${models//.conf/} traits=${traits//.conf/}
  [[ " $models " == *" ${1%%+*} "* ]] || die "--simulate knows ${models// /, }, got '${1%%+*}'"
  for trait in $(tr + ' ' <<<"${1#"${1%%+*}"}"); do
    [[ " $traits " == *" $trait "* ]] || die "--simulate ${1%%+*}+… knows ${traits// /, }, got '$trait'"
  done
  [ "$2" -le 8 ] || die "--simulate $1: a node has at most 8 GPUs, got --gpus $2"
  ! has_cuda "$1" || [ -e "$CHECKOUT/validation/profiles/simulated-${1%%+*}-cuda.yaml" ] ||
    die "--cuda: there is no profile simulated-${1%%+*}-cuda; use --simulate h100"
  command -v gcc >/dev/null || die "not installed: gcc, for the stand-in of NVML; run 'make setup'"
}

has_cuda() { [[ $1+ == *+cuda+* ]]; }  # MODEL

# Once a cluster, on the machine: the libraries, and the stand-ins for programs, which are on the PATH of every host.
build_stand_ins() {  # MODEL
  local output program
  mkdir -p "$STATE/simulated/lib"
  output=$(gcc -shared -fPIC -O1 -Wall -Wextra -fvisibility=hidden -Wl,-soname,libnvidia-ml.so.1 \
    -o "$STATE/simulated/lib/libnvidia-ml.so.1" "$SIMULATED/nvml.c" 2>&1) ||
    die "gcc cannot make the stand-in of NVML: $(head -n 1 <<<"$output")"
  for program in "$SIMULATED"/bin/*; do
    [[ ! -x $program || -d $program ]] || ln -s "$program" "$STATE/bin/"
  done
  ! has_cuda "$1" || build_cuda
}

# Every Python of the environment reads its .pth files when it starts. On nodes, one that has nothing to do with torch is covered by a
# copy with a further line, so that the environment itself and the programs stay as they are.
build_cuda() {
  local venv python library covered
  venv=$(cd "$CHECKOUT" && bash infrastructure-validation/scripts/venv.sh)
  venv=$(cd "$CHECKOUT" && readlink -m "$venv") python=$venv/bin/python
  [ -x "$python" ] || die "--cuda: no Python environment at $venv; run 'make setup'"
  library=$("$python" "$SIMULATED/cuda/cuda_stand_in/build.py") || exit 2
  cp "$library" "$STATE/simulated/lib/"
  covered=("$venv"/lib/python3*/site-packages/__editable__.bringup-*.pth)
  [ -e "${covered[0]}" ] || die "--cuda: $venv has no editable bringup; run 'make setup'"
  echo "${covered[0]}" >"$STATE/simulated/covered"
  {
    cat "${covered[0]}"
    printf "import sys; sys.path.append('%s'); import cuda_stand_in; cuda_stand_in.install('%s')\n" \
      "$SIMULATED/cuda" "$STATE/simulated/lib/${library##*/}"
  } >"$STATE/simulated/cuda.pth"
}

# On the login host, once a cluster: the linker's cache with the library in it. What looks for libnvidia-ml.so.1 finds it without
# an environment variable wherever this file is mounted. ldconfig keeps a cache of its own, which must not be the machine's.
make_linker_cache() {
  local conf=$STATE/simulated/ld.so.conf
  [ ! -d /var/cache/ldconfig ] || mount -t tmpfs -o size=8m,mode=700 tmpfs /var/cache/ldconfig
  { echo "$STATE/simulated/lib"; cat /etc/ld.so.conf; } >"$conf"
  ldconfig -X -f "$conf" -C "$STATE/simulated/ld.so.cache"
}

# ldconfig on the machine, as at each installation of a package, replaces /etc/ld.so.cache, and Linux then ends what is mounted there.
inner_mend-linker-caches() {
  local node nodes pid
  read -r nodes _ <"$STATE/shape"
  [ -e "$STATE/simulated/ld.so.cache" ] || return 0
  for ((node = 0; node < nodes; node++)); do
    pid=$(recorded "n$node") || continue
    if grep -q ' /etc/ld.so.cache ' "/proc/$pid/mountinfo"; then continue; fi
    (inner_on "n$node" mount --bind "$STATE/simulated/ld.so.cache" /etc/ld.so.cache)
    echo "cluster: n$node had lost NVML to an ldconfig on this machine, and has it again; repeat what ran meanwhile"
  done
}

simulate_node() {  # NODE MODEL GPUS: on the node, before its daemon starts
  private_run "$STATE/node/$1/run"
  mkdir "$OF_NODE"
  "$(system_python)" "$SIMULATED/node.py" begin "$2" "$3" || die "$1: the state of a node of $2 could not be made"
  sed 's/^\(flags.*\) hypervisor\b/\1/' /proc/cpuinfo >"$OF_NODE/cpuinfo"  # this machine may be a virtual one
  if [ "$(grep '^virtual=' "$OF_NODE/state.conf" | tail -n 1)" = virtual=yes ]; then
    mount -t tmpfs -o size=4k,mode=755 tmpfs /sys/devices/system/edac
    sed -i 's/^flags.*/& hypervisor/' "$OF_NODE/cpuinfo"
  fi
  mount --bind "$OF_NODE/cpuinfo" /proc/cpuinfo
  mount --bind "$STATE/simulated/ld.so.cache" /etc/ld.so.cache
  ! has_cuda "$2" || mount --bind "$STATE/simulated/cuda.pth" "$(<"$STATE/simulated/covered")"
  mount --bind "$OF_NODE/driver" /proc/driver
  [ ! -d /sys/bus/pci/devices ] || mount --bind "$OF_NODE/pci" /sys/bus/pci/devices
  mount --bind /sys/class/net "$OF_NODE/class/net"
  mount --rbind "$OF_NODE/class" /sys/class
}

# A /run of the node's own, in which everything of the machine's is still there.
private_run() {  # BUILD
  local entry
  mkdir -p "$1"
  mount -t tmpfs -o size=4m,mode=755 tmpfs "$1"
  for entry in /run/*; do
    if [ -L "$entry" ]; then
      cp -a "$entry" "$1"
    elif [ -d "$entry" ]; then
      mkdir "$1/${entry##*/}"
      mount --rbind "$entry" "$1/${entry##*/}"
    else
      : >"$1/${entry##*/}"
      mount --bind "$entry" "$1/${entry##*/}"
    fi
  done
  move_mount "$1" /run
}

inner_gpu() { fault_on "$1" gpu "${@:2}"; }
inner_port() { fault_on "$1" port "${@:2}"; }

fault_on() {  # NODE VERB WORDS...: on the login host
  local model
  read -r _ _ _ model _ <"$STATE/shape"
  [ "$model" != "$PLACEHOLDER" ] || die "$2: this cluster has placeholder GPUs; start one with 'cluster up --simulate MODEL'"
  inner_on "$1" "$(system_python)" "$SIMULATED/node.py" "${@:2}"
}
