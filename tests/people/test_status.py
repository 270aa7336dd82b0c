"""`status`: the state in a word, since when, why; the pods; what happened; what to do next."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pytorchjob.cli import main
from pytorchjob.cluster import gather
from pytorchjob.cluster.api import LogRequest
from pytorchjob.cluster.errors import ApiServerUnreachable, ClusterError
from pytorchjob.cluster.last_lines import read_last_lines
from pytorchjob.view import survival
from pytorchjob.view.job_view import JobView, make_job_view
from pytorchjob.view.state import State
from pytorchjob_agent.contract.reasons import ShrinkState
from tests.people import seeds
from tests.people.fake_cluster import NOW, FakeCluster, an_event, timestamp
from tests.people.faults import Part
from tests.people.seeds import (
    JOB,
    MASTER,
    RUNNING,
    W0,
    W1,
    Object,
    condition,
    degraded,
    ended,
    job,
    pending,
    pod,
    starting,
)

ROUND = {"elastic": {"round": "3.7", "members": 3, "worldSize": 6, "restarts": 1}}
COORDINATED = [{"name": "pytorch", "env": [{"name": "PYTORCHJOB_COORDINATOR", "value": "op:29600"}]}]
SPENT = {
    "time": timestamp(-4),
    "current": "running",
    "seconds": {"running": 266.0, "programStartup": 20.0, "infrastructureRecoveryFromDisruption": 10.0},
    "furthestStep": 70,
    "interruptions": 2,
}
"""What the job's time was spent on, as it was written 4 s ago."""
NEW = condition("Running", "PyTorchJob train is running.", seconds=-5)


def view_of(*parts: Part) -> JobView:
    return make_job_view(gather.gather_job(seeds.cluster_with(*parts), JOB, NOW))


def status(cluster: FakeCluster, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["status", JOB, *arguments], obj=lambda options: cluster)


def agents() -> list[Object]:
    return [pod(name, containers=COORDINATED) for name in (MASTER, W0, W1)]


def pulling(name: str) -> tuple[Object, Object]:
    return starting(name, "ContainerCreating"), seeds.of_pod(name, "Pulling", f'Pulling image "{seeds.IMAGE}"')


ALL = [pod(name) for name in (MASTER, W0, W1)]
NEW_PODS = [pod(name, seeds.container(seeds.running(-5))) for name in (MASTER, W0, W1)]


@pytest.mark.parametrize(
    ("state", "parts"),
    [
        pytest.param(State.SUBMITTED, [seeds.new_job(created=timestamp(-2))], id="no operator has seen it"),
        pytest.param(State.SUSPENDED, [job(runPolicy={"suspend": True})], id="suspended by a user"),
        pytest.param(
            State.QUEUED,
            [job(runPolicy={"suspend": True}, labels={"kueue.x-k8s.io/queue-name": "gpu"})],
            id="in a queue of Kueue",
        ),
        pytest.param(
            State.QUEUED, [job(condition("Waiting", reason="PodGroupPending"))], id="held by a gang scheduler"
        ),
        pytest.param(State.QUEUED, [job(condition("Waiting", reason="SchedulingGated"))], id="held by a gate"),
        pytest.param(
            State.REFUSED, [job(seeds.refused("exceeded quota: a, requested: cpu=1"))], id="refused by a quota"
        ),
        pytest.param(State.CREATING, [job(), pod(MASTER)], id="pods that are missing"),
        pytest.param(State.PENDING, [job(), pod(MASTER), pending(W0, "0/1 nodes"), pod(W1)], id="a pod without a node"),
        pytest.param(State.PULLING, [job(), pod(MASTER), *pulling(W0), pod(W1)], id="a node that pulls the image"),
        pytest.param(
            State.PULLING,
            [job(), pod(MASTER), starting(W0, "ImagePullBackOff", "not found"), pod(W1)],
            id="an image that cannot be pulled",
        ),
        pytest.param(
            State.STARTING,
            [job(), pod(MASTER), starting(W0, "ContainerCreating"), pod(W1)],
            id="a container that is being created",
        ),
        pytest.param(State.JOINING, [job(NEW), *agents()], id="agents without a round"),
        pytest.param(
            State.JOINING,
            [job(RUNNING, degraded("RendezvousWaiting", "2 of 3 members are ready"), status=ROUND), *agents()],
            id="agents that wait for another one",
        ),
        pytest.param(State.RUNNING, [job(RUNNING), *agents()], id="a script that started no agent"),
        pytest.param(State.RUNNING, [job(RUNNING), *ALL], id="pods without a coordinator"),
        pytest.param(
            State.RUNNING,
            [job(RUNNING), pod(MASTER), pod(W0, ended(1), phase="Failed"), pod(W1)],
            id="a pod that has failed",
        ),
        pytest.param(State.TRAINING, [job(RUNNING, status=ROUND), *agents()], id="a round"),
        pytest.param(State.RESTARTING, [job(condition("Restarting")), pod(MASTER)], id="a pod that is replaced"),
        pytest.param(State.CRASHING, [job(RUNNING, degraded("CrashLoop", "again")), *ALL], id="a crash loop"),
        pytest.param(State.SUCCEEDED, [job(condition("Succeeded"))], id="a job that has succeeded"),
        pytest.param(State.FAILED, [job(seeds.failed("it failed"))], id="a job that has failed"),
    ],
)
def test_the_state_in_a_word(state: State, parts: list[Part]) -> None:
    assert view_of(*parts).state is state


