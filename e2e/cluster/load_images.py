#!/usr/bin/env python3
"""Brings this repository's images into the nodes of the cluster, a changed one in seconds.

An image is a large base plus one small layer of code, and all but that layer is in the nodes already. `docker save`
would still read all of it, so the image is put together here: the layers of `NAME-base` as the node knows them, the
layer of `NAME-code`, and the configuration of `NAME`.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

IMAGES = ("operator", "agent", "examples")
OCI = "application/vnd.oci.image"


def docker(*args: str, stdin: bytes | None = None) -> bytes:
    """What a docker command prints; its own words when it fails."""
    done = subprocess.run(["docker", *args], input=stdin, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"load_images: docker {' '.join(args[:6])}: {done.stderr.decode().strip()}")
    return done.stdout


def ctr(node: str, *args: str, stdin: bytes | None = None) -> bytes:
    """Runs containerd's client in a node."""
    return docker("exec", "-i", node, "ctr", "-n", "k8s.io", *args, stdin=stdin)


def name_of(image: str) -> str:
    """The name under which the kubelet looks an image up."""
    return f"docker.io/pytorchjob/{image}:dev"


def ensure_base(node: str, image: str) -> None:
    """Brings the base into the node where the node has not this very one: slow, and rare."""
    identity = json.loads(docker("image", "inspect", f"pytorchjob/{image}-base:dev"))[0]["RootFS"]["Layers"]
    if layers_in(node, image) == identity:
        return
    print(f"load_images: {node}: {image}-base is new, this takes a minute or two", flush=True)
    save = subprocess.Popen(["docker", "save", f"pytorchjob/{image}-base:dev"], stdout=subprocess.PIPE)
    command = ["docker", "exec", "-i", node, "ctr", "-n", "k8s.io", "images", "import", "-"]
    subprocess.run(command, stdin=save.stdout, stdout=subprocess.DEVNULL, check=True)
    save.wait()


def layers_in(node: str, image: str) -> list[str]:
    """The layers of the base as a node has it; none where it has not."""
    base = name_of(f"{image}-base")
    if base not in ctr(node, "images", "ls", "-q").decode().split():
        return []
    layers: list[str] = base_parts(node, base)[1]["rootfs"]["diff_ids"]
    return layers


def base_parts(node: str, base: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and configuration of an image in a node."""
    listing = ctr(node, "images", "ls", f"name=={base}").decode().splitlines()[1]
    digest = next(word for word in listing.split() if word.startswith("sha256:"))
    manifest = json.loads(ctr(node, "content", "get", digest))
    if "manifests" in manifest:
        manifest = json.loads(ctr(node, "content", "get", manifest["manifests"][0]["digest"]))
    return manifest, json.loads(ctr(node, "content", "get", manifest["config"]["digest"]))


def code_layers(image: str) -> list[bytes]:
    """The layers of `NAME-code`, small by design."""
    with tarfile.open(fileobj=io.BytesIO(docker("save", f"pytorchjob/{image}-code:dev"))) as archive:

        def content(path: str) -> bytes:
            member = archive.extractfile(path)
            return member.read() if member else b""

        manifest = json.loads(content("manifest.json"))[0]
        return [content(path) for path in manifest["Layers"]]


def digest_of(blob: bytes) -> str:
    """The name of a blob."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    """How a manifest speaks of a blob."""
    return {"mediaType": kind, "digest": digest_of(blob), "size": len(blob)}


def archive_of(image: str, manifest: dict[str, Any], config: dict[str, Any]) -> bytes:
    """An OCI archive of the whole image that carries only what the node has not."""
    layers = code_layers(image)
    whole = config | {
        "config": json.loads(docker("image", "inspect", f"pytorchjob/{image}:dev"))[0]["Config"],
        "rootfs": {"type": "layers", "diff_ids": config["rootfs"]["diff_ids"] + [digest_of(layer) for layer in layers]},
        "history": [],
    }
    config_blob = json.dumps(whole).encode()
    described = [descriptor(f"{OCI}.layer.v1.tar", layer) for layer in layers]
    manifest_blob = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": descriptor(f"{OCI}.config.v1+json", config_blob),
            "layers": manifest["layers"] + described,
        }
    ).encode()
    named = {"annotations": {"io.containerd.image.name": name_of(image)}}
    index = {"schemaVersion": 2, "manifests": [descriptor(f"{OCI}.manifest.v1+json", manifest_blob) | named]}
    return tar_of(
        {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
        | {f"blobs/sha256/{digest_of(blob)[7:]}": blob for blob in (*layers, config_blob, manifest_blob)}
    )


def tar_of(files: dict[str, bytes]) -> bytes:
    """A tar of files held in memory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def load(node: str) -> None:
    """Brings every image into one node."""
    for image in IMAGES:
        ensure_base(node, image)
        base = name_of(f"{image}-base")
        ctr(node, "images", "import", "-", stdin=archive_of(image, *base_parts(node, base)))


def main() -> None:
    """Loads into the nodes named as arguments, all at once."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(load, sys.argv[1:]))
    print(f"load_images: {', '.join(IMAGES)} in {len(sys.argv) - 1} nodes")


if __name__ == "__main__":
    main()
