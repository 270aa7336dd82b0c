"""Docker as the steps of a release see it: it builds nothing, and pushes small images that are made up.

An image goes to a registry on this machine if its name begins with 127.0.0.1. FAKE_DOCKER is a folder: `calls` has each
call in a line, `images` what was pushed. FAKE_BUILDX=0: the plugin is missing. FAKE_BASE=other: no Debian.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

HOME = Path(os.environ["FAKE_DOCKER"])
IMAGES = HOME / "images"
BUILDX = os.environ.get("FAKE_BUILDX", "1") == "1"
KIND = "application/vnd.oci.image"
INSPECTED = """Name:          ready
Driver:        docker-container

Nodes:
Name:      ready0
Status:    running
Platforms: linux/amd64*, linux/arm64, linux/386
"""
STATUS = """Package: bash
Status: install ok installed
Architecture: {arch}
Version: 5.2.15-2+b7

Package: removed
Status: deinstall ok config-files
Architecture: {arch}
Version: 1
"""


def digest_of(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def put(name: str, kind: str, blob: bytes, reference: str = "") -> None:
    """Upload a blob or, with a reference, a manifest."""
    host, _, repository = name.partition("/")
    if not host.startswith("127.0.0.1"):
        return
    where = f"manifests/{reference}" if reference else f"blobs/uploads/?digest={digest_of(blob)}"
    request = urllib.request.Request(f"http://{host}/v2/{repository}/{where}", blob, {"Content-Type": kind})
    request.method = "PUT" if reference else "POST"
    with urllib.request.urlopen(request, timeout=10):
        pass


def image(name: str, platform: str, tag: str = "") -> dict[str, Any]:
    """Push one image, by its digest and by a tag if one is given; return its entry in an index."""
    system, _, architecture = platform.partition("/")
    layer = f"{name} for {platform}".encode()
    config = json.dumps({"os": system, "architecture": architecture, "rootfs": {"type": "layers"}}).encode()
    blobs = {f"{KIND}.config.v1+json": config, f"{KIND}.layer.v1.tar": layer}
    for kind, blob in blobs.items():
        put(name, kind, blob)
    described = [{"mediaType": kind, "digest": digest_of(blob), "size": len(blob)} for kind, blob in blobs.items()]
    kind = f"{KIND}.manifest.v1+json"
    content = {"schemaVersion": 2, "mediaType": kind, "config": described[0], "layers": described[1:]}
    manifest = json.dumps(content).encode()
    for reference in filter(None, (digest_of(manifest), tag)):
        put(name, kind, manifest, reference)
    where = {"os": system, "architecture": architecture}
    return {"mediaType": kind, "digest": digest_of(manifest), "size": len(manifest), "platform": where}


def push(tagged: str, platforms: list[str]) -> str:
    """Push an image of several platforms; return the digest of its index, or of its only image."""
    name, _, tag = tagged.rpartition(":")
    entries = [image(name, platform, tag if len(platforms) == 1 else "") for platform in platforms]
    kind = f"{KIND}.index.v1+json"
    index = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
    digest = digest_of(index)
    if len(entries) > 1:
        put(name, kind, index, tag)
    else:
        digest = entries[0]["digest"]
    for key in (tagged, f"{name}@{digest}", *(f"{name}@{entry['digest']}" for entry in entries)):
        path = IMAGES / key.replace("/", "_")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"digest": digest, "index": index.decode()}))
    return digest


def known(reference: str) -> Any:
    return json.loads((IMAGES / reference.replace("/", "_")).read_text())


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def files(architecture: str) -> dict[str, str]:
    """The files of an image that the lists of software come from."""
    found = {
        "/opt/venv/pyvenv.cfg": "home = /usr/local/bin\nversion = 3.11.14\n",
        "/usr/lib/os-release": 'ID="debian"\nVERSION_ID="12"\n',
        "/var/lib/dpkg/status": STATUS.format(arch=architecture),
    }
    if os.environ.get("FAKE_BASE") == "other":
        del found["/var/lib/dpkg/status"]
    return found


def read(words: list[str], dockerfile: str) -> None:
    """Write the files that a Dockerfile copies from an image."""
    first, copy = dockerfile.splitlines()
    assert first == "FROM scratch"
    _, source, *paths, _ = copy.split()
    assert known(source.removeprefix("--from="))
    there = files(value(words, "--platform").rpartition("/")[2])
    folder = Path(value(words, "--output").removeprefix("type=local,dest="))
    folder.mkdir()
    for path in paths:
        if path not in there:
            sys.exit(f"ERROR: failed to compute cache key: {path}: not found")
        (folder / Path(path).name).write_text(there[path])


def build(words: list[str]) -> None:
    digest = push(value(words, "--tag"), value(words, "--platform").split(","))
    Path(value(words, "--metadata-file")).write_text(json.dumps({"containerimage.digest": digest}))


def copied(container: str, path: str) -> None:
    """Write the tar archive of a file of a container."""
    there = files(container.rpartition("/")[2])
    if path not in there:
        sys.exit(f"Error: no such file: {path}")
    content = there[path].encode()
    member = tarfile.TarInfo(Path(path).name)
    member.size = len(content)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        archive.addfile(member, io.BytesIO(content))


def buildx(words: list[str]) -> None:
    if not BUILDX:
        sys.exit("docker: 'buildx' is not a docker command.")
    match words:
        case ["inspect", *_]:
            print(INSPECTED)
        case ["build", *_] if "--output" in words:
            read(words, sys.stdin.read())
        case ["build", *_]:
            build(words)
        case ["imagetools", "inspect", "--raw", reference]:
            print(known(reference)["index"])


def answer(words: list[str]) -> None:
    match words:
        case ["version", *_]:
            print("linux/amd64")
        case ["buildx", *rest]:
            buildx(rest)
        case ["info", *_]:
            print("[]")
        case ["push", *_, tagged]:
            push(tagged, ["linux/amd64"])
        case ["image", "inspect", *_, tagged]:
            print(f"{tagged.rpartition(':')[0]}@{known(tagged)['digest']}")
        case ["create", "--platform", platform, reference, _]:
            assert known(reference)
            print(f"made/{platform}")
        case ["cp", "--follow-link", source, "-"]:
            container, _, path = source.partition(":")
            copied(container, path)
        case ["login", *_]:
            (HOME / "password").write_text(sys.stdin.read())


with (HOME / "calls").open("a") as calls:
    calls.write(" ".join(["docker", *sys.argv[1:]]) + "\n")
answer(sys.argv[1:])
