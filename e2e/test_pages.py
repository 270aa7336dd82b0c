"""Shell blocks of the pages on a cluster with nodes, as they are written: examples, logs, runbooks."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.conftest import CACHE, KUBECONFIG, RELEASE, ROOT, SYSTEM
from e2e.elastic import elastic_job, submit, until_step
from e2e.faults import CONTROL_PLANE, docker, on_kind, pods_by_name, signal_process
from e2e.kubectl import Kubectl, until
from e2e.pages import with_libraries
from e2e.test_elastic_refusals import stranger, visited
from pytorchjob_agent.contract import coordinator_endpoint
from tests.shell.blocks import named
from tests.shell.following import follow_text, run_by
from tests.shell.register import PAGES, RUNBOOKS

# One block stops the API server, another takes a right from the operator.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.skipif(not on_kind(), reason="some jobs need what the nodes of this machine share"),
]
JOB = "job"
CLAIM = {
    "accessModes": ["ReadWriteMany"],
    "capacity": {"storage": "1Gi"},
    "storageClassName": "standard",
}


@dataclass(frozen=True)
class Reader:
    """A user of one namespace, who stands in the root of the repository."""

    kubectl: Kubectl
    operator: Kubectl
    home: Path

    def types(self, text: str) -> str:
        """Run lines of a page; returns what they print."""
        config = self.home / "kubeconfig"
        config.write_bytes(KUBECONFIG.read_bytes())
        here = Kubectl(self.kubectl.program, config, self.kubectl.namespace)
        here("config", "set-context", "--current")  # with the reader's namespace
        where = {"KUBECONFIG": str(config), "NS": self.kubectl.namespace, "JOB": JOB, "POD": f"{JOB}-worker-0"}
        return follow_text(text, ROOT, [CACHE], seconds=600, **where)


@contextmanager
def nothing(reader: Reader) -> Iterator[None]:
    yield


@contextmanager
def shared_volume(reader: Reader) -> Iterator[None]:
    """A volume for the claim of the example, in the folder that all nodes share."""
    name = reader.kubectl.namespace
    folder = ROOT / "out" / "shared" / name
    folder.mkdir()
    folder.chmod(0o777)
    spec = {**CLAIM, "hostPath": {"path": f"/shared/{name}"}, "claimRef": {"namespace": name, "name": "fsdp2"}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    reader.kubectl("apply", "-f", "-", stdin=json.dumps(volume))
    try:
        yield
    finally:
        reader.kubectl("delete", "pv", name, "--wait=false")


def image(example: str) -> Callable[[Reader], Any]:
    """The image that the page asks a reader to make."""

    @contextmanager
    def built(reader: Reader) -> Iterator[None]:
        with with_libraries(reader.kubectl, example, reader.home):
            yield

    return built


@contextmanager
def longer_elastic(reader: Reader) -> Iterator[None]:
    """The elastic example with the STEPS that its page asks for, while it trains."""
    job = yaml.safe_load((ROOT / "examples/elastic/pytorchjob.yaml").read_text())
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"].append({"name": "STEPS", "value": "2000"})
    submit(reader.kubectl, job)
    until(lambda: "step=" in reader.kubectl("logs", "elastic-worker-0", check=False), 120)
    yield


@contextmanager
def restarted_digits(reader: Reader) -> Iterator[None]:
    """The digits example after the first process of a container was killed."""
    reader.kubectl("apply", "-f", str(ROOT / "examples/digits/pytorchjob.yaml"))
    until(lambda: "epoch" in reader.kubectl("logs", "digits-master-0", check=False), 120)
    signal_process(pods_by_name(reader.kubectl, "digits")["digits-worker-0"])
    until(lambda: reader.kubectl("logs", "digits-worker-0", "--previous", check=False), 120)
    yield


@contextmanager
def training(reader: Reader) -> Iterator[None]:
    submit(reader.kubectl, elastic_job(JOB, 2, steps=100_000))
    until_step(reader.kubectl, JOB, 0, 20)
    until(lambda: reader.kubectl.job(JOB)["status"].get("progress"), 60)
    yield


@contextmanager
def refused(reader: Reader) -> Iterator[None]:
    """A job to whose coordinator another pod sends its own token, as if it were a pod of the job."""
    submit(reader.kubectl, visited())
    until_step(reader.kubectl, "visited", 0, 5)
    uid = reader.kubectl.get("pod", "visited-worker-0")["metadata"]["uid"]
    stranger(reader.kubectl, "thief", **{coordinator_endpoint.POD_UID: uid})
    events = ("get", "events", "--field-selector=reason=AgentRefused", "-o", "name")
    until(lambda: reader.kubectl(*events), 120, lambda: reader.kubectl.story("visited"))
    yield


@contextmanager
def without_a_right(reader: Reader) -> Iterator[None]:
    """The operator may not create Services, and has failed with a job."""
    role = reader.operator.get("clusterrole", RELEASE)
    rules = [rule for rule in role["rules"] if "services" not in rule.get("resources", ())]
    assert rules != role["rules"]
    reader.operator("patch", "clusterrole", RELEASE, "--type=merge", "-p", json.dumps({"rules": rules}))
    try:
        reader.kubectl("apply", "-f", str(ROOT / "examples/simple/pytorchjob.yaml"))
        until(lambda: "retrying" in operators_log(reader), 120, lambda: operators_log(reader))
        yield
    finally:
        reader.operator("patch", "clusterrole", RELEASE, "--type=merge", "-p", json.dumps({"rules": role["rules"]}))
    assert "Succeeded" in reader.kubectl.finish("simple")


@contextmanager
def broken_watch(reader: Reader) -> Iterator[None]:
    """The API server was killed, and is back."""
    (node,) = reader.operator.get("nodes", f"--selector={CONTROL_PLANE}")["items"]
    docker("exec", node["metadata"]["name"], "pkill", "-KILL", "-x", "kube-apiserver")
    until(lambda: "watch" in operators_log(reader), 180)
    until(lambda: reader.operator("get", "--raw", "/readyz", check=False) == "ok", 120)
    yield


def operators_log(reader: Reader) -> str:
    return reader.operator("logs", "-l", f"app.kubernetes.io/name={RELEASE}", "--tail=500", check=False)


def succeeds(job: str) -> Callable[[Reader], object]:
    def ended(reader: Reader) -> bool:
        assert "Succeeded" in reader.kubectl.finish(job, 500), reader.kubectl.story(job)
        return True

    return ended


@dataclass(frozen=True)
class Case:
    """What a page takes for granted, and what it promises."""

    before: Callable[[Reader], Any] = nothing
    prints: tuple[str, ...] = ()
    after: Callable[[Reader], object] = lambda reader: True


def both_ways(job: str) -> Case:
    """On this machine first, then on the cluster."""
    return Case(prints=("Succeeded", f"{job} created"), after=succeeds(job))


CASES = {
    "examples/checkpoint/README.md: Checkpoints in memory": both_ways("checkpoint"),
    "examples/digits/README.md: Handwritten digits with DDP": both_ways("digits"),
    "examples/elastic/README.md: Workers that join and leave": both_ways("elastic"),
    "examples/multi-process/README.md: Several processes in each pod": both_ways("multi-process"),
    "examples/simple/README.md: The environment alone": both_ways("simple"),
    "examples/torchrun/README.md: The image's own torchrun": both_ways("torchrun"),
    "examples/warm/README.md: Warm restarts": both_ways("warm"),
    "examples/three-machines/README.md: torchrun by hand on three machines, and the same as YAML (2)": Case(
        after=succeeds("three-machines")
    ),
    "examples/elastic/README.md: Workers that join and leave (2)": Case(
        longer_elastic, ('pod "elastic-worker-0" force deleted', "elastic scaled"), succeeds("elastic")
    ),
    "examples/autoscaling/README.md: Autoscaling": Case(
        prints=("PyTorchJob/autoscaling", "Running"),
        after=lambda reader: reader.kubectl("delete", "ptj", "autoscaling"),
    ),
    "examples/fsdp2/README.md: FSDP2 with torch.distributed.checkpoint (2)": Case(
        shared_volume, ("world_size=3 from_step=",), succeeds("fsdp2")
    ),
    "examples/hugging-face/README.md: Hugging Face's Trainer (2)": Case(
        image("hugging-face"), ("Running",), succeeds("hugging-face")
    ),
    "examples/lightning/README.md: Lightning (2)": Case(image("lightning"), ("Running",), succeeds("lightning")),
    "docs/doctor.md: Preflight checks (2)": Case(training, ("ok    contract", "ok    torch")),
    "docs/logs.md: The logs of a job": Case(restarted_digits, ("accuracy=", "loss"), succeeds("digits")),
    f"{RUNBOOKS}/PyTorchJobCoordinatorDefect.md: How to see it": Case(prints=("pytorchjob",)),
    f"{RUNBOOKS}/PyTorchJobCoordinatorRefuses.md: How to see it": Case(
        refused, ("AgentRefused", "refused an unauthenticated connection")
    ),
    f"{RUNBOOKS}/PyTorchJobOperatorFailsToReconcile.md: How to see it": Case(without_a_right, ("retrying in",)),
    f"{RUNBOOKS}/PyTorchJobOperatorQueueGrows.md: How to see it": Case(
        prints=("workqueue_depth", "api_requests_total")
    ),
    f"{RUNBOOKS}/PyTorchJobOperatorWatchStale.md: How to see it": Case(
        broken_watch, ("the watch failed", "readyz check passed")
    ),
    f"{RUNBOOKS}/PyTorchJobOperatorWithoutLeader.md: How to see it": Case(prints=("holderIdentity",)),
    f"{RUNBOOKS}/PyTorchJobProgressStalled.md: How to see it": Case(training, ('"step":', "world=2")),
}


@pytest.mark.parametrize("key", run_by(PAGES))
def test_a_block_does_what_its_page_promises(kubectl: Kubectl, operator: Kubectl, tmp_path: Path, key: str) -> None:
    case, reader = CASES[key], Reader(kubectl, Kubectl(kubectl.program, KUBECONFIG, SYSTEM), tmp_path)
    with case.before(reader):
        printed = reader.types(named(key).text)
        assert [words for words in case.prints if words not in printed] == [], printed
        assert case.after(reader)
