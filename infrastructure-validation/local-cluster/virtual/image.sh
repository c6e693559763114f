#!/bin/bash
# Builds the image of the virtual nodes, once: a Debian root with Slurm, NFS and the verbs stack, Debian's own kernel, and a disk for
# /scratch. Needs root, debootstrap, qemu-utils and e2fsprogs. Prints the folder; a later call finds it there.
#
#   image.sh [FOLDER]   default: ~/.cache/bringup-virtual; the image lies below, under a name made of all that went into it
#   MIRROR              Debian's mirror (default: debootstrap's own)
set -euo pipefail

SUITE=bookworm
CHECKOUT=/shared/bringup # where machines see it, and so its path in what pip writes
PACKAGES=(systemd-sysv udev dbus openssh-server iproute2 iputils-ping kmod procps pciutils ethtool numactl less
  python3 python3-venv make munge slurmd slurmctld slurm-client nfs-kernel-server nfs-common rdma-core ibverbs-utils perftest
  infiniband-diags chrony dmsetup fio busybox-static cpio)
# What a node of a cluster does not wait for at its start. Devices are there when the first service starts (initramfs), so nothing is
# triggered again: that alone is half of the time under emulation.
MASKED=(systemd-udev-trigger systemd-update-utmp systemd-update-utmp-runlevel systemd-logind getty@tty1 serial-getty@ttyS0 e2scrub_reap
  systemd-timesyncd apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-pstore
  systemd-hwdb-update ldconfig systemd-firstboot systemd-binfmt sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount
  rpc-statd-notify nfs-blkmap fsidd systemd-rfkill systemd-random-seed console-getty)
MODULES=(virtio_pci virtio_blk virtio_net ext4 crc32c_generic qemu_fw_cfg)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../../.." && pwd)
# what pip installs there, without the training
mapfile -t wanted < <(sed -n '/^dependencies = \[/,/^\]/s/^ *"\([^"]*\)".*/\1/p; s/^requires = \["\(.*\)"\]/\1/p' "$source/pyproject.toml")
mirror=(${MIRROR:+"$MIRROR"})
name=$({ cat "$here/image.sh" "$source/training/constraints.txt"; printf '%s\n' "${wanted[@]}"; } | sha256sum)
image=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/bringup-virtual}/$SUITE-${name:0:12}
root=$image/root

die() { echo "image: $*" >&2; exit 2; }

packages() {
  local list
  printf -v list '%s,' "${PACKAGES[@]}"
  DPKG_FORCE=unsafe-io debootstrap --variant=minbase --include="${list%,}" "$SUITE" "$root" "${mirror[@]}"
}

