"""What cannot run: a condition of the job names the reason, and so does the agent's log. No agent waits in silence.

The jobs of this file run side by side; each test checks one.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import fresh_namespace
from e2e.drama import degraded, termination
from e2e.elastic import TRAIN, elastic_job, events, log, starts, submit, until_step
from e2e.kubectl import Kubectl, until
from pytorchjob_agent.contract import coordinator_endpoint
from pytorchjob_operator.plan import credential

CRASH = TRAIN.replace(
    "    time.sleep(seconds)",
    '    if step % 20 == 0 and rank == 1:\n        raise ValueError(f"the batch of step {step} is broken")\n'
    "    time.sleep(seconds)",
)
LONG = 100_000
# The agent of worker 1 believes in another Python: what its interpreter says of itself is replaced.
OTHER_PYTHON = """
mkdir -p /tmp/other
if [ "$PYTORCHJOB_INDEX" = 1 ]; then
    echo 'import platform; platform.python_version = lambda: "3.99.0"' >/tmp/other/sitecustomize.py
    export PYTHONPATH=/tmp/other
fi
"""
ENVIRONMENTS = """
from contextlib import suppress
from pathlib import Path

for path in Path("/proc").glob("[0-9]*/environ"):
    with suppress(OSError):  # it may end meanwhile
        variables = path.read_text().split(chr(0))
        if any(variable.startswith("LOCAL_RANK=") for variable in variables):
            print(*variables, sep="\\n")
"""
"""Prints the variables of the workers' processes."""
NOWHERE = {"there-is": "no-such-node"}


@pytest.fixture(scope="module")
def kubectl(operator: Kubectl) -> Iterator[Kubectl]:
    with fresh_namespace(operator) as fresh:
        jobs = {"unequal": unequal(), "lonely": lonely(), "budget": budget(), "visited": visited()}
        for job in jobs.values():
            submit(fresh, job)
        yield fresh


def budget() -> dict[str, Any]:
    """It fails every 20 steps, and may do so once; its containers stay as they ended."""
    policy = {"minReplicas": 2, "maxReplicas": 2, "maxRestarts": 1}
    job = elastic_job("budget", 2, steps=LONG, train=CRASH, elasticPolicy=policy)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    return job


def lonely() -> dict[str, Any]:
    """Its Master fits on no node."""
    job = elastic_job("lonely", 1, steps=LONG)
    roles = job["spec"]["pytorchReplicaSpecs"]
    master = json.loads(json.dumps(roles["Worker"]))
    master["template"]["spec"]["nodeSelector"] = NOWHERE
    roles["Master"] = {**master, "replicas": 1}
    return job


def visited() -> dict[str, Any]:
    """All is well with it, until strangers come."""
    return elastic_job("visited", 1, steps=LONG, seconds=0.5)


def unequal() -> dict[str, Any]:
    job = elastic_job("unequal", 2, steps=LONG, seconds=0.5)
    command = container(job)["command"]
    command[2] = OTHER_PYTHON + command[2]
    return job


def container(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    return found


def stranger(kubectl: Kubectl, name: str, **env: str) -> None:
    """Create a pod that claims to be worker 0 of the job `visited`, with these variables changed.

    The operator did not create it. Its token is genuine, but its own.
    """
    spec = kubectl.get("pod", "visited-worker-0")["spec"]
    (original,) = spec["containers"]
    kept = [variable for variable in original["env"] if variable["name"] not in env]
    own = {key: original[key] for key in ("name", "image", "command", "securityContext")}
    mounts = [mount for mount in original["volumeMounts"] if mount["name"] == credential.VOLUME]
    volumes = [volume for volume in spec["volumes"] if volume["name"] == credential.VOLUME]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {**own, "env": [*kept, *({"name": key, "value": env[key]} for key in env)], "volumeMounts": mounts}
            ],
            "volumes": volumes,
            "automountServiceAccountToken": False,
            "securityContext": spec["securityContext"],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(body))


def named(kubectl: Kubectl, job: str, reason: str, seconds: float = 120) -> str:
    """Wait until the job has the problem of this reason, and return the message."""
    until(lambda: reason in degraded(kubectl, job), seconds, lambda: kubectl.story(job))
    return degraded(kubectl, job)[reason]


