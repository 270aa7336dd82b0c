#!/usr/bin/env python3
"""Puts Docker's images into a containerd store by hard links: no byte of a layer is read or written.

Both keep an unpacked layer as a folder, in the same form (overlayfs). Writing 6 GB of torch into an archive, into
containerd's content and into its snapshot takes minutes and three times the disk.
usage: link_images.py CONTAINER STORE IMAGE...   (a container whose containerd has STORE as its root folder)
"""

from __future__ import annotations

import json
import subprocess
import sys

import oci

ROOT = "/var/lib/containerd"


def chain(diff_ids: list[str]) -> list[str]:
    """The names of the snapshots of an image, lowest first (OCI's chain ids)."""
    names = diff_ids[:1]
    for diff_id in diff_ids[1:]:
        names.append(oci.digest_of(f"{names[-1]} {diff_id}".encode()))
    return names


def layer_folders(image: str) -> list[str]:
    """Docker's folders of an image's layers, lowest first."""
    data = oci.inspect(image)["GraphDriver"]["Data"]
    return [*reversed([data["UpperDir"], *filter(None, data.get("LowerDir", "").split(":"))])]


def link_layer(container: str, store: str, folder: str, name: str, parent: str) -> None:
    """Makes one snapshot whose files are links to those of Docker's layer."""
    working = f"{name}-working"
    [mount] = json.loads(oci.ctr(container, "snapshots", "prepare", "--mounts", working, *filter(None, [parent])))
    uppers = [option.removeprefix("upperdir=") for option in mount["Options"] if option.startswith("upperdir=")]
    target = (uppers or [mount["Source"]])[0].replace(ROOT, store, 1)
    subprocess.run(["cp", "-al", f"{folder}/.", target], check=True)
    oci.ctr(container, "snapshots", "commit", name, working)


def link(container: str, store: str, image: str) -> None:
    """Puts one image into the store."""
    diff_ids = oci.inspect(image)["RootFS"]["Layers"]
    there = {line.split()[0] for line in oci.ctr(container, "snapshots", "ls").splitlines()}
    parent = ""
    for name, folder in zip(chain(diff_ids), layer_folders(image), strict=True):
        if name not in there:
            link_layer(container, store, folder, name, parent)
        parent = name
    layers = [oci.layer(diff_id, 0) for diff_id in diff_ids]
    oci.ctr(container, "images", "import", "-", stdin=oci.archive(image, diff_ids, layers, []))


def main() -> None:
    """Links every image named."""
    container, store, *images = sys.argv[1:]
    for image in images:
        link(container, store, image)


if __name__ == "__main__":
    main()