def test_a_command_that_trains_without_its_agent_is_shown_so() -> None:
    """Its Python is too old, for one, or its launcher has a rendezvous of its own."""
    pods = agents()
    for each in pods:
        each["spec"]["initContainers"] = [{"name": "pytorchjob-agent-install"}]
    view = view_of(job(RUNNING), *pods)
    assert (view.state, "trains without the agent" in view.reason) == (State.RUNNING, True)
    assert "agent" not in view_of(job(RUNNING), *agents()).reason


def test_a_job_that_is_deleted_is_shown_so() -> None:
    found = job(RUNNING)
    found["metadata"]["deletionTimestamp"] = timestamp(0)
    assert view_of(found, *ALL).state is State.DELETING


def test_the_reason_is_the_root_cause_if_it_is_known() -> None:
    parts = [job(), pod(MASTER), starting(W0, "ImagePullBackOff", "x: not found"), pod(W1)]
    assert view_of(*parts).reason.startswith("The registry has no image registry.example.com/team/train:1")


def test_the_pods_have_their_ranks_nodes_states_and_last_lines() -> None:
    crashed = pod(W0, ended(1, "Traceback\nValueError: x"), phase="Failed", node="node-2")
    rows = view_of(job(RUNNING, nprocPerNode="2"), pod(MASTER), crashed).rows
    assert [(row.pod, row.ranks, row.node, row.phase, row.state) for row in rows] == [
        (MASTER, "0-1", "node-1", "Running", "running"),
        (W0, "2-3", "node-2", "Failed", "Error (1)"),
        (W1, "4-5", "", "missing", ""),
    ]
    assert rows[1].last_line == "ValueError: x"


def test_a_pod_in_a_crash_loop_is_not_ready() -> None:
    view = view_of(job(RUNNING), pod(MASTER), seeds.looping(W0, ended(1)), pod(W1))
    assert (view.ready, view.wanted, view.restarts.total) == (2, 3, 4)


@pytest.mark.parametrize(
    ("ranks", "status_", "spec"),
    [
        pytest.param(["0-1", "2-3", "4-5"], ROUND, {}, id="of a round with all replicas"),
        pytest.param(["", "", ""], {"elastic": {"members": 2, "worldSize": 4}}, {"elasticPolicy": {}}, id="of fewer"),
        pytest.param(["0", "1", "2"], {}, {"nprocPerNode": "1"}, id="of a fixed job"),
        pytest.param(["", "", ""], {}, {"nprocPerNode": "auto"}, id="of a number that only the pods know"),
    ],
)
def test_ranks_are_shown_where_they_are_certain(ranks: list[str], status_: Object, spec: dict[str, Any]) -> None:
    assert [row.ranks for row in view_of(job(RUNNING, status=status_, **spec), *ALL).rows] == ranks


def started(name: str, command: str, *, nproc: str = "auto") -> Object:
    """A pod of training-operator v1: it writes `auto` where this operator writes the number of CPUs."""
    made = pod(name)
    variables = [{"name": "PET_NPROC_PER_NODE", "value": nproc}]
    made["spec"]["containers"][0] |= {"command": command.split(), "env": variables}
    return made


