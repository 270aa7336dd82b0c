#!/bin/bash
# Builds the Go programs of a cluster from their modules into <cache>/bin; skips what is up to date.
# usage: binaries.sh [apiserver|tests|kueue|gangs|cosign|clients|metrics|prometheus|node|registry|all]   (apiserver: an API server for tests and benchmarks;
#                    tests: all that tests without a cluster need; clients: what users of a cluster need; metrics: what autoscalers
#                    need in it; prometheus: what reads dashboards and alerts; node: what a node image is made from;
#                    registry: where tests push to; kueue: what the tests with a real Kueue need, some minutes;
#                    gangs: Kubernetes 1.31 and 1.37, and scheduler-plugins' scheduler, 20 minutes;
#                    cosign: what the test with real signatures needs, ten minutes)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh

tools=$PWD/tools
mkdir -p "$BIN/.stamps"

# A program is up to date when its stamp equals the hash of all that decides its content.
stamp_of() { # module folder, build arguments
    { cd "$tools/$1" && cat -- go.mod go.sum ./*.go 2>/dev/null || true; echo "${*:2}"; go env GOVERSION GOARCH; } | sha256sum | cut -c1-16
}

build() { # module folder, name of the program, package, linker flags
    local module=$1 name=$2 package=$3 flags="-s -w ${4:-}" stamp
    stamp=$(stamp_of "$module" "$package" "$flags")
    (
        flock 9
        if [ -x "$BIN/$name" ] && [ "$(cat "$BIN/.stamps/$name" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
        echo "binaries: building $name"
        SECONDS=0
        cd "$tools/$module"
        CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$BIN/$name.new" "$package"
        mv "$BIN/$name.new" "$BIN/$name"
        echo "$stamp" >"$BIN/.stamps/$name"
        echo "binaries: $name built in $SECONDS s"
    ) 9>"$BIN/.stamps/$name.lock"
}

# Without these the programs call themselves v0.0.0 and clients complain.
kubernetes() { # program, 1.37 (another version than the default, in a folder of this name)
    local at=k8s.io/component-base/version module=kubernetes${2:+-$2} version minor
    version=$(version_of "$module" k8s.io/kubernetes)
    minor=${version#v*.}
    build "$module" "${2:+$2/}$1" "k8s.io/kubernetes/cmd/$1" \
        "-X $at.gitVersion=$version -X $at.gitMajor=1 -X $at.gitMinor=${minor%.*} -X $at.gitTreeState=clean"
}

apiserver() {
    kubernetes kube-apiserver
    build etcd etcd go.etcd.io/etcd/server/v3
    kubernetes kube-controller-manager
    kubernetes kubectl
    build kwok kwok sigs.k8s.io/kwok/cmd/kwok "-X sigs.k8s.io/kwok/pkg/consts.Version=$(version_of kwok sigs.k8s.io/kwok)"
    # The operator that this one replaces: jobs are handed over between the two in tests.
    build training-operator training-operator github.com/kubeflow/training-operator/cmd/training-operator.v1
    podgroups
}

# The resources of the gang schedulers, which tests install: Volcano's is made from its types, the way Volcano makes it.
podgroups() {
    local at=$BIN/podgroups plugins=sigs.k8s.io/scheduler-plugins stamp
    stamp=$(stamp_of podgroups)
    (
        flock 9
        if [ "$(cat "$at/.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
        echo "binaries: making the gang schedulers' resources"
        SECONDS=0
        mkdir -p "$at"
        cd "$tools/podgroups"
        go tool controller-gen crd paths=volcano.sh/apis/pkg/apis/scheduling/v1beta1 output:crd:dir="$at"
        go mod download $plugins
        install -m 644 "$(go list -m -f '{{.Dir}}' $plugins)"/config/crd/bases/*_podgroups.yaml "$at"
        echo "$stamp" >"$at/.stamp"
        echo "binaries: the gang schedulers' resources made in $SECONDS s"
    ) 9>"$BIN/.stamps/podgroups.lock"
}

# The control plane of another minor version, beside the default one.
version() { # 1.37
    local name
    mkdir -p "$BIN/$1" "$BIN/.stamps/$1"
    for name in kube-apiserver kube-controller-manager kube-scheduler; do kubernetes "$name" "$1"; done
    for name in etcd kubectl kwok; do ln -sf "../$name" "$BIN/$1/$name"; done
}

# The oldest version, and the first one with gangs of its own.
gangs() {
    version 1.31
    version 1.37
    build scheduler-plugins scheduler-plugins sigs.k8s.io/scheduler-plugins/cmd/scheduler
}

# Its manager, and its manifests as it publishes them.
kueue() {
    local module=sigs.k8s.io/kueue
    kubernetes kubectl
    build kueue kueue $module/cmd/kueue "-X $module/pkg/version.GitVersion=$(version_of kueue $module)"
    "$BIN/kubectl" kustomize "$(cd "$tools/kueue" && go list -m -f '{{.Dir}}' $module)/config/default" >"$BIN/.kueue.yaml.new"
    mv "$BIN/.kueue.yaml.new" "$BIN/kueue.yaml"
}

tests() {
    apiserver
    kubernetes kube-scheduler
    helm
    prometheus
    registry
}

clients() {
    kubernetes kubectl
    build kind kind sigs.k8s.io/kind
    helm
}

helm() {
    build helm helm helm.sh/helm/v3/cmd/helm "-X helm.sh/helm/v3/internal/version.version=$(version_of helm helm.sh/helm/v3)"
}

# Both read the chart's dashboards and alerts in tests. Of the service discoveries files suffice: the others bring the clouds' libraries.
prometheus() {
    local name module=github.com/prometheus/prometheus
    for name in prometheus promtool; do
        GOFLAGS="$(go env GOFLAGS) -tags=remove_all_sd" build prometheus "$name" "$module/cmd/$name" \
            "-X github.com/prometheus/common/version.Version=$(version_of prometheus $module)"
    done
}

# Where tests push images and charts.
registry() { build registry registry .; }

# What signs the images of a release.
cosign() {
    local module=github.com/sigstore/cosign/v3
    build cosign cosign $module/cmd/cosign "-X sigs.k8s.io/release-utils/version.gitVersion=$(version_of cosign $module)"
}

metrics() {
    local module=sigs.k8s.io/metrics-server
    build metrics-server metrics-server $module/cmd/metrics-server \
        "-X k8s.io/client-go/pkg/version.gitVersion=$(version_of metrics-server $module)"
}

node() {
    local name
    for name in kubelet kube-proxy kube-scheduler kubeadm; do kubernetes "$name"; done
    build coredns coredns .
    build pause pause .
}

command -v go >/dev/null || fail "Go is missing: install Go 1.24 or later, or leave out what needs it: make test WITHOUT=\"apiserver helm cluster\""
case ${1:-all} in
apiserver) apiserver ;;
tests) tests ;;
node) node ;;
clients) clients ;;
helm) helm ;;
metrics) metrics ;;
prometheus) prometheus ;;
kueue) kueue ;;
gangs) apiserver && gangs ;;
cosign) cosign ;;
registry) registry ;;
all) apiserver && clients && metrics && node && registry ;;
*) fail "unknown group '$1': use apiserver, tests, kueue, gangs, cosign, clients, metrics, prometheus, node, registry or all" ;;
esac
