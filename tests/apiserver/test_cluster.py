"""The harness itself: what it says when it cannot work, and that it ends what it started."""

from pathlib import Path

import pytest

from tests.apiserver.cluster import ControlPlane, ControlPlaneError
from tests.waiting import until


def test_missing_programs_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match=r"etcd, kube-apiserver, .* run `make binaries-apiserver` first"):
        ControlPlane(tmp_path, binaries=tmp_path).start()


def test_a_program_that_ends_is_named_with_its_last_words(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        (tmp_path / name).write_text("#!/bin/sh\necho no room for $0 >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ControlPlaneError, match=r"(?s)(etcd|kube-apiserver) ended with 3.* no room for"):
        ControlPlane(tmp_path / "work", binaries=tmp_path).start()


@pytest.mark.apiserver
def test_a_deleted_namespace_takes_its_objects_with_it(control_plane: ControlPlane) -> None:
    """The controllers run: tests of deletion may rely on them."""
    assert control_plane.kubectl("create", "namespace", "gone").returncode == 0
    assert control_plane.kubectl("create", "configmap", "child", "-n", "gone").returncode == 0
    assert control_plane.kubectl("delete", "namespace", "gone", "--wait=false").returncode == 0
    # Not kubectl's wait: while a definition of another test comes or goes, the controller retries at growing intervals.
    until(lambda: "not found" in control_plane.kubectl("get", "namespace", "gone").stderr)


@pytest.mark.apiserver
def test_requests_are_audited_with_their_user_agent(control_plane: ControlPlane) -> None:
    control_plane.kubectl("get", "configmap", "asked-by-a-test")
    asked = [event for event in control_plane.audit() if event.get("objectRef", {}).get("name") == "asked-by-a-test"]
    assert asked[0]["verb"] == "get"
    assert asked[0]["userAgent"].startswith("kubectl")