@pytest.mark.parametrize(
    ("ranks", "commands", "nproc"),
    [
        pytest.param(["0", "1", "2"], ["python train.py"] * 3, "auto", id="a script without a launcher"),
        pytest.param(["0", "1", "2"], ["/opt/bin/python3.11 -u train.py"] * 3, "auto", id="by Python's path"),
        pytest.param(["0-1", "2-3", "4-5"], ["torchrun train.py"] * 3, "2", id="a number for torchrun"),
        pytest.param(["", "", ""], ["torchrun train.py"] * 3, "auto", id="torchrun counts by itself"),
        pytest.param(["", "", ""], ["python -m torch.distributed.run x.py"] * 3, "auto", id="torchrun as a module"),
        pytest.param(["", "", ""], ["sh run.sh"] * 3, "auto", id="a script that may start a launcher"),
        pytest.param(["", "", ""], ["python x.py", "python x.py", "torchrun x.py"], "auto", id="roles that differ"),
    ],
)
def test_ranks_of_the_pods_of_v1(ranks: list[str], commands: list[str], nproc: str) -> None:
    pods = [started(name, command, nproc=nproc) for name, command in zip((MASTER, W0, W1), commands, strict=True)]
    assert [row.ranks for row in view_of(job(RUNNING), *pods).rows] == ranks


def test_running_pods_show_their_last_line_and_its_step() -> None:
    cluster = seeds.cluster_with(job(RUNNING), *ALL)
    cluster.write(W0, "[rank1]: step=7 loss=0.5", "[rank1]: step=8 loss=0.4")
    row = make_job_view(gather.gather_job(cluster, JOB, NOW)).rows[1]
    assert (row.step, row.last_line) == (8, "[rank1]: step=8 loss=0.4")


def test_a_log_that_cannot_be_read_delays_nothing() -> None:
    class Silent(FakeCluster):
        def log(self, request: LogRequest) -> Any:
            raise ClusterError("the node does not answer")

    assert read_last_lines(Silent(), [W0, W1]) == {}


def test_what_happened_is_listed_once_and_the_newest_first() -> None:
    parts: list[Part] = [
        job(
            condition("Restarting", "job train is restarting because Worker replica(s) failed.", seconds=-20),
            status={
                "elastic": {
                    "lastRestart": {"time": timestamp(-90), "reason": "WorkerFailed", "message": "rank 1 exited"}
                }
            },
        ),
        pod(W0, ended(1, "ValueError: x", seconds=-25), phase="Failed"),
        an_event(JOB, "PyTorchJobRestarting", "job train is restarting because Worker replica(s) failed.", seconds=-20),
        an_event(JOB, "SuccessfulCreatePod", "Created pod: x", seconds=-10),
    ]
    assert [happened.text for happened in view_of(*parts).recent] == [
        "job train is restarting because Worker replica(s) failed.",
        "train-worker-0 ended with code 1: ValueError: x",
        "rank 1 exited",
    ]


@pytest.mark.parametrize(
    ("parts", "command"),
    [
        pytest.param(
            [
                job(
                    seeds.failed("x is failed because 1 Worker replica(s) failed"),
                    status=seeds.failure("ReplicaFailed"),
                )
            ],
            "pytorchjob logs train -n team --grep 'Traceback|Error'",
            id="of a failed job",
        ),
        pytest.param(
            [job(seeds.condition("Succeeded"))], "pytorchjob logs train -n team --tail 20", id="of a good end"
        ),
        pytest.param(
            [job(NEW, status=ROUND), *NEW_PODS], "pytorchjob logs train -n team -f", id="of a job that trains"
        ),
        pytest.param(
            [job(RUNNING), pod(MASTER), pod(W0, ended(1, "Bus error"), phase="Failed"), pod(W1)],
            "pytorchjob doctor train -n team",
            id="of a remedy that begins without a command",
        ),
        pytest.param([job(), pod(MASTER)], "pytorchjob status train -n team --watch", id="of a job that begins"),
        pytest.param([job(runPolicy={"suspend": True})], "pytorchjob resume train -n team", id="of a suspended job"),
    ],
)
def test_the_next_step(parts: list[Part], command: str) -> None:
    assert view_of(*parts).next_command.startswith(command)


