"""Build the images, push them, list their software, sign them, and record their digests in out/release/images.json.

REGISTRY is required. TAG, PLATFORMS, SIGN_KEY, COSIGN_ARGS and BASE are optional: docs/installing.md explains them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from release import files, images, platforms, sbom, version
from release.common import RECORD, main, run, show, succeeds, write_json
from release.images import Registry
from release.platforms import Choice
from release.sign import Signer, signer

_NO_COMMIT = "1970-01-01T00:00:00Z"


def created() -> str:
    """Return the time of the commit that is built, so that a list of software is the same each time."""
    if not succeeds("git", "rev-parse", "HEAD"):
        return _NO_COMMIT
    return run("git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ").strip()


def push(to: Registry, choice: Choice, base: str) -> dict[str, str]:
    """Build and push all images; return their digests."""
    if choice.buildx:
        return images.push_buildx(to, choice.platforms, base)
    return images.push_native(to)


def describe(to: Registry, image: str, digest: str, choice: Choice) -> dict[str, Any]:
    """Return the record of one pushed image, with a list of software for each platform."""
    reference = f"{to.repository(image)}@{digest}"
    by_platform = images.platform_digests(reference, digest, choice.platforms)
    number = version.current()
    make = partial(sbom.make, image, created=created(), local=not choice.buildx)
    lists = {
        platform: str(make(sbom.Subject(to.repository(image), found, number, platform)))
        for platform, found in by_platform.items()
    }
    return {
        "name": to.repository(image),
        "digest": digest,
        "reference": reference,
        "platforms": by_platform,
        "software": lists,
    }


def sign(record: Mapping[str, Any], by: Signer) -> None:
    """Sign one image, and attach its signed lists."""
    by.sign(record["reference"])
    for platform, path in record["software"].items():
        by.attest(f"{record['name']}@{record['platforms'][platform]}", path)


def step(_arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Push a release's images."""
    to = images.registry(env, version.current())
    by = signer(env)
    choice = platforms.choose(platforms.asked(env.get("PLATFORMS", "")), platforms.detect())
    if choice.note:
        show(f"push: {choice.note}")
    digests = push(to, choice, env.get("BASE") or images.PUBLIC_BASE)
    record: dict[str, Any] = {
        "version": version.current(),
        "registry": to.name,
        "tag": to.tag,
        "signed": bool(by.key),
        "softwareBy": sbom.tool(),
        "images": {image: describe(to, image, digests[image], choice) for image in images.NAMES},
    }
    for described in record["images"].values():
        sign(described, by)
    write_json(RECORD, record)
    files.write_all(record)
    report(record)


def report(record: Mapping[str, Any]) -> None:
    """Show the digests, and what was written."""
    for described in record["images"].values():
        show(f"push: {described['reference']} ({', '.join(described['platforms'])})")
    show(f"push: the lists of software in {sbom.FOLDER} are by {record['softwareBy']}")
    show(f"push: {'signed' if record['signed'] else 'not signed: SIGN_KEY is not set'}; digests are in {RECORD}")


if __name__ == "__main__":
    main(step)
