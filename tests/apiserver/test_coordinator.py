"""The running operator with its coordinator: agents that a test speaks for come by their pods' env, over TLS."""

import asyncio
import base64
import json
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.messages import (
    HEARTBEAT_SECONDS,
    Assigned,
    Failed,
    Heartbeat,
    Hello,
    Join,
    Refused,
    RoundId,
)
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.coordinator.talking import Talker
from tests.fakes.tokens import AUDIENCE
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

ACCOUNT = "trainer"
WORKERS = ("x-worker-0", "x-worker-1")
Object = dict[str, Any]


@pytest.fixture
def operator(control_plane: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator with a Lease, a Secret and a port of this test's own."""
    process = OperatorProcess.with_coordinator(control_plane, tmp_path)
    yield process.wait_ready()
    assert process.stop() == 0


def meeting(pod: Object) -> CoordinatorEndpoint:
    """What the agent in this pod reads."""
    env = {
        variable["name"]: variable.get("value", pod["metadata"]["uid"])
        for variable in pod["spec"]["containers"][0]["env"]
    }
    found = CoordinatorEndpoint.from_env(env)
    assert found is not None
    return found


class Agents:
    """Agents that beat as long as the test lasts.

    They beat in the test's own event loop. While agents are there, a test starts processes (`kubectl`) in other
    threads: on a busy machine one takes seconds, and the coordinator lets go of agents that are silent for so long.
    """

    def __init__(self, kubelet: Kubelet, jobs: Jobs) -> None:
        self._kubelet, self._jobs = kubelet, jobs
        self.beat = Heartbeat(step=7, total=70)
        self._beating: list[tuple[Talker, asyncio.Task[None]]] = []

    async def come(self, name: str, *, round_: RoundId | None = None, rank: int = 0) -> Talker:
        """One says hello, again until somebody answers; its workers run in this round, if in any."""
        env, said = await self.hello(name, round_=round_, rank=rank)
        return await self.say(env, said)

    async def hello(
        self, name: str, *, round_: RoundId | None = None, rank: int = 0
    ) -> tuple[CoordinatorEndpoint, Hello]:
        """What one says."""
        env = meeting((await self._kubelet.pods())[name])
        return env, Hello(
            job=env.job,
            pod=env.pod,
            token=await self.token(env.pod, env.pod_uid),
            index=env.index,
            address="127.0.0.1",
            nproc=2,
            incarnation=f"of-{env.pod}",
            pod_uid=env.pod_uid,
            round=round_,
            rank=rank,
            size=2 if round_ else 0,
        )

    async def say(self, env: CoordinatorEndpoint, said: Hello) -> Talker:
        """Say it until somebody answers."""
        return await until_async(lambda: self._greet(env, said))

    async def refused(self, env: CoordinatorEndpoint, token: str) -> Refused:
        """The answer to an agent with this token."""
        said = Hello(env.job, env.pod, token, env.index, "127.0.0.1", 2, "an-intruder", env.pod_uid)
        talker = (await self._dial(env)).say(said)
        refused = await talker.hear_kind("refused")
        assert isinstance(refused, Refused)
        talker.cut()
        return refused

    async def _dial(self, env: CoordinatorEndpoint) -> Talker:
        trust = ssl.create_default_context(cadata=base64.b64decode(env.ca))
        trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return await Talker.dial(env.port, trust)

    async def token(self, pod: str, uid: str, audience: str = AUDIENCE) -> str:
        """A service account token that is bound to this pod, as the kubelet asks for it."""
        bound = (f"--bound-object-name={pod}", f"--bound-object-uid={uid}", "--bound-object-kind=Pod")
        made = await asyncio.to_thread(self._jobs.kubectl, "create", "token", ACCOUNT, f"--audience={audience}", *bound)
        return made.strip()

    async def _greet(self, env: CoordinatorEndpoint, said: Hello) -> Talker | None:
        try:
            talker = (await self._dial(env)).say(said)
        except OSError:
            return None
        heard = await talker.hear()
        if heard is not None and heard.kind in ("welcome", "stop"):
            self._beating.append((talker, asyncio.create_task(self._beat(talker))))
            return talker
        talker.cut()
        return None

    async def _beat(self, talker: Talker) -> None:
        while True:
            talker.say(self.beat)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def together(self) -> tuple[Talker, Talker, Assigned]:
        """Both, in their first round."""
        first, second = [(await self.come(name)).say(Join(4000)) for name in WORKERS]
        assigned = await first.hear_kind("assigned")
        assert (assigned.rank, (await second.hear_kind("assigned")).rank) == (0, 1)
        return first, second, assigned

    def leave(self) -> None:
        """All of them are gone."""
        for talker, task in self._beating:
            task.cancel()
            talker.cut()
        self._beating.clear()


@pytest.fixture
async def agents(kubelet: Kubelet, jobs: Jobs) -> AsyncIterator[Agents]:
    some = Agents(kubelet, jobs)
    yield some
    some.leave()
    await asyncio.sleep(0.05)  # asyncio closes the sockets in callbacks
    await asyncio.sleep(0)  # the loop closes what was cut off


async def started(jobs: Jobs, kubelet: Kubelet, **spec: Any) -> None:
    """A job of two workers whose pods run."""
    jobs.kubectl("create", "serviceaccount", ACCOUNT)
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}], "serviceAccountName": ACCOUNT}}
    specs = {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template}}
    meta = {"name": "x", "namespace": jobs.namespace}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    done = jobs.plane.apply({**kind, "metadata": meta, "spec": {"pytorchReplicaSpecs": specs, **spec}})
    assert done.returncode == 0, done.stderr

    async def there() -> bool:
        return len(await kubelet.pods()) == 2

    await until_async(there)
    await kubelet.report("Running")
    await becomes(lambda: ("Running", "True") in jobs.conditions("x"))


