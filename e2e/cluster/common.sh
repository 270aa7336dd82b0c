# Names, places and small helpers that every script of the cluster shares (sourced, bash).
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CLUSTER_DIR=$ROOT/e2e/cluster
OUT=$ROOT/out
CACHE=${PYTORCHJOB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pytorchjob-operator}
BIN=$CACHE/bin
CLUSTER=${CLUSTER:-pytorchjob}
STORES=$CACHE/nodes/$CLUSTER # the image stores of the running nodes
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

# A client newer than the daemon has to be told which API the daemon speaks.
docker_ready() {
    "$CLUSTER_DIR/docker.sh" up
    DOCKER_API_VERSION=$(docker version --format '{{.Server.APIVersion}}')
    export DOCKER_API_VERSION
}

# Whether an image can be pulled here.
registry_answers() { # image
    timeout 60 docker pull --quiet "$1" >/dev/null 2>&1
}

# Builds without a word, unless it fails. Works with BuildKit and with the builder before it.
docker_build() {
    local log
    log=$(mktemp)
    docker build --network host "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        fail "docker build failed: $*"
    }
    rm -f "$log"
}
