"""The real operator, with the rights of the chart and not one more, on a real API server."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
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
from tests.chart.support import SPACE, environment, job, until
from tests.ports import free_port
from tests.rights.compare import used
from tests.rights.granted import granted
from tests.rights.requests import requests

pytestmark = [pytest.mark.helm, pytest.mark.apiserver]

ROOT = Path(__file__).parents[2]
MODES = [
    pytest.param("replicas=1", id="all namespaces"),
    pytest.param('watchNamespaces=["training"]', id="one namespace"),
]
GROUPS = ("scheduling.volcano.sh", "scheduling.x-k8s.io")
_NUMBERS = count(1)
CHILDREN = ",".join(
    ("pods,services,horizontalpodautoscalers,networkpolicies", *(f"podgroups.{group}" for group in GROUPS))
)


CHECKING = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"


@dataclass(frozen=True)
class Installed:
    """What the chart makes under a name of its own: the account has the rights of this installation alone."""

    plane: ControlPlane
    name: str
    objects: Any

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{SPACE}:{self.name}"

    @property
    def container(self) -> Any:
        return self.objects["Deployment", self.name]["spec"]["template"]["spec"]["containers"][0]

    def rights(self) -> list[dict[str, Any]]:
        """The account, its roles and their bindings."""
        return [item for (kind, _), item in self.objects.items() if "Role" in kind or kind == "ServiceAccount"]

    def kubeconfig(self) -> str:
        """A kubeconfig of the operator's ServiceAccount."""
        token = self.plane.kubectl("create", "token", self.name, "-n", SPACE)
        assert token.returncode == 0, token.stderr
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token.stdout.strip()}
        path = self.plane.directory / f"{self.name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    def may(self, question: str) -> bool:
        asked = ("auth", "can-i", *question.split(), f"--as={self.account}")
        return self.plane.kubectl(*asked).stdout.strip() == "yes"

    def refused(self) -> list[tuple[str, str]]:
        """What the operator asked for and had no right to."""
        asked = [
            event for event in self.plane.audit() if event["user"]["username"] == self.account and status(event) == 403
        ]
        return [(event["verb"], event["requestURI"]) for event in asked]

    def unused(self, group: str) -> list[str]:
        """The rights on this API group that the operator has not used."""
        with self.plane.audit_log.open("rb") as log:
            made = requests(log, self.account)
        rights = [right for right in granted(self.objects.values(), SPACE, self.name) if right.group == group]
        assert rights
        return [str(right) for right in rights if not used(right, made)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One for all tests; it checks `blockOwnerDeletion`, as OpenShift does."""
    with ControlPlane(tmp_path_factory.mktemp("plane"), options=[CHECKING]) as started:
        for name in (SPACE, "training"):
            assert started.kubectl("create", "namespace", name).returncode == 0
        definitions = (
            ROOT / "crds/kubeflow.org_pytorchjobs.yaml",
            *(BIN / f"podgroups/{group}_podgroups.yaml" for group in GROUPS),
        )
        for path in definitions:
            assert started.kubectl("apply", "-f", str(path)).returncode == 0
        until(lambda: started.kubectl("get", f"ptj,{CHILDREN}", "-A").returncode == 0)
        yield started


@pytest.fixture
def install(plane: ControlPlane, template: Any) -> Iterator[Callable[..., Installed]]:
    """Make what the chart makes with these settings, under another name than any test before; no job is left."""

    def render(*settings: str) -> Installed:
        name = f"rights-{next(_NUMBERS)}"
        return Installed(plane, name, template(*settings, f"fullnameOverride={name}"))

    yield render
    for kinds in ("ptj", CHILDREN):  # the operator has ended by now, and makes nothing again
        done = plane.kubectl("delete", kinds, "--all", "-n", "training")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def operator(install: Callable[..., Installed]) -> Iterator[Callable[[Installed], int]]:
    """Start the operator as the chart's Deployment would, with the token of its account; gives its port."""
    started: list[subprocess.Popen[bytes]] = []

    def start(installed: Installed) -> int:
        port = free_port()
        env = environment(installed.container) | {
            "KUBECONFIG": installed.kubeconfig(),
            "PYTHONPATH": str(ROOT / "operator"),
            "PYTORCHJOB_HTTP_PORT": str(port),
            "PYTORCHJOB_OPERATOR_COORDINATOR_PORT": str(free_port()),  # another test may have the chart's
        }
        command = [sys.executable, *installed.container["command"][1:]]
        with (installed.plane.directory / f"{installed.name}.log").open("wb") as log:
            started.append(subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log))
        return port

    yield start
    for one in started:
        one.terminate()
        one.wait(timeout=30)