def fell(round_: RoundId) -> Failed:
    return Failed(round=round_, rank=1, local_rank=1, exit_code=3, message="ValueError: no such tensor")


def elastic(jobs: Jobs) -> Object:
    found: Object = jobs.get("x")["status"].get("elastic", {})
    return found


def reasons(jobs: Jobs) -> set[str]:
    return {event["reason"] for event in jobs.events()}


async def test_rounds_restarts_and_steps_are_in_the_status_and_told_as_events(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents
) -> None:
    await started(jobs, kubelet)
    first, second, assigned = await agents.together()
    # At once: on a busy machine a call of kubectl keeps these agents from beating, and the coordinator lets them go.
    assert "pytorchjob_operator_coordinator_connections 2.0" in operator.http("/metrics")[1]
    await becomes(lambda: elastic(jobs).get("round") == str(assigned.round))
    assert (elastic(jobs)["members"], elastic(jobs)["worldSize"]) == (2, 4)
    await becomes(lambda: jobs.get("x")["status"].get("progress", {}).get("step") == 7)
    second.say(fell(assigned.round), Join(4001))
    await first.hear_kind("restart")
    first.say(Join(4000))
    again = await first.hear_kind("assigned")
    assert (again.restarts, again.round > assigned.round) == (1, True)
    await becomes(lambda: elastic(jobs).get("restarts") == 1)
    assert "ValueError: no such tensor" in elastic(jobs)["lastRestart"]["message"]
    await becomes(lambda: {"RoundStarted", "WorkerFailed"} <= reasons(jobs))


async def test_the_coordinators_verdict_fails_the_job_and_agents_that_come_later_end(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents
) -> None:
    await started(jobs, kubelet, runPolicy={"backoffLimit": 1})
    first, second, assigned = await agents.together()
    second.say(fell(assigned.round), Join(4001))
    await first.hear_kind("restart")
    first.say(Join(4000))
    assert (await first.hear_kind("stop")).exit_code == 3
    await becomes(lambda: jobs.condition("x", "Failed"))
    failed = jobs.condition("x", "Failed")
    assert failed is not None
    assert failed["reason"] == "PyTorchJobFailed"
    assert "rank 1 (x-worker-1) exited with code 3 at step 7: ValueError: no such tensor" in failed["message"]
    operator.kill()
    operator.start()
    operator.wait_ready()
    late = await agents.come("x-worker-0")
    assert await late.hear() is None


async def test_an_operator_that_is_killed_in_a_round_is_followed_by_one_that_knows_it_from_the_agents(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents
) -> None:
    await started(jobs, kubelet)
    _, _, assigned = await agents.together()
    await becomes(lambda: elastic(jobs).get("round") == str(assigned.round))
    operator.signal(signal.SIGKILL)
    operator.process.wait()
    agents.leave()
    operator.start()
    operator.wait_ready()
    first, second = [await agents.come(name, round_=assigned.round, rank=rank) for rank, name in enumerate(WORKERS)]
    second.say(fell(assigned.round), Join(4001))
    await first.hear_kind("restart")
    first.say(Join(4000))
    again = await first.hear_kind("assigned")
    assert again.round.term > assigned.round.term
    await becomes(lambda: elastic(jobs).get("round") == str(again.round))


@pytest.fixture
def node(control_plane: ControlPlane, jobs: Jobs) -> Iterator[str]:
    """A node of this test's own."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": jobs.namespace}}
    assert control_plane.apply(body).returncode == 0
    yield jobs.namespace
    control_plane.kubectl("delete", "node", jobs.namespace, "--ignore-not-found")


def bind(jobs: Jobs, pod: str, node: str) -> None:
    """Do what a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod}/binding"
    done = jobs.plane.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert done.returncode == 0, done.stderr


