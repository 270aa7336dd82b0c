#!/bin/bash
# Brings up a Docker daemon where none runs, and takes down only the one it brought up.
# usage: docker.sh up|weigh|down|clean     (weigh: after the first container; clean also removes the daemon's data: images, build cache)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh

data=$CACHE/docker
pidfile=/run/pytorchjob-dockerd.pid
before=/run/pytorchjob-dockerd.before # how the host was
log=$CACHE/dockerd.log
runtime_path=$CACHE/runc-without-sys-resource

containerd_pidfile=/run/docker/containerd/containerd.pid

# A process identifier alone may be another program's by now; a dead process keeps its entry, but not its command line.
runs() { [ -f "$1" ] && grep -qsa "$2" "/proc/$(cat "$1")/cmdline"; } # file, program
ours() { runs "$pidfile" dockerd; }

install_docker() {
    command -v dockerd >/dev/null && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "no Docker daemon answers and none can be installed: start Docker, use PROVIDER=existing with KUBECONFIG, or leave out what needs it: make test WITHOUT=cluster"
    echo "docker: installing Debian's docker.io"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io >/dev/null
}

# Bit 24 of the bounding set is CAP_SYS_RESOURCE; nodes are privileged containers and would ask for it.
lacks_sys_resource() { (( (0x$(awk '/^CapBnd/ { print $2 }' /proc/self/status) >> 24 & 1) == 0 )); }

# What our daemon left behind when it was killed, or when the machine was restarted, would stop the next one.
bury() {
    [ -f "$pidfile" ] || return 0
    if ours; then kill -9 "$(cat "$pidfile")"; fi
    if runs "$containerd_pidfile" containerd; then kill -9 "$(cat "$containerd_pidfile")"; fi
    rm -f "$pidfile" "$containerd_pidfile"
}

start() {
    local runtime=()
    if lacks_sys_resource; then
        # In the cache, because the daemon outlives this checkout: without the file it can start nothing any more.
        install -D -m 755 "$CLUSTER_DIR/runc-without-sys-resource" "$runtime_path"
        runtime=(--add-runtime "limited=$runtime_path" --default-runtime limited)
    fi
    mkdir -p "$data"
    bury
    [ -f "$before" ] || remember
    setsid dockerd --data-root "$data" --pidfile "$pidfile" "${runtime[@]}" >"$log" 2>&1 </dev/null &
    for _ in $(seq 120); do
        docker info >/dev/null 2>&1 && return
        kill -0 $! 2>/dev/null || break
        sleep 0.5
    done
    tail -5 "$log" >&2
    fail "dockerd did not start; its log is $log"
}

up() {
    docker info >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] || fail "no Docker daemon answers: start Docker, use PROVIDER=existing with KUBECONFIG, or leave out what needs it: make test WITHOUT=cluster"
    install_docker
    echo "docker: starting dockerd (data in $data, log $log)"
    start
}

# What a daemon changes on the host and does not undo.
remember() {
    { cat /proc/sys/net/ipv4/ip_forward && iptables --list-rules FORWARD | head -1; } >"$before" 2>/dev/null || true
}

undo() {
    local policy
    ip link delete docker0 2>/dev/null || true
    iptables-save 2>/dev/null | grep -v -e DOCKER -e docker0 -e ' br-' | iptables-restore 2>/dev/null || true
    if policy=$(sed -n 2p "$before" 2>/dev/null) && [ -n "$policy" ]; then
        # shellcheck disable=SC2086 # the words of one rule
        iptables $policy
        head -1 "$before" >/proc/sys/net/ipv4/ip_forward
    fi
    umount "$data" 2>/dev/null || true
    # Also the network of a container that the daemon had no time to remove.
    find /run/docker/netns -type f -exec umount {} \; 2>/dev/null || true
    find /sys/fs/cgroup/docker /sys/fs/cgroup/*/docker -depth -type d -exec rmdir {} + 2>/dev/null || true
    rm -rf "$before" "$pidfile" /run/docker
}

down() {
    ours || return 0
    local pid
    pid=$(cat "$pidfile")
    kill "$pid"
    for _ in $(seq 60); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.5
    done
    undo
}

# The kernel weighs all containers of a cgroup together like one session of a terminal, of which tests have a dozen. With
# a weight of 16 the cluster starves these in turn: kubectl waits 10 s for a TLS handshake at most.
weigh() {
    ours || return 0
    local shares=/sys/fs/cgroup/cpu/docker/cpu.shares weight=/sys/fs/cgroup/docker/cpu.weight
    if [ -f "$shares" ]; then echo $((4 * 1024)) >"$shares"; fi
    if [ -f "$weight" ]; then echo $((4 * 100)) >"$weight"; fi
}

case ${1:-} in
up) up ;;
weigh) weigh ;;
down) down ;;
clean) down && rm -rf "$data" ;;
*) fail "unknown action '${1:-}': use up, weigh, down or clean" ;;
esac
