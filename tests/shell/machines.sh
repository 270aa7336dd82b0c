#!/usr/bin/env bash
# Runs a command on three machines at once: `machines.sh FIRST COMMAND...`, in namespaces of its own (machines.py).
# Each is a network namespace at a bridge, with the addresses and names of all; FIRST is one more name of the first.
set -euo pipefail
first=$1
shift

mount -t tmpfs none /run
mkdir /run/netns
ip link set lo up
ip link add bridge type bridge
ip link set bridge up
echo "127.0.0.1 localhost" >/run/hosts
for i in 0 1 2; do
  echo "192.0.2.$((i + 1)) machine-$i"
done >>/run/hosts
echo "192.0.2.1 $first" >>/run/hosts
mount --bind /run/hosts /etc/hosts

started=()
for i in 0 1 2; do
  machine=machine-$i
  ip netns add $machine
  ip link add to-$i type veth peer name eth0 netns $machine
  ip link set to-$i master bridge up
  ip -n $machine link set lo up
  ip -n $machine addr add 192.0.2.$((i + 1))/24 dev eth0
  ip -n $machine link set eth0 up
done
for i in 0 1 2; do
  nsenter --net=/run/netns/machine-$i unshare --uts bash -c 'hostname "$0" && exec "$@"' machine-$i "$@" &
  started+=($!)
done
status=0
for process in "${started[@]}"; do
  wait "$process" || status=$?
done
exit $status