async def test_workers_save_at_once_when_a_node_of_theirs_is_tainted_and_train_on(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents, node: str
) -> None:
    await started(jobs, kubelet)
    bind(jobs, "x-worker-1", node)
    agents.beat = replace(agents.beat, saves_on_request=True)
    # Another leader formed this round: it is not so young that nothing is worth a save.
    first, second = [await agents.come(name, round_=RoundId(1, 1), rank=rank) for rank, name in enumerate(WORKERS)]
    await asyncio.to_thread(jobs.plane.kubectl, "taint", "node", node, "example.com/spot-notice=now:NoSchedule")
    asked = [await first.hear_kind("save"), await second.hear_kind("save")]
    assert {(save.round, save.number) for save in asked} == {(RoundId(1, 1), 1)}
    assert asked[0].reason == f"x-worker-1: its node {node} has the taint example.com/spot-notice"
    agents.beat = replace(agents.beat, answered=1)
    await becomes(lambda: {"PodThreatened", "CheckpointSaved"} <= reasons(jobs))
    await asyncio.to_thread(jobs.plane.kubectl, "label", "node", node, "any=change")
    await asyncio.to_thread(jobs.plane.kubectl, "cordon", node)  # the taint says more
    await becomes(lambda: elastic(jobs).get("round") == "1.1")
    threats = [event for event in jobs.events() if event["reason"] == "PodThreatened"]
    assert [event.get("count") for event in threats] in ([None], [1])
    assert threats[0]["message"].endswith("The workers are asked to save at once, and continue.")


async def test_an_agent_learns_the_zone_of_its_node_with_its_round(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents, node: str
) -> None:
    await started(jobs, kubelet)
    bind(jobs, "x-worker-1", node)
    jobs.plane.kubectl("label", "node", node, "topology.kubernetes.io/zone=eu-1a")
    jobs.plane.kubectl("taint", "node", node, "example.com/spot-notice=now:NoSchedule")
    agents.beat = replace(agents.beat, saves_on_request=True)
    first, second = [await agents.come(name, round_=RoundId(1, 1), rank=rank) for rank, name in enumerate(WORKERS)]
    await first.hear_kind("save")  # the coordinator knows the taint, which came after the label
    second.say(fell(RoundId(1, 1)), Join(4001))
    await first.hear_kind("restart")
    first.say(Join(4000))
    assert [(await agent.hear_kind("assigned")).zone for agent in (first, second)] == ["", "eu-1a"]


async def test_workers_save_at_once_when_a_pod_is_about_to_be_deleted(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents
) -> None:
    await started(jobs, kubelet)
    agents.beat = replace(agents.beat, saves_on_request=True)
    first, _ = [await agents.come(name, round_=RoundId(1, 1), rank=rank) for rank, name in enumerate(WORKERS)]
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempted",
    }
    change = json.dumps({"status": {"conditions": [disrupted]}})
    await asyncio.to_thread(jobs.kubectl, "patch", "pod", "x-worker-1", "--subresource=status", "--patch", change)
    assert (await first.hear_kind("save")).reason == "x-worker-1: it is about to be deleted: preempted"


async def test_a_token_of_another_pod_or_for_another_audience_is_refused_by_the_keys_of_the_api_server(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents
) -> None:
    await started(jobs, kubelet)
    await agents.come("x-worker-0")
    pods = await kubelet.pods()
    env, other = meeting(pods["x-worker-1"]), meeting(pods["x-worker-0"])
    own, foreign = await agents.token(env.pod, env.pod_uid), await agents.token(other.pod, other.pod_uid)
    for token, words in (
        (foreign, "it belongs to pod"),
        (await agents.token(env.pod, env.pod_uid, "https://kubernetes.default.svc"), "its audience is not"),
        (own[:-8] + "AAAAAAAA", "its signature is wrong"),
    ):
        refused = await agents.refused(env, token)
        assert words in refused.message
    await becomes(lambda: jobs.condition("x", "Degraded") is not None)
    await agents.come("x-worker-1")


async def test_tokens_are_verified_while_the_api_server_is_away(
    operator: OperatorProcess, jobs: Jobs, kubelet: Kubelet, agents: Agents, control_plane: ControlPlane
) -> None:
    await started(jobs, kubelet)
    hellos = [await agents.hello(name) for name in WORKERS]
    control_plane.stop_program("kube-apiserver")
    try:
        for env, said in hellos:
            await agents.say(env, said)
    finally:
        control_plane.start_apiserver()
