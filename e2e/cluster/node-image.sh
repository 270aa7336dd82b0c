#!/bin/bash
# Makes the kind node image and the images of the cluster's own components; nothing is pulled.
# Prints the node image's name, a hash of its inputs: up to date means it is there.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
docker_ready >&2
./binaries.sh all >&2

ours=$ROOT/images/node
programs=(kube-apiserver kube-controller-manager kube-scheduler etcd coredns pause kube-proxy kubeadm kubectl kubelet)
hash=$(cd "$BIN/.stamps" && cat "${programs[@]}" "$ours"/* | sha256sum | cut -c1-12)
image=pytorchjob/node:$KUBERNETES_VERSION-$hash

list=$CACHE/node-images.list # the node image and its components, a name a line

if [ "$(head -1 "$list" 2>/dev/null)" = "$image" ] && xargs docker image inspect <"$list" >/dev/null 2>&1; then
    echo "$image"
    exit
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/bin" "$context/ours"
for program in "${programs[@]}"; do cp "$BIN/$program" "$context/bin/"; done
cp "$ours"/* "$context/ours/"
echo "$KUBERNETES_VERSION" >"$context/version"
cp -r "$(cd tools/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files" "$context/kind"
chmod -R u+w "$context/kind"
rm -rf "$context/kind/LICENSES"
base=$(./base.sh debian:bookworm-slim)

build() { # target, name
    echo "node-image: building $2" >&2
    docker_build --build-arg "BASE=$base" --target "$1" --tag "$2" \
        --file "$ours/Dockerfile" "$context"
    echo "$2" >>"$list.new"
}

: >"$list.new"
build node "$image"
# kubeadm knows which names it will ask for, containerd's configuration which pause.
for name in $("$BIN/kubeadm" config images list --kubernetes-version "$KUBERNETES_VERSION" | grep -v /pause:) \
    "$(sed -n 's/.*sandbox_image = "\(.*\)".*/\1/p' "$context/kind/etc/containerd/config.toml")" \
    pytorchjob/pod-routes:dev; do
    target=${name##*/}
    build "${target%%:*}" "$name"
done
mv "$list.new" "$list"
echo "$image"
