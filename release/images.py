"""The images of a release: their names, and the commands that build and push them."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.common import OUT, StepError, run, run_bytes, show, show_run, succeeds

NAMES = ("operator", "agent", "examples")
"""In the order in which they are built: the examples' image is made from the agent's."""
PUBLIC_BASE = "python:3.11-slim"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*")
_TAG = re.compile(r"\w[\w.-]{0,127}")


@dataclass(frozen=True)
class Registry:
    """Where a release's images go."""

    name: str
    """For example `registry.example.com/team`."""
    tag: str

    def repository(self, image: str) -> str:
        """Return an image's repository, one level below: some registries allow no more."""
        return f"{self.name}/pytorchjob-{image}"

    def tagged(self, image: str) -> str:
        """Return an image's name with the tag."""
        return f"{self.repository(image)}:{self.tag}"

    @property
    def account(self) -> str:
        """What to do about a refusal."""
        return f"if the registry asks for an account, run `docker login {self.name.partition('/')[0]}`"


def registry(env: Mapping[str, str], tag: str) -> Registry:
    """Return the registry of REGISTRY, with TAG or else this tag; `StepError` if a name of either cannot be right."""
    example = "make push REGISTRY=registry.example.com/team"
    name = env.get("REGISTRY", "").strip()
    if not name:
        raise StepError("REGISTRY is missing", f"name the registry to push to: {example}", status=2)
    if not _REGISTRY.fullmatch(name):
        raise StepError(
            f"{name!r} is not a registry", f"write host and folder in lower case, without https://: {example}", status=2
        )
    tag = env.get("TAG") or tag
    if not _TAG.fullmatch(tag):
        raise StepError(f"{tag!r} is not a tag", "use letters, digits, `.`, `-` and `_`: TAG=1.2.3", status=2)
    return Registry(name, tag)


def push_native(to: Registry) -> dict[str, str]:
    """Build with plain Docker for this machine's platform, push; return each image's digest."""
    show_run("e2e/cluster/images.sh", "agent", "operator", "examples")
    digests = {}
    for image in NAMES:
        tagged = to.tagged(image)
        run("docker", "tag", f"pytorchjob/{image}:dev", tagged)
        try:
            run("docker", "push", "--quiet", tagged)
        except StepError as failed:
            raise StepError(f"{tagged} was not pushed: {failed}", to.account) from failed
        show(f"push: pushed {tagged}")
        digests[image] = _repository_digest(to.repository(image), tagged)
    return digests


def _repository_digest(repository: str, tagged: str) -> str:
    listed = run("docker", "image", "inspect", "--format", "{{range .RepoDigests}}{{println .}}{{end}}", tagged)
    for line in listed.splitlines():
        name, _, digest = line.strip().partition("@")
        if name == repository and _DIGEST.fullmatch(digest):
            return digest
    raise StepError(f"Docker reports no digest of {tagged}", "push again")


def push_buildx(to: Registry, platforms: tuple[str, ...], base: str) -> dict[str, str]:
    """Build with buildx for several platforms, push; return the digest of each image's index."""
    digests: dict[str, str] = {}
    for image in NAMES:
        metadata = OUT / "metadata" / f"{image}.json"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        arguments = {"BASE": base} if image != "examples" else from_agent(to, digests["agent"])
        show_run(*buildx(image, to.tagged(image), platforms, arguments, metadata), remedy=to.account)
        digests[image] = _pushed_digest(json.loads(metadata.read_text()), to.tagged(image))
    return digests


def from_agent(to: Registry, digest: str) -> dict[str, str]:
    """Return what the examples' image is built from: the agent's image that was just pushed."""
    agent = f"{to.repository('agent')}@{digest}"
    return {"AGENT": agent, "AGENT_BASE": agent}


def buildx(
    image: str, tagged: str, platforms: tuple[str, ...], arguments: Mapping[str, str], metadata: Path
) -> list[str]:
    """Return the command that builds and pushes an image; it writes the digest to the file."""
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    # The software list and the signature are this project's own, beside the image: not every registry takes more.
    plain = ["--provenance=false", "--sbom=false", "--push", "--metadata-file", str(metadata)]
    what = ["--platform", ",".join(platforms), "--file", f"images/{image}/Dockerfile", "--tag", tagged]
    return ["docker", "buildx", "build", *what, *given, *plain, "."]


def _pushed_digest(metadata: Mapping[str, Any], tagged: str) -> str:
    digest = str(metadata.get("containerimage.digest", ""))
    if not _DIGEST.fullmatch(digest):
        raise StepError(f"docker buildx reports no digest of {tagged}", "update the buildx plugin")
    return digest


def platform_digests(reference: str, digest: str, platforms: tuple[str, ...]) -> dict[str, str]:
    """Return the digest of each platform's image; of one platform it is the digest itself."""
    if len(platforms) == 1:
        return {platforms[0]: digest}
    index = json.loads(run("docker", "buildx", "imagetools", "inspect", "--raw", reference))
    return of_index(index, platforms)


def of_index(index: Mapping[str, Any], platforms: tuple[str, ...]) -> dict[str, str]:
    """Return the digest of each platform in an image index."""
    found = {}
    for entry in index.get("manifests", []):
        platform = entry.get("platform", {})
        found[f"{platform.get('os')}/{platform.get('architecture')}"] = str(entry["digest"])
    missing = [platform for platform in platforms if platform not in found]
    if missing:
        raise StepError(f"the pushed image has no {' and no '.join(missing)}", "push again")
    return {platform: found[platform] for platform in platforms}


def read_files(reference: str, platform: str, paths: tuple[str, ...], *, local: bool) -> dict[str, str]:
    """Return files of an image by their names, those that are there; `local`: Docker itself has the image."""
    if local:
        with _container(reference, platform) as made:
            found = {Path(path).name: _copy(made, path) for path in paths}
        return {name: text for name, text in found.items() if text is not None}
    # The builder has the image's layers already: Docker itself would have to pull gigabytes.
    folder = OUT / "metadata" / "files"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "context").mkdir(parents=True)
    what = ("--platform", platform, "--output", f"type=local,dest={folder}/found", "--file", "-", f"{folder}/context")
    run("docker", "buildx", "build", *what, stdin=f"FROM scratch\nCOPY --from={reference} {' '.join(paths)} /\n")
    return {path.name: path.read_text() for path in (folder / "found").iterdir()}


@contextmanager
def _container(reference: str, platform: str) -> Iterator[str]:
    """A container that never runs, so that its files can be read for any platform."""
    made = run("docker", "create", "--platform", platform, reference, "true").strip().splitlines()[-1]
    try:
        yield made
    finally:
        succeeds("docker", "rm", "--force", made)


def _copy(made: str, path: str) -> str | None:
    """Return a file of a container; None if there is no such file."""
    try:
        archive = run_bytes("docker", "cp", "--follow-link", f"{made}:{path}", "-")
    except StepError:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened:
            content = opened.extractfile(member)
            if content is not None:
                return content.read().decode()
    return None