@pytest.mark.parametrize("mode", MODES)
def test_the_rights_suffice(plane: ControlPlane, install: Any, operator: Any, mode: str) -> None:
    installed = install(mode)
    assert plane.apply(*installed.rights()).returncode == 0
    assert installed.may("get nodes") is ("watchNamespaces" not in mode)
    port = operator(installed)
    assert helm_test(installed, port) == 0
    assert plane.apply(job("first", Master=1, Worker=2)).returncode == 0
    until(lambda: len(plane.get("pods", "-n", "training")["items"]) == 3)
    until(lambda: "first" in plane.kubectl("get", "events", "-n", "training").stdout)
    finish(plane)
    until(lambda: "Succeeded" in plane.kubectl("get", "ptj", "-n", "training").stdout)
    set_run_policy(plane, "cleanPodPolicy: All")
    until(lambda: not plane.get("pods,services", "-n", "training")["items"])
    set_run_policy(plane, "ttlSecondsAfterFinished: 0")
    until(lambda: not plane.get("ptj", "-n", "training")["items"])
    assert installed.refused() == []


@pytest.mark.parametrize("mode", MODES)
def test_the_rights_suffice_for_the_label_of_a_namespace(
    plane: ControlPlane, install: Any, operator: Any, mode: str
) -> None:
    installed = install(mode)
    assert plane.apply(*installed.rights()).returncode == 0
    assert plane.kubectl("label", "namespace", "training", "training.kubeflow.org/agent=Inject").returncode == 0
    try:
        operator(installed)
        assert plane.apply(job("first", Worker=2)).returncode == 0
        until(lambda: len(plane.get("pods", "-n", "training")["items"]) == 2)
        pods = plane.get("pods", "-n", "training")["items"]
    finally:
        plane.kubectl("label", "namespace", "training", "training.kubeflow.org/agent-")
    assert [bool(pod["spec"].get("initContainers")) for pod in pods] == [True, True]
    assert installed.refused() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", GROUPS)
def test_the_rights_suffice_for_a_gang_that_is_scaled(
    plane: ControlPlane, install: Any, operator: Any, mode: str, group: str
) -> None:
    installed = install(mode)
    assert plane.apply(*installed.rights()).returncode == 0
    operator(installed)
    kinds = f"podgroups.{group},horizontalpodautoscalers"
    assert plane.apply(elastic_gang("volcano" if "volcano" in group else "batch")).returncode == 0
    until(lambda: members(plane, kinds) == {None: 1, 1: None})
    set_spec(plane, "elasticPolicy: {minReplicas: 2}")
    until(lambda: members(plane, kinds) == {None: 2, 2: None})
    set_run_policy(plane, "suspend: true")
    until(lambda: not plane.get(kinds, "-n", "training")["items"])
    assert installed.refused() == []
    assert installed.unused(group) == []


def test_the_rights_suffice_for_a_network_policy_that_an_older_operator_made(
    plane: ControlPlane, install: Any, operator: Any
) -> None:
    installed = install("jobNetworkPolicies.enabled=true")
    assert plane.apply(*installed.rights()).returncode == 0
    operator(installed)
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
    assert installed.refused() == []
    assert installed.unused("networking.k8s.io") == []


def policies(plane: ControlPlane) -> list[dict[str, Any]]:
    """What the NetworkPolicies of the job ask for."""
    return [policy["spec"] for policy in plane.get("networkpolicies", "-n", "training")["items"]]


