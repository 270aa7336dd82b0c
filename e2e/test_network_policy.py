"""`spec.agent.networkPolicy`: the object that the operator makes; this cluster's network applies no such policies."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import fresh_namespace
from e2e.elastic import elastic_job, submit, until_step
from e2e.kubectl import JOB_LABEL, Kubectl, until

CLOSED, OPEN = "closed", "open"
STEPS = 100_000


@pytest.fixture(scope="module")
def kubectl(operator: Kubectl) -> Iterator[Kubectl]:
    """Two jobs in one namespace; one of them asks for a policy, and both train."""
    with fresh_namespace(operator) as fresh:
        submit(fresh, elastic_job(CLOSED, 2, steps=STEPS, agent={"networkPolicy": True}))
        submit(fresh, elastic_job(OPEN, 1, steps=STEPS))
        for name in (CLOSED, OPEN):
            until_step(fresh, name, 0, 5)
        yield fresh


def policies(kubectl: Kubectl) -> list[dict[str, Any]]:
    return list(kubectl.get("networkpolicies")["items"])


def test_a_job_that_asks_for_it_owns_a_policy_of_its_name(kubectl: Kubectl) -> None:
    (policy,) = policies(kubectl)
    (owner,) = policy["metadata"]["ownerReferences"]
    job = kubectl.job(CLOSED)
    assert (policy["metadata"]["name"], owner["uid"]) == (CLOSED, job["metadata"]["uid"])
    assert (owner["kind"], owner["controller"]) == ("PyTorchJob", True)


def test_it_lets_the_pods_of_this_job_in_and_no_others(kubectl: Kubectl) -> None:
    (policy,) = policies(kubectl)
    spec = policy["spec"]
    selector = spec["podSelector"]
    assert selected(kubectl, selector) == {f"{CLOSED}-worker-0", f"{CLOSED}-worker-1"}
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress"], [{"from": [{"podSelector": selector}]}])


def selected(kubectl: Kubectl, selector: dict[str, Any]) -> set[str]:
    """The pods that the API server finds by the labels of a selector."""
    labels = ",".join(f"{key}={value}" for key, value in selector["matchLabels"].items())
    return {pod["metadata"]["name"] for pod in kubectl.get("pods", "-l", labels)["items"]}


def test_it_is_made_again_after_a_deletion(kubectl: Kubectl) -> None:
    (before,) = policies(kubectl)
    kubectl("delete", "networkpolicy", CLOSED)
    until(
        lambda: [policy["metadata"]["uid"] != before["metadata"]["uid"] for policy in policies(kubectl)] == [True], 60
    )


def test_a_suspended_job_has_none(kubectl: Kubectl) -> None:
    kubectl("patch", "pytorchjob", CLOSED, "--type=merge", "-p", '{"spec": {"runPolicy": {"suspend": true}}}')
    until(lambda: not policies(kubectl) and not kubectl.get("pods", "-l", f"{JOB_LABEL}={CLOSED}")["items"], 60)
