#!/usr/bin/env bash
# Slurm 26.05 says TopologyPlugin = topology/flat, and shows no topology, although jobs run along a tree of switches
#
# One would guess: that `scontrol show config` names the topology in force, and that `scontrol show topology` prints
# what there is, as both did while topology.conf was the only file.
#
# What happens: of topology.yaml (from 25.05 on) the configuration knows nothing: TopologyPlugin stays what slurm.conf
# says, topology/flat by default. `scontrol show topology` prints the topology of the cluster's default alone: of a
# partition that has a tree of its own it prints nothing. Tasks of a job in that partition are numbered along its
# switches, and in the other one along the node list. `scontrol show topoconf` prints all topologies.
#
# Why: topology.yaml takes the place of TopologyPlugin when it is there (src/interfaces/topology.c, topology_g_init).
#
# What to do: ask `scontrol show topoconf` and the partition's Topology before you believe that there is no topology.
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
cat >/etc/slurm/topology.yaml <<'YAML'
- topology: plain
  cluster_default: true
  flat: true
- topology: rows
  cluster_default: false
  tree:
    switches:
      - {switch: s2, children: "s[0-1]"}
      - {switch: s0, nodes: "n1,n3"}
      - {switch: s1, nodes: "n0,n2"}
YAML
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
NodeName=n[0-3] NodeHostname=x NodeAddr=x Port=[7001-7004] CPUs=2
PartitionName=main Nodes=ALL Default=YES
PartitionName=switched Nodes=ALL Topology=rows
CONF
slurmctld
for node in n0 n1 n2 n3; do slurmd -N "$node"; done
until [ "$(sinfo --noheader --states=idle --format=%D)" = 4 ]; do sleep 1; done
scontrol show config | grep TopologyPlugin | tr -s ' '
echo "lines of show topology: $(scontrol show topology | wc -l)"
echo show topoconf: $(scontrol show topoconf | grep -e '- switch:')
for partition in main switched; do
  echo task:node in $partition: $(srun --partition=$partition --nodes=4 --ntasks-per-node=2 \
    bash -c 'echo "$SLURM_PROCID:$SLURMD_NODENAME"' | sort -n)
done
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
TopologyPlugin = topology/flat
lines of show topology: 0
show topoconf: - switch: s2 - switch: s0 - switch: s1
task:node in main: 0:n0 1:n0 2:n1 3:n1 4:n2 5:n2 6:n3 7:n3
task:node in switched: 0:n1 1:n1 2:n3 3:n3 4:n0 5:n0 6:n2 7:n2
END
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
