#!/usr/bin/env bash
# On Slurm 26.05 task 0 is not on the first node of the job's list
#
# One would guess: that srun places its tasks along the node list, as it did before, so that the first name of
# `scontrol show hostnames` is the node of task 0, whose address scripts give to all ranks; and that
# --distribution=block, which the manual calls the default, is the old order.
#
# What happens: with topology/tree and nodes whose names do not follow their switches, tasks are numbered along the
# switches. The list stays sorted by name, and SLURM_NODEID stays the place in the list. Ranks that take SLURM_PROCID
# wait at the wrong address until their timeout. --distribution=block, when it is named, does the same, although the
# manual says so of the unnamed default alone. --distribution=plane=2 follows the list.
#
# Why: "Add topology-aware task distribution for steps" (CHANGELOG/slurm-26.05.md); CR_NO_DIST_TOPO_BLOCK turns it off.
#
# What to do: number ranks by SLURM_NODEID and SLURM_LOCALID, or give --distribution=plane=TASKS_OF_A_NODE.
#
# Needs root and debootstrap, and some minutes: Slurm runs in a root folder of its own, in namespaces without a network.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
version=26.05.5-1
cp -r /usr/share/debootstrap "$folder/debootstrap" # an older one does not know the name of the suite
ln -sf sid "$folder/debootstrap/scripts/forky"
DEBOOTSTRAP_DIR="$folder/debootstrap" debootstrap --variant=minbase --include=slurmctld,slurmd,slurm-client,iproute2 \
  forky "$folder/root" >"$folder/log" 2>&1 || { tail -n 5 "$folder/log"; exit 1; }

cat >"$folder/root/four-nodes.sh" <<'END'
set -euo pipefail
ip link set lo up
ip link add d0 type veth peer name d1
ip address add 10.9.8.7/24 dev d0
ip link set d1 up
ip link set d0 up
echo x >/proc/sys/kernel/hostname
echo '10.9.8.7 x' >>/etc/hosts
mkdir -p /s/state /etc/slurm
head -c 64 /dev/urandom >/etc/slurm/slurm.key
chmod 600 /etc/slurm/slurm.key
echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf
printf 'SwitchName=%s\n' 's0 Nodes=n1,n3' 's1 Nodes=n0,n2' 's2 Switches=s[0-1]' >/etc/slurm/topology.conf
cat >/etc/slurm/slurm.conf <<'CONF'
ClusterName=four
SlurmctldHost=x
SlurmUser=root
AuthType=auth/slurm
CredType=auth/slurm
StateSaveLocation=/s/state
SlurmdSpoolDir=/s/%n
SlurmctldLogFile=/s/slurmctld.log
SlurmdLogFile=/s/%n.log
SlurmctldPidFile=/s/slurmctld.pid
SlurmdPidFile=/s/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
NodeName=n[0-3] NodeHostname=x NodeAddr=x Port=[7001-7004] CPUs=2
PartitionName=main Nodes=ALL Default=YES
CONF
slurmctld
for node in n0 n1 n2 n3; do slurmd -N "$node"; done
until [ "$(sinfo --noheader --states=idle --format=%D)" = 4 ]; do sleep 1; done
task='echo "$SLURM_PROCID:$SLURMD_NODENAME=$SLURM_NODEID"'
export task
salloc --quiet --nodes=4 --ntasks-per-node=2 bash -c '
  echo list: $(scontrol show hostnames)
  for how in "" --distribution=block --distribution=plane=2; do
    echo task:node=SLURM_NODEID ${how:-default}: $(srun $how bash -c "$task" | sort -n)
  done'
END

# shellcheck disable=SC2016  # $1 is that of the shell in the namespaces
run=(unshare --mount --net --uts --pid --fork --propagation private bash -c '
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  exec chroot "$1" bash /four-nodes.sh' four "$folder/root")
seen=$(
  echo "slurmd $(chroot "$folder/root" dpkg-query --show slurmd | cut -f 2)"
  timeout 120 "${run[@]}" 2>"$folder/errors" || cat "$folder/errors"
)
expected=$(
  cat <<END
slurmd $version
list: n0 n1 n2 n3
task:node=SLURM_NODEID default: 0:n1=1 1:n1=1 2:n3=3 3:n3=3 4:n0=0 5:n0=0 6:n2=2 7:n2=2
task:node=SLURM_NODEID --distribution=block: 0:n1=1 1:n1=1 2:n3=3 3:n3=3 4:n0=0 5:n0=0 6:n2=2 7:n2=2
task:node=SLURM_NODEID --distribution=plane=2: 0:n0=0 1:n0=0 2:n1=1 3:n1=1 4:n2=2 5:n2=2 6:n3=3 7:n3=3
END
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
