"""A job that lives through one fault after another, and what has to be true of its training after each.

The job, its training and the place where its lines go are those of the benchmark: every line's loss is held against
that of an undisturbed run, and within a group no step may be left out or done twice.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.recovery.cells import Scene, Struck
from benchmarks.recovery.contenders import CHECKPOINT_STEPS, SCRIPT, WORKERS, Contender
from benchmarks.recovery.lines import Group, recovery
from benchmarks.recovery.measure import Truth
from benchmarks.recovery.stage import Stage
from e2e import elastic, faults
from e2e.kubectl import Kubectl, until

HANG_SECONDS = 12
GRACE_SECONDS = 30
"""What Kubernetes gives a pod by default. Of the benchmark's 5 s, 2.5 s are left to save: that tests the machine."""
WARM = Contender(
    "warm",
    "pytorchjob-agent run, with a limit for the time without a step",
    ("pytorchjob-agent", "run", "--", SCRIPT),
    agent={"startMode": "Warm", "hang": {"progressSeconds": HANG_SECONDS, "firstProgressSeconds": 180}},
    grace=GRACE_SECONDS,
)
TORCHRUN = Contender(
    "unchanged",
    "torchrun as it is, with the agent injected",
    ("torchrun", SCRIPT),
    agent={"inject": True},
    grace=GRACE_SECONDS,
)
SHELL = Contender(
    "shell",
    "torchrun below a shell, with the agent injected",
    ("sh", "-c", f"echo first; torchrun {SCRIPT}; exit $?"),
    agent={"inject": True},
    grace=GRACE_SECONDS,
)
ASKED, LATE = "the workers are asked to save", "the time to leave is over"
"""What an agent prints."""
QUIET_SECONDS = 1.0
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True)
class Act:
    """How the job stood before a fault."""

    scene: Scene
    known: set[str]
    containers: dict[str, int]
    """How often each container was restarted, by its pod's uid."""
    count: int
    """TORCHELASTIC_RESTART_COUNT."""


