#!/bin/bash
# Installs metrics-server, which autoscalers read: an image of one program, brought into one node.
# usage: metrics-server.sh deploy|register NODE      (the control plane's node; KUBECONFIG names the cluster)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh

deploy() { # node
    local image
    docker_ready
    ./binaries.sh metrics
    # The tag is the stamp of the program: another program is another image, and the Deployment rolls.
    image=pytorchjob/metrics-server:$(cat "$BIN/.stamps/metrics-server")
    docker image inspect "$image" >/dev/null 2>&1 ||
        tar -C "$BIN" -c metrics-server | docker import --change 'ENTRYPOINT ["/metrics-server"]' - "$image" >/dev/null
    [ -n "$(docker exec "$1" ctr --namespace k8s.io images ls --quiet "name==docker.io/$image")" ] ||
        docker save "$image" | docker exec --interactive "$1" ctr --namespace k8s.io images import - >/dev/null
    sed "s#\${IMAGE}#$image#" metrics/server.yaml | kubectl apply --filename - >/dev/null
}

# Not before kube-proxy knows the Service and its endpoint: until then what the API server sends to its address leaves the
# cluster, and should somebody out there answer, it keeps that connection.
register() { # node
    local address
    kubectl --namespace kube-system rollout status --timeout 120s deployment/metrics-server >/dev/null ||
        fail "metrics-server does not start: kubectl --kubeconfig $KUBECONFIG --namespace kube-system logs deployment/metrics-server"
    address=$(kubectl --namespace kube-system get service metrics-server --output 'jsonpath={.spec.clusterIP}')
    for _ in $(seq 120); do
        if routed "$1" "$address"; then break; fi
        sleep 1
    done
    routed "$1" "$address" || fail "kube-proxy on $1 does not know metrics-server's address $address: see its log"
    kubectl apply --filename metrics/apiservice.yaml >/dev/null
    kubectl wait --for condition=Available --timeout 120s apiservice/v1beta1.metrics.k8s.io >/dev/null ||
        fail "the API server does not reach metrics-server: make cluster-down cluster"
}

routed() { # node, address
    docker exec "$1" iptables-save --table nat | grep -- "-d $2/32 .*-j KUBE-SVC" >/dev/null
}

case ${1:-} in
deploy) deploy "$2" ;;
register) register "$2" ;;
*) fail "unknown action '${1:-}': use deploy or register" ;;
esac
