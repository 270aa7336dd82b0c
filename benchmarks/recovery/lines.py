"""What the lines of train.py say: which groups trained, when the next one did, and whether the training stayed right.

Pure: lines in, figures out. Times are seconds by the host's clock.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MARK = "train event="
NEAR = 1e-9
"""How far a loss may be from the one of an undisturbed run: sums over the ranks are rounded in another order."""

Fields = dict[str, str]


@dataclass
class Group:
    """The processes that trained together: a name, a size, and what each rank did since it was there last."""

    name: str
    size: int
    from_step: int
    pods: dict[int, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    steps: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """By rank: each step, and when it had been finished."""
    restarts: set[int] = field(default_factory=set)
    present: set[int] = field(default_factory=set)
    """The ranks that took part in the last step: others may go on without a lost one."""
    begins: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By rank that came back: the step before its first one since then, and when it came."""
    returns: int = 0
    """How often a lost rank came back into it."""

    def complete(self) -> float | None:
        """When the last of its ranks had finished its first step; none before."""
        firsts = [steps[0][1] for steps in self.steps.values() if steps]
        return max(firsts) if len(firsts) == self.size else None

    def latest(self) -> float:
        """When the last step so far was finished."""
        return max((steps[-1][1] for steps in self.steps.values() if steps), default=-math.inf)

    def common(self) -> int:
        """The last step that all ranks have finished."""
        there = [steps[-1][0] for rank, steps in self.steps.items() if rank in self.present and steps]
        return min(there, default=0) if self.complete() else self.from_step

    def furthest(self) -> int:
        """The last step that any rank has finished."""
        return max((steps[-1][0] for steps in self.steps.values() if steps), default=self.from_step)


@dataclass(frozen=True)
class Loss:
    """The loss of a step that stands, and the shares of the batch that are in it: a digit 0 or 1 for each."""

    value: float
    shares: str

    def is_whole(self) -> bool:
        """Whether all shares are in it."""
        return "0" not in self.shares


@dataclass(frozen=True)
class Start:
    """A training process that started, in a pod that did."""

    pod: str
    pid: int
    time: float
    """When it had imported all it needs."""
    began: float
    pod_started: float


