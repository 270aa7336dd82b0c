"""Two groups of one job train at the same time: the older one is cut off from everything but the shared volume.

Three jobs are struck at once. One guards its checkpoints, one does not, and one has a short `fenceSeconds`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e import faults, two_groups
from e2e.conftest import fresh_namespace
from e2e.elastic import submit
from e2e.kubectl import Kubectl, until
from e2e.two_groups import Group, Volume

pytestmark = [pytest.mark.alone, pytest.mark.skipif(not faults.on_kind(), reason="cuts off a node, a container")]
GUARDED, PLAIN, FENCED = JOBS = ("guarded", "plain", "fenced")
FENCE_SECONDS = 15
SLACK_SECONDS = 10.0
"""How late a busy machine may end the workers; the agent checks the time every quarter of a second."""
BUILDING_SECONDS, ENDING_SECONDS = 240, 120
AFTER_STEPS = 50
SAVES = 4
"""How many saves of each group the tests wait for."""


@dataclass(frozen=True)
class Pair:
    """What the two groups of a job did."""

    job_uid: str
    cut_at: float
    older: list[Group]
    """Its first round, and what its members agreed on since."""
    newer: Group

    def saved_by_older(self) -> dict[int, float]:
        return {step: time for group in self.older for step, time in group.saved.items()}

    def refused_to_older(self) -> list[str]:
        return [words for group in self.older for _, words in group.refused]

    def last_step_of_older(self) -> float:
        return max(time for group in self.older for time in group.steps)


@pytest.fixture(scope="module")
def pairs(operator: Kubectl) -> Iterator[dict[str, Pair]]:
    node, *others = workers_to_cut_off(operator)
    with fresh_namespace(operator) as kubectl, two_groups.volume(kubectl, node) as volume:
        with faults.cordoned(kubectl, *others):
            old = start(kubectl, volume)
        with faults.cordoned(kubectl, node), faults.cut(node) as cut_at:
            kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
            both_act(kubectl, volume, old)
        kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=120s")
        newer_go_on(kubectl, volume)
        uids = {name: kubectl.job(name)["metadata"]["uid"] for name in JOBS}
        yield {name: pair(volume.groups(name), uid, cut_at) for name, uid in uids.items()}


def workers_to_cut_off(operator: Kubectl) -> list[str]:
    """The workers; first those without the operator's leader, and of these first those without a name server."""
    found = operator.get("nodes", f"--selector=!{faults.CONTROL_PLANE}")["items"]
    until(lambda: faults.leader(operator), 60)
    taken = operator.get("pod", faults.leader(operator))["spec"]["nodeName"]
    servers = operator.get("pods", "--namespace=kube-system", "--selector=k8s-app=kube-dns")["items"]
    names = {pod["spec"]["nodeName"] for pod in servers}
    return sorted((node["metadata"]["name"] for node in found), key=lambda name: (name == taken, name in names))


def start(kubectl: Kubectl, volume: Volume) -> dict[str, faults.Pod]:
    """Start the jobs; returns their pods by name when all have saved."""
    for name, workers, fence in ((GUARDED, 2, 0), (PLAIN, 2, 0), (FENCED, 1, FENCE_SECONDS)):
        volume.add(name)
        submit(kubectl, two_groups.job(kubectl, name, workers, guarded=name == GUARDED, fence_seconds=fence))
    until(
        lambda: all(any(group.saved for group in volume.groups(name)) for name in JOBS),
        BUILDING_SECONDS,
        lambda: stories(kubectl),
    )
    return {pod["metadata"]["name"]: pod for pod in kubectl.get("pods")["items"]}


def both_act(kubectl: Kubectl, volume: Volume, old: dict[str, faults.Pod]) -> None:
    """Wait until newer groups have saved, while the older ones tried to, or have ended by fenceSeconds."""
    until(lambda: all(newer_saves(volume.groups(name)) for name in JOBS), BUILDING_SECONDS, lambda: stories(kubectl))
    until(lambda: sum(len(group.refused) for group in volume.groups(GUARDED)) >= SAVES, ENDING_SECONDS)
    until(lambda: "for fenceSeconds" in faults.printed(kubectl, old[f"{FENCED}-worker-0"]), ENDING_SECONDS)


def newer_saves(groups: list[Group]) -> bool:
    return groups[-1].round[:2] > groups[0].round and len(groups[-1].saved) >= SAVES


def newer_go_on(kubectl: Kubectl, volume: Volume) -> None:
    """Wait until the newer groups have trained for a while beside the older ones' node, which is back."""
    done = {name: len(volume.groups(name)[-1].steps) for name in JOBS}
    until(
        lambda: all(len(volume.groups(name)[-1].steps) > steps + AFTER_STEPS for name, steps in done.items()),
        ENDING_SECONDS,
        lambda: stories(kubectl),
    )


def stories(kubectl: Kubectl) -> str:
    return "\n".join(kubectl.story(name) for name in JOBS)


def pair(groups: list[Group], uid: str, cut_at: float) -> Pair:
    *older, newer = groups
    return Pair(uid, cut_at, older, newer)


@pytest.mark.parametrize("name", [GUARDED, PLAIN])
def test_a_group_that_is_cut_off_trains_beside_the_one_in_its_place(pairs: dict[str, Pair], name: str) -> None:
    assert pairs[name].newer.steps[0] < pairs[name].last_step_of_older()


def test_no_checkpoint_of_the_older_group_follows_the_first_one_of_the_newer(pairs: dict[str, Pair]) -> None:
    assert max(pairs[GUARDED].saved_by_older().values()) < min(pairs[GUARDED].newer.saved.values())


def test_without_the_guard_both_save(pairs: dict[str, Pair]) -> None:
    assert max(pairs[PLAIN].saved_by_older().values()) > min(pairs[PLAIN].newer.saved.values())


def test_the_newer_group_goes_on_from_the_last_checkpoint_of_the_older(pairs: dict[str, Pair]) -> None:
    assert pairs[GUARDED].newer.start == max(pairs[GUARDED].saved_by_older())


def test_the_older_group_reads_which_round_has_the_directory(pairs: dict[str, Pair]) -> None:
    both = pairs[GUARDED]
    first, later = both.older[0].name, both.newer.name
    words = (
        f"round {first} of job {both.job_uid} may not use /shared/{GUARDED}/checkpoints any more:"
        f" round {later} of this job has taken it over"
    )
    assert both.refused_to_older()[:SAVES] == [words] * SAVES
    assert both.newer.refused == []


def test_fence_seconds_end_a_group_that_hears_nothing(pairs: dict[str, Pair]) -> None:
    both = pairs[FENCED]
    assert 0 < both.last_step_of_older() - both.cut_at < FENCE_SECONDS + SLACK_SECONDS


def test_one_round_takes_the_place_of_the_older_group_and_stays(pairs: dict[str, Pair]) -> None:
    for both in pairs.values():
        assert [len(group.round) for group in both.older] == [2] + [3] * (len(both.older) - 1), (
            "attempts of its members"
        )
        assert (len(both.newer.round), both.newer.round[:2] > both.older[0].round) == (2, True)
