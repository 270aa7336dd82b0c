"""The real operator, with the rights of the chart and not one more, on a real API server."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_operator.app.secret import load_credentials
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.names import ANNOTATION_SPEC_HASH
from pytorchjob_operator.settings import Settings
from tests.apiserver.cluster import BIN, ControlPlane
from tests.chart.support import NAME, SPACE, environment, job, served, until
from tests.ports import free_port
from tests.rights.compare import used
from tests.rights.granted import granted
from tests.rights.requests import requests

pytestmark = [pytest.mark.helm, pytest.mark.apiserver]

ROOT = Path(__file__).parents[2]
ACCOUNT = f"system:serviceaccount:{SPACE}:{NAME}"
MODES = [
    pytest.param("replicas=1", id="all namespaces"),
    pytest.param('watchNamespaces=["training"]', id="one namespace"),
]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path) as started:
        for name in (SPACE, "training"):
            assert started.kubectl("create", "namespace", name).returncode == 0
        assert started.kubectl("apply", "-f", str(ROOT / "crds/kubeflow.org_pytorchjobs.yaml")).returncode == 0
        until(partial(served, started))
        yield started


@pytest.fixture
def operator(plane: ControlPlane) -> Iterator[Callable[[Any], int]]:
    """Start the operator as the chart's Deployment would, with the token of its account; gives its port."""
    started: list[subprocess.Popen[bytes]] = []

    def start(objects: Any) -> int:
        port = free_port()
        container = deployed(objects)
        env = environment(container) | {
            "KUBECONFIG": account(plane),
            "PYTHONPATH": str(ROOT / "operator"),
            "PYTORCHJOB_HTTP_PORT": str(port),
            "PYTORCHJOB_OPERATOR_COORDINATOR_PORT": str(free_port()),  # another test may have the chart's
        }
        command = [sys.executable, *container["command"][1:]]
        with (plane.directory / "operator.log").open("wb") as log:
            started.append(subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log))
        return port

    yield start
    for one in started:
        one.terminate()
        one.wait(timeout=30)


def deployed(objects: Any) -> Any:
    return objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]


def account(plane: ControlPlane) -> str:
    """A kubeconfig of the operator's ServiceAccount."""
    token = plane.kubectl("create", "token", NAME, "-n", SPACE)
    assert token.returncode == 0, token.stderr
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.stdout.strip()}
    path = plane.directory / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize("mode", MODES)
def test_the_rights_suffice(plane: ControlPlane, template: Any, operator: Any, mode: str) -> None:
    objects = template(mode)
    install = [one for (kind, _), one in objects.items() if "Role" in kind or kind == "ServiceAccount"]
    assert plane.apply(*install).returncode == 0
    asked = plane.kubectl("auth", "can-i", "get", "nodes", f"--as={ACCOUNT}").stdout.strip()
    assert asked == ("no" if "watchNamespaces" in mode else "yes")
    port = operator(objects)
    assert helm_test(objects, port) == 0
    assert plane.apply(job("first", Master=1, Worker=2)).returncode == 0
    until(lambda: len(plane.get("pods", "-n", "training")["items"]) == 3)
    until(lambda: "first" in plane.kubectl("get", "events", "-n", "training").stdout)
    finish(plane)
    until(lambda: "Succeeded" in plane.kubectl("get", "ptj", "-n", "training").stdout)
    set_run_policy(plane, "cleanPodPolicy: All")
    until(lambda: not plane.get("pods,services", "-n", "training")["items"])
    set_run_policy(plane, "ttlSecondsAfterFinished: 0")
    until(lambda: not plane.get("ptj", "-n", "training")["items"])
    assert refused(plane) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", ["scheduling.volcano.sh", "scheduling.x-k8s.io"])
