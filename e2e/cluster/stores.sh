#!/bin/bash
# Prepares the image stores of the nodes: all images are imported once, then each node gets hard links.
# A store is containerd's root folder. A large image in four nodes so costs its size once, and seconds.
# usage: stores.sh up NODE_IMAGE NODE...     (prints nothing; the stores are $STORES/NODE)
#        stores.sh down                      (the nodes' stores) | clean (also what they are made from)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh

templates=$CACHE/image-stores

ours() { [ "$1" = "$(head -1 "$CACHE/node-images.list" 2>/dev/null)" ]; } # node image

# What the public node image brings in its own store; for the image made here, the components' images.
images() { # node image
    if ours "$1"; then tail -n +2 "$CACHE/node-images.list"; fi
    printf 'pytorchjob/%s-base:dev\n' operator agent examples
}

template_of() { # node image
    echo "$templates/$({ docker image inspect --format '{{.Id}}' "$1"; images "$1" | xargs docker image inspect --format '{{.Id}}'; } |
        sha256sum | cut -c1-12)"
}

docker_root() { docker info --format '{{.DockerRootDir}}'; }

# Links need Docker's layers as folders on the same file system. Only with the containerd of our own node image is it
# known that it asks for no layer's archive when the layer is unpacked.
can_link() { # node image, folder
    ours "$1" && [ "$(docker info --format '{{.Driver}}')" = overlay2 ] && [ -d "$(docker_root)/overlay2" ] &&
        [ "$(stat --format %d "$(docker_root)/overlay2")" = "$(stat --format %d "$2")" ]
}

# Runs a containerd of the node image over the folder, in a container that is no node.
fill() { # node image, folder
    local helper=$CLUSTER-image-store list
    docker rm --force --volumes "$helper" >/dev/null 2>&1 || true
    docker run --rm --volume "$2:/store" --entrypoint cp "$1" -a /var/lib/containerd/. /store/ 2>/dev/null || true
    docker run --detach --privileged --name "$helper" --volume "$2:/var/lib/containerd" \
        --entrypoint containerd "$1" >/dev/null
    until docker exec "$helper" ctr version >/dev/null 2>&1; do sleep 0.2; done
    mapfile -t list < <(images "$1")
    if can_link "$1" "$2"; then
        # Docker mounts its folder onto itself, and no link crosses a mount: away with it, for this process alone.
        unshare --mount bash -euc 'umount --lazy "$1/overlay2" "$1" 2>/dev/null || true; exec "${@:2}"' - \
            "$(docker_root)" ./link_images.py "$helper" "$2" "${list[@]}"
    else
        docker save "${list[@]}" | docker exec --interactive "$helper" ctr --namespace k8s.io images import - >/dev/null
    fi
    docker stop "$helper" >/dev/null
    docker rm --volumes "$helper" >/dev/null
}

up() { # node image, nodes
    local template node
    template=$(template_of "$1")
    if [ ! -e "$template/.complete" ]; then
        echo "stores: preparing the image store (once for each set of images)"
        rm -rf "$templates"
        mkdir -p "$template"
        fill "$1" "$template"
        touch "$template/.complete"
    fi
    down
    mkdir -p "$STORES"
    for node in "${@:2}"; do
        cp -al "$template" "$STORES/$node"
        # Databases are written in place, so each node needs its own; what else is there is only ever replaced.
        find "$STORES/$node" -name '*.db' -exec cp --remove-destination {} {}.own \; -exec mv {}.own {} \;
        rm -rf "$STORES/$node/io.containerd.runtime.v2.task"
    done
}

down() {
    rm -rf "$STORES"
    rmdir "${STORES%/*}" 2>/dev/null || true
}

case ${1:-} in
up) up "${@:2}" ;;
down) down ;;
clean) down && rm -rf "$templates" ;;
*) fail "unknown action '${1:-}': use up, down or clean" ;;
esac
