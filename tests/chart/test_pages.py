"""Every Helm command that a page shows renders: the chart refuses to without an image."""

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chart.conftest import KUBE_VERSION, ROOT

pytestmark = pytest.mark.helm

PAGES = ("README.md", "docs/installing.md", "docs/migrating.md", "charts/pytorchjob-operator/README.md")
_BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VERBS = ("helm install ", "helm upgrade ")


def commands() -> Iterator[Any]:
    """The arguments of each `helm install` and `helm upgrade`, named by page."""
    for page in PAGES:
        for block in _BLOCK.findall((ROOT / page).read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                # tests/release/test_registry.py runs those that install from a registry or from a file.
                if line.startswith(_VERBS) and not re.search(r" oci://|\.tgz ", line):
                    _, verb, *arguments = shlex.split(line, comments=True)
                    yield pytest.param(arguments, id=f"{page}: {verb}")


def test_commands_are_found() -> None:
    assert len([*commands()]) >= 4


@pytest.mark.parametrize("arguments", list(commands()))
def test_a_command_that_is_shown_renders(helm: Callable[..., str], arguments: list[str]) -> None:
    # What `helm template` has no use for: there is no release to wait for, and none to take objects from.
    known = [word for word in arguments if word not in ("--wait", "--take-ownership")]
    made = helm("template", *known, "--kube-version", KUBE_VERSION, "--set", "crds.install=false")
    assert "image: $REGISTRY/pytorchjob-operator:" in made
