"""`pytorchjob logs`, with a cluster in memory."""

import re
from functools import partial

import pytest

from pytorchjob.cluster.api import Object
from pytorchjob.cluster.errors import ApiServerUnreachable, NoPermission
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod

PODS = ("master-0", "worker-0", "worker-1")


def cluster(*pods: Object, state: str = "Running") -> FakeCluster:
    """A job of three pods; each has printed its rank's first three steps."""
    made = FakeCluster(a_job(state=state), *(pods or [a_pod("digits", name) for name in PODS]))
    for rank, name in enumerate(PODS):
        made.write(f"digits-{name}", *(f"[rank{rank}]: step={step}" for step in range(3)))
    return made


def finish(fake: FakeCluster, state: str = "Succeeded") -> None:
    """All pods and the job end."""
    for name in PODS:
        fake.close(f"digits-{name}")
        fake.put(a_pod("digits", name, phase="Succeeded"))
    fake.put(a_job(state=state))


def ranks(text: str) -> str:
    """The ranks of the lines, in their order."""
    return "".join(re.findall(r"^\[rank(\d)\]", text, re.MULTILINE))


def test_all_ranks_are_merged_by_time() -> None:
    lines = call(cluster(), "logs", "digits").stdout.splitlines()
    assert [line.split("step=")[1] for line in lines] == ["0", "0", "0", "1", "1", "1", "2", "2", "2"]
    assert sorted(lines[:3]) == ["[rank0] step=0", "[rank1] step=0", "[rank2] step=0"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(
            ["--rank", "0,2"], [f"[rank{rank}] step={step}" for step in range(3) for rank in (0, 2)], id="two"
        ),
        pytest.param(["--rank", "1-9", "--grep", "=2$"], ["[rank1] step=2", "[rank2] step=2"], id="a pattern"),
        pytest.param(["--rank", "1", "--tail", "2"], ["[rank1] step=1", "[rank1] step=2"], id="the last two"),
        pytest.param(["--rank", "1", "--tail", "-1", "--grep", "0"], ["[rank1] step=0"], id="all, as kubectl has it"),
        pytest.param(["--tail", "0"], [], id="none"),
        pytest.param(["--rank", "1", "--since-time", "2026-01-02T03:04:07Z"], ["[rank1] step=2"], id="since a moment"),
        pytest.param(["--since", "1h"], [], id="none so recent"),
        pytest.param(
            ["--rank", "1", "--tail", "1", "--timestamps"], ["[rank1] 2026-01-02T03:04:07Z step=2"], id="with times"
        ),
    ],
)
def test_which_lines(arguments: list[str], shown: list[str]) -> None:
    result = call(cluster(), "logs", "digits", *arguments)
    assert (result.exit_code, sorted(result.stdout.splitlines()), result.stderr) == (0, sorted(shown), "")


def test_the_previous_container() -> None:
    fake = cluster()
    fake.restart("digits-worker-0")
    result = call(fake, "logs", "digits", "--previous")
    assert ranks(result.stdout) == "111"
    assert "note: master-0: has no previous log: its container has not restarted" in result.stderr


def test_a_pod_that_has_not_started_is_named() -> None:
    result = call(cluster(a_pod("digits", "worker-0", phase="Pending")), "logs", "digits")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "note: worker-0: has no log: ContainerCreating\n"


@pytest.mark.parametrize(("state", "status"), [("Succeeded", 0), ("Failed", 1)])
def test_following_ends_with_the_job(state: str, status: int) -> None:
    fake = cluster()
    fake.script(lambda: fake.write("digits-master-0", "[rank0]: last"), lambda: finish(fake, state))
    result = call(fake, "logs", "digits", "-f")
    assert (result.exit_code, result.stderr) == (status, "")
    assert sorted(ranks(result.stdout)) == [*"0000111222"]
    assert "[rank0] last" in result.stdout


def test_following_a_job_that_has_ended_prints_what_is_left() -> None:
    fake = cluster(state="Succeeded")
    finish(fake)
    result = call(fake, "logs", "digits", "-f")
    assert (result.exit_code, sorted(ranks(result.stdout))) == (0, [*"000111222"])


