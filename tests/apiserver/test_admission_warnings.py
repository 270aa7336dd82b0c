"""Deprecated fields are named at `kubectl apply`, as v1's webhook did, by a policy of the real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.model import corpus
from tests.waiting import until

pytestmark = pytest.mark.apiserver

POLICY = Path("manifests/base/admission-policy.yaml")
WARNING = "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"
DEPRECATED = {"spec.elasticPolicy": {"nProcPerNode": 2, "minReplicas": 1, "maxReplicas": 4}}
CURRENT = {"spec.elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}


def named(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A valid job of this name."""
    return corpus.changed(corpus.job(name), changes)


@pytest.fixture
def warns(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the policy in effect."""
    done = control_plane.kubectl("apply", "-f", str(POLICY))
    assert done.returncode == 0, done.stderr
    yield control_plane
    control_plane.kubectl("delete", "-f", str(POLICY))
    control_plane.kubectl("delete", "ptj", "deprecated", "current", "--ignore-not-found")


def test_a_deprecated_field_is_accepted_with_v1s_warning(warns: ControlPlane) -> None:
    def apply() -> str:
        done = warns.apply(named("deprecated", DEPRECATED))
        assert done.returncode == 0, done.stderr
        if WARNING not in done.stderr:  # the API server reads new policies after a moment
            warns.kubectl("delete", "ptj", "deprecated")
        return done.stderr if WARNING in done.stderr else ""

    assert "Warning:" in until(apply)
    other = warns.apply(named("current", CURRENT))
    assert (other.returncode, other.stderr) == (0, "")