def test_a_job_with_progress_is_followed_by_it_too() -> None:
    steps = {**ROUND, "progress": {"step": 7, "time": timestamp(-4)}}
    shown = [view_of(job(NEW, status=status_), *NEW_PODS).next_step for status_ in (ROUND, steps)]
    assert shown == ["Follow the output.", "Follow the output. `pytorchjob progress train -n team` shows the steps."]


@pytest.mark.parametrize(
    ("spec", "status_", "line"),
    [
        pytest.param({}, {"restarts": 2}, "2 restarts, age", id="no limit"),
        pytest.param(
            {"runPolicy": {"backoffLimit": 6}},
            {"restarts": 1, **ROUND},
            "2 of 6 restarts (the job fails at 6: backoffLimit), age",
            id="backoffLimit counts replaced pods, and workers inside pods",
        ),
        pytest.param(
            {"runPolicy": {"backoffLimit": 0}},
            {},
            "0 of 1 restarts (the job fails at 1: backoffLimit), age",
            id="backoffLimit 0 is 1",
        ),
        pytest.param(
            {"runPolicy": {"backoffLimit": 6}, "elasticPolicy": {"maxRestarts": 3}},
            {"restarts": 1, **ROUND},
            "2 restarts, 1 of 6 count (the job fails at 6: backoffLimit), age",
            id="maxRestarts takes the restarts inside pods out of backoffLimit",
        ),
        pytest.param(
            {"elasticPolicy": {"maxRestarts": 3}}, ROUND, "1 of 3 restarts inside pods (maxRestarts)", id="maxRestarts"
        ),
        pytest.param(
            {"elasticPolicy": {"maxRestarts": 3}, "agent": {"restartWindowSeconds": 600}},
            ROUND,
            "1 restart inside pods (maxRestarts: 3 within 10m)",
            id="maxRestarts in a window",
        ),
    ],
)
def test_restarts_are_shown_with_the_limit_that_counts_them(spec: Object, status_: Object, line: str) -> None:
    assert line in status(seeds.cluster_with(job(RUNNING, status=status_, **spec), *ALL)).output


