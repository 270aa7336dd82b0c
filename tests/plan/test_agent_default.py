"""The operator's setting for jobs that do not mention the agent."""

from typing import Any

import pytest

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import AgentSource
from pytorchjob_operator.observed import AgentDefault, CoordinatorAccess, NamespaceState, Observed, Options, Pod
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import AgentUse, CreatePod
from tests.factories import NOW, full_job, make_pod, make_template

INJECT = Options(
    coordinator=CoordinatorAccess("coordinator.ops.svc:29600"), agent_image="agent:1", agent_default=AgentDefault.INJECT
)
OFF = Options(coordinator=INJECT.coordinator, agent_image="agent:1")


def template(*command: str, **variables: str) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    more = {"command": list(command)} if command else {}
    return make_template(containers=[{"name": "pytorch", "image": "train:1", "env": env, **more}])


def injected(job: PyTorchJob, options: Options, *pods: Pod) -> set[bool]:
    """Whether the pods that are created have the agent; the plan says the same."""
    plan = make_plan(Observed(job, NOW, pods=pods, options=options))
    assert plan.agent is not None
    created = [write.body["spec"] for write in plan.writes if isinstance(write, CreatePod)]
    assert {bool(spec.get("initContainers")) for spec in created} == {plan.agent.injects}
    return {bool(spec.get("initContainers")) for spec in created}


TORCHRUN = template("torchrun", "train.py")


@pytest.mark.parametrize(
    ("job", "options", "expected", "source"),
    [
        pytest.param(full_job(template=TORCHRUN), INJECT, True, AgentSource.OPERATOR, id="torchrun"),
        pytest.param(full_job(template=template()), INJECT, True, AgentSource.OPERATOR, id="the image's own command"),
        pytest.param(full_job(template=TORCHRUN), OFF, False, AgentSource.OPERATOR, id="the setting is Off"),
        pytest.param(
            full_job(template=TORCHRUN, agent={"inject": False}),
            INJECT,
            False,
            AgentSource.JOB,
            id="the job wants none",
        ),
        pytest.param(
            full_job(template=TORCHRUN, agent={"inject": True}), OFF, True, AgentSource.JOB, id="the job wants it"
        ),
        pytest.param(
            full_job(template=TORCHRUN, agent={"fenceSeconds": 60}),
            INJECT,
            True,
            AgentSource.OPERATOR,
            id="other fields",
        ),
        pytest.param(
            full_job(template=template("pytorchjob-agent", "run", "--", "x")),
            INJECT,
            False,
            AgentSource.IMAGE,
            id="its image has the agent",
        ),
        pytest.param(
            full_job(template=TORCHRUN, elasticPolicy={"rdzvBackend": "c10d"}),
            INJECT,
            True,
            AgentSource.OPERATOR,
            id="v1's elastic jobs",
        ),
        pytest.param(
            full_job(template=TORCHRUN, elasticPolicy={"rdzvBackend": "etcd"}),
            INJECT,
            False,
            AgentSource.NO_EFFECT,
            id="its own rendezvous",
        ),
        pytest.param(
            full_job(template=template("torchrun", PET_RDZV_BACKEND="etcd")),
            INJECT,
            False,
            AgentSource.NO_EFFECT,
            id="the same in its env",
        ),
        pytest.param(
            full_job(template=TORCHRUN),
            Options(agent_default=AgentDefault.INJECT),
            False,
            AgentSource.NO_EFFECT,
            id="no coordinator",
        ),
    ],
)
def test_who_gets_it(job: PyTorchJob, options: Options, expected: bool, source: AgentSource) -> None:
    assert injected(job, options) == {expected}
    assert make_plan(Observed(job, NOW, options=options)).agent == AgentUse(expected, source)


def test_a_job_that_cannot_have_it_is_told_nothing() -> None:
    job = full_job(template=TORCHRUN, elasticPolicy={"rdzvBackend": "etcd"})
    status = make_plan(Observed(job, NOW, options=INJECT)).status
    assert status is not None
    assert all(condition.type != "ConfigValid" for condition in status.conditions)


@pytest.mark.parametrize(
    ("label", "options", "agent", "expected"),
    [
        ("Inject", OFF, {}, True),
        ("Inject", OFF, {"inject": False}, False),
        ("Off", INJECT, {}, False),
        ("Off", INJECT, {"inject": True}, True),
        ("inject", OFF, {}, False),
        ("", INJECT, {}, True),
        (None, INJECT, {}, True),
        (None, OFF, {}, False),
    ],
)
def test_the_label_of_a_namespace_wins_over_the_setting(
    label: str | None, options: Options, agent: dict[str, Any], expected: bool
) -> None:
    labels = {} if label is None else {"training.kubeflow.org/agent": label}
    seen = Observed(
        full_job(template=TORCHRUN, agent=agent),
        NOW,
        options=options,
        namespace=NamespaceState.from_api({"metadata": {"name": "ns", "labels": labels}}),
    )
    plan = make_plan(seen)
    assert {
        bool(write.body["spec"].get("initContainers")) for write in plan.writes if isinstance(write, CreatePod)
    } == {expected}
    assert not plan.namespace


@pytest.mark.parametrize(
    ("job", "options", "pods", "asks"),
    [
        pytest.param(full_job(template=TORCHRUN), OFF, (), True, id="a new job"),
        pytest.param(full_job(template=TORCHRUN, agent={"inject": False}), OFF, (), False, id="the job says it"),
        pytest.param(full_job(template=TORCHRUN), Options(), (), False, id="no job can have the agent"),
        pytest.param(full_job(template=template("pytorchjob-agent")), OFF, (), False, id="its image has the agent"),
        pytest.param(full_job(template=TORCHRUN), OFF, (make_pod("master-0"),), False, id="it has pods"),
    ],
)
def test_the_namespace_is_asked_for_only_where_it_matters(
    job: PyTorchJob, options: Options, pods: tuple[Pod, ...], asks: bool
) -> None:
    assert make_plan(Observed(job, NOW, pods=pods, options=options)).namespace is asks


@pytest.mark.parametrize("has", [True, False])
@pytest.mark.parametrize("options", [INJECT, OFF], ids=["Inject", "Off"])
def test_a_job_keeps_to_what_its_running_pods_have(options: Options, has: bool) -> None:
    """The setting has changed since they were created; the other pod of the job is missing now."""
    runs = make_pod("master-0", injected=has, without_coordinator=not has)
    assert injected(full_job(template=TORCHRUN), options, runs) == {has}


def test_a_pod_tells_whether_it_has_the_agent() -> None:
    plan = make_plan(Observed(full_job(template=TORCHRUN), NOW, options=INJECT))
    created = [Pod.from_api(write.body) for write in plan.writes if isinstance(write, CreatePod)]
    assert {pod.injected for pod in created} == {True}
    assert not Pod.from_api({"metadata": {"name": "x"}, "spec": {"initContainers": [{"name": "own"}]}}).injected
