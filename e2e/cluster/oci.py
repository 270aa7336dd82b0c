"""Writes an OCI archive of an image that carries only what its reader has not: a few small blobs."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from typing import Any

KIND = "application/vnd.oci.image"


def docker(*args: str, stdin: bytes | None = None) -> bytes:
    """What a docker command prints; its own words when it fails."""
    done = subprocess.run(["docker", *args], input=stdin, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"docker {' '.join(args[:6])}: {done.stderr.decode().strip()}")
    return done.stdout


def ctr(container: str, *args: str, stdin: bytes | None = None) -> str:
    """What containerd's client prints in a container, in the namespace that the kubelet uses."""
    return docker("exec", "-i", container, "ctr", "-n", "k8s.io", *args, stdin=stdin).decode()


def inspect(image: str) -> dict[str, Any]:
    """What Docker knows of an image."""
    found: dict[str, Any] = json.loads(docker("image", "inspect", image))[0]
    return found


def full_name(image: str) -> str:
    """The name under which the kubelet looks an image up: one without a host belongs to the default one."""
    return image if "." in image.partition("/")[0] else f"docker.io/{image}"


def digest_of(blob: bytes) -> str:
    """The name of a blob."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def layer(digest: str, size: int) -> dict[str, Any]:
    """How a manifest speaks of an uncompressed layer."""
    return {"mediaType": f"{KIND}.layer.v1.tar", "digest": digest, "size": size}


def archive(image: str, diff_ids: list[str], layers: list[dict[str, Any]], carried: list[bytes]) -> bytes:
    """An archive of Docker's image with these layers, of which only the carried ones are in it."""
    known = inspect(image)
    config = json.dumps(
        {
            "architecture": known["Architecture"],
            "os": known["Os"],
            "config": known["Config"],
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
    ).encode()
    described = {"mediaType": f"{KIND}.config.v1+json", "digest": digest_of(config), "size": len(config)}
    kind = f"{KIND}.manifest.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": described, "layers": layers}).encode()
    named = {"annotations": {"io.containerd.image.name": full_name(image)}}
    entry = {"mediaType": kind, "digest": digest_of(manifest), "size": len(manifest)} | named
    files = {f"blobs/sha256/{digest_of(blob)[7:]}": blob for blob in (*carried, config, manifest)}
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    return _tar(files)


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as written:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            written.addfile(member, io.BytesIO(content))
    return out.getvalue()