def test_containers_of_a_pod_that_is_replaced_count_once_and_those_of_never_do_not_count() -> None:
    body = job(RUNNING, status={"restarts": 3, "replacing": [f"uid-{W0}"]}, runPolicy={"backoffLimit": 9})
    body["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "Never"
    again = seeds.container(seeds.running(), restarts=2, last=ended(1))
    found = view_of(body, pod(MASTER, again), pod(W0, again), pod(W1, again)).restarts
    assert (found.total, found.counted, found.ends_at) == (7, 5, 9)


@pytest.mark.parametrize(
    ("state", "printed", "cell", "step"),
    [
        pytest.param(
            seeds.container(seeds.running(), restarts=1, last=ended(1, "step 7\nValueError: x")),
            [],
            "(before the restart) ValueError: x",
            None,
            id="a container that has printed nothing since its restart",
        ),
        pytest.param(
            seeds.container(seeds.running(), restarts=1, last=ended(1, "stopped at step 7")),
            [],
            "(before the restart) stopped at step 7",
            None,
            id="a step before the restart is not the step of now",
        ),
        pytest.param(
            seeds.container(seeds.running(), restarts=1, last=ended(1, "ValueError: x")),
            ["step 8"],
            "step 8",
            8,
            id="a container that prints again",
        ),
        pytest.param(
            ended(0, reason="Completed"), ["accuracy 0.97"], "accuracy 0.97", None, id="a container that is done"
        ),
        pytest.param(
            seeds.container(seeds.waiting("CrashLoopBackOff"), restarts=1, last=ended(1)),
            ["ValueError: x"],
            "ValueError: x",
            None,
            id="a container that waits for its restart, and left no message",
        ),
    ],
)
def test_the_last_line_is_that_of_the_container_of_now(
    state: Object, printed: list[str], cell: str, step: int | None
) -> None:
    cluster = seeds.cluster_with(job(RUNNING), pod(MASTER), pod(W0, state), pod(W1))
    cluster.write(W0, *printed)
    row = make_job_view(gather.gather_job(cluster, JOB, NOW)).rows[1]
    line = next(line for line in status(cluster).output.splitlines() if line.startswith("worker-0"))
    assert (line.endswith(f"   {cell}"), row.step) == (True, step), line


def test_the_screen() -> None:
    progress = {
        "step": 70,
        "total": 100,
        "percent": 70,
        "remainingSeconds": 30,
        "metrics": {"loss": 0.25},
        "time": timestamp(-4),
    }
    cluster = seeds.cluster_with(job(RUNNING, status={**ROUND, "progress": progress, "goodput": SPENT}), *agents())
    view = make_job_view(gather.gather_job(cluster, JOB, NOW))
    from pytorchjob.screen.status import print_status

    assert print_status(view).splitlines() == [
        "PyTorchJob team/train",
        "State:     Training for 4m40s",
        "Reason:    Round 3.7 has 3 pods and 6 workers.",
        "Pods:      3/3 ready, 1 restart, age 5m",
        "Round:     3.7: 3 pods, 6 workers, 1 restart inside pods",
        "Progress:  step 70 of 100, 70%, 30s left, loss 0.25, reported 4s ago",
        "Time:      90.0 % running; 20 s lost to start, 10 s to 2 interruptions.",
        "",
        "ROLE       RANKS   POD              NODE     PHASE     STATE     RESTARTS   STEP   LAST LINE",
        "master-0   0-1     train-master-0   node-1   Running   running   0          -      -",
        "worker-0   2-3     train-worker-0   node-1   Running   running   0          -      -",
        "worker-1   4-5     train-worker-1   node-1   Running   running   0          -      -",
        "",
        "Next:      Follow the output. `pytorchjob progress train -n team` shows the steps.  pytorchjob logs train"
        " -n team -f",
    ]


@pytest.mark.parametrize(
    ("elastic", "line"),
    [
        pytest.param({"without": ["train-worker-1"]}, "Without:   train-worker-1, until", id="a pod has left"),
        pytest.param({"survive": "Ready"}, "Survives:  the others go on without a lost pod", id="it would go on"),
        pytest.param({"survive": "SeveralGroups"}, "has process groups besides", id="it would not, and why"),
        pytest.param({"survive": "Unheard"}, "all workers restart after a loss: Unheard", id="a newer word"),
    ],
)
def test_the_screen_says_what_a_loss_does(elastic: dict[str, Any], line: str) -> None:
    shown = {"elastic": {**ROUND["elastic"], **elastic}}
    assert line in status(seeds.cluster_with(job(RUNNING, status=shown), *ALL)).output


@pytest.mark.parametrize("code", list(ShrinkState))
def test_each_reason_has_words(code: ShrinkState) -> None:
    """Those that are known only after a loss are in the event alone, and two are between agent and coordinator."""
    inside = {ShrinkState.BROKEN, ShrinkState.HELD}
    after = {ShrinkState.FIRST_RANK, ShrinkState.SAVES, ShrinkState.UNCLEAR, ShrinkState.POLICY, ShrinkState.OFF}
    assert (code.value in survival.words(code.value)) == (code in after | inside)


def test_a_large_job_shows_the_pods_that_do_not_run() -> None:
    many = [pod(f"train-worker-{index}") for index in range(99)]
    cluster = seeds.cluster_with(job(RUNNING, workers=100), pod(MASTER), *many)
    text = status(cluster).output
    assert "101 pods: 100 Running, 1 missing. `-o json` shows all of them." in text
    assert "train-worker-99" in text
    assert "train-worker-98" not in text


def test_the_command_prints_the_screen() -> None:
    answer = status(seeds.cluster_with(job(RUNNING), *ALL))
    assert (answer.exit_code, answer.output.splitlines()[0]) == (0, "PyTorchJob team/train")


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_view_as_data(form: str, read: Any) -> None:
    answer = status(seeds.cluster_with(job(RUNNING, status=ROUND), *ALL), "-o", form)
    found = read(answer.output)
    assert (found["state"], found["ready"], found["wanted"]) == ("Training", 3, 3)
    assert found["rows"][0]["lastLine"] == ""
    assert found["round"] == {
        "id": "3.7",
        "members": 3,
        "workers": 6,
        "restarts": 1,
        "maxRestarts": None,
        "windowSeconds": None,
        "lastRestartAt": None,
        "lastRestart": "",
        "without": [],
        "survive": "",
    }


def test_the_time_spent_for_programs() -> None:
    shown = view_of(job(RUNNING, status={**ROUND, "goodput": SPENT}), *agents()).to_json()["time"]
    assert shown == {
        "sentence": "90.0 % running; 20 s lost to start, 10 s to 2 interruptions.",
        "percent": 90.0,
        "lostSeconds": 30.0,
        "seconds": {"running": 270.0, "programStartup": 20.0, "infrastructureRecoveryFromDisruption": 10.0},
        "interruptions": 2,
    }


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        pytest.param(
            {"running": 90.0, "programStartup": 10.0},
            ["Time:      10 s lost to start. Without known steps, repeated steps are unknown."],
            id="its losses only",
        ),
        pytest.param({"running": 90.0}, [], id="nothing if no loss is known"),
    ],
)
def test_a_job_without_known_steps_shows(seconds: dict[str, float], line: list[str]) -> None:
    from pytorchjob.screen.status import print_status

    spent = {**SPENT, "seconds": seconds, "furthestStep": None, "interruptions": 0}
    shown = print_status(view_of(job(RUNNING, status={"goodput": spent}), *ALL)).splitlines()
    assert [each for each in shown if each.startswith("Time:")] == line