class Journal:
    """Everything that one job has printed so far; an empty name means every job."""

    def __init__(self, job: str) -> None:
        self._prefix = f"{job}-" if job else ""
        self._lost_shares = False
        """Whether a step was done without some shares: from then on, an earlier step may be done again with others."""
        self.groups: dict[str, Group] = {}
        self.starts: list[Start] = []
        self.saved: set[int] = {0}
        self.problems: list[str] = []
        self.losses: dict[int, Loss] = {}

    def add(self, line: str) -> None:
        """Take in one line, if it is one of this job."""
        at = line.find(MARK)
        if at < 0:
            return
        fields = dict(part.split("=", 1) for part in line[at:].split()[1:])
        if fields["pod"].startswith(self._prefix):
            self._take(fields)

    def _take(self, fields: Fields) -> None:
        event = fields["event"]
        if event == "start":
            start = Start(
                fields["pod"], int(fields["pid"]), *(float(fields[key]) for key in ("time", "began", "pod_started"))
            )
            self.starts.append(start)
        elif event == "joined":
            self._joined(fields)
        elif event == "back":
            self._back(fields)
        elif event == "step":
            self._step(fields)
        elif event == "saved":
            self.saved.add(int(fields["step"]))

    def _joined(self, fields: Fields) -> None:
        name, rank, first = fields["group"], int(fields["rank"]), int(fields["from_step"])
        group = self.groups.setdefault(name, Group(name, int(fields["world"]), first))
        if first not in self.saved:
            self.problems.append(f"group {name} went on from step {first}, which no rank saved")
        if (first, int(fields["world"])) != (group.from_step, group.size):
            self.problems.append(f"ranks of group {name} disagree: rank {rank} from step {first} of {fields['world']}")
        group.pods[rank], group.pids[rank] = fields["pod"], int(fields["pid"])
        group.restarts.add(int(fields["restarts"]))

    def _back(self, fields: Fields) -> None:
        group, rank = self.groups[fields["group"]], int(fields["rank"])
        group.pods[rank], group.pids[rank] = fields["pod"], int(fields["pid"])
        group.steps[rank], group.begins[rank] = [], (int(fields["from_step"]), float(fields["time"]))
        group.returns += 1

    def _step(self, fields: Fields) -> None:
        group, rank, step = self.groups[fields["group"]], int(fields["rank"]), int(fields["step"])
        steps = group.steps.setdefault(rank, [])
        before, since = steps[-1] if steps else group.begins.get(rank, (group.from_step, -math.inf))
        at = float(fields["time"])
        if at >= since:  # else a lost process' last line, which a cut network has kept
            if step != before + 1:
                self.problems.append(f"rank {rank} of group {group.name} did step {step} after step {before}")
            ranks = fields.get("ranks", group.size * "1")
            if step >= group.furthest():
                group.present = {rank for rank, there in enumerate(ranks) if there == "1"}
            steps.append((step, at))
        loss = Loss(float(fields["loss"]), fields.get("shares", group.size * "1"))
        known = self.losses.get(step, loss)
        whole = known.is_whole() and loss.is_whole() and not self._lost_shares
        if whole and not math.isclose(known.value, loss.value, rel_tol=NEAR, abs_tol=NEAR):
            self.problems.append(f"the loss of step {step} was {known.value} and then {loss.value}")
        self.losses[step] = loss
        self._lost_shares = self._lost_shares or not loss.is_whole()

    def current(self) -> Group | None:
        """The group that trained last."""
        return max(self.groups.values(), key=Group.latest, default=None)

    def starts_of(self, group: Group) -> Iterator[Start]:
        """The starts of a group's processes; a pod that came again may use the number of a process again."""
        newest = {(start.pod, start.pid): start for start in self.starts}
        for rank, pod in group.pods.items():
            if found := newest.get((pod, group.pids[rank])):
                yield found

    def known(self) -> set[str]:
        """The names of all groups so far."""
        return set(self.groups)

    def wrong(self, truth: Iterable[float]) -> list[str]:
        """What is wrong with the losses so far, held against computed ones."""
        last = max(self.losses, default=0)
        pairs = ((step, loss) for step, loss in zip(range(1, last + 1), truth, strict=False) if step in self.losses)
        return [
            f"the loss of step {step} was {self.losses[step].value:.12g}, computed it is {loss:.12g}"
            for step, loss in pairs
            if not math.isclose(self.losses[step].value, loss, rel_tol=NEAR, abs_tol=NEAR)
        ]


@dataclass(frozen=True)
class Recovery:
    """What a fault cost."""

    seconds: float
    """From the fault until every rank of a new group of the wanted size had finished a step."""
    first_seconds: float
    """The same for a new group of any size."""
    pause_seconds: float
    """From the last step of the group before to that moment."""
    import_seconds: float
    """The longest that a process of that group took from its start to the end of its imports."""
    lost_steps: int
    groups: int
    """How many new groups it took."""
    restart_counts: int
    """How many different restart counts the ranks of the new group had: 1 is right."""


def recovery(journal: Journal, struck: float, before: Group, known: set[str], size: int) -> Recovery | None:
    """What a fault cost a job that trained as the group `before`; none as long as no new group of that size trains."""
    new = [group for name, group in journal.groups.items() if name not in known]
    done = {group.name: when for group in new if (when := group.complete()) is not None and when > struck}
    wanted = [group for group in new if group.name in done and group.size == size]
    if not wanted:
        return None
    found = min(wanted, key=lambda group: done[group.name])
    first = min((group for group in new if group.name in done), key=lambda group: done[group.name])
    return Recovery(
        seconds=done[found.name] - struck,
        first_seconds=done[first.name] - struck,
        pause_seconds=done[first.name] - before.latest(),
        import_seconds=max((start.time - start.began for start in journal.starts_of(found)), default=0.0),
        lost_steps=before.furthest() - first.from_step,
        groups=sum(done.get(group.name, math.inf) <= done[found.name] or not group.steps for group in new),
        restart_counts=len(found.restarts),
    )


def longest_gap(group: Group, start: float, end: float) -> float:
    """The longest time without a step of a group between two moments."""
    times = sorted(when for steps in group.steps.values() for _, when in steps if start <= when <= end)
    return max((later - earlier for earlier, later in zip([start, *times], [*times, end], strict=True)), default=0.0)


def replaced(journal: Journal, pod: str, struck: float) -> float | None:
    """When the container of a pod started that replaced another after the fault, if one did."""
    return min(
        (start.pod_started for start in journal.starts if start.pod == pod and start.pod_started > struck), default=None
    )
