"""The agent in a pod whose image knows nothing of it."""

from typing import Any

import pytest

from pytorchjob_operator.observed import CoordinatorAccess, Options
from pytorchjob_operator.plan.pods import build_pod
from tests.factories import full_job, make_template, replica

OPTIONS = Options(coordinator=CoordinatorAccess("coordinator.ops.svc:29600"), agent_image="agent:1")
PLACE = "/opt/pytorchjob-agent"
FOUND = f"{PLACE}/pytorchjob_agent/command/startup:{PLACE}"


def spec(*env: dict[str, Any], case: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    """The spec of worker 0's pod."""
    main = {"name": "pytorch", "image": "train:1", "env": list(env), "volumeMounts": [{"name": "data"}]}
    template = make_template(**{"containers": [main, {"name": "side"}], "volumes": [{"name": "data"}], **pod})
    job = full_job(template=template, agent={"inject": True}, **(case or {}))
    built: dict[str, Any] = build_pod(job, replica("worker-0"), OPTIONS)["spec"]
    return built


def env(built: dict[str, Any], at: int = 0) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in built["containers"][at]["env"]}


def test_an_init_container_copies_it_and_the_main_one_sees_it() -> None:
    built = spec(initContainers=[{"name": "own"}])
    first, own = built["initContainers"]
    assert (first["image"], first["command"]) == ("agent:1", ["pytorchjob-agent", "install", PLACE])
    assert own == {"name": "own"}
    assert built["volumes"][:2] == [{"name": "data"}, {"name": "pytorchjob-agent", "emptyDir": {"sizeLimit": "16Mi"}}]
    assert first["volumeMounts"] == [{"name": "pytorchjob-agent", "mountPath": PLACE}]
    main, side = built["containers"]
    assert main["volumeMounts"][:2] == [
        {"name": "data"},
        {"name": "pytorchjob-agent", "mountPath": PLACE, "readOnly": True},
    ]
    more = ["pytorchjob-caches", "pytorchjob-token"]
    assert [entry["name"] for entry in (*built["volumes"][2:], *main["volumeMounts"][2:])] == 2 * more
    assert "volumeMounts" not in side


def test_it_keeps_to_pod_security_restricted() -> None:
    (first,) = spec()["initContainers"]
    assert first["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("context", "user"),
    [
        pytest.param({}, None, id="nobody says: the image's user"),
        pytest.param({"runAsUser": 1000}, None, id="the pod's user is inherited"),
        pytest.param({"runAsUser": 0}, 65532, id="root is not"),
    ],
)
def test_whose_it_runs_as(context: dict[str, int], user: int | None) -> None:
    assert spec(securityContext=context)["initContainers"][0]["securityContext"].get("runAsUser") == user


def test_the_whole_init_container() -> None:
    (first,) = spec()["initContainers"]
    resources = {"cpu": "250m", "memory": "64Mi"}
    assert first == {
        "name": "pytorchjob-agent-install",
        "image": "agent:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["pytorchjob-agent", "install", PLACE],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": first["securityContext"],
        "volumeMounts": [{"name": "pytorchjob-agent", "mountPath": PLACE}],
    }


def test_a_guaranteed_pod_stays_guaranteed() -> None:
    resources = spec()["initContainers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert set(resources["limits"]) == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param([], FOUND, id="none of the user's"),
        pytest.param([{"name": "PYTHONPATH", "value": "/code"}], f"{FOUND}:$(PYTHONPATH)", id="the user's comes after"),
    ],
)
def test_python_finds_it(own: list[dict[str, str]], expected: str) -> None:
    built = spec(*own)
    assert env(built)["PYTHONPATH"] == expected
    assert "PYTHONPATH" not in env(built, 1)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({}, id="of a fixed size"),
        pytest.param({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 5}}, id="elastic"),
        pytest.param({"elasticPolicy": {"rdzvBackend": "c10d", "rdzvId": "run"}}, id="elastic, as v1's examples are"),
    ],
)
def test_torchrun_gets_what_it_gets_without_the_agent(case: dict[str, Any]) -> None:
    """Where Python or torch is too old for the agent, the command runs as it would without it."""
    plain = env(build_pod(full_job(template=make_template(), **case), replica("worker-0"), OPTIONS)["spec"])
    found = env(
        build_pod(full_job(template=make_template(), agent={"inject": True}, **case), replica("worker-0"), OPTIONS)[
            "spec"
        ]
    )
    contract = {
        name for name in plain if name.startswith(("PET_", "MASTER_", "TORCH")) or name in ("RANK", "WORLD_SIZE")
    }
    assert {name: found[name] for name in contract} == {name: plain[name] for name in contract}
    assert "PYTORCHJOB_COORDINATOR" in found


def test_without_a_coordinator_nothing_is_put_there() -> None:
    job = full_job(agent={"inject": True})
    assert build_pod(job, replica("worker-0"), Options(agent_image="agent:1")) == build_pod(
        full_job(), replica("worker-0"), Options()
    )


def test_the_template_is_never_changed() -> None:
    template = make_template()
    build_pod(full_job(template=template, agent={"inject": True}), replica("worker-0"), OPTIONS)
    assert template == make_template()
