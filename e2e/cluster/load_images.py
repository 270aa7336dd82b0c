#!/usr/bin/env python3
"""Brings this repository's images into the nodes of the cluster, a changed one in seconds.

An image is a large base plus one small layer of code, and all but that layer is in the nodes already. `docker save`
would still read all of it, so the image is put together here: the layers of `NAME-base` as the node knows them, the
layer of `NAME-code`, and the configuration of `NAME`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import oci

# Each image, and the image whose base it stands on. Any other stands on that of the examples.
IMAGES = {"operator": "operator", "agent": "agent", "examples": "examples", "e2e": "examples"}
# Prints the manifest and the configuration of an image; nothing where the node has not the image.
DESCRIBE = """
set -eu
digest=$(ctr -n k8s.io images ls name=="$1" | sed -n 's/.*\\(sha256:[0-9a-f]*\\).*/\\1/p')
[ -n "$digest" ] || exit 0
manifest=$(ctr -n k8s.io content get "$digest")
if echo "$manifest" | grep -q '"manifests"'; then
    manifest=$(ctr -n k8s.io content get "$(echo "$manifest" | jq -r '.manifests[0].digest')")
fi
echo "$manifest" | jq -c .
ctr -n k8s.io content get "$(echo "$manifest" | jq -r .config.digest)" | jq -c .
"""


def tag(name: str) -> str:
    """An image of this repository."""
    return f"pytorchjob/{name}:dev"


def base_of(image: str) -> str:
    """The large part of an image, which may be another image's too."""
    return tag(f"{IMAGES.get(image, 'examples')}-base")


def base_in(node: str, base: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Layers of the base as the node has them, by content and as its manifest says them; none where it has no base."""
    script = ("exec", node, "bash", "-c", DESCRIBE, "-", oci.full_name(base))
    documents = [json.loads(line) for line in oci.docker(*script).splitlines()]
    if not documents:
        return [], []
    manifest, config = documents
    return config["rootfs"]["diff_ids"], manifest["layers"]


def import_base(node: str, base: str) -> None:
    """Brings the whole base into a node whose base is another: slow, and rare."""
    print(f"load_images: {node}: {base} is new, this takes a minute or more", flush=True)
    with subprocess.Popen(["docker", "save", base], stdout=subprocess.PIPE) as save:
        command = ["docker", "exec", "-i", node, "ctr", "-n", "k8s.io", "images", "import", "-"]
        subprocess.run(command, stdin=save.stdout, stdout=subprocess.DEVNULL, check=True)


def code_layers(image: str) -> list[bytes]:
    """The layers of `NAME-code`, small by design."""
    with tarfile.open(fileobj=io.BytesIO(oci.docker("save", tag(f"{image}-code")))) as archive:

        def content(path: str) -> bytes:
            member = archive.extractfile(path)
            data = member.read() if member else b""
            # A Docker whose store is containerd's saves layers compressed.
            return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data

        return [content(path) for path in json.loads(content("manifest.json"))[0]["Layers"]]


def load(node: str, image: str, code: list[bytes]) -> None:
    """Brings one image into one node."""
    base = base_of(image)
    wanted = oci.inspect(base)["RootFS"]["Layers"]
    diff_ids, layers = base_in(node, base)
    if diff_ids != wanted:
        import_base(node, base)
        diff_ids, layers = base_in(node, base)
    diff_ids = diff_ids + [oci.digest_of(layer) for layer in code]
    layers = layers + [oci.layer(oci.digest_of(layer), len(layer)) for layer in code]
    oci.ctr(node, "images", "import", "-", stdin=oci.archive(tag(image), diff_ids, layers, code))


def main() -> None:
    """Loads images into the nodes named as arguments, the nodes side by side."""
    parser = argparse.ArgumentParser(description="Bring this repository's images into nodes of a kind cluster.")
    parser.add_argument("--images", default=",".join(IMAGES), help="names, with commas between them; default: all")
    parser.add_argument("nodes", nargs="+", help="containers that are nodes")
    given = parser.parse_args()
    images = given.images.split(",")
    with ThreadPoolExecutor() as pool:
        for image in images:
            code = code_layers(image)
            list(pool.map(lambda node, image=image, code=code: load(node, image, code), given.nodes))
    print(f"load_images: {', '.join(images)} in {len(given.nodes)} nodes")


if __name__ == "__main__":
    main()
