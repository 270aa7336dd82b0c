#!/bin/bash
# A kind cluster of one control plane and three workers, from whatever this machine can reach.
# usage: cluster.sh up|load|down|clean      knobs: PROVIDER, NODE_IMAGE, BASE, CLUSTER (docs/cluster.md)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh

export KUBECONFIG_OF_USER=${KUBECONFIG:-}
export KUBECONFIG=$OUT/kubeconfig
stores=(control-plane worker worker2 worker3)
nodes=("${stores[@]/#/$CLUSTER-}")

use_existing() {
    [ -n "$KUBECONFIG_OF_USER" ] || fail "PROVIDER=existing needs KUBECONFIG"
    mkdir -p "$OUT"
    KUBECONFIG=$KUBECONFIG_OF_USER kubectl config view --raw --flatten --minify >"$OUT/kubeconfig.new"
    mv "$OUT/kubeconfig.new" "$OUT/kubeconfig"
    kubectl get nodes
}

# NODE_IMAGE wins; then the one that this kind is made for, where it can be pulled; then ours.
choose_node_image() {
    local public
    public=$(sed -n 's/^const Image = "\(.*\)"/\1/p' \
        "$(cd tools/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/pkg/apis/config/defaults/image.go")
    if [ -n "${NODE_IMAGE:-}" ]; then
        echo "$NODE_IMAGE"
    elif [ ! -f "$CACHE/node-images.list" ] && registry_answers "$public"; then
        echo "$public"
    else
        ./node-image.sh
    fi
}

# kind's configuration for a node image.
configuration() { # image
    sed -e "s#\${NODE_IMAGE}#$1#; s#\${STORES}#$STORES#; s#\${CLUSTER_DIR}#$CLUSTER_DIR#; s#\${OUT}#$OUT#" kind.yaml
}

# A cluster that another checkout created has its audit log there, so it is not healthy here; nor is one that was
# created with another configuration.
healthy() {
    [ -s "$OUT/kind.yaml" ] &&
        configuration "$(sed -n 's/^ *image: //p' "$OUT/kind.yaml" | head -1)" | cmp --silent - "$OUT/kind.yaml" &&
        [ "$(docker ps --quiet --filter "label=io.x-k8s.kind.cluster=$CLUSTER" --filter status=running | wc -l)" = ${#nodes[@]} ] &&
        [ -s "$KUBECONFIG" ] &&
        kubectl --request-timeout 5s wait --for condition=Ready --timeout 10s nodes --all >/dev/null 2>&1
}

# Each node has a dozen programs that watch files. Linux allows a user 128 of them, enough for a single cluster.
allow_watches() {
    local limit=/proc/sys/fs/inotify/max_user_instances
    [ "$(cat $limit)" -ge 1024 ] || echo 1024 2>/dev/null >$limit ||
        echo "cluster: if pods end with 'too many open files', run: sudo sysctl fs.inotify.max_user_instances=1024"
}

create() {
    local image
    remove
    allow_watches
    image=$(choose_node_image)
    ./stores.sh up "$image" "${stores[@]}"
    mkdir -p "$OUT/audit" "$OUT/shared"
    : >"$OUT/audit/audit.log"
    configuration "$image" >"$OUT/kind.yaml"
    kind create cluster --name "$CLUSTER" --config "$OUT/kind.yaml" --kubeconfig "$KUBECONFIG" --quiet
}

# kind waits for control planes only. The network of pods is up when a pod's name resolves, by its Service, on another node.
wait_until_usable() {
    kubectl wait --for condition=Ready --timeout 180s nodes --all >/dev/null
    # What CoreDNS asked before kube-proxy was there gets no answer, and it waits half a minute for one.
    kubectl --namespace kube-system rollout status --timeout 120s daemonset/kube-proxy >/dev/null
    kubectl --namespace kube-system delete pod --selector k8s-app=kube-dns --grace-period 1 --wait=false >/dev/null
    kubectl --namespace kube-system rollout status --timeout 120s deployment/coredns >/dev/null
    kubectl apply --filename probe.yaml >/dev/null
    kubectl wait --for condition=Complete --timeout 120s --namespace pytorchjob-probe job/probe >/dev/null ||
        fail "pods do not reach each other: kubectl --kubeconfig $KUBECONFIG --namespace pytorchjob-probe get pods -o wide"
    kubectl delete --filename probe.yaml --wait=false >/dev/null
}

load() {
    ./images.sh
    ./load_images.py "${nodes[@]}"
}

up() {
    if [ "${PROVIDER:-kind}" = existing ]; then use_existing && return; fi
    ./binaries.sh clients
    docker_ready
    ./images.sh
    ./docker.sh weigh
    if healthy; then
        echo "cluster: $CLUSTER is there and healthy"
        ./load_images.py "${nodes[@]}"
        ./metrics-server.sh deploy "${nodes[0]}"
    else
        create
        ./docker.sh weigh
        ./load_images.py "${nodes[@]}"
        ./metrics-server.sh deploy "${nodes[0]}"
        wait_until_usable
    fi
    ./metrics-server.sh register "${nodes[0]}"
    echo "cluster: export KUBECONFIG=$KUBECONFIG"
    kubectl get nodes
}

nodes_left() { docker ps --all --quiet --no-trunc --filter "label=io.x-k8s.kind.cluster=$CLUSTER"; }

# A node that is killed while its runc holds a pod frozen (cgroup v1) cannot die before that pod is thawed.
thaw() { # container
    find "/sys/fs/cgroup/freezer/docker/$1" -name freezer.state 2>/dev/null | while read -r state; do
        if grep -qs FROZEN "$state"; then echo THAWED >"$state"; fi
    done
}

remove() {
    local node
    timeout 30 kind delete cluster --name "$CLUSTER" --kubeconfig "$KUBECONFIG" >/dev/null 2>&1 || true
    # A node that was paused, or one whose daemon died, withstands a plain delete.
    for _ in $(seq 5); do
        [ -n "$(nodes_left)" ] || break
        for node in $(nodes_left); do
            thaw "$node"
            docker rm --force --volumes "$node" >/dev/null 2>&1 || sleep 1
        done
    done
    [ -z "$(nodes_left)" ] || fail "the nodes of $CLUSTER cannot be removed: see docker ps --all and $CACHE/dockerd.log"
    ./stores.sh down
    rm -f "$KUBECONFIG" "$OUT/kind.yaml"
}

down() {
    if [ "${PROVIDER:-kind}" = existing ]; then
        rm -f "$OUT/kubeconfig"
        return
    fi
    if docker info >/dev/null 2>&1; then
        docker_ready
        remove
        [ -n "$(docker network ls --quiet --filter name=^kind$)" ] &&
            [ -z "$(docker ps --all --quiet --filter network=kind)" ] && docker network rm kind >/dev/null
    fi
    ./stores.sh down
    # The daemon may serve a cluster of another name too.
    [ -n "$(docker ps --quiet 2>/dev/null)" ] || ./docker.sh down
    rm -rf "$OUT/audit" "$OUT/shared" "$OUT/kubeconfig" "$OUT/kind.yaml"
}

clean() {
    down
    ./stores.sh clean
    ./docker.sh clean
    rm -rf "$CACHE/node-images.list" "$BIN"
}

case ${1:-} in
up | load | down | clean) "$1" ;;
*) fail "unknown action '${1:-}': use up, load, down or clean" ;;
esac