kernel() { # with its modules, without what its package pulls in: sets VERSION
  local package
  mkdir -p "$image/deb"
  chroot "$root" apt-get -q update
  package=$(chroot "$root" apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
  (cd "$image/deb" && chroot "$root" sh -c "cd /tmp && apt-get -q download $package" && mv "$root"/tmp/*.deb .)
  dpkg-deb -x "$image"/deb/*.deb "$image/deb/tree"
  VERSION=$(basename "$image"/deb/tree/lib/modules/*)
  cp -r "$image/deb/tree/lib/modules" "$root/lib/"
  (cd "$root/lib/modules/$VERSION/kernel" && rm -rf sound drivers/{gpu,media,net/wireless,net/ethernet,staging,iio,hid,usb,scsi,ata})
  cp "$image/deb/tree/boot/vmlinuz-$VERSION" "$image/vmlinuz"
  chroot "$root" depmod "$VERSION"
  rm -rf "$image/deb"
}

initramfs() { # busybox and the modules that find the root
  local tree=$root/tmp/initramfs module file number=10
  mkdir -p "$tree"/{bin,modules}
  cp "$root/bin/busybox" "$tree/bin/"
  for module in "${MODULES[@]}"; do
    while read -r _ file _; do
      if [ -e "$root$file" ] && ! ls "$tree"/modules/*-"${file##*/}" >/dev/null 2>&1; then
        cp "$root$file" "$tree/modules/$((number++))-${file##*/}"
      fi
    done < <(chroot "$root" modprobe --set-version "$VERSION" --show-depends "$module")
  done
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /r
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod $module; done
until [ -e /dev/vda ]; do $b sleep 0.1; done
$b mount -t ext4 /dev/vda /r && exec $b switch_root /r /lib/systemd/systemd
exec $b sh
INIT
  chmod 755 "$tree/init"
  chroot "$root" sh -c 'cd /tmp/initramfs && find . | cpio --quiet -o -H newc | gzip -1' >"$image/initramfs.gz"
  rm -rf "$tree"
}

# The light environment, installed by its own target as a site without internet does it: wheels from here, pip in the root.
environment() {
  local tree=$root$CHECKOUT
  mkdir -p "$tree" "$image/wheels"
  "$source/.venv/bin/python" -m pip download --quiet --only-binary=:all: --python-version 311 --platform manylinux2014_x86_64 \
    --platform manylinux_2_28_x86_64 --dest "$image/wheels" --constraint <(grep -vE '^(cuda-|nvidia-[^m]|triton=)' "$source/training/constraints.txt") \
    "${wanted[@]}"
  (cd "$source" && git ls-files -z -- Makefile pyproject.toml training/constraints.txt infrastructure-validation/scripts validation | tar c --null -T -) | tar x -C "$tree"
  mv "$image/wheels" "$root/tmp/wheels"
  chroot "$root" env -u PIP_FIND_LINKS -u PIP_CERT sh -c "cd $CHECKOUT && WHEELS=/tmp/wheels make --no-print-directory venv-light && chown -R 1000:1000 ."
  rm -rf "$root/tmp/wheels"
  mkdir "$root/srv/shared"
  mv "$tree" "$root/srv/shared/" # the first node exports it
}

settings() {
  local unit
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants" "$root/root/.ssh" "$root/scratch"
  for unit in "${MASKED[@]}"; do [[ $unit == *.* ]] || unit+=.service; ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
  for unit in slurmctld nfs-server nfs-kernel-server munge slurmd ssh rpcbind; do chroot "$root" systemctl disable "$unit"; done || :
  cat >"$root/etc/systemd/system/bringup-node.service" <<'UNIT' # guest.sh, which QEMU hands in: a change of it needs no new image
[Unit]
After=local-fs.target systemd-sysctl.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash /sys/firmware/qemu_fw_cfg/by_name/opt/bringup/guest/raw
StandardOutput=journal+console
TimeoutStartSec=0
UNIT
  ln -sf ../bringup-node.service "$root/etc/systemd/system/multi-user.target.wants/"
  chroot "$root" useradd --password '*' --uid 1000 --create-home --shell /bin/bash bringup
  printf '/dev/vda / ext4 defaults 0 0\n' >"$root/etc/fstab"
  # one key for all machines, made here: of the machine's own 1024 random bytes
  head -c 1024 /dev/urandom >"$root/etc/munge/munge.key"
  chroot "$root" sh -c "chown munge:munge /etc/munge/munge.key && chmod 400 /etc/munge/munge.key"
  ssh-keygen -q -t ed25519 -N '' -C bringup-virtual -f "$image/key"
  install -m 600 "$image/key.pub" "$root/root/.ssh/authorized_keys"
  install -D -m 600 -o 1000 -g 1000 "$image/key.pub" "$root/home/bringup/.ssh/authorized_keys"
  chown 1000:1000 "$root/home/bringup/.ssh"
  rm -f "$root"/etc/ssh/ssh_host_*
  ssh-keygen -q -t ed25519 -N '' -f "$root/etc/ssh/ssh_host_ed25519_key"
  echo "node $(cut -d ' ' -f 1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub")" >"$image/known_hosts"
  printf 'UsePAM no\nUseDNS no\nPrintMotd no\n' >"$root/etc/ssh/sshd_config.d/bringup.conf"
  mkdir "$root/etc/systemd/system/ssh.service.d" # whoever logs in may lock memory, as a site with RDMA has it
  printf '[Service]\nLimitMEMLOCK=infinity\n' >"$root/etc/systemd/system/ssh.service.d/limits.conf"
  : >"$root/etc/machine-id" # from the kernel's command line
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
}

main() {
  if [ -e "$image/done" ]; then
    echo "$image"
    exit
  fi
  for tool in debootstrap qemu-img mke2fs ssh-keygen; do
    PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || die "$tool is not installed: apt-get install debootstrap qemu-system-x86 qemu-utils" \
      "e2fsprogs openssh-client"
  done
  [ $EUID = 0 ] || die "debootstrap needs root; run as root once, later starts need none"

  began=$SECONDS
  rm -rf "$image"
  mkdir -p "$image"
  trap '[ -e "$image/done" ] || echo "image: failed; the log is $image/log" >&2' EXIT
  exec 3>&1 >"$image/log" 2>&1
  packages
  kernel
  initramfs
  environment
  settings
  echo "$(du -sm "$root" | cut -f 1) MB in $(chroot "$root" dpkg-query -f '.\n' -W | wc -l) packages" >"$image/size"
  mke2fs -q -t ext4 -L root -d "$root" "$image/root.img" 4G
  rm -rf "$root"
  truncate -s 1G "$image/scratch.img"
  mke2fs -q -t ext4 -L scratch "$image/scratch.img"
  touch "$image/done"
  echo "image: $(cat "$image/size"), $(du -sm "$image" | cut -f 1) MB kept, in $((SECONDS - began)) s" >&3
  echo "$image" >&3
}

main; exit # one line: the file may be edited while it runs
