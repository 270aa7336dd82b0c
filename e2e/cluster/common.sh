# Names, places and small helpers that every script of the cluster shares (sourced, bash).
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CLUSTER_DIR=$ROOT/e2e/cluster
OUT=$ROOT/out
CACHE=${PYTORCHJOB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pytorchjob-operator}
BIN=$CACHE/bin
CLUSTER=${CLUSTER:-pytorchjob}
export PATH=$BIN:$PATH

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# The version of a module as the go.mod of its tool folder says it: no version is written twice.
version_of() { # tool folder, module
    awk -v m="$2" '{ sub(/^require /, "") } $1 == m && $2 ~ /^v/ { print $2; exit }' "$CLUSTER_DIR/tools/$1/go.mod"
}

KUBERNETES_VERSION=$(version_of kubernetes k8s.io/kubernetes)
ETCD_VERSION=$(version_of etcd go.etcd.io/etcd/server/v3)
COREDNS_VERSION=$(version_of coredns github.com/coredns/coredns)
