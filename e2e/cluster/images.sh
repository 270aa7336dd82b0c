#!/bin/bash
# Builds the images of this repository. Each has a large stage `base` and one small layer `code` (see load_images.py).
# usage: images.sh [IMAGE...]     (default: agent operator examples e2e; examples needs agent, e2e needs examples)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
docker_ready
base=$(./base.sh python:3.11-slim)

build() { # image, build arguments
    local image=$1 stage
    for stage in base code ""; do
        docker_build "${@:2}" ${stage:+--target "$stage"} \
            --tag "pytorchjob/$image${stage:+-$stage}:dev" --file "$ROOT/images/$image/Dockerfile" "$ROOT"
    done
    echo "images: pytorchjob/$image:dev"
}

[ $# -gt 0 ] || set -- agent operator examples e2e
for image in "$@"; do
    case $image in
    agent | operator) build "$image" --build-arg "BASE=$base" ;;
    examples | e2e) build "$image" ;;
    *) fail "unknown image '$image': use agent, operator, examples or e2e" ;;
    esac
done
# What yesterday's builds left behind; today's is the cache of the next build.
docker image prune --force --filter until=24h >/dev/null
