"""The chart's own test, on a cluster where kubelet, DNS and Service are real."""

import re
import subprocess

import pytest

from e2e.conftest import KUBECONFIG, RELEASE, SYSTEM, program
from e2e.kubectl import Kubectl


@pytest.mark.usefixtures("operator")
def test_helm_test_passes_on_a_cluster(cluster: Kubectl) -> None:
    command = [program("helm"), "test", RELEASE, "--namespace", SYSTEM, "--kubeconfig", str(KUBECONFIG)]
    done = subprocess.run([*command, "--timeout", "3m"], capture_output=True, text=True, timeout=300, check=False)
    pod = f"{RELEASE}-test"
    assert done.returncode == 0, done.stderr + cluster("describe", "pod", pod, "-n", SYSTEM, check=False)
    assert re.search(rf"TEST SUITE: +{pod}\n(.+\n)*Phase: +Succeeded", done.stdout), done.stdout
    # A hook that leaves its pod would block the next test of the same release.
    assert cluster("get", "pod", pod, "-n", SYSTEM, "--ignore-not-found") == ""
