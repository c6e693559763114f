#!/bin/bash
# Runs in a virtual node at each start, as root: its name, network, clock, verbs, shared folder, and Slurm as a site's own units start it.
# QEMU hands it in; the kernel's command line says which node this is, of how many.
set -euo pipefail

NET=10.77.1
NFS_OPTIONS=vers=4.2 # and what a stock client adds
said() { grep -oP "bringup\.$1=\K\S+" /proc/cmdline; }
number=$(said node) nodes=$(said nodes) memory=$(said memory)
name=n$number
mark() { echo "bringup: $name $* at $(cut -d ' ' -f 1 /proc/uptime) s"; }

network() { # eth0 joins the nodes; eth1 is for the machine outside, and leads nowhere else
  local i
  echo "$name" >/etc/hostname
  hostname "$name"
  { echo "127.0.0.1 localhost"; for ((i = 0; i < nodes; i++)); do echo "$NET.$((10 + i)) n$i"; done; } >/etc/hosts
  ip link set lo up
  ip address add "$NET.$((10 + number))/16" dev eth0
  ip link set eth0 up
  ip address add "10.0.2.$((100 + number))/32" dev eth1
  ip link set eth1 up
  ip route add 10.0.2.2 dev eth1
}

clock() { # the first node's clock is the cluster's
  if [ "$number" = 0 ]; then echo "local stratum 8
allow"; else echo "server n0 iburst minpoll 2 maxpoll 4
makestep 0.05 10"; fi >/etc/chrony/chrony.conf
  echo "driftfile /var/lib/chrony/drift" >>/etc/chrony/chrony.conf
}

shared_folder() {
  if [ "$number" = 0 ]; then
    chmod 1777 /srv/shared
    grep -q ^/srv /etc/exports || echo "/srv/shared $NET.0/24(rw,no_subtree_check)" >>/etc/exports
    systemctl start nfs-server
  fi
  mount -o remount,size=1200m /dev/shm
  sysctl -q kernel.dmesg_restrict=0 # users of this site may read the kernel's log
  mountpoint -q /scratch || mount -t ext4 /dev/vdb /scratch
  chmod 1777 /scratch
  until mount -t nfs -o "$NFS_OPTIONS" n0:/srv/shared /shared; do sleep 1; done
}

verbs() { # RDMA in software: a real stack of drivers and libraries over eth0
  modprobe rdma_rxe
  rdma link add rxe0 type rxe netdev eth0
}

slurm() {
  local i
  [ -e /dev/nvidia0 ] || mknod -m 666 /dev/nvidia0 c 195 0
  {
    cat <<CONF
ClusterName=bringup-virtual
SlurmctldHost=n0
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((memory - 300))
GresTypes=gpu
JobAcctGatherType=jobacct_gather/linux
ReturnToService=1
# a machine under emulation is slow to answer
SlurmdTimeout=60
MessageTimeout=30
KillWait=10
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
CONF
    for ((i = 0; i < nodes; i++)); do echo "NodeName=n$i CPUs=1 RealMemory=$((memory - 300)) Gres=gpu:1"; done
    echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
  } >/etc/slurm/slurm.conf
  echo "Name=gpu File=/dev/nvidia0" >/etc/slurm/gres.conf
  printf 'ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n' >/etc/slurm/cgroup.conf
  install -d -o slurm -g slurm /var/spool/slurmctld /var/log/slurm
  install -d /var/spool/slurmd
  [ "$number" != 0 ] || systemctl start --no-block slurmctld
  systemctl start --no-block slurmd
}

mark starts
network
clock
systemctl restart --no-block chrony # it started before this, with the settings of its package
systemctl start --no-block munge ssh
verbs
mark "has its network"
shared_folder
mark "has its folders"
slurm
mark ready
