from typing import Any

import pytest

from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import CoordinatorAt, Options, PodPhase
from pytorchjob_operator.plan.expect import expect
from pytorchjob_operator.rounds.state import Policy, Seat
from pytorchjob_operator.trouble import Trouble
from tests.factories import full_job, make_pod

OPTIONS = Options(coordinator=CoordinatorAt("op:29600", b"k" * 32))
NEVER, EXIT_CODE = RestartPolicy.NEVER.value, RestartPolicy.EXIT_CODE.value


def conf(**keys: str) -> dict[str, Any]:
    return {"elasticPolicy": {"rdzvConf": [{"key": key, "value": value} for key, value in keys.items()]}}


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        pytest.param({"workers": 2}, Policy(3, 3), id="a fixed job needs all of its pods"),
        pytest.param(
            {"master": None, "workers": 3, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}},
            Policy(2, 4),
            id="an elastic one as many as its range says",
        ),
        pytest.param(
            {"workers": 3, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}},
            Policy(3, 5),
            id="and its Master",
        ),
        pytest.param({"restart": NEVER}, Policy(2, 2, restarts=0), id="Never forgives nothing"),
        pytest.param({"runPolicy": {"backoffLimit": 0}}, Policy(2, 2, restarts=0), id="backoffLimit 0 allows none"),
        pytest.param(
            {"runPolicy": {"backoffLimit": 5}},
            Policy(2, 2, restarts=4),
            id="the n-th restart is one too many for backoffLimit n",
        ),
        pytest.param(
            {"restart": NEVER, "runPolicy": {"backoffLimit": 5}}, Policy(2, 2, restarts=0), id="Never goes before it"
        ),
        pytest.param(
            {"restart": NEVER, "elasticPolicy": {"maxRestarts": 7}},
            Policy(2, 2, restarts=7),
            id="maxRestarts goes before both",
        ),
        pytest.param(
            {"agent": {"restartWindowSeconds": 60}, "elasticPolicy": {"maxRestarts": 7}},
            Policy(2, 2, restarts=7, window=60),
            id="restarts count within the window",
        ),
        pytest.param({"restart": EXIT_CODE}, Policy(2, 2, retry_from=128), id="ExitCode ends for codes below 128"),
        pytest.param(
            conf(last_call_timeout="5", join_timeout="90.5"),
            Policy(2, 2, last_call=5.0, timeout=90.5),
            id="rdzvConf says how long a round is waited for",
        ),
        pytest.param(conf(last_call_timeout="soon", join_timeout="inf"), Policy(2, 2), id="what is no number is none"),
    ],
)
def test_policy(spec: dict[str, Any], policy: Policy) -> None:
    found = expect(full_job(**spec), OPTIONS, ())
    assert found == (policy, {})


@pytest.mark.parametrize(
    ("pod", "seat"),
    [
        pytest.param(make_pod("master-0"), (0, Seat("x-master-0", "uid-master-0")), id="the Master is first"),
        pytest.param(make_pod("worker-1"), (2, Seat("x-worker-1", "uid-worker-1")), id="workers follow by index"),
        pytest.param(
            make_pod("worker-0", PodPhase.PENDING, trouble=Trouble("Unschedulable", "no node")),
            (1, Seat("x-worker-0", "uid-worker-0", trouble="Unschedulable: no node")),
            id="what keeps a pod from running is told",
        ),
        pytest.param(
            make_pod("worker-0", PodPhase.SUCCEEDED),
            (1, Seat("x-worker-0", "uid-worker-0", done=True)),
            id="a pod that succeeded is done",
        ),
        pytest.param(make_pod("worker-0", PodPhase.FAILED), None, id="a failed pod has no seat"),
        pytest.param(make_pod("worker-0", deleting=True), None, id="nor one that is deleted"),
        pytest.param(make_pod("worker-7"), None, id="nor one that is scaled away"),
    ],
)
def test_seats(pod: Any, seat: tuple[int, Seat] | None) -> None:
    found = expect(full_job(workers=2), OPTIONS, (pod,))
    assert found is not None
    assert found[1] == (dict([seat]) if seat else {})


@pytest.mark.parametrize(
    ("spec", "options", "pods"),
    [
        pytest.param({}, Options(), (), id="there is none"),
        pytest.param({"elasticPolicy": {"rdzvBackend": "c10d"}}, OPTIONS, (), id="the user chose a rendezvous"),
        pytest.param({}, OPTIONS, (make_pod("worker-0", unled=True),), id="a pod was made without it"),
        pytest.param({}, OPTIONS, (make_pod("worker-0", nameless=True),), id="a pod was made by v1"),
    ],
)
def test_a_job_does_without_the_coordinator_if(spec: dict[str, Any], options: Options, pods: Any) -> None:
    assert expect(full_job(**spec), options, pods) is None
