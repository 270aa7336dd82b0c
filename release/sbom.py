"""The list of software in an image, as SPDX 2.3: by syft if it is installed, else from what decided its content."""

import json
import re
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from release import images
from release.common import OUT, StepError, have, run, write, write_json
from release.locked import Package, debian, facts, locked

FOLDER = OUT / "sbom"
OWN = "pytorchjob-release"
"""The name of this module's lists, in the record and in the lists."""
REQUIREMENTS = {"operator": "operator.txt", "agent": "agent.txt", "examples": "examples.txt"}
_UNKNOWN = "NOASSERTION"
_PYTHON, _RELEASE, _STATUS = "/opt/venv/pyvenv.cfg", "/usr/lib/os-release", "/var/lib/dpkg/status"
_USE_SYFT = "install syft, which knows other distributions too, then run `make push` again"


@dataclass(frozen=True)
class Subject:
    """The image that a list is about."""

    name: str
    """Its repository."""
    digest: str
    version: str
    platform: str
    distribution: str = "debian"
    """The identifier of the base's distribution."""


def document(subject: Subject, packages: Sequence[Package], created: str) -> dict[str, Any]:
    """Return an SPDX document; the same input gives the same document."""
    listed = [*dict.fromkeys(sorted(packages))]
    image = _image(subject)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{subject.name}@{subject.digest}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{subject.name}@{subject.digest}')}",
        "creationInfo": {"created": created, "creators": [f"Tool: {OWN}-{subject.version}"]},
        "packages": [image, *(_package(package, subject.distribution) for package in listed)],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", image["SPDXID"]),
            *(_related(image["SPDXID"], "CONTAINS", _identifier(package)) for package in listed),
        ],
    }


def _image(subject: Subject) -> dict[str, Any]:
    repository, digest = urllib.parse.quote(subject.name, safe=""), urllib.parse.quote(subject.digest, safe="")
    name = subject.name.rpartition("/")[2]
    architecture = subject.platform.partition("/")[2]
    url = f"pkg:oci/{name}@{digest}?arch={architecture}&repository_url={repository}"
    return {
        "SPDXID": "SPDXRef-image",
        "name": subject.name,
        "versionInfo": subject.version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{"algorithm": "SHA256", "checksumValue": subject.digest.partition(":")[2]}],
        "externalRefs": [_url(url)],
    }


def _package(package: Package, distribution: str) -> dict[str, Any]:
    version = urllib.parse.quote(package.version, safe="")
    if package.kind == "deb":
        url = f"pkg:deb/{distribution}/{package.name}@{version}?arch={package.architecture}"
    else:
        url = f"pkg:pypi/{package.name}@{version}"
    return {
        "SPDXID": _identifier(package),
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "externalRefs": [_url(url)],
    }


def _identifier(package: Package) -> str:
    parts = (package.kind, package.name, package.version, package.architecture)
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(filter(None, parts)))


def _url(url: str) -> dict[str, str]:
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}


def _related(element: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def tool() -> str:
    """Return what makes the lists on this machine, with its version."""
    if not have("syft"):
        return OWN
    found: Mapping[str, str] = json.loads(run("syft", "version", "--output", "json"))
    return f"syft {found.get('version', 'of an unknown version')}"


def make(image: str, subject: Subject, created: str, *, local: bool) -> Path:
    """Write the list of one pushed image; return the file. `local`: Docker itself has the image."""
    path = FOLDER / f"{image}-{subject.platform.replace('/', '-')}.spdx.json"
    reference = f"{subject.name}@{subject.digest}"
    if have("syft"):
        source = f"registry:{reference}"
        return write(path, run("syft", "scan", source, "--platform", subject.platform, "--output", "spdx-json"))
    distribution, packages = _read(image, reference, subject.platform, local=local)
    packages.append(Package("pypi", "pytorchjob", subject.version))
    return write_json(path, document(replace(subject, distribution=distribution), packages, created))


def _read(image: str, reference: str, platform: str, *, local: bool) -> tuple[str, list[Package]]:
    """Return the base's distribution, and the packages of the image."""
    try:
        found = images.read_files(reference, platform, (_PYTHON, _RELEASE, _STATUS), local=local)
    except StepError as failed:
        raise StepError(f"the software of {reference} cannot be listed: {failed}", _USE_SYFT) from failed
    python = re.search(r"^version\s*=\s*(\S+)", found.get("pyvenv.cfg", ""), re.MULTILINE)
    if python is None:
        raise StepError(f"{reference} has no Python environment in /opt/venv", "build it from images/ of this checkout")
    if "status" not in found:
        raise StepError(f"the software of {reference} cannot be listed: its base is not Debian's", _USE_SYFT)
    identifier = re.search(r'^ID="?([\w.-]+)', found.get("os-release", ""), re.MULTILINE)
    requirements = Path("requirements", REQUIREMENTS[image]).read_text()
    packages = [*locked(requirements, facts(platform, python[1])), *debian(found["status"])]
    return identifier[1] if identifier else "debian", packages
