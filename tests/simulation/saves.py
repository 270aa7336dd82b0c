"""Rounds that start from checkpoints: real offers, decisions and agreement of the agents, in a simulated job.

Each member is a thread that runs only when the schedule says so. Between any two of its steps it may be killed: with
its memory (the pod is lost) or without (the agent restarts). Saves are cut at any part, copies lag, ports are blocked,
and a new leader or a round without a coordinator may come at any time. Files are simulated: a part is its owner and its
step.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous.extension import NotStartedError
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, SaveId
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.retention import Known, before_whole, needed
from pytorchjob_agent.saves.round_start import Start, StartKind
from pytorchjob_agent.saves.save_agreement import SaveAgreement

_MOST_TURNS = 20_000
Load = tuple[RoundId, int] | None
"""What the workers of a member start from: the round and the step of a save; None: nothing."""


class KilledError(BaseException):
    """The member's process has ended."""


@dataclass
class Pod:
    """The memory of one pod, which outlives its agent."""

    number: int
    held: dict[SaveId, HeldSave] = field(default_factory=dict)
    steps: dict[SaveId, int] = field(default_factory=dict)
    whole: str = ""
    """The label of the save of which it knows that it is whole."""
    rests: int = 0
    """Files of a save that was cut; 0: none."""


class Store:
    """The store of one round, as rank 0's agent serves it."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.closed = False

    def set(self, key: str, value: str, /) -> None:
        self._open()[key] = value

    def get(self, key: str, /) -> bytes:
        return self._open()[key].encode()

    def check(self, keys: list[str], /) -> bool:
        return self._open().keys() >= {*keys}

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[str], /) -> None:
        self._open().update(zip(keys, values, strict=True))

    def _open(self) -> dict[str, str]:
        if self.closed:
            raise RuntimeError("the store is gone")
        return self.values


class Member:
    """One member of one round: a thread that runs step by step."""

    def __init__(self, pod: Pod, start: Callable[["Member"], None]) -> None:
        self.pod, self.loaded, self.started, self.ended, self.killed = pod, None, False, False, False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(start,), daemon=True)
        self._thread.start()

    loaded: Load
    choice: Choice | None = None

    def _run(self, start: Callable[["Member"], None]) -> None:
        self._go.acquire()
        with suppress(KilledError, NotStartedError, RuntimeError):
            start(self)
            self.started = True
        self.ended = True
        self._back.release()

    def pause(self, _: float = 0.0) -> None:
        """Give the turn back; the schedule decides when, and whether, this member goes on."""
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise KilledError

    def step(self) -> None:
        """Let the member run to its next pause."""
        self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        """End the member where it stands."""
        self.killed = True
        while not self.ended:
            self.step()
        self._thread.join()


class Schedule:
    """One life of a job, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.size = self.random.choice([1, 2, 2, 3, 4])
        self.each_rank = self.random.random() < 0.5
        self.own = self.random.random() < 0.5
        self.pods = [Pod(number) for number in range(self.size)]
        self.blocked: set[tuple[int, int]] = set()
        self.step = 0
        self.base: Choice | None = None
        """The save with which the workers have started."""
        self.whole: Load = None
        """The newest save of which each part is held by its owner and by a peer."""
        self.lost: set[int] = set()
        """The pods that were lost since, by their places."""
        self.problems: list[str] = []

    def run(self) -> list[str]:
        """Return what was wrong."""
        id_ = RoundId(1, 1)
        for _ in range(self.random.randint(2, 6)):
            self._round(id_)
            if self.problems:
                return self.problems
            id_ = self.random.choice(
                [id_.next(), RoundId(id_.term + 1, 1), RoundId(id_.term, id_.number, id_.attempt + 1)]
            )
        return []

    def _round(self, id_: RoundId) -> None:
        """One round: faults before it, the agreement, and training with saves if it starts."""
        self._faults()
        store, pods = Store(), list(self.pods)
        offered = [dict(pod.held) for pod in pods]
        newest = self._newest(offered)
        if self.whole is not None and len(self.lost) < 2 and (newest is None or newest < self.whole):
            self.problems.append(f"round {id_}: {newest} is offered, although {self.whole} was whole, with copies")
            return
        members = [Member(pod, self._start(store, id_, rank, pods)) for rank, pod in enumerate(pods)]
        self._interleave(members, store)
        started = [member for member in members if member.started]
        for member in members:
            member.kill()
        if len({repr(member.loaded) for member in started}) > 1:
            self.problems.append(f"round {id_}: unequal starts {[member.loaded for member in members]}")
        for member in started:
            if newest is not None and (member.loaded is None or member.loaded < newest):
                self.problems.append(f"round {id_}: started from {member.loaded}, though {newest} was offered")
        if len(started) == self.size:
            self._train(id_, started[0].loaded, started[0].choice)

    def _newest(self, offered: list[dict[SaveId, HeldSave]]) -> Load:
        """The newest save of which the members together hold each part, by what the parts are."""
        there: dict[tuple[RoundId, int], set[int]] = {}
        for pod in self.pods:
            for id_ in pod.held:
                there.setdefault((id_.round, pod.steps[id_]), set()).add(id_.owner)
        whole = {0, *range(self.writers)} if self.each_rank else {0}
        return max((load for load, owners in there.items() if owners >= whole), default=None)

    @property
    def writers(self) -> int:
        return self.size if self.each_rank else 1

    def _start(self, store: Store, id_: RoundId, rank: int, pods: list[Pod]) -> Callable[[Member], None]:
        assigned = Assigned(id_, rank, self.size, rank, self.size, "10.0.0.1", 1, 0, secret="secret")

        def start(member: Member) -> None:
            pod = member.pod
            agreement = SaveAgreement(SignedStore(store, assigned), lambda: not store.closed, member.pause)
            files = str(pod.rests) if pod.rests else ""
            held = tuple(pod.held.values())
            offer = Peer(rank, "10.0.0.1", 1, "node", f"{pod.number}", held, files=files)
            decision = agreement.decide(offer)
            member.pause()
            failure = self._carry_out(decision, member, rank, pods, agreement)
            member.pause()
            agreement.confirm(failure)

        return start

    def _carry_out(self, decision: Start, member: Member, rank: int, pods: list[Pod], agreement: SaveAgreement) -> str:
        """Fetch what the decision asks for from the other pods; return why not."""
        pod = member.pod
        if decision.kind is StartKind.SET_ASIDE:
            pod.rests = 0
            return ""
        if decision.choice is None:
            member.loaded = (RoundId(0, 0), pod.rests) if pod.rests else None
            return ""
        member.choice, steps = decision.choice, set()
        for owner in decision.needed_by(rank, self.size):
            member.pause()
            part = self._fetch(decision, owner, rank, pods, member, agreement)
            if part is None:
                return f"no member offers the part of rank {owner}"
            steps.add((part, pod.steps[part]))
        numbers = {step for _, step in steps}
        if len(numbers) > 1:
            self.problems.append(f"parts of different saves: {steps}")
        pod.rests = 0
        member.loaded = (decision.choice.round, max(numbers)) if numbers else None
        return ""

    def _fetch(
        self, decision: Start, owner: int, rank: int, pods: list[Pod], member: Member, agreement: SaveAgreement
    ) -> SaveId | None:
        choice = decision.choice
        assert choice is not None
        for _ in range(self.size + 2):
            for source in [rank, *decision.sources(owner, rank, self.size)]:
                if source != rank and (rank, source) in self.blocked:
                    continue
                other = pods[source]
                for id_, save in other.held.items():
                    if choice.includes(save) and id_.owner == owner:
                        member.pod.held[id_], member.pod.steps[id_] = save, other.steps[id_]
                        return id_
            if not agreement.goes_on():
                return None
            member.pause()
        return None

    def _interleave(self, members: list[Member], store: Store) -> None:
        """Run the members in any order, with faults in between."""
        kills = self.random.choice([0, 0, 1, 2])
        for _ in range(_MOST_TURNS):
            running = [member for member in members if not member.ended]
            if not running:
                return
            member = self.random.choice(running)
            member.step()
            chance = self.random.random()
            if kills and chance < 0.01:
                kills -= 1
                member.kill()
                if self.random.random() < 0.5:
                    self._lose(member.pod)
                if member is members[0]:
                    store.closed = True
            elif chance < 0.002:
                store.closed = True  # a new leader, or another member's failure, ends the round
        self.problems.append("the members wait for each other for ever")

    def _lose(self, pod: Pod) -> None:
        """The pod is lost with its memory; a new one takes its place."""
        self.lost.add(self.pods.index(pod))
        self.pods[self.pods.index(pod)] = Pod(pod.number + self.size)

    def _faults(self) -> None:
        for pod in list(self.pods):
            if self.random.random() < 0.15:
                self._lose(pod)
        self.blocked = {
            (one, other)
            for one in range(self.size)
            for other in range(self.size)
            if self.random.random() < self.random.choice([0.0, 0.0, 0.3])
        }

    def _train(self, id_: RoundId, loaded: Load, base: Choice | None) -> None:
        """Save a few times; the last save may be cut between any two parts, and copies may lag or be lost."""
        self.base = base
        for pod in self.pods:
            pod.whole = ""
        if (
            loaded != self.whole
        ):  # before its copies are fetched, the start is held by one pod alone, as far as is known
            self.whole = None
        if loaded is not None and self.random.random() < 0.7:
            self._fetch_copies(loaded)
        for number in range(1, self.random.randint(1, 4)):
            self.step += 1
            copied = 0
            cut = self.random.randint(0, self.writers) if self.random.random() < 0.3 else self.writers
            for owner in range(cut):
                self._hold(id_, owner, number, self.pods[owner])
                if self.size > 1 and self.random.random() < 0.8:
                    self._hold(id_, owner, number, self.pods[(owner + 1) % self.size])
                    copied += 1
            if cut < self.writers:
                self.pods[cut].rests = self.step
                return
            if copied == self.writers:
                self.whole, self.lost = (id_, self.step), set()
                self._drop_older(id_)
        if self.random.random() < 0.2:
            self.pods[0].rests = self.step + 1

    def _fetch_copies(self, loaded: Load) -> None:
        """Each part of the save that the round started from is held by two pods again, where they reach each other."""
        for owner in range(self.writers):
            holders = [pod for pod in self.pods for id_ in pod.held if self._is_part(pod, id_, owner, loaded)]
            for source, pod in zip(holders[:1], [each for each in self.pods if each not in holders][:1], strict=False):
                if len(holders) == 1 and (self.pods.index(pod), self.pods.index(source)) not in self.blocked:
                    for id_ in [each for each in source.held if self._is_part(source, each, owner, loaded)]:
                        pod.held[id_], pod.steps[id_] = source.held[id_], source.steps[id_]
                    holders.append(pod)
            if len(holders) < 2:
                return
        self.whole, self.lost = loaded, set()

    def _is_part(self, pod: Pod, id_: SaveId, owner: int, of: Load) -> bool:
        return (id_.round, pod.steps[id_]) == of and id_.owner == owner

    def _drop_older(self, id_: RoundId) -> None:
        """Some members have heard that the save is whole, and some of these drop what its owners wrote before."""
        for pod in self.pods:
            if self.writers > 1 and self.random.random() < 0.7:
                pod.whole = f"step-{self.step}"
                if self.random.random() < 0.7:
                    for old in before_whole(pod.held.values(), Known(id_, self.base, pod.whole)):
                        del pod.held[old], pod.steps[old]

    def _hold(self, id_: RoundId, owner: int, number: int, pod: Pod) -> None:
        label = f"step-{self.step}" if self.each_rank and self.size > 1 else ""
        writers = self.size if label else 1
        save_id = SaveId(id_, owner, number)
        pod.held[save_id] = HeldSave(save_id, 1, writers, label, own=self.own and writers > 1)
        pod.steps[save_id] = self.step
        keep = needed(pod.held.values(), Known(id_, self.base, pod.whole))
        for old in pod.held.keys() - keep:
            del pod.held[old], pod.steps[old]


def violations(seeds: range) -> Iterator[tuple[int, str]]:
    """Yield what is wrong in the lives with these seeds."""
    for seed in seeds:
        for problem in Schedule(seed).run():
            yield seed, problem


def found(seeds: range) -> list[tuple[int, str]]:
    """Return them at once: what a process gives back."""
    return list(violations(seeds))
