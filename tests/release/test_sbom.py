"""The list of software: complete, unambiguous, and the same for the same image."""

import re

import pytest

from release.locked import Package
from release.sbom import Subject, document

DIGEST = "sha256:" + "a" * 64
SUBJECT = Subject("r.test/team/pytorchjob-agent", DIGEST, "1.2.3", "linux/arm64", "ubuntu")
PACKAGES = [
    Package("pypi", "torch", "2.15.0"),
    Package("deb", "libc6", "2.36-9+deb12u1", "arm64"),
    Package("deb", "libc6", "2.36-9+deb12u1", "armhf"),
    Package("pypi", "torch", "2.15.0"),
]
TIME = "2026-01-02T03:04:05Z"
MADE = document(SUBJECT, PACKAGES, TIME)


def test_it_has_what_spdx_requires() -> None:
    required = {"spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"}
    assert required <= MADE.keys()
    assert MADE["creationInfo"] == {"created": TIME, "creators": ["Tool: pytorchjob-release-1.2.3"]}
    for package in MADE["packages"]:
        assert {"SPDXID", "name", "downloadLocation"} <= package.keys()
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"])


def test_each_package_is_there_once_and_belongs_to_the_image() -> None:
    identifiers = [package["SPDXID"] for package in MADE["packages"]]
    assert len(identifiers) == len({*identifiers}) == 4
    contained = [link["relatedSpdxElement"] for link in MADE["relationships"] if link["relationshipType"] == "CONTAINS"]
    assert contained == identifiers[1:]


@pytest.mark.parametrize(
    "url",
    [
        "pkg:pypi/torch@2.15.0",
        "pkg:deb/ubuntu/libc6@2.36-9%2Bdeb12u1?arch=armhf",
        f"pkg:oci/pytorchjob-agent@sha256%3A{'a' * 64}?arch=arm64&repository_url=r.test%2Fteam%2Fpytorchjob-agent",
    ],
)
def test_packages_have_urls_by_which_scanners_know_them(url: str) -> None:
    assert url in [package["externalRefs"][0]["referenceLocator"] for package in MADE["packages"]]


def test_the_same_image_has_the_same_list_whatever_the_order() -> None:
    assert document(SUBJECT, PACKAGES[::-1], TIME) == MADE


def test_another_image_has_another_namespace() -> None:
    other = Subject(SUBJECT.name, "sha256:" + "b" * 64, "1.2.3", "linux/arm64")
    assert document(other, PACKAGES, TIME)["documentNamespace"] != MADE["documentNamespace"]
