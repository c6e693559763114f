# shellcheck shell=bash
# The files that Slurm and munge read. Sourced by `cluster`.

NET=10.77
SLICE=1g.10gb  # Slurm's type of a part of a GPU
address() { echo "$NET.1.$((10 + $1))"; }  # of node index I

write_config() {  # NODES GPUS CONFINED MODEL SITE
  local nodes=$1 gpus=$2 confined=$3 model=$4 site=$5 i count slices slice daemon path
  (umask 077; head -c 1024 /dev/urandom >"$STATE/etc/munge.key")
  {
    echo "127.0.0.1 localhost"
    echo "$NET.0.1 ctl"
    for ((i = 0; i < nodes; i++)); do echo "$(address "$i") n$i"; done
  } >"$STATE/etc/hosts"
  for ((i = 0; i < nodes; i++)); do
    count=$(gpus_of "$site" "n$i" "$gpus") slices=$(slices_of "$site" "n$i")
    if [ "$slices" != 0 ]; then
      for ((slice = 0; slice < count * slices; slice++)); do
        echo "NodeName=n$i Name=gpu Type=$SLICE MultipleFiles=/dev/nvidia$((slice / slices)),/dev/nvidia-caps/nvidia-cap$slice"
      done
    elif [ "$count" != 0 ]; then
      echo "NodeName=n$i Name=gpu Type=${model%%+*} File=/dev/nvidia[0-$((count - 1))]"
    fi
  done >"$STATE/gres.conf"
  choose_cores "$gpus" "$confined"
  write_slurm_conf "$nodes" "$gpus" "$confined" "$model" "$site" >"$STATE/slurm.conf"
  echo "SwitchName=s0 Nodes=n[0-$((nodes - 1))]" >"$STATE/topology.conf"
  cgroup_conf "$confined" >"$STATE/cgroup.conf"
  apply_site "$site"
  # Slurm's daemons look at the name they are started by: as "slurmd-wlm" they silently drop all GPUs
  for daemon in slurmctld slurmd slurmstepd; do
    path=$(command -v "$daemon-wlm" || command -v "$daemon")
    ln -s "$path" "$STATE/bin/$daemon"
  done
  cat >"$STATE/bashrc" <<RC
[ ! -r ~/.bashrc ] || . ~/.bashrc
PS1='[local cluster, \h] \w \\$ '
RC
}

# Cores can be confined only if they exist: a node with more GPUs than the machine has cores claims one core per GPU.
# Sets TOPOLOGY, CPUS and CORES (are cores confined: yes or no).
choose_cores() {  # GPUS CONFINED
  local hardware
  hardware=$(slurmd -C 2>&1) || die "slurmd cannot run here: $(head -n 1 <<<"$hardware")"
  CPUS=$(nproc)
  TOPOLOGY=$(grep -o 'SocketsPerBoard=.*ThreadsPerCore=[0-9]*' <<<"$hardware")
  CORES=yes
  if [ "$2" = unconfined ] || [ "$1" -gt "$CPUS" ] || [[ $hardware != *" CPUs=$CPUS "* ]]; then
    CORES=no
    [ "$CPUS" -ge "$1" ] || CPUS=$1
    TOPOLOGY="Sockets=1 CoresPerSocket=$CPUS ThreadsPerCore=1"
  fi
}

write_slurm_conf() {  # NODES GPUS CONFINED MODEL SITE
  local nodes=$1 gpus=$2 confined=$3 model=$4 site=$5 i count slices gres me proctrack=linuxproc tasks=task/none memory
  me=$(id -un)
  if [ "$confined" = confined ]; then
    proctrack=cgroup
    tasks=task/cgroup
    [ "$CORES" = no ] || tasks+=,task/affinity
  fi
  memory=$(awk -v nodes="$nodes" '/^MemTotal:/ { share = int($2 / 1024 * 0.9 / nodes); print share < 8000 ? share : 8000 }' \
    /proc/meminfo)
  cat <<CONF
ClusterName=$([ "$model" = "$PLACEHOLDER" ] && echo bringup-local || echo bringup-simulated)
SlurmctldHost=ctl($NET.0.1)
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
CredType=cred/munge
# a requeued job waits cred_expire + 1 s before it may start again
AuthInfo="socket=$STATE/run/munge.sock,cred_expire=20"
SlurmctldPort=6817
SlurmdPort=6818
# what srun listens on: a firewall rule can tell Slurm's traffic from the application's. Wide, because an srun whose first
# port is taken between bind and listen gives up
SrunPortRange=61000-65500
SlurmctldPidFile="$STATE/run/slurmctld.pid"
SlurmdPidFile="$STATE/run/slurmd.%n.pid"
SlurmctldLogFile="$STATE/log/slurmctld.log"
SlurmdLogFile="$STATE/log/slurmd.%n.log"
StateSaveLocation="$STATE/ctld"
SlurmdSpoolDir="$STATE/spool/%n"
ProctrackType=proctrack/$proctrack
TaskPlugin=$tasks
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# a job that does not ask for memory gets its GPUs' or its cores' share, so a whole node goes with all its memory
DefMemPerCPU=$((memory / CPUS))
DefMemPerGPU=$((memory / gpus))
GresTypes=gpu
TopologyPlugin=topology/tree
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobCompType=jobcomp/filetxt
JobCompLoc="$STATE/log/jobcomp.log"
MpiDefault=none
MailProg=/bin/true
# nodes may read a configuration of their own: a fault to practise with
DebugFlags=NO_CONF_HASH
# faults are seen within a minute; a node that only did not answer comes back by itself
SlurmctldTimeout=60
SlurmdTimeout=12
KillWait=5
MessageTimeout=5
ReturnToService=1
# there is no accounting database: finished jobs stay visible for an hour instead
MinJobAge=3600
# the numbers of jobs name files in the checkout, where a further cluster writes, too
FirstJobId=$(($(cksum <<<"$STATE" | cut -d ' ' -f 1) % 1000 * 1000 + 1))
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1,nohold_on_prolog_fail
CONF
  [ "$CORES" = yes ] || echo "SlurmdParameters=config_overrides"  # the node claims cores that are not there
  for ((i = 0; i < nodes; i++)); do
    count=$(gpus_of "$site" "n$i" "$gpus") slices=$(slices_of "$site" "n$i")
    gres=" Gres=gpu:${model%%+*}:$count"
    [ "$slices" = 0 ] || gres=" Gres=gpu:$SLICE:$((count * slices))"
    [ "$count" != 0 ] || gres=''
    echo "NodeName=n$i NodeAddr=$(address "$i") $TOPOLOGY RealMemory=$memory$gres State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO"
}
