"""Stories of jobs whose whole transcript is kept beside them in `transcripts/`.

`PYTHONPATH=operator python -m tests.rounds.stories` writes the transcripts; read the diff.
"""

from collections.abc import Callable
from pathlib import Path

from pytorchjob_agent.contract.fields import MAX_COUNT
from pytorchjob_agent.contract.messages import Done, Draining, Failed, Join, RoundId, Unreachable
from pytorchjob_operator.rounds.state import AuthenticationFailed, JobSynced, Tick
from tests.rounds.stories_of_changes import STORIES_OF_CHANGES
from tests.rounds.stories_of_leaders import STORIES_OF_LEADERS
from tests.rounds.story import expected
from tests.rounds.transcript import Recorded, round_of_two

TRANSCRIPTS = Path(__file__).parent / "transcripts"
FIRST, FAR = RoundId(1, 1), RoundId(MAX_COUNT, 1)


def success() -> Recorded:
    job = Recorded(3, min_members=1, max_members=2)
    job.waits(2, 0, 1, nproc=2)
    job.ends(0)
    job.says(1, Done(RoundId(1, 7)))
    job.says(2, Done(FIRST))
    job.hello(2)
    job.joins(2)
    job.ends(1)
    job.says(1, Join(1))
    job.hello(0, round=FIRST, rank=0, size=2, done=True)
    job.hello(1, round=FIRST, rank=1, size=2)
    job.hello(2, done=True)
    return job


def failure() -> Recorded:
    job = round_of_two()
    job.passes(1, step=3)
    job.clear()
    job.fails(1)
    job.says(1, Failed(FIRST, 1, 0, 9, "the same again"))
    job.joins(1)
    job.says(
        0,
        Failed(
            FIRST,
            0,
            0,
            1,
            "DistNetworkError: Connection closed by peer",
            "File x",
            age=0.5,
            errors=("torch.distributed.DistNetworkError",),
        ),
    )
    job.joins(0)
    job.says(0, Failed(FIRST, 0, 0, 1, "late"))
    job.says(0, Done(FIRST))
    job.says(1, Join(20001, FIRST))
    job.says(1, Join(20001, FAR))
    return job


def hang() -> Recorded:
    job = round_of_two()
    job.says(0, Failed(FIRST, 0, 0, 1, "rank 0 waits in all_reduce", hang=True, waits=True, also=(2, 3)))
    job.says(1, Failed(FIRST, 1, 1, 1, "rank 1 hangs in a lock", hang=True))
    job.joins(0, 1)
    return job


def last_failure() -> Recorded:
    job = round_of_two(max_restarts=0)
    job.fails(0, exit_code=7)
    job.joins(0, 1)
    job.hello(0)
    job.says(0, Draining(5, ""))
    return job


def pause() -> Recorded:
    job = Recorded(2)
    job.waits(0, 1)
    for _ in range(3):
        job.fails(0)
        job.joins(0, 1)
        job.passes(5)
    return job


def timeout() -> Recorded:
    job = Recorded(5, min_members=4, join_timeout=25.0)
    job.expect({**job.pods, 3: expected(3, problem="ImagePullBackOff")})
    job.waits(1)
    job.hello(2)
    job.breaks(2)
    job.passes(25, silent=[2])
    job.breaks(1)
    job.hello(1, incarnation="second")
    job.joins(1)
    return job


def timeout_of_many() -> Recorded:
    job = Recorded(6, join_timeout=6.0)
    job.waits(0)
    job.passes(6)
    return job


def lost_member() -> Recorded:
    job = Recorded(3, min_members=2)
    job.waits(0, 1, 2)
    job.clear()
    job.breaks(2)
    job.passes(3, silent=[2])
    job.joins(0, 1)
    job.passes(1, silent=[2])
    job.hello(2)
    return job