def test_without_the_right_a_gang_waits_and_says_so(plane: ControlPlane, install: Any, operator: Any) -> None:
    installed = install("gangScheduling.enabled=false")
    assert plane.apply(*installed.rights()).returncode == 0
    operator(installed)
    assert plane.apply(elastic_gang("volcano")).returncode == 0
    until(lambda: "forbidden" in waits(plane).get("message", ""))
    assert waits(plane)["reason"] == "GangSchedulerUnavailable"
    assert plane.get("pods", "-n", "training")["items"] == []


def test_without_the_right_on_finalizers_the_api_server_refuses_the_children_of_a_job(
    plane: ControlPlane, install: Any, operator: Any
) -> None:
    """No request uses this right: the API server checks it when a child is created that blocks its owner's deletion."""
    installed = install()
    role = installed.objects["ClusterRole", installed.name]
    rules = [rule for rule in role["rules"] if "pytorchjobs/finalizers" not in rule["resources"]]
    lacking = [{**role, "rules": rules} if item is role else item for item in installed.rights()]
    assert plane.apply(*lacking).returncode == 0
    operator(installed)
    assert plane.apply(job("first", Worker=1)).returncode == 0
    until(lambda: "cannot set blockOwnerDeletion" in waits(plane, "ReplicaFailure").get("message", ""))
    assert plane.get("pods,services", "-n", "training")["items"] == []
    assert plane.apply(*installed.rights()).returncode == 0
    until(lambda: len(plane.get("pods,services", "-n", "training")["items"]) == 2)


async def test_the_rights_suffice_for_the_coordinators_secret_and_for_no_other(
    plane: ControlPlane, install: Any
) -> None:
    installed = install()
    assert plane.apply(*installed.rights()).returncode == 0
    settings = Settings.from_env(environment(installed.container))
    until(lambda: installed.may(f"create secrets -n {SPACE}"))
    async with ApiClient(config.load({"KUBECONFIG": str(installed.kubeconfig())}), "test/1") as client:
        made = await load_credentials(client, SPACE, settings.coordinator_secret)
        assert await load_credentials(client, SPACE, settings.coordinator_secret) == made
        with pytest.raises(OperatorError, match=f"permission to get secrets named other in namespace {SPACE}"):
            await load_credentials(client, SPACE, "other")
    stored = plane.get("secret", settings.coordinator_secret, "-n", SPACE)
    assert set(stored["data"]) == {"tls.crt", "tls.key"}


def waits(plane: ControlPlane, kind: str = "Waiting") -> dict[str, Any]:
    """The condition Waiting of the job, or another one; empty while there is none."""
    found = plane.get("ptj", "first", "-n", "training").get("status", {}).get("conditions", [])
    return next((condition for condition in found if condition["type"] == kind), {})


def elastic_gang(scheduler: str) -> dict[str, Any]:
    """A job that has every kind of child."""
    body = job("first", Worker=2)
    policy = {"schedulingPolicy": {"gangScheduler": scheduler}}
    body["spec"] |= {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "metrics": []}, "runPolicy": policy}
    return body


def members(plane: ControlPlane, kinds: str) -> dict[int | None, int | None]:
    """What the job's children of these kinds ask for: the autoscaler's minimum, the PodGroup's."""
    specs = [child["spec"] for child in plane.get(kinds, "-n", "training")["items"]]
    return {spec.get("minReplicas"): spec.get("minMember") for spec in specs}


def set_run_policy(plane: ControlPlane, setting: str) -> None:
    set_spec(plane, f"runPolicy: {{{setting}}}")


def set_spec(plane: ControlPlane, setting: str) -> None:
    patch = f"spec: {{{setting}}}"
    done = plane.kubectl("patch", "ptj", "first", "-n", "training", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr


def helm_test(installed: Installed, port: int) -> int:
    """What `helm test` runs, here against the operator's port on this machine."""
    command = installed.objects["Pod", f"{installed.name}-test"]["spec"]["containers"][0]["command"]
    url = command[-1].replace(f"{installed.name}.{SPACE}:8080", f"127.0.0.1:{port}")
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
