"""What an image contains: markers as pip understands them, and dpkg's list."""

from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from release.common import StepError
from release.locked import Package, debian, facts, holds, locked

ROOT = Path(__file__).parents[2]
FILES = ["agent.txt", "examples.txt", "operator.txt"]
PLATFORMS = ["linux/amd64", "linux/arm64"]
PYTHONS = ["3.11.14", "3.12.0", "3.14.2"]


def expected(text: str, environment: dict[str, str]) -> list[tuple[str, str]]:
    """What pip's own library makes of the file."""
    lines = [line.rstrip(" \\") for line in text.splitlines() if line and line[0] not in " #"]
    wanted = [Requirement(line) for line in lines]
    chosen = [line for line in wanted if line.marker is None or line.marker.evaluate(environment)]
    return [(line.name.lower(), str(line.specifier).removeprefix("==")) for line in chosen]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", FILES)
def test_the_locked_packages_are_those_that_pip_chooses(name: str, platform: str, python: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    environment = facts(platform, python)
    found = [(package.name, package.version) for package in locked(text, environment)]
    assert found == expected(text, environment)
    assert len(found) > 5


MARKERS = [
    "sys_platform == 'linux'",
    "sys_platform != 'linux'",
    "python_full_version < '3.12'",
    "python_full_version >= '3.9' and python_full_version < '3.10'",
    "python_version >= '3.11'",
    "(platform_machine == 'aarch64' and sys_platform == 'linux') or sys_platform == 'win32'",
    "platform_machine in 'x86_64 i686'",
    "platform_machine not in 'x86_64 i686'",
    "implementation_name != 'PyPy' and platform_python_implementation != 'PyPy'",
    "extra == 'gpu'",
]


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_marker_means_what_it_means_to_pip(marker: str, platform: str) -> None:
    environment = facts(platform, "3.11.14")
    assert holds(marker, environment) is Marker(marker).evaluate(environment)


@pytest.mark.parametrize("marker", ["sys_platform ==", "unknown == 'x'", "sys_platform", "1 < 2 < 3"])
def test_a_marker_that_is_not_understood_is_named(marker: str) -> None:
    with pytest.raises(StepError, match="is not understood"):
        holds(marker, facts("linux/amd64", "3.11"))


def test_only_installed_packages_of_the_base_are_listed() -> None:
    status = (
        "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1:2\nDescription: x\n more: text\n\n"
        "Package: b\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 3\n"
    )
    assert debian(status) == [Package("deb", "a", "1:2", "all")]
