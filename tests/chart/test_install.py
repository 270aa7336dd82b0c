"""The chart and the manifests on a real API server: accepted, upgradable, with just the rights that they promise."""

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.chart.conftest import NAMED
from tests.chart.support import CRD, NAME, SPACE, job, served, until

pytestmark = [pytest.mark.helm, pytest.mark.apiserver]

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "charts/pytorchjob-operator")
SECRET_LIMIT = 1024 * 1024


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as started:
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        for name, labels in ((SPACE, restricted), ("training", {}), ("other", {}), ("kubeflow", {})):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            assert started.apply(space).returncode == 0
        yield started


@pytest.fixture
def release(plane: ControlPlane, helm: Callable[..., str]) -> Iterator[Callable[..., str]]:
    """Run helm against the API server; afterwards neither release nor resource is left."""

    def run(verb: str, *flags: str) -> str:
        chart = [] if verb == "uninstall" else [CHART, *NAMED]
        return helm(verb, NAME, *chart, "--kubeconfig", str(plane.kubeconfig), "--namespace", SPACE, *flags)

    yield run
    run("uninstall", "--ignore-not-found")
    assert plane.kubectl("delete", "crd", CRD, "--ignore-not-found").returncode == 0


def keeps_unknown_fields(plane: ControlPlane) -> bool:
    version = plane.get("crd", CRD)["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return '"x-kubernetes-preserve-unknown-fields": true' in json.dumps(spec["pytorchReplicaSpecs"])


def test_install_upgrade_and_uninstall_lose_no_job(plane: ControlPlane, release: Callable[..., str]) -> None:
    assert "is installed in namespace pytorchjob-system" in release("install")
    until(partial(served, plane))
    assert plane.apply(job("kept", Worker=1)).returncode == 0
    uid = plane.get("ptj", "kept", "-n", "training")["metadata"]["uid"]
    assert not keeps_unknown_fields(plane)
    release("upgrade", "--set", "crds.preserveUnknown=true")
    assert keeps_unknown_fields(plane)
    release("uninstall")
    assert plane.get("ptj", "kept", "-n", "training")["metadata"]["uid"] == uid
    release("install")
    assert plane.get("ptj", "kept", "-n", "training")["metadata"]["uid"] == uid


NOTES = [
    pytest.param([], ["It serves the PyTorchJobs of all namespaces", "leaves the PyTorchJob resource"], id="defaults"),
    pytest.param(["watchNamespaces={a,b}"], ["It serves the PyTorchJobs of: a, b."], id="some namespaces"),
    pytest.param(
        ["crds.install=false", "fullnameOverride=train"],
        ["kubectl get crd pytorchjobs.kubeflow.org", "logs deployment/train"],
        id="another name, without the resource",
    ),
]
NEXT = (
    f"kubectl -n {SPACE} rollout status deployment/",
    f"helm -n {SPACE} test {NAME}",
    "kubectl apply -f examples/digits/pytorchjob.yaml",
    "kubectl get ptj -w",
    f"kubectl -n {SPACE} logs deployment/",
)


@pytest.mark.parametrize(("values", "words"), NOTES)
def test_the_notes_say_what_is_served_and_what_comes_next(
    release: Callable[..., str], values: list[str], words: list[str]
) -> None:
    chosen = [part for value in values for part in ("--set", value)]
    notes = json.loads(release("install", "--dry-run=server", "--output=json", *chosen))["info"]["notes"]
    assert [text for text in (*NEXT, *words) if text not in notes] == []
    assert ("leaves the PyTorchJob resource" in notes) is ("crds.install=false" not in values)


def test_the_resource_of_a_former_installation_is_taken_over(plane: ControlPlane, release: Callable[..., str]) -> None:
    assert plane.kubectl("apply", "-f", str(ROOT / "crds/kubeflow.org_pytorchjobs.yaml")).returncode == 0
    with pytest.raises(RuntimeError, match="exists and cannot be imported"):
        release("install")
    release("install", "--take-ownership")
    assert plane.get("crd", CRD)["metadata"]["annotations"]["meta.helm.sh/release-name"] == NAME


def test_the_release_fits_into_its_secret(plane: ControlPlane, release: Callable[..., str]) -> None:
    release("install")
    stored = plane.get("secret", f"sh.helm.release.v1.{NAME}.v1", "-n", SPACE)["data"]["release"]
    # Half of the limit is left for growth.
    assert len(base64.b64decode(stored)) < SECRET_LIMIT / 2


def test_pod_security_restricted_takes_all_pods(plane: ControlPlane, template: Any) -> None:
    objects = template()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", "namespace": SPACE}}
    pod["spec"] = objects["Deployment", NAME]["spec"]["template"]["spec"]
    done = plane.apply(pod, objects["Pod", f"{NAME}-test"], options=["--dry-run=server", "--validate=strict"])
    assert done.returncode == 0, done.stderr


OPTIONAL = [
    pytest.param('watchNamespaces=["training"]', id="namespaced"),
    pytest.param("networkPolicy.enabled=true", id="with a network policy"),
    pytest.param("dashboards.enabled=true,kubeStateMetrics.enabled=true", id="with what Grafana and Prometheus read"),
    pytest.param("replicas=2", id="defaults"),
]


@pytest.mark.parametrize("value", OPTIONAL)
def test_no_object_has_a_field_that_the_api_server_does_not_know(
    plane: ControlPlane, template: Any, value: str
) -> None:
    done = plane.apply(*template(value).values(), options=["--dry-run=server", "--validate=strict"])
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


RIGHTS = [
    pytest.param("list pytorchjobs.kubeflow.org -n training", True, True, id="jobs of a watched namespace"),
    pytest.param("list pytorchjobs.kubeflow.org -n other", True, False, id="jobs of another namespace"),
    pytest.param("patch pytorchjobs.kubeflow.org --subresource=status -n training", True, True, id="their status"),
    pytest.param("patch pytorchjobs.kubeflow.org -n training", False, False, id="their spec"),
    pytest.param("delete pytorchjobs.kubeflow.org -n training", True, True, id="deleting jobs, for their TTL"),
    pytest.param("create pods -n training", True, True, id="pods"),
    pytest.param("create pods -n other", True, False, id="pods of another namespace"),
    pytest.param("create pods --subresource=exec -n training", False, False, id="commands in pods"),
    pytest.param("create services -n training", True, True, id="services"),
    pytest.param("create events -n training", True, True, id="events"),
    pytest.param("get secrets -n training", False, False, id="secrets"),
    pytest.param(f"get secrets -n {SPACE}", False, False, id="secrets beside the operator"),
    pytest.param(f"get secrets/other -n {SPACE}", False, False, id="a secret of another name"),
    pytest.param(f"get secrets/{NAME}-coordinator -n {SPACE}", True, False, id="the coordinator's secret"),
    pytest.param(f"get secrets/small-coordinator -n {SPACE}", False, True, id="the secret of its coordinator alone"),
    pytest.param(f"update secrets/{NAME}-coordinator -n {SPACE}", True, False, id="renewing the coordinator's secret"),
    pytest.param(f"update secrets/other -n {SPACE}", False, False, id="changing a secret of another name"),
    pytest.param(f"get secrets/{NAME}-coordinator -n training", False, False, id="a secret of that name elsewhere"),
    pytest.param(f"create secrets -n {SPACE}", True, True, id="making secrets beside itself"),
    pytest.param("create secrets -n training", False, False, id="making secrets elsewhere"),
    pytest.param(f"list secrets -n {SPACE}", False, False, id="seeing which secrets there are"),
    pytest.param("create serviceaccounts -n training", False, False, id="accounts"),
    pytest.param("create rolebindings.rbac.authorization.k8s.io -n training", False, False, id="bindings"),
    pytest.param(f"update leases.coordination.k8s.io/{NAME} -n {SPACE}", True, True, id="its own lease"),
    pytest.param(f"update leases.coordination.k8s.io/other -n {SPACE}", False, False, id="the lease of another"),
    pytest.param(f"update leases.coordination.k8s.io/{NAME} -n training", False, False, id="a lease elsewhere"),
    pytest.param("list namespaces", False, False, id="namespaces"),
    pytest.param("list nodes", True, False, id="nodes"),
    pytest.param("update nodes", False, False, id="changing nodes"),
    pytest.param("get customresourcedefinitions.apiextensions.k8s.io", False, False, id="resource definitions"),
]


def may(plane: ControlPlane, account: str, question: str) -> bool:
    who = f"--as=system:serviceaccount:{SPACE}:{account}"
    return plane.kubectl("auth", "can-i", *question.split(), who).stdout.strip() == "yes"


@pytest.fixture(scope="module")
def accounts(plane: ControlPlane, template: Any) -> None:
    """Both installations' roles, side by side: the namespaced one's under another account."""
    # The authorizer still knows the roles of a release that was uninstalled a moment ago.
    until(lambda: not may(plane, NAME, "create pods -n training"))
    for values in (["replicas=2"], ['watchNamespaces=["training"]', "fullnameOverride=small"]):
        roles = [one for (kind, _), one in template(*values).items() if "Role" in kind]
        assert plane.apply(*roles).returncode == 0
    for account in (NAME, "small"):  # the authorizer learns of roles by a watch, soon after they are made
        until(partial(may, plane, account, "create pods -n training"))


@pytest.mark.usefixtures("accounts", "resource")
@pytest.mark.parametrize(("question", "everywhere", "namespaced"), RIGHTS)
def test_rights(plane: ControlPlane, question: str, everywhere: bool, namespaced: bool) -> None:
    """The authorizer learns of roles and bindings by several watches: an answer may come before the last of them."""
    expected = (everywhere, namespaced)
    until(lambda: (may(plane, NAME, question), may(plane, "small", question)) == expected)


@pytest.fixture
def resource(plane: ControlPlane) -> None:
    """kubectl asks discovery for what a question names, so the resource must be served."""
    assert plane.kubectl("apply", "-f", str(ROOT / "crds/kubeflow.org_pytorchjobs.yaml")).returncode == 0
    until(partial(served, plane))


@pytest.mark.parametrize("folder", ["base", "overlays/standalone", "overlays/namespaced"])
def test_kustomize_applies_and_nothing_is_left_to_change(plane: ControlPlane, manifests: Path, folder: str) -> None:
    path = str(manifests / folder)
    done = plane.kubectl("apply", "-k", path)
    assert done.returncode == 0, done.stderr
    assert plane.kubectl("diff", "-k", path).returncode == 0