def frozen_member() -> Recorded:
    job = Recorded(3, min_members=2)
    job.waits(0, 1, 2)
    job.clear()
    job.passes(6, silent=[1])
    job.hello(1, round=FIRST, rank=1, size=3)
    job.joins(0)
    job.fails(2, "DistNetworkError: Connection closed by peer")
    job.joins(2)
    job.says(1, Join(20001, FIRST))
    return job


def heard_by_peers() -> Recorded:
    job = Recorded(3, min_members=2)
    job.waits(0, 1, 2)
    job.clear()
    job.breaks(2)
    job.passes(4, silent=[2], heard=(2,), heard_ages=(5,))
    job.hello(2, round=FIRST, rank=2, size=3)
    job.passes(0.25)
    return job


def cut_off() -> Recorded:
    job = round_of_two()
    job.breaks(0)
    job.passes(6, silent=[0, 1])
    job.hello(1, round=FIRST, rank=1, size=2)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.passes(1)
    return job


def replaced_pod() -> Recorded:
    job = round_of_two()
    job.expect({**job.pods, 1: expected(1, "uid-new")})
    job.hello(1, pod_uid="uid-1", round=FIRST, rank=1, size=2)
    job.hello(1, pod_uid="uid-new", incarnation="new")
    job.hello(1, pod_uid="uid-other", incarnation="new")
    return job


def refusals() -> Recorded:
    job = round_of_two()
    job.hello(0, version=99)
    job.hello(0, round=FAR, rank=0, size=2)
    job.hello(0, incarnation="second")
    job.feed(AuthenticationFailed("pod-1: the token has expired"))
    job.feed(AuthenticationFailed("pod-0: the token has expired"))
    job.now += 60
    job.feed(Tick())
    return job


def two_agents_one_frozen() -> Recorded:
    job = round_of_two()
    job.passes(2, silent=[0])
    job.hello(0, incarnation="second")
    return job


def closed_port() -> Recorded:
    job = round_of_two()
    job.says(1, Unreachable(FIRST, "10.0.0.0:20000", "timed out"))
    job.says(1, Unreachable(FIRST, "10.0.0.0:20000", "timed out"))
    return job


def unequal_versions() -> Recorded:
    job = Recorded(2)
    job.waits(0, versions={"torch": "2.15.0"}, clock=5000.0)
    job.waits(1, versions={"torch": "2.4.1"}, clock=5031.0)
    job.fails(0)
    job.joins(0)
    job.breaks(1)
    job.waits(1, versions={"torch": "2.15.0"}, clock=5000.0, incarnation="second")
    return job


def unequal_versions_that_end_the_job() -> Recorded:
    job = Recorded(2)
    job.waits(0, versions={"torch": "2.15.0"})
    job.waits(1, versions={"torch": "2.4.1"}, warnings=False)
    return job


def sync() -> Recorded:
    job = round_of_two()
    job.feed(JobSynced(job.policy, job.pods, restarts=3))
    job.breaks(1)
    job.expect({0: job.pods[0]})
    job.breaks(1)
    return job


def late_leaver() -> Recorded:
    job = round_of_two(min_members=1)
    job.goes(1)
    job.fails(0)
    job.joins(0)
    job.hello(1, round=FIRST, rank=1, size=2)
    return job


STORIES: tuple[Callable[[], Recorded], ...] = (
    *STORIES_OF_CHANGES,
    *STORIES_OF_LEADERS,
    success,
    failure,
    hang,
    last_failure,
    pause,
    timeout,
    timeout_of_many,
    lost_member,
    frozen_member,
    heard_by_peers,
    cut_off,
    replaced_pod,
    refusals,
    two_agents_one_frozen,
    closed_port,
    unequal_versions,
    unequal_versions_that_end_the_job,
    sync,
    late_leaver,
)


def transcript(story: Callable[[], Recorded]) -> Path:
    """The file that holds its transcript."""
    return TRANSCRIPTS / f"{story.__name__}.txt"


def main() -> None:
    """Write all transcripts again."""
    for story in STORIES:
        transcript(story).write_text("\n".join(story().lines) + "\n")


if __name__ == "__main__":
    main()
