"""Which platforms to build, from what is asked for and what this machine's Docker can do."""

import re
from dataclasses import dataclass, field

from release.common import StepError, run, succeeds

BOTH = ("linux/amd64", "linux/arm64")
NATIVE = "native"
"""The word for the one platform of this machine."""
_AGAIN = "then run `make push` again"


@dataclass(frozen=True)
class Builder:
    """What this machine's Docker can build."""

    native: str
    """The platform of its daemon."""
    buildx: bool = True
    driver: str = "docker-container"
    several: bool = True
    """The daemon stores images of several platforms, which decides for the driver `docker`."""
    platforms: frozenset[str] = field(default=frozenset(BOTH))


@dataclass(frozen=True)
class Choice:
    """What is built."""

    platforms: tuple[str, ...]
    buildx: bool
    note: str = ""
    """What is left out, and the next step."""


def asked(text: str) -> tuple[str, ...]:
    """Return the platforms of a text such as `linux/amd64,linux/arm64`; none for an empty one."""
    words = tuple(dict.fromkeys(re.split(r"[\s,]+", text.strip()))) if text.strip() else ()
    for word in words:
        if word not in (*BOTH, NATIVE):
            raise StepError(f"{word!r} is not a platform of PLATFORMS", f"use {' or '.join(BOTH)}, or both", status=2)
    return words


def choose(wanted: tuple[str, ...], builder: Builder) -> Choice:
    """Return what to build: without a wish both platforms, or this machine's own and a note on what is missing."""
    platforms = tuple(builder.native if word == NATIVE else word for word in wanted or BOTH)
    if platforms == (builder.native,):
        return Choice(platforms, buildx=False)
    lack = _lack(platforms, builder)
    if lack is None:
        return Choice(platforms, buildx=True)
    sentence, remedy = lack
    if wanted:
        either = f"{remedy}, {_AGAIN}; or build for this machine alone with PLATFORMS={NATIVE}"
        raise StepError(f"PLATFORMS={','.join(wanted)} cannot be built: {sentence}", either)
    return Choice((builder.native,), False, f"only {builder.native} is built: {sentence}; {remedy}, {_AGAIN}")


def _lack(platforms: tuple[str, ...], builder: Builder) -> tuple[str, str] | None:
    """Return what is missing, and how to get it."""
    if not builder.buildx:
        return "docker buildx is missing", "install Docker's buildx plugin"
    if builder.driver == "docker" and not builder.several:
        return "the builder of docker buildx builds for one platform at a time", "run `docker buildx create --use`"
    for platform in platforms:
        if platform not in builder.platforms:
            name = platform.partition("/")[2]
            emulate = f"docker run --privileged --rm tonistiigi/binfmt --install {name}"
            return f"this machine does not run programs of {platform}", f"let it emulate them with `{emulate}`"
    return None


def detect() -> Builder:
    """Ask Docker what it can build."""
    remedy = "start Docker, then run this again"
    native = run("docker", "version", "--format", "{{.Server.Os}}/{{.Server.Arch}}", remedy=remedy).strip()
    if not succeeds("docker", "buildx", "version"):
        return Builder(native, buildx=False)
    described = run("docker", "buildx", "inspect", "--bootstrap")
    store = run("docker", "info", "--format", "{{.DriverStatus}}")
    return inspected(native, described, several="containerd" in store)


def inspected(native: str, described: str, *, several: bool) -> Builder:
    """Return the builder that `docker buildx inspect` describes."""
    driver = re.search(r"^Driver:\s*(\S+)", described, re.MULTILINE)
    listed = re.findall(r"^\s*Platforms:\s*(.+)$", described, re.MULTILINE)
    platforms = frozenset(word.strip(" *") for line in listed for word in line.split(","))
    return Builder(native, True, driver[1] if driver else "", several, platforms)
