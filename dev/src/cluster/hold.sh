# The first process of a node: makes the node's view of the machine, then holds its namespaces and reaps what is
# left to it. Killing it ends everything on the node at once, as a power cut would.
#   $1  the node's folder      $2  its name
set -eu

# Nothing that is mounted in here may be seen on the machine.
mount --make-rslave /
mount -t proc proc /proc
echo "$2" >/proc/sys/kernel/hostname

# What is the machine's and not the node's: each node has a boot id of its own, and kubelet, which insists on certain
# values, finds them and leaves the machine's alone.
for file in "$1"/tunables/*; do
    mount --bind "$file" "/proc/sys/$(basename "$file" | tr . /)"
done

# A fresh /run and /var/log, and folders of its own in /var/lib without touching the machine's.
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$1/lib-changes,workdir=$1/lib-work" /var/lib
for folder in "$1"/lib/*; do
    mkdir -p "/var/lib/$(basename "$folder")"
    mount --bind "$folder" "/var/lib/$(basename "$folder")"
done
mount --bind "$1/log" /var/log
mount --bind "$1/run" /run

# Volumes that kubelet mounts are to be seen by containers that ask for it.
mount --make-rshared /
ip link set lo up
touch /run/node-is-up

set +e
while :; do
    sleep infinity &
    wait
done