def test_the_rights_suffice_for_a_gang_that_is_scaled(
    plane: ControlPlane, template: Any, operator: Any, mode: str, group: str
) -> None:
    assert plane.kubectl("apply", "-f", str(BIN / f"podgroups/{group}_podgroups.yaml")).returncode == 0
    objects = template(mode)
    install = [one for (kind, _), one in objects.items() if "Role" in kind or kind == "ServiceAccount"]
    assert plane.apply(*install).returncode == 0
    operator(objects)
    kinds = f"podgroups.{group},horizontalpodautoscalers"
    assert plane.apply(elastic_gang("volcano" if "volcano" in group else "batch")).returncode == 0
    until(lambda: members(plane, kinds) == {None: 1, 1: None})
    set_spec(plane, "elasticPolicy: {minReplicas: 2}")
    until(lambda: members(plane, kinds) == {None: 2, 2: None})
    set_run_policy(plane, "suspend: true")
    until(lambda: not plane.get(kinds, "-n", "training")["items"])
    assert refused(plane) == []
    assert unused(objects, plane, group) == []


def test_the_rights_suffice_for_a_network_policy_that_an_older_operator_made(
    plane: ControlPlane, template: Any, operator: Any
) -> None:
    objects = template("jobNetworkPolicies.enabled=true")
    install = [one for (kind, _), one in objects.items() if "Role" in kind or kind == "ServiceAccount"]
    assert plane.apply(*install).returncode == 0
    operator(objects)
    body = job("first", Worker=1)
    body["spec"]["agent"] = {"networkPolicy": True}
    assert plane.apply(body).returncode == 0
    until(lambda: policies(plane))
    (right,) = policies(plane)
    older = {"metadata": {"annotations": {ANNOTATION_SPEC_HASH: "older"}}, "spec": {"ingress": [{}]}}
    patch = ("patch", "networkpolicy", "first", "-n", "training", "--type=merge", "-p", yaml.safe_dump(older))
    assert plane.kubectl(*patch).returncode == 0
    until(lambda: policies(plane) == [right])
    set_run_policy(plane, "suspend: true")
    until(lambda: not policies(plane))
    assert refused(plane) == []
    assert unused(objects, plane, "networking.k8s.io") == []


def policies(plane: ControlPlane) -> list[dict[str, Any]]:
    """What the NetworkPolicies of the job ask for."""
    return [one["spec"] for one in plane.get("networkpolicies", "-n", "training")["items"]]


def test_without_the_right_a_gang_waits_and_says_so(plane: ControlPlane, template: Any, operator: Any) -> None:
    objects = template("gangScheduling.enabled=false")
    install = [one for (kind, _), one in objects.items() if "Role" in kind or kind == "ServiceAccount"]
    assert plane.apply(*install).returncode == 0
    operator(objects)
    assert plane.apply(elastic_gang("volcano")).returncode == 0
    until(lambda: "forbidden" in waits(plane).get("message", ""))
    assert waits(plane)["reason"] == "GangSchedulerUnavailable"
    assert plane.get("pods", "-n", "training")["items"] == []


