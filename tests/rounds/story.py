"""A job told step by step: what each agent says, when, and what it hears in return."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from pytorchjob_agent.contract.messages import (
    Assigned,
    Done,
    Draining,
    Failed,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Join,
    RoundId,
)
from pytorchjob_operator.accounting import Account, observe
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.invariants import find_violations
from pytorchjob_operator.rounds.phases import Ended, Running
from pytorchjob_operator.rounds.state import (
    Close,
    ConnectionClosed,
    Input,
    JobState,
    JobSynced,
    MessageReceived,
    Send,
    Tick,
)
from pytorchjob_operator.rounds.values import End, ExpectedPod, Policy

STEP = 0.25


def error_types(message: str) -> tuple[str, ...]:
    """The types that an agent reports with such a message."""
    name = message.partition(":")[0]
    if not name.endswith("Error"):
        return ()
    return (f"torch.distributed.{name}" if name.startswith("Dist") else name,)


class Job:
    """A job of so many replicas, of which nobody has come yet."""

    def __init__(self, replicas: int = 3, min_members: int | None = None, **policy: Any) -> None:
        self.now = 1000.0
        self.policy = Policy(min_members or replicas, policy.pop("max_members", replicas), **policy)
        self.pods = {index: expected(index) for index in range(replicas)}
        self.state = JobState(self.policy, term=1)
        self.account = Account()
        self.links: dict[int, int] = {}
        self.told: dict[int, list[Any]] = defaultdict(list)
        """What each replica heard on its present connection, heartbeat replies left out."""
        self.replies: Counter[int] = Counter()
        self.closed: list[int] = []
        self.events: list[str] = []
        self._number = 0
        self.expect()

    @property
    def round(self) -> RoundId | None:
        return self.state.round.id if self.state.round else None

    @property
    def ranks(self) -> tuple[int | None, ...]:
        return self.state.round.ranks if self.state.round else ()

    @property
    def runs(self) -> bool:
        return isinstance(self.state.phase, Running)

    @property
    def end(self) -> End | None:
        return self.state.phase.end if isinstance(self.state.phase, Ended) else None

    def feed(self, event: Input) -> None:
        decision = decide(self.state, event, self.now)
        assert find_violations(self.state, decision) == []
        self.account = observe(self.account, self.state, event, decision, self.now)
        self.state = decision.state
        self.events += [f"{event.reason}: {event.message}" for event in decision.events]
        owner = {link: index for index, link in self.links.items()}
        for command in decision.commands:
            if isinstance(command, Close):
                self.closed.append(command.connection)
            elif isinstance(command, Send) and command.connection in owner:
                index = owner[command.connection]
                if isinstance(command.message, HeartbeatReply):
                    self.replies[index] += 1
                else:
                    self.told[index].append(command.message)

    def expect(self, pods: Mapping[int, ExpectedPod] | None = None, *terminating: int, trained: bool = False) -> None:
        """The operator's next pass; `terminating`: the pods of these replicas still terminate."""
        self.pods = dict(self.pods if pods is None else pods)
        uids = {index: f"uid-{index}" for index in terminating}
        self.feed(JobSynced(self.policy, self.pods, terminating=uids, trained=trained))

    def hello(self, index: int, **said: Any) -> Any:
        """A new connection; returns what was answered last."""
        self._number += 1
        self.links[index], self.told[index] = self._number, []
        values = {"pod_uid": f"uid-{index}", "incarnation": f"first-{index}", "nproc": 1, **said}
        message = Hello("job", f"pod-{index}", "token", index, f"10.0.0.{index}", **values)
        self.feed(MessageReceived(self._number, None, message))
        return self.heard(index)

    def says(self, index: int, message: FromAgent) -> Any:
        """On its present connection; returns what it heard last."""
        self.feed(MessageReceived(self.links[index], index, message))
        return self.heard(index)

    def waits(self, *indices: int, **said: Any) -> None:
        """Come, and join."""
        for index in indices:
            self.hello(index, **said)
            self.joins(index)

    def joins(self, *indices: int) -> None:
        for index in indices:
            self.says(index, Join(20000 + index))

    def fails(self, index: int, message: str = "ValueError: no", **said: Any) -> None:
        assert self.round is not None
        rank = self.ranks.index(index)
        self.says(
            index, Failed(self.round, rank, 0, said.pop("exit_code", 1), message, errors=error_types(message), **said)
        )

    def breaks(self, *indices: int) -> None:
        """Connections end."""
        for index in indices:
            self.feed(ConnectionClosed(self.links[index], index))

    def goes(self, index: int, seconds: float = 10.0) -> None:
        self.says(index, Draining(seconds, "SIGTERM"))

    def ends(self, index: int) -> None:
        assert self.round is not None
        self.says(index, Done(self.round))

    def passes(self, seconds: float, silent: Collection[int] = (), **beat: Any) -> None:
        """Time goes by; everybody beats but those who are silent."""
        for step in range(1, round(seconds / STEP) + 1):
            self.now += STEP
            if step % 4 == 0:
                for index in [linked for linked in self.links if linked not in silent]:
                    self.says(index, Heartbeat(**beat))
            self.feed(Tick())

    def heard(self, index: int) -> Any:
        return self.told[index][-1] if self.told[index] else None

    def kinds(self, index: int) -> list[str]:
        return [message.kind for message in self.told[index]]

    def assigned(self, index: int) -> Assigned:
        return next(message for message in reversed(self.told[index]) if isinstance(message, Assigned))

    def problem(self, word: str) -> str | None:
        return {str(one): text for one, text in self.state.problems.items()}.get(word)


def expected(index: int, uid: str | None = None, **more: Any) -> ExpectedPod:
    return ExpectedPod(f"pod-{index}", f"uid-{index}" if uid is None else uid, **more)


def running(replicas: int = 3, **policy: Any) -> Job:
    """A job whose members all run in its first round."""
    job = Job(replicas, **policy)
    job.waits(*range(replicas))
    assert job.runs
    assert len(job.ranks) == job.policy.max_members
    return job


def pause_before_restart(job: Job, most: float) -> float:
    """The whole seconds until the next round begins, at most this many; the members have stopped before."""
    failed_at = job.now
    while not job.runs and job.now < failed_at + most:
        job.passes(1)  # less would send no heartbeats
    return job.now - failed_at


def stopped(job: Job, *indices: int) -> None:
    """The members have heard that the round is over, and join anew."""
    for index in indices:
        assert job.heard(index).kind in ("restart", "welcome", "assigned", "hold"), job.kinds(index)
        job.joins(index)


def another_leader(job: Job) -> Job:
    """The same job after its coordinator was replaced by one that knows nothing."""
    after = Job(len(job.pods), job.policy.min_members, max_members=job.policy.max_members)
    after.policy, after.state = job.policy, JobState(job.policy, term=2)
    after.now = job.now + 1
    after.expect(job.pods)
    return after