def test_following_goes_on_in_the_next_container_and_after_a_lost_connection() -> None:
    fake = cluster()
    fake.write("digits-worker-0", ApiServerUnreachable("gone"))
    fake.write("digits-worker-0", "[rank1]: after the loss")
    fake.script(
        lambda: fake.restart("digits-worker-0"),
        lambda: fake.write("digits-worker-0", *(f"[rank1]: new {number}" for number in range(9))),
        lambda: finish(fake),
    )
    result = call(fake, "logs", "digits", "-f", "--rank", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "[rank1] after the loss\n" in result.stdout
    assert len(set(result.stdout.splitlines())) == len(result.stdout.splitlines())


def test_a_job_that_is_deleted_ends_the_command() -> None:
    fake = cluster()
    fake.script(lambda: fake.remove("PyTorchJob", "digits"))
    for name in PODS:
        fake.script(partial(fake.close, f"digits-{name}"), partial(fake.remove, "Pod", f"digits-{name}"))
    result = call(fake, "logs", "digits", "-f")
    assert (result.exit_code, "was deleted while its logs were followed" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        pytest.param(["digits", "--rank", "5-3"], 2, "the range `5-3` ends before it begins: write 3-5", id="a range"),
        pytest.param(["digits", "--rank", "master"], 2, "`master` is not a rank", id="no rank"),
        pytest.param(["digits", "--grep", "("], 2, "'(' is not a regular expression", id="a pattern"),
        pytest.param(["digits", "--since", "soon"], 2, "'soon' is not a duration", id="a duration"),
        pytest.param(["digits", "--since-time", "2026-01-02"], 2, "not a moment with a time zone", id="a moment"),
        pytest.param(["digits", "--since", "1s", "--since-time", "x"], 2, "exclude each other", id="both"),
        pytest.param(["digits", "--tail", "-2"], 2, "-2", id="a negative number"),
        pytest.param(["digits", "-f", "-p"], 2, "cannot be followed", id="a previous log, followed"),
        pytest.param(["digits", "-c", "pytorhc"], 2, "did you mean pytorch?", id="a container"),
        pytest.param(["digist"], 4, "did you mean digits?", id="a job"),
    ],
)
def test_a_wrong_command_line_is_explained(arguments: list[str], status: int, sentence: str) -> None:
    result = call(cluster(), "logs", *arguments)
    assert (result.exit_code, result.stdout, sentence in result.stderr) == (status, "", True), result.stderr


def test_ranks_that_the_job_does_not_have_are_refused() -> None:
    pod = a_pod("digits", "master-0")
    pod["spec"]["containers"][0] |= {"command": ["python", "x.py"], "env": [{"name": "RANK", "value": "0"}]}
    result = call(cluster(pod), "logs", "digits", "--rank", "7")
    assert (result.exit_code, result.stderr.splitlines()[1]) == (2, "next: its ranks are 0 to 0")


@pytest.mark.parametrize("arguments", [[], ["-f"]])
def test_a_job_without_pods_names_the_next_step(arguments: list[str]) -> None:
    result = call(FakeCluster(a_job(state="Failed")), "logs", "digits", *arguments)
    assert (result.exit_code, "`pytorchjob status digits`" in result.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [[], ["-f"]])
def test_a_person_without_the_right_is_refused(arguments: list[str]) -> None:
    fake = cluster()
    fake.fail("log", *[NoPermission("jane may not get pods/log in the namespace team")] * 3)
    result = call(fake, "logs", "digits", *arguments)
    assert (result.exit_code, "error: jane may not get pods/log" in result.stderr) == (3, True)


def failed_job() -> FakeCluster:
    """A job of which worker 0 raised an exception, and the others lost their connection to it."""
    made = FakeCluster(a_job(state="Failed"))
    for rank, name in enumerate(PODS):
        pod = a_pod("digits", name, phase="Failed")
        words = "ValueError: x" if rank == 1 else "RuntimeError: Connection reset by peer"
        pod["status"]["containerStatuses"][0]["state"]["terminated"] |= {"message": f"[rank{rank}]: {words}"}
        made.put(pod)
        made.write(f"digits-{name}", f"[rank{rank}]: {words}")
        made.close(f"digits-{name}")
    return made


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        pytest.param([], True, id="all ranks"),
        pytest.param(["-f"], True, id="followed"),
        pytest.param(["--rank", "0"], False, id="a rank that a person has chosen"),
    ],
)
def test_the_rank_that_failed_first_is_named_at_the_end(arguments: list[str], notes: bool) -> None:
    answer = call(failed_job(), "logs", "digits", *arguments)
    assert [line for line in answer.stderr.splitlines() if "first" in line] == [
        "note: the first error is that of rank 1, as far as the pods show."
        " The training script failed in digits-worker-0: ValueError: x",
        "note: Read the log of the rank that failed first.  pytorchjob logs digits -n team --rank 1",
    ] * notes


def test_of_a_job_that_succeeded_no_rank_is_named() -> None:
    assert "first" not in call(cluster(state="Succeeded"), "logs", "digits").stderr