@pytest.mark.parametrize("stored", [None, {}, "x", {**SPENT, "seconds": {}, "time": timestamp(0)}])
def test_a_job_whose_time_is_unknown_has_no_line_about_it(stored: Any) -> None:
    assert view_of(job(RUNNING, status={"goodput": stored}), *ALL).time is None


def test_time_alone_is_no_change_for_watch() -> None:
    class Waiting(FakeCluster):
        """A job of which nothing but its time changes until its end."""

        reads = 0

        def job(self, name: str) -> Object:
            self.reads += 1
            if self.reads == 2:
                self.put(spends(999.0))
            if self.reads == 3:
                self.put(job(RUNNING, condition("Succeeded")))
            return super().job(name)

    def spends(seconds: float) -> Object:
        return job(RUNNING, status={"goodput": {**SPENT, "seconds": {"running": seconds}}})

    answer = status(Waiting(spends(1.0), *ALL), "--watch", "--interval", "0")
    assert sum(line.startswith("State:") for line in answer.output.splitlines()) == 2


def test_watch_prints_each_change_until_the_end() -> None:
    class Changing(FakeCluster):
        """A job that has succeeded when it is read for the third time."""

        def __init__(self) -> None:
            super().__init__(job(RUNNING), *ALL)
            self.reads = 0

        def job(self, name: str) -> Object:
            self.reads += 1
            if self.reads == 3:
                self.put(job(RUNNING, condition("Succeeded")))
            return super().job(name)

    answer = status(Changing(), "--watch", "--interval", "0")
    lines = [line for line in answer.output.splitlines() if line.startswith("State:")]
    assert [line.split()[1] for line in lines] == ["Running", "Succeeded"]


def test_watch_outlives_an_api_server_that_is_away() -> None:
    class Away(FakeCluster):
        """An API server that does not answer the second time."""

        reads = 0

        def job(self, name: str) -> Object:
            self.reads += 1
            if self.reads == 2:
                raise ApiServerUnreachable("the API server does not answer")
            if self.reads == 3:
                self.put(job(RUNNING, condition("Succeeded")))
            return super().job(name)

    answer = status(Away(job(RUNNING), *ALL), "--watch", "--interval", "0")
    assert (answer.exit_code, answer.stderr) == (0, "the API server does not answer; still watching\n")
    assert "State:     Succeeded" in answer.stdout


def test_a_missing_job_ends_with_4() -> None:
    answer = CliRunner().invoke(main, ["status", "nothing"], obj=lambda options: FakeCluster())
    assert answer.exit_code == 4


def test_odd_objects_are_shown_too() -> None:
    """Any client may write a status. No value in it may break the screen."""
    odd = job(RUNNING, status={"elastic": "x", "progress": {"step": "y"}, "conditions": [{"type": "Running"}, "z"]})
    odd_pod = pod(
        W0, status={"containerStatuses": [{"name": "pytorch", "state": {"waiting": None}, "restartCount": "a"}]}
    )
    assert view_of(odd, odd_pod).name == JOB