def test_a_job_whose_restarts_are_used_up_fails_with_rank_pod_and_first_error(kubectl: Kubectl) -> None:
    assert "Failed" in kubectl.finish("budget", 180)
    (failed,) = [
        condition for condition in kubectl.job("budget")["status"]["conditions"] if condition["type"] == "Failed"
    ]
    assert "rank 1 (budget-worker-1) exited with code 1 at step " in failed["message"]
    assert "ValueError: the batch of step 40 is broken" in failed["message"]
    assert "The one restart is used up" in failed["message"]
    told = kubectl.job("budget")["status"]["failure"]
    first = {name: told["first"][name] for name in ("kind", "rank", "pod", "exitCode", "error")}
    assert told["reason"] == "RestartsUsedUp"
    assert first == {
        "kind": "WorkerFailed",
        "rank": 1,
        "pod": "budget-worker-1",
        "exitCode": 1,
        "error": "ValueError",
    }
    assert {"WorkerFailed", "ElasticGaveUp"} <= events(kubectl, "budget")


def test_the_failed_pod_tells_its_error_in_its_last_words(kubectl: Kubectl) -> None:
    kubectl.finish("budget", 180)
    until(lambda: termination(kubectl.get("pod", "budget-worker-1")), 60, lambda: kubectl.story("budget"))
    told = termination(kubectl.get("pod", "budget-worker-1"))
    words = json.loads(told["message"])
    assert (told["exitCode"], words["reason"], words["rank"]) == (1, "WorkerFailed", 1)
    assert "ValueError: the batch of step 40 is broken" in words["message"]
    printed = log(kubectl, "budget", 1)
    found = [start["restarts"] for start in starts(printed)]
    assert found == [0, 1], f"once again in the same container, and no more: {printed[-4000:]}"


def test_a_rendezvous_that_never_fills_names_whom_it_waits_for(kubectl: Kubectl) -> None:
    message = named(kubectl, "lonely", "RendezvousWaiting")
    assert message.startswith("1 of 2 members are ready; waiting for lonely-master-0 (Unschedulable: ")
    until(lambda: "waiting for lonely-master-0" in log(kubectl, "lonely", 0), 60, lambda: log(kubectl, "lonely", 0))


def test_unequal_versions_name_the_odd_one(kubectl: Kubectl) -> None:
    message = named(kubectl, "unequal", "UnequalVersions")
    assert "3.99.0" in message
    assert "unequal-worker-1" in message


def test_a_wrong_token_is_refused_and_the_job_says_so_and_trains_on(kubectl: Kubectl) -> None:
    until_step(kubectl, "visited", 0, 5)
    uid = kubectl.get("pod", "visited-worker-0")["metadata"]["uid"]
    stranger(kubectl, "thief", **{coordinator_endpoint.POD_UID: uid})
    until(lambda: "'visited-worker-0' has a wrong token" in story(kubectl), 90, lambda: kubectl.story("visited"))
    assert f"it belongs to pod {kubectl.namespace}/thief" in story(kubectl)
    until(lambda: "refuses this agent" in kubectl("logs", "thief"), 60, lambda: kubectl("logs", "thief"))
    assert len(starts(log(kubectl, "visited", 0))) == 1


def test_of_two_agents_for_one_replica_the_first_trains_on_and_the_job_says_so(kubectl: Kubectl) -> None:
    until_step(kubectl, "visited", 0, 5)
    twin = "PET_RDZV_CONF=join_timeout=20 pytorchjob-agent run -- --no-python true 2>&1 || true"
    words = kubectl("exec", "visited-worker-0", "--", "sh", "-c", twin)
    assert "another agent already serves replica 0" in words
    until(lambda: "DuplicateReplica" in story(kubectl), 90, lambda: kubectl.story("visited"))
    assert len(starts(log(kubectl, "visited", 0))) == 1


def test_the_view_role_does_not_show_a_pods_credential(kubectl: Kubectl) -> None:
    until_step(kubectl, "visited", 0, 5)
    real = kubectl("exec", "visited-worker-0", "--", "cat", credential.FILE).strip()
    assert real.count(".") == 2
    kubectl("create", "rolebinding", "reader", "--clusterrole=view", "--user=reader")
    shown = kubectl("get", "pod", "visited-worker-0", "-o", "json", "--as=reader")
    assert credential.FILE in shown
    assert real not in shown
    for verb, what in (("create", "serviceaccounts/token"), ("create", "pods/exec"), ("get", "secrets")):
        assert kubectl("auth", "can-i", verb, what, "--as=reader", check=False).strip() == "no"


def test_a_workers_environment_has_no_credential(kubectl: Kubectl) -> None:
    until_step(kubectl, "visited", 0, 5)
    found = kubectl("exec", "visited-worker-0", "--", "python", "-c", ENVIRONMENTS)
    assert "LOCAL_RANK=" in found
    assert credential.FILE not in found


def story(kubectl: Kubectl) -> str:
    """All that is wrong with the job `visited`."""
    return " ".join(f"{reason}: {message}" for reason, message in degraded(kubectl, "visited").items())