def test_without_the_right_on_finalizers_the_api_server_refuses_the_children_of_a_job(
    plane: ControlPlane, template: Any, operator: Any
) -> None:
    """No request uses this right: the API server checks it when a child is created that blocks its owner's deletion."""
    objects = template()
    rules = [
        rule for rule in objects["ClusterRole", NAME]["rules"] if "pytorchjobs/finalizers" not in rule["resources"]
    ]
    install = {key: one for key, one in objects.items() if "Role" in key[0] or key[0] == "ServiceAccount"}
    lacking = {**install, ("ClusterRole", NAME): {**objects["ClusterRole", NAME], "rules": rules}}
    assert plane.apply(*lacking.values()).returncode == 0
    plane.stop_program("kube-apiserver")
    plane.start_apiserver("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    operator(objects)
    assert plane.apply(job("first", Worker=1)).returncode == 0
    until(lambda: "cannot set blockOwnerDeletion" in waits(plane, "ReplicaFailure").get("message", ""))
    assert plane.get("pods,services", "-n", "training")["items"] == []
    assert plane.apply(*install.values()).returncode == 0
    until(lambda: len(plane.get("pods,services", "-n", "training")["items"]) == 2)


async def test_the_rights_suffice_for_the_coordinators_secret_and_for_no_other(
    plane: ControlPlane, template: Any
) -> None:
    install = [one for (kind, _), one in template().items() if "Role" in kind or kind == "ServiceAccount"]
    assert plane.apply(*install).returncode == 0
    settings = Settings.from_env(environment(deployed(template())))
    asked = f"create secrets -n {SPACE} --as={ACCOUNT}".split()
    until(lambda: plane.kubectl("auth", "can-i", *asked).stdout.strip() == "yes")
    async with ApiClient(config.from_kubeconfig([Path(account(plane))]), "test/1") as client:
        made = await load_credentials(client, SPACE, settings.coordinator_secret)
        assert await load_credentials(client, SPACE, settings.coordinator_secret) == made
        with pytest.raises(OperatorError, match=f"permission to get secrets named other in namespace {SPACE}"):
            await load_credentials(client, SPACE, "other")
    stored = plane.get("secret", settings.coordinator_secret, "-n", SPACE)
    assert set(stored["data"]) == {"key", "tls.crt", "tls.key"}


def waits(plane: ControlPlane, kind: str = "Waiting") -> dict[str, Any]:
    """The condition Waiting of the job, or another one; empty while there is none."""
    found = plane.get("ptj", "first", "-n", "training").get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def elastic_gang(scheduler: str) -> dict[str, Any]:
    """A job that has every kind of child."""
    body = job("first", Worker=2)
    policy = {"schedulingPolicy": {"gangScheduler": scheduler}}
    body["spec"] |= {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "metrics": []}, "runPolicy": policy}
    return body


def members(plane: ControlPlane, kinds: str) -> dict[int | None, int | None]:
    """What the job's children of these kinds ask for: the autoscaler's minimum, the PodGroup's."""
    specs = [one["spec"] for one in plane.get(kinds, "-n", "training")["items"]]
    return {one.get("minReplicas"): one.get("minMember") for one in specs}


def refused(plane: ControlPlane) -> list[tuple[str, str]]:
    """What the operator asked for and had no right to."""
    asked = [one for one in plane.audit() if one["user"]["username"] == ACCOUNT and status(one) == 403]
    return [(one["verb"], one["requestURI"]) for one in asked]


def unused(objects: Any, plane: ControlPlane, group: str) -> list[str]:
    """The rights on this API group that the operator has not used."""
    with plane.audit_log.open("rb") as log:
        made = requests(log, ACCOUNT)
    rights = [right for right in granted(objects.values(), SPACE, NAME) if right.group == group]
    assert rights
    return [str(right) for right in rights if not used(right, made)]


def set_run_policy(plane: ControlPlane, setting: str) -> None:
    set_spec(plane, f"runPolicy: {{{setting}}}")


def set_spec(plane: ControlPlane, setting: str) -> None:
    patch = f"spec: {{{setting}}}"
    done = plane.kubectl("patch", "ptj", "first", "-n", "training", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr


def helm_test(objects: Any, port: int) -> int:
    """What `helm test` runs, here against the operator's port on this machine."""
    command = objects["Pod", f"{NAME}-test"]["spec"]["containers"][0]["command"]
    url = command[-1].replace(f"{NAME}.{SPACE}:8080", f"127.0.0.1:{port}")
    return subprocess.run([sys.executable, *command[1:-1], url], timeout=100).returncode


def finish(plane: ControlPlane) -> None:
    """Play the kubelet: every pod ends well."""
    ended = {"name": "pytorch", "state": {"terminated": {"exitCode": 0}}, "ready": False, "restartCount": 0}
    ended |= {"image": "x", "imageID": "x"}
    patch = yaml.safe_dump({"status": {"phase": "Succeeded", "containerStatuses": [ended]}})
    for pod in plane.get("pods", "-n", "training")["items"]:
        name = pod["metadata"]["name"]
        done = plane.kubectl("patch", "pod", name, "-n", "training", "--subresource=status", "-p", patch)
        assert done.returncode == 0, done.stderr


def status(entry: dict[str, Any]) -> int:
    return int(entry["responseStatus"]["code"])
