#!/bin/bash
# Prints the base image to build from: the public one where it can be pulled, else one made here from Debian.
# usage: base.sh PUBLIC_IMAGE       (BASE, where set, wins)
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
docker_ready >&2

local_base=pytorchjob/base:dev

make_base() {
    [ "$(id -u)" = 0 ] || fail "no registry answers and only root can make a base image: set BASE to an image you have"
    command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq debootstrap >/dev/null; }
    echo "base: making $local_base from Debian" >&2
    local root
    root=$(mktemp -d)
    chmod 755 "$root"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" >&2
    # This machine may reach package registries by an authority of its own.
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | docker import \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' - "$local_base" >&2
    rm -rf "$root"
}

have() { docker image inspect "$1" >/dev/null 2>&1; }

if [ -n "${BASE:-}" ]; then
    echo "$BASE"
elif have "$1"; then
    echo "$1"
elif have "$local_base"; then
    echo "$local_base"
elif registry_answers "$1"; then
    echo "$1"
else
    make_base
    echo "$local_base"
fi
