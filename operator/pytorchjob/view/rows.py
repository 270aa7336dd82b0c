"""The pods of a job as rows for people: place, node, what the container does, restarts, last line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import LABEL_REPLICA_INDEX, ReplicaType, pod_name
from pytorchjob_operator.problem import last_words

_STEP = re.compile(r"\bsteps?[=: ]+(\d{1,15})\b", re.IGNORECASE)
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Row:
    """A replica, and its pod if there is one."""

    role: str
    index: int
    pod: str
    node: str = ""
    ranks: str = ""
    """`0-3`, or empty: they are only known while all replicas train, or for a job of a fixed size."""
    phase: str = "missing"
    """The pod's phase; `missing` without a pod, `Terminating` while it is deleted."""
    state: str = ""
    """What container `pytorch` does: running, waiting, ended; with the reason."""
    restarts: int = 0
    step: int | None = None
    """The step that the last line has."""
    last_line: str = ""
    """The last line of the container. If it runs and has printed none, or its log was not read: of the former one."""
    before_restart: bool = False
    """Whether the line is of the container before the last restart."""


def make_rows(seen: Seen) -> tuple[Row, ...]:
    """Return a row for each replica that the spec asks for, and for each pod beyond them; the Master first."""
    if not seen.readable:
        return ()
    pods = {_place(pod): pod for pod in seen.pods}
    wanted = [(role, index) for role, count, _ in reading.roles(seen.job) for index in range(min(count, _MOST_ROWS))]
    roles = [role.value for role in ReplicaType]
    surplus = sorted(place for place in {*pods} - {*wanted} if place[0] in roles)
    ranks = _ranks(seen, len(wanted))
    return tuple(
        _row(seen, place, pods.get(place), ranks(position)) for position, place in enumerate([*wanted, *surplus])
    )


_MOST_ROWS = 10_000


def _place(pod: Object) -> tuple[str, int]:
    labels = reading.part(pod, "metadata", "labels")
    return reading.role_of(pod), reading.whole(labels.get(LABEL_REPLICA_INDEX)) or 0


def _ranks(seen: Seen, replicas: int) -> "RankLayout":
    """Return the function from a replica's position to its ranks."""
    elastic = reading.part(seen.status, "elastic")
    members, world = reading.whole(elastic.get("members")), reading.whole(elastic.get("worldSize"))
    if members is not None and world is not None and members == replicas and members > 0 and world % members == 0:
        return RankLayout(replicas, world // members)
    flexible = bool(reading.part(seen.job, "spec", "elasticPolicy"))
    return RankLayout(0 if flexible else replicas, _processes(seen))


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Ranks by the position of a replica: each pod has equally many processes."""

    replicas: int
    each: int
    """Processes of a pod; 0: unknown."""

    def __call__(self, position: int) -> str:
        """Return the ranks of the replica at this position; empty if they are not known."""
        if position >= self.replicas or self.each == 0:
            return ""
        first = position * self.each
        return str(first) if self.each == 1 else f"{first}-{first + self.each - 1}"


def _processes(seen: Seen) -> int:
    """Return how many processes each pod starts; 0 if that is unknown, or if pods differ."""
    given = reading.whole(reading.part(seen.job, "spec").get("nprocPerNode"))
    if given is not None:
        return given
    found = {reading.processes(reading.main_spec(reading.part(pod, "spec"))) for pod in seen.pods}
    return (found.pop() if len(found) == 1 else None) or 0


def _row(seen: Seen, place: tuple[str, int], pod: Object | None, ranks: str) -> Row:
    role, index = place
    name = pod_name(seen.name, ReplicaType(role), index)
    if pod is None:
        return Row(role, index, name, ranks=ranks)
    last_line, before_restart = _last_line(seen, pod)
    step = None if before_restart else _STEP.search(last_line)
    return Row(
        role=role,
        index=index,
        pod=reading.name_of(pod),
        node=reading.node_of(pod),
        ranks=ranks,
        phase="Terminating" if reading.deleting(pod) else reading.phase_of(pod),
        state=state_of(pod),
        restarts=reading.restarts(pod),
        step=int(step[1]) if step else None,
        last_line=last_line,
        before_restart=before_restart,
    )


def state_of(pod: Object) -> str:
    """Return what the pod's containers do: what the first one does that keeps the others waiting, or the main one."""
    for container in reading.items(pod, "status", "initContainerStatuses"):
        state = reading.part(container, "state")
        if not reading.part(state, "terminated") or reading.part(state, "terminated").get("exitCode"):
            running = RUNNING in state and container.get("started")  # a sidecar that runs holds nothing back
            if not running:
                return f"init {container.get('name')}: {_words(state)}"
    main = reading.main_status(pod)
    if main:
        return _words(reading.part(main, "state"))
    held = reading.condition(pod, "PodScheduled", "False")
    return str(held.get("reason") or "")


def _words(state: Object) -> str:
    if RUNNING in state:
        return RUNNING
    waiting, ended = reading.part(state, "waiting"), reading.part(state, "terminated")
    if waiting:
        return str(waiting.get("reason") or "waiting")
    if ended:
        reason = str(ended.get("reason") or "")
        return f"{reason or 'ended'} ({ended.get('exitCode')})"
    return ""


def _last_line(seen: Seen, pod: Object) -> tuple[str, bool]:
    """Return the last line of a container, or how it ended; and whether that was before its last restart."""
    name, main, runs = reading.name_of(pod), reading.main_status(pod), reading.runs(pod)
    if runs and seen.last_lines.get(name):
        return reading.line_of(seen.last_lines[name]), False
    for key in ("state", "lastState"):
        ended = reading.part(main, key, "terminated")
        if ended.get("message"):
            reason, message = last_words(str(ended["message"]))
            return reading.line_of(f"{reason}: {message}" if reason else message), runs
    line = last_words(seen.logs.get(name, ""))[1] or seen.last_lines.get(name, "")
    return reading.line_of(line), runs and bool(line)


def counts(rows: tuple[Row, ...]) -> Iterator[tuple[str, int]]:
    """Yield how many pods are in each phase, in the sequence of the rows."""
    phases = dict.fromkeys(row.phase for row in rows)
    yield from ((phase, sum(1 for row in rows if row.phase == phase)) for phase in phases)
