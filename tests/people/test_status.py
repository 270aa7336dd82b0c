"""`status`: the state in a word, since when, why; the pods; what happened; what to do next."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pytorchjob.cli import main
from pytorchjob.cluster import gather
from pytorchjob.cluster.api import LogRequest
from pytorchjob.cluster.errors import ClusterError, Unreachable
from pytorchjob.cluster.last_lines import read_last_lines
from pytorchjob.view.job_view import JobView, make_job_view
from pytorchjob.view.state import State
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
    assert (view.ready, view.wanted, view.restarts) == (2, 3, 4)


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
            [job(seeds.failed("x is failed because 1 Worker replica(s) failed"))], "kubectl logs", id="of a failed job"
        ),
        pytest.param([job(RUNNING, status=ROUND), *ALL], "kubectl logs", id="of a job that trains"),
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


def test_the_screen() -> None:
    progress = {
        "step": 70,
        "total": 100,
        "percent": 70,
        "remainingSeconds": 30,
        "metrics": {"loss": 0.25},
        "time": timestamp(-4),
    }
    cluster = seeds.cluster_with(job(RUNNING, status={**ROUND, "progress": progress}), *agents())
    view = make_job_view(gather.gather_job(cluster, JOB, NOW))
    from pytorchjob.screen.status import print_status

    assert print_status(view).splitlines() == [
        "PyTorchJob team/train",
        "State:     Training for 4m40s",
        "Reason:    Round 3.7 has 3 pods and 6 workers.",
        "Pods:      3/3 ready, 1 restart, age 5m",
        "Round:     3.7: 3 pods, 6 workers, 1 restart inside pods",
        "Progress:  step 70 of 100, 70%, 30s left, loss 0.25, reported 4s ago",
        "",
        "ROLE       RANKS   POD              NODE     PHASE     STATE     RESTARTS   STEP   LAST LINE",
        "master-0   0-1     train-master-0   node-1   Running   running   0          -      -",
        "worker-0   2-3     train-worker-0   node-1   Running   running   0          -      -",
        "worker-1   4-5     train-worker-1   node-1   Running   running   0          -      -",
        "",
        "Next:      Read the logs.  kubectl logs -n team -l training.kubeflow.org/job-name=train -c pytorch --prefix"
        " --tail=20",
    ]


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
        "lastRestartAt": None,
        "lastRestart": "",
    }


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
                raise Unreachable("the API server does not answer")
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