class Drama:
    """One job on a stage; one that does not come to rest after a fault is replaced by a new one."""

    def __init__(self, stage: Stage, contender: Contender) -> None:
        self.stage, self.contender, self._truth = stage, contender, Truth()

    @property
    def kubectl(self) -> Kubectl:
        return self.stage.kubectl

    @property
    def job(self) -> str:
        return self.stage.name

    def act(self) -> Act:
        """Wait until all train, and remember how things are."""
        if not self.job:
            self.stage.fresh(self.contender)
        try:
            group = self.stage.settled(QUIET_SECONDS)
        except TimeoutError:
            self.stage.fresh(self.contender)
            group = self.stage.settled(QUIET_SECONDS)
        count = max(group.restarts)
        containers = faults.restarts(self.kubectl, self.job)
        return Act(Scene(self.stage, self.contender, group), self.stage.journal.known(), containers, count)

    def recovered(self, act: Act, struck: Struck, *, size: int = WORKERS, counted: int = 0) -> Group:
        """Wait until so many train again, and check what they do; returns their group."""
        before, journal = act.scene.group, self.stage.journal
        cost = self.stage.wait(lambda: recovery(journal, struck.time, before, act.known, size), PATIENCE_SECONDS)
        assert cost is not None, self.kubectl.story(self.job)
        assert cost.lost_steps <= CHECKPOINT_STEPS
        group = journal.current()
        assert group is not None
        assert group.restarts == {act.count + counted}, "one count for all, and only failures are in it"
        self.right()
        return group

    def right(self) -> None:
        """Check every line so far."""
        self.stage.read()
        assert self.stage.journal.problems == []
        assert self.stage.journal.wrong(self._truth) == []

    def no_container_restarted(self, act: Act, but: str = "") -> None:
        """Check that no container that was there before was restarted, except those of the pod `but`."""
        spared = {pod["metadata"]["uid"] for pod in self.kubectl.pods(self.job) if pod["metadata"]["name"] == but}
        now = faults.restarts(self.kubectl, self.job)
        assert {uid: now[uid] for uid in now if uid in act.containers and uid not in spared} == {
            uid: act.containers[uid] for uid in act.containers if uid in now and uid not in spared
        }

    def shown(self, what: Callable[[dict[str, Any]], object], seconds: float = 60) -> None:
        """Wait until status.elastic is so; what it does not say yet is none."""
        none = {"round": "", "members": 0, "worldSize": 0, "restarts": 0}
        until(
            lambda: what(none | elastic.elastic(self.kubectl, self.job)),
            seconds,
            lambda: self.kubectl.story(self.job),
        )

    def same_group(self, act: Act, steps: int) -> None:
        """Check that the group of before goes on for so many steps, and that there is no other."""
        group = act.scene.group
        last = group.common() + steps
        reached = self.stage.wait(lambda: True if group.common() > last else None, PATIENCE_SECONDS)
        assert reached, self.kubectl.story(self.job)
        assert self.stage.journal.known() == act.known
        self.right()

    def lost_nothing(self, act: Act, struck: Struck) -> None:
        """Check that each group since this fault went on from the very last step before it."""
        journal, before = self.stage.journal, act.scene.group
        for name in sorted(journal.known() - act.known, key=int):
            group = journal.groups[name]
            if not group.steps:
                continue
            if group.from_step != before.furthest():
                logs = self.logs()
                raise AssertionError(f"{self._lost(before, group, struck, logs)}\n{self.groups()}\n{logs}")
            before = group

    def _lost(self, before: Group, group: Group, struck: Struck, logs: str) -> str:
        """Return in one line which steps were lost, when they were done, and who was asked to save."""
        done = before.furthest()
        kept = "saved later" if done in self.stage.journal.saved else "never saved"
        return (
            f"{group.size} workers went on from {group.from_step}; {before.size} workers had done"
            f" {before.from_step} to {done}, which was {kept}. Seconds after the fault:"
            f" {(before.complete() or 0.0) - struck.time:.1f} to {before.latest() - struck.time:.1f}, then"
            f" {min(steps[0][1] for steps in group.steps.values()) - struck.time:.1f}."
            f" Asked to save: {logs.count(ASKED)}, time to leave over: {logs.count(LATE)}."
        )

    def logs(self) -> str:
        """The end of what each container printed, and the one before it, with times; and all that kubectl says."""
        pods = [pod["metadata"]["name"] for pod in self.kubectl.pods(self.job)]
        ways = [("--previous",), ()]
        ends = ("--timestamps", "--tail=200")
        texts = [f"{pod}:\n{self.kubectl('logs', pod, *ends, *way, check=False)}" for pod in pods for way in ways]
        told = [re.sub(r".*train event=step .*\n", "", text) for text in texts]
        return "\n".join([*told, self.kubectl.story(self.job)])

    def groups(self) -> str:
        """A line for each group of the job: when it did its first step and its last one, and which."""
        return "\n".join(
            f"group {name} of {group.size}: steps {group.from_step + 1} to {group.furthest()},"
            f" {group.complete()} to {group.latest()}"
            for name, group in sorted(self.stage.journal.groups.items(), key=lambda item: int(item[0]))
        )


def degraded(kubectl: Kubectl, job: str) -> dict[str, str]:
    """What is wrong with a job's rounds now: message by reason; empty while nothing is."""
    conditions = kubectl.job(job).get("status", {}).get("conditions", [])
    return {
        condition["reason"]: condition["message"]
        for condition in conditions
        if condition["type"] == "Degraded" and condition["status"] == "True"
    }


def termination(pod: faults.Pod) -> dict[str, Any]:
    """How the training container of a pod ended last."""
    (container,) = [status for status in pod["status"]["containerStatuses"] if status["name"] == faults.CONTAINER]
    found = container["state"].get("terminated") or container.get("lastState", {}).get("terminated") or {}
    return dict(found)


def by_members(round_: str) -> bool:
    """Whether a round was agreed on among the members themselves: such a name has three parts."""
    return re.fullmatch(r"\d+\.\d+\.\d+", round_) is not None
