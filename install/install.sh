#!/bin/bash
# Installs the operator of this checkout: builds the images, brings them to the nodes or to a registry, installs the chart.
# usage: install.sh install|push|uninstall|chart    (chart: the chart alone, with the images that the nodes have)
# knobs: KUBECONFIG, REGISTRY, TAG, PLATFORMS, SIGN_KEY, NAMESPACE, HELM_ARGS, and those of e2e/cluster (docs/installing.md,
#        docs/cluster.md)
set -euo pipefail
path_of_user=$PATH
kubeconfig_of_user=${KUBECONFIG:-}
. "$(dirname "$0")/../e2e/cluster/common.sh"

release=pytorchjob-operator
chart=$ROOT/charts/$release
namespace=${NAMESPACE:-pytorchjob-system}
definition=pytorchjobs.kubeflow.org
examples=examples
values=()

# A program of PATH, or else one that is built from its Go module into the cache.
need() { # program, group of binaries.sh
    command -v "$1" >/dev/null && return
    command -v go >/dev/null ||
        fail "$1 is missing: install $1, or Go 1.24 or later, from which \`make install\` builds it"
    "$CLUSTER_DIR/binaries.sh" "$2"
}

docker_answers() { docker info >/dev/null 2>&1 && docker_ready; }

cluster_answers() { kubectl --request-timeout 10s get nodes >/dev/null 2>&1; }

# KUBECONFIG names the cluster. Without it, the cluster of `make cluster` is used, also if another checkout brought it up.
choose_cluster() { # what to do if there is none
    need kubectl clients
    if [ -n "$kubeconfig_of_user" ]; then
        cluster_answers ||
            fail "the cluster of KUBECONFIG=$kubeconfig_of_user does not answer: check it with \`kubectl get nodes\`"
        return
    fi
    export KUBECONFIG=$OUT/kubeconfig
    if [ -s "$KUBECONFIG" ] && cluster_answers; then return; fi
    adopt || "$1"
}

# Writes the kubeconfig of a kind cluster that runs on this machine under the name $CLUSTER.
adopt() {
    docker_answers && [ -n "$(docker ps --quiet --filter "label=io.x-k8s.kind.cluster=$CLUSTER")" ] || return 1
    need kind clients
    mkdir -p "$OUT"
    kind get kubeconfig --name "$CLUSTER" >"$KUBECONFIG" 2>/dev/null && cluster_answers
}

bring_up() { "$CLUSTER_DIR/cluster.sh" up; }

no_cluster() { fail "there is no cluster to remove the operator from: set KUBECONFIG to the kubeconfig of yours"; }

# The containers that are the cluster's nodes, if kind made it with this machine's Docker.
kind_nodes() {
    local ids id
    docker_answers || return 1
    ids=$(kubectl get nodes --output 'jsonpath={.items[*].spec.providerID}')
    [ -n "$ids" ] || return 1
    for id in $ids; do
        [[ $id == kind://docker/* ]] && docker inspect "${id##*/}" >/dev/null 2>&1 || return 1
        echo "${id##*/}"
    done
}

# Helm takes over no object that another installation made. Refuse before anything is built.
refuse_foreign_definition() {
    local owner
    if helm status "$release" --namespace "$namespace" >/dev/null 2>&1; then return; fi
    if [[ " ${HELM_ARGS:-} " == *" --take-ownership "* ]]; then return; fi
    owner=$(kubectl get crd "$definition" --ignore-not-found \
        --output 'jsonpath={.kind}/{.metadata.annotations.meta\.helm\.sh/release-name}')
    case $owner in "" | "CustomResourceDefinition/$release") return ;; esac
    fail "$definition belongs to another installation: if that is training-operator v1, follow docs/migrating.md; else take it over: make install HELM_ARGS=--take-ownership"
}

use_loaded_images() {
    # The tag stays the same when the image changes. With its id in the template the pods are replaced then, and only then.
    values=(
        --set image.repository=pytorchjob/operator --set image.tag=dev --set image.pullPolicy=Never
        --set-string "podAnnotations.image-id=$(docker image inspect --format '{{.Id}}' pytorchjob/operator:dev)"
    )
}

load() {
    local nodes
    nodes=$(kind_nodes) ||
        fail "REGISTRY is missing: the nodes of this cluster have no access to this machine's images, because it is not a kind cluster on this machine's Docker; name a registry that both reach: make install REGISTRY=registry.example.com/team"
    docker_ready
    "$CLUSTER_DIR/images.sh" agent operator examples
    # shellcheck disable=SC2086 # a word for each node
    "$CLUSTER_DIR/load_images.py" --images operator,examples $nodes
    use_loaded_images
}

push() {
    [ -n "${REGISTRY:-}" ] ||
        fail "REGISTRY is missing: name the registry to push to: make push REGISTRY=registry.example.com/team"
    docker_ready
    (cd "$ROOT" && python3 -m release.push) || exit
    examples=out/release/examples
    # By digest, so that pods are replaced when the image changes under the same tag.
    values=(--values "$ROOT/out/release/values.yaml")
}

install_chart() {
    # shellcheck disable=SC2086 # HELM_ARGS are words
    helm upgrade --install "$release" "$chart" --namespace "$namespace" --create-namespace --wait --timeout 5m \
        "${values[@]}" ${HELM_ARGS:-} >/dev/null || {
        kubectl --namespace "$namespace" get pods >&2
        fail "the operator is not installed or not ready: Helm's message is above; \`kubectl --namespace $namespace describe pods\` shows the events of its pods"
    }
}

print_next_steps() {
    echo "install: $release is ready in namespace $namespace. Next:"
    PATH=$path_of_user command -v kubectl >/dev/null || echo "  export PATH=$BIN:\$PATH"
    [ -n "$kubeconfig_of_user" ] || echo "  export KUBECONFIG=$KUBECONFIG"
    echo "  kubectl apply -f $examples/digits/pytorchjob.yaml"
    echo "  kubectl get ptj -w"
}

install() {
    choose_cluster bring_up
    need helm helm
    refuse_foreign_definition
    # The nodes' platform alone, unless PLATFORMS names more: emulating another one takes long.
    if [ -n "${REGISTRY:-}" ]; then PLATFORMS=${PLATFORMS:-native} push; else load; fi
    install_chart
    print_next_steps
}

chart() {
    choose_cluster bring_up
    need helm helm
    refuse_foreign_definition
    if kind_nodes >/dev/null; then use_loaded_images; fi
    install_chart
}

uninstall() {
    choose_cluster no_cluster
    need helm helm
    helm uninstall "$release" --namespace "$namespace" --ignore-not-found --wait
    echo "install: the resource definition and all jobs stay; \`kubectl delete crd $definition\` deletes them"
    [ -n "$kubeconfig_of_user" ] || echo "install: the kind cluster stays too; \`make cluster-down\` removes it"
}

print_helm_command() {
    echo "install: a chart with these images is installed by"
    echo "  helm upgrade --install $release charts/$release --namespace $namespace --create-namespace ${values[*]//"$ROOT/"/}"
}

case ${1:-} in
install | chart | uninstall) "$1" ;;
push)
    push
    print_helm_command
    ;;
*) fail "unknown action '${1:-}': use install, push, uninstall or chart" ;;
esac
