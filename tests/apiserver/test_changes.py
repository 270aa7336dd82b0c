"""What may change in a stored job, and when: the rules that compare with the object as it was."""

import json
from collections.abc import Iterator

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.model import corpus

pytestmark = pytest.mark.apiserver

RUNS, SLEEPS, ENDED, RUNS_ELASTIC = "runs", "sleeps", "ended", "runs-elastic"
SUSPENDED = {"runPolicy.suspend": True}
RESUMED = {"runPolicy.suspend": False}
ROLES = "pytorchReplicaSpecs"
WORKER = f"{ROLES}.Worker.template"
MAIN = {"name": "pytorch", "image": "pytorchjob/examples:dev"}
GPU = {"limits": {"nvidia.com/gpu": 1, "cpu": "1000m"}}
TEMPLATE = "spec.pytorchReplicaSpecs: Invalid value"


@pytest.fixture(scope="module")
def stored(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A job that runs, one that is suspended, one that has ended, and an elastic one that runs."""
    jobs = {
        RUNS: corpus.job(RUNS),
        SLEEPS: corpus.job(SLEEPS, runPolicy={"suspend": True}),
        ENDED: corpus.job(ENDED),
        RUNS_ELASTIC: corpus.elastic(RUNS_ELASTIC, rdzvId="one", rdzvPort=1234),
    }
    container = f"spec.{WORKER}.spec.containers.0.resources"
    assert control_plane.apply(*(corpus.changed(job, {container: GPU}) for job in jobs.values())).returncode == 0
    end = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    patch(control_plane, ENDED, end, "--subresource=status")
    yield control_plane
    control_plane.kubectl("delete", "ptj", *jobs)


def patch(plane: ControlPlane, name: str, change: corpus.Job, *options: str) -> str:
    """What kubectl says against a change; nothing if it was taken."""
    done = plane.kubectl("patch", "ptj", name, "--type=merge", "-p", json.dumps(change), *options)
    return done.stderr if done.returncode else ""


def asked(plane: ControlPlane, name: str, changes: corpus.Job) -> str:
    """The same, with dotted paths below the spec, and nothing is kept."""
    body = corpus.changed({}, {f"spec.{path}": value for path, value in changes.items()})
    return patch(plane, name, body, "--dry-run=server")


SELECTOR = {f"{WORKER}.spec.nodeSelector": {"pool": "b"}}
IMAGE = {f"{WORKER}.spec.containers": [{**MAIN, "image": "other", "resources": GPU}]}
LABELS = {f"{WORKER}.metadata.labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param(RUNS, {f"{ROLES}.Worker.replicas": 7}, id="a running job is scaled"),
        pytest.param(RUNS, {"runPolicy.backoffLimit": 3}, id="a limit is set while a job runs"),
        pytest.param(RUNS, {**SELECTOR, **SUSPENDED}, id="Kueue evicts: suspends and restores in one update"),
        pytest.param(SLEEPS, {**SELECTOR, **LABELS, **RESUMED}, id="Kueue admits: places and resumes in one update"),
        pytest.param(SLEEPS, IMAGE, id="a template changes while the job is suspended"),
        pytest.param(SLEEPS, {f"{ROLES}.Master": None}, id="a role goes while the job is suspended"),
        pytest.param(SLEEPS, {"elasticPolicy.rdzvId": "x"}, id="a job becomes elastic while it is suspended"),
        pytest.param(SLEEPS, {"agent.preflight": "Off"}, id="the agent is told otherwise while the job is suspended"),
        pytest.param(ENDED, {**IMAGE, **SELECTOR}, id="a template changes after the end"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.maxReplicas": 9}, id="an elastic job may grow further than before"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.metrics": []}, id="an autoscaler comes while the job runs"),
        pytest.param(
            RUNS,
            {
                f"{WORKER}.metadata": {"creationTimestamp": None},
                f"{WORKER}.spec.containers": [
                    {**MAIN, "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}, "requests": {}}}
                ],
                f"{ROLES}.Master.template.spec.containers": [{**MAIN, "resources": {}}],
            },
            id="a client with Go's types writes back what it has read",
        ),
    ],
)
def test_taken(stored: ControlPlane, name: str, changes: corpus.Job) -> None:
    assert asked(stored, name, changes) == ""


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        pytest.param(RUNS, IMAGE, TEMPLATE, id="another image"),
        pytest.param(RUNS, SELECTOR, TEMPLATE, id="other nodes"),
        pytest.param(RUNS, LABELS, TEMPLATE, id="other labels"),
        pytest.param(RUNS, {f"{WORKER}.metadata.annotations": {"a": "b"}}, TEMPLATE, id="other annotations"),
        pytest.param(RUNS, {f"{WORKER}.spec.tolerations": [{"operator": "Exists"}]}, TEMPLATE, id="tolerations"),
        pytest.param(
            RUNS, {f"{WORKER}.spec.containers": [{**MAIN, "args": ["x"], "resources": GPU}]}, TEMPLATE, id="arguments"
        ),
        pytest.param(
            RUNS,
            {f"{WORKER}.spec.containers": [{**MAIN, "env": [{"name": "A"}], "resources": GPU}]},
            TEMPLATE,
            id="env",
        ),
        pytest.param(RUNS, {f"{WORKER}.spec.initContainers": [{"name": "i", "image": "i"}]}, TEMPLATE, id="an init"),
        pytest.param(RUNS, {f"{ROLES}.Master": None}, "must keep its roles", id="the Master goes"),
        pytest.param(RUNS_ELASTIC, {f"{ROLES}.Master": corpus.role()}, "must keep its roles", id="a Master comes"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.rdzvId": "two"}, "spec.elasticPolicy", id="another run"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.rdzvId": None}, "spec.elasticPolicy", id="no name of a run"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.rdzvPort": 4321}, "spec.elasticPolicy", id="another port"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.rdzvHost": "etcd"}, "spec.elasticPolicy", id="another host"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy.rdzvBackend": "mine"}, "spec.elasticPolicy", id="another backend"),
        pytest.param(RUNS_ELASTIC, {"elasticPolicy": None}, "spec.elasticPolicy", id="no longer elastic"),
        pytest.param(RUNS, {"agent": {"startMode": "Warm"}}, "spec.agent", id="another start of workers"),
        pytest.param(RUNS, {"elasticPolicy": {}}, "spec.elasticPolicy", id="elastic all of a sudden"),
        pytest.param(SLEEPS, {"runPolicy.managedBy": "kueue.x-k8s.io/multikueue"}, "immutable", id="another manager"),
    ],
)
def test_refused_with_the_field_and_the_remedy(
    stored: ControlPlane, name: str, changes: corpus.Job, words: str
) -> None:
    said = asked(stored, name, changes)
    assert words in said
    assert "suspend the job first (runPolicy.suspend), or delete it" in said or "delete the job and create" in said
