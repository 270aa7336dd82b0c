"""Runs in a worker before its script: lets the ranks of a round go on without a lost one, inside the collective.

An operation is one collective of the script, or all gradients of one backward pass. Its input stays until a barrier
behind it has shown that every rank has finished it. When a rank is lost, the agent says which ranks go on. Each of them
writes to the round's store how many operations it has finished. All of them read the same, so they decide the same: a
rank repeats its operation in the smaller group, or takes its result, if another rank has passed the barrier. What can
not be repeated raises the error that the script would have seen, and a new round follows.

A rank that takes the place of a lost one may come into the group before a step, if the script shares its state
(`script/surviving`). It prepares in a group of its own and writes how it is reached. Rank 0 sees that, and the next
barrier tells all ranks, so all of them form the larger group before the same step.

`pytorchjob_shrink_torch` knows torch; this module knows the agent and the order of operations. It imports nothing else
of the agent, because the worker's Python may not find the package.
"""

import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

SHRINK = "PYTORCHJOB_SHRINK"  # port and secret of the agent
ENTERS = "PYTORCHJOB_ENTERS"  # the number of the change by which this rank comes into the group; unset: it is in it
_HOLD_SECONDS = 10.0
"""How long a rank that has lost another one waits for the agent's word. The coordinator notices a lost pod in 5 s. If
only a connection has broken, there is no such word, and a new round is the answer.
"""
_STAND_SECONDS = 600.0
"""How long a rank waits until all others have come to their next operation. A script that has ended comes to none."""
_LOOK_SECONDS = 0.5
"""How often a rank that waits for the others looks for a later change."""
_FORM_SECONDS = 5.0
"""How long all ranks, which are there, may take to form their group."""
_SETTLE_SECONDS = 5.0
"""How long rank 0 waits for all ranks, which have just made their group together."""
_STUCK_SECONDS = 5.0
"""How long a collective may go on in a group that was left; it ends at once, unless gloo forgets it."""
_HELD_SECONDS = 5.0
"""How long a rank stands still behind a save until the round ends. Nobody may be waiting any more."""
_READY = "Ready"
_DECIDED = "pytorchjob/shrink/decided"
_LINE = 1024 * 1024


class GroupChange(NamedTuple):
    """The agent's word about who goes on."""

    number: int
    """Of the change, from 1 on in each round."""
    ranks: tuple[int, ...]
    """The ranks that go on, as they were numbered when the round began."""
    entering: tuple[int, ...] = ()
    """Ranks that prepare to come into the group; they do by the change after this one."""


class Entry(NamedTuple):
    """Rank 0's word about the ranks that come into the group."""

    handles: Mapping[str, str]
    """How torch reaches each rank of the larger group. Empty: it is not formed now."""
    finished: int = 0
    """Operations that have ended, with their barriers."""
    step: int = 0
    """Of the script, the next one."""


class RankStanding(NamedTuple):
    """What a rank tells the others before they form the group anew."""

    finished: int
    """Operations that have ended here, with their barriers."""
    operation: str
    """The one after them, which this rank is in."""
    root: int
    """The rank that has its input, or -1: all ranks have."""
    handle: str
    """How torch reaches this rank."""
    sums: Sequence[int] = ()
    """What the barrier behind the last finished operation has summed."""


class Resolution(Enum):
    """What a rank does about its operation."""

    REPEAT = "repeat"
    TAKE = "take"
    """Another rank has passed the barrier: the result here is complete."""


class ShrinkError(RuntimeError):
    """The ranks cannot go on without the lost one."""


def agree(standings: Mapping[int, RankStanding], rank: int) -> Resolution:
    """Return what a rank does about its operation; all ranks read the same. Pure. Raises ShrinkError."""
    highest = max(each.finished for each in standings.values())
    lowest = min(each.finished for each in standings.values())
    if highest - lowest > 1:
        raise ShrinkError(f"ranks have finished {lowest} and {highest} operations")
    for finished in {lowest, highest}:
        there = {(each.operation, each.root) for each in standings.values() if each.finished == finished}
        if len(there) > 1:
            raise ShrinkError(f"ranks are in different operations: {', '.join(sorted(name for name, _ in there))}")
        [(name, root)] = there
        repeats = finished == highest
        if repeats and root >= 0 and root not in standings:
            raise ShrinkError(f"{name} has its input at rank {root}, which is lost")
    return Resolution.REPEAT if standings[rank].finished == highest else Resolution.TAKE


def owner(share: int, ranks: Collection[int]) -> int:
    """Return which of these ranks does this share of the batch: its own rank or, while that is lost, another one.

    A share has another owner only if the one before is lost. Ranks that take note of a loss one step apart do no share
    twice then.
    """
    return share if share in ranks else max(ranks, key=lambda rank: (zlib.crc32(b"%d of %d" % (share, rank)), rank))


class Agent:
    """The connection to the agent: a thread reads its word, and frees a rank that waits for the lost one."""

    def __init__(self, address: str, rank: int, on_change: Callable[[], None]) -> None:
        """Connect and introduce this rank. Raises OSError or ValueError."""
        port, _, secret = address.partition(":")
        self._socket = socket.create_connection(("127.0.0.1", int(port)), 5.0)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._on_change = on_change
        self._changed = threading.Condition()
        self._change: GroupChange | None = None
        self._gone = False
        self.awaited = False
        """Whether members wait to come back."""
        self._said: dict[str, Any] = {}
        self.tell(rank=rank, secret=secret)
        threading.Thread(target=self._read, name="pytorchjob-shrink", daemon=True).start()

    @property
    def change(self) -> GroupChange | None:
        """The latest word."""
        return self._change

    def tell(self, **what: Any) -> None:
        """Tell the agent something; what it knows already is not repeated."""
        if all(self._said.get(key) == value for key, value in what.items()):
            return
        self._said.update(what)
        with suppress(OSError):
            self._socket.sendall(json.dumps(what).encode() + b"\n")

    def wait(self, after: int, seconds: float) -> GroupChange | None:
        """Return a change after this number, as soon as there is one. None: there is none, and none comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._gone or self._is_after(after), seconds)
            return self._change if self._is_after(after) else None

    def hold(self, after: int, seconds: float) -> None:
        """Wait as long as members wait to come back, and until a change after this number."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._gone or not self.awaited or self._is_after(after), seconds):
                self.awaited = False  # nobody ends the round: the next save is not to cost this time again

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _is_after(self, number: int) -> bool:
        return self._change is not None and self._change.number > number

    def _read(self) -> None:
        with suppress(OSError, ValueError, KeyError), self._socket.makefile("rb") as lines:
            while line := lines.readline(_LINE):
                said = json.loads(line)
                entering = tuple(map(int, said.get("entering", ())))
                change = GroupChange(int(said["number"]), tuple(map(int, said["ranks"])), entering)
                with self._changed:
                    is_new = self._change is None or change.number > self._change.number
                    self._change, self.awaited = change, bool(said["awaited"])
                    self._changed.notify_all()
                if is_new:
                    with suppress(Exception):  # the next word has to be heard in any case
                        self._on_change()
        with self._changed:  # the agent has gone, and ends this process
            self._gone = True
            self._changed.notify_all()


class Group(NamedTuple):
    """What operations need of torch's default group."""

    rank: int
    """As it was numbered when the round began."""
    size: int
    """Ranks when the round began."""
    write: Callable[[str, str], None]
    claim: Callable[[str, str], str]
    """Write to a key unless another rank has; returns what is there then."""
    read: Callable[[Sequence[str], float], Sequence[str] | None]
    """Wait for these keys of the store for so many seconds; None: not all of them are there."""
    has: Callable[[Sequence[str]], bool]
    """Whether these keys are in the store."""
    handle: Callable[[], str]
    form: Callable[[int, Sequence[str], int, float], None]
    """Form the group again: a number that was not used before, handles by rank, the own place in them, seconds.

    Raises RuntimeError.
    """
    barrier: Callable[[Sequence[int]], Sequence[int]]
    """Wait until all ranks are here; returns the sums of their numbers. Raises RuntimeError."""
    leave: Callable[[], None]
    """Let the operation that this rank is in fail at once."""
    has_lost: Callable[[RuntimeError], bool]
    """Whether an error of the group says that a rank was lost; others are the script's."""
    end: Callable[[], None]
    """End this process."""


class Operations:
    """The operations of this rank, one after the other."""

    def __init__(self, address: str, group: Group) -> None:
        """Connect to the agent. Raises OSError or ValueError."""
        self._group = group
        self._number = self._finished = self._entry = 0
        self._entering: tuple[int, ...] = ()
        self.entered: Sequence[int] = ()
        """Places in the group of the ranks that have come into it last; rank 0 knows them."""
        self._inside = self._saved = False
        self._attempt: object | None = None
        """The attempt at an operation that is under way."""
        self._sums: Sequence[int] = ()
        self.ranks: tuple[int, ...] = ()
        """Ranks of the group after a change, as they were numbered when the round began; empty: none has left."""
        self.unchecked = False
        """True after a change, until the ranks have compared their parameters."""
        self.on_change: Callable[[int], None] = lambda _: None
        self._agent = Agent(address, group.rank, self._leave)

    def _leave(self) -> None:
        """Leave the group if it changes; the agent also repeats what has happened already."""
        if self.stale:
            attempt = self._attempt
            self._group.leave()
            if attempt is not None:
                threading.Thread(target=self._end_if_stuck, args=(attempt,), daemon=True).start()

    def _end_if_stuck(self, attempt: object) -> None:
        """End this process if torch does not notice that the group is left; the others go on without it then."""
        time.sleep(_STUCK_SECONDS)
        if self._attempt is attempt:
            self._group.end()

    def tell(self, **what: Any) -> None:
        """Tell the agent something."""
        self._agent.tell(**what)

    def close(self) -> None:
        """End the connection to the agent."""
        self._agent.close()

    def settle(self, problem: str, size: int) -> str:
        """Return why the ranks of a group of this size do not go on by themselves, the same at all; empty: they do.

        Rank 0 decides. A rank that does not write, such as one of an older pod, has no barriers: then no rank has any.
        """
        self._group.write(_able(self._group.rank), problem or _READY)
        if problem:
            return self._group.claim(_DECIDED, problem)
        if self._group.rank == 0:
            found = self._group.read([_able(rank) for rank in range(size)], _SETTLE_SECONDS)
            problems = ["NotReady"] if found is None else [each for each in found if each != _READY]
            decided = self._group.claim(_DECIDED, next(iter(problems), _READY))
        elif self._group.read([_DECIDED], 2 * _SETTLE_SECONDS) is None:
            decided = self._group.claim(_DECIDED, "NotReady")  # the first word counts, also for rank 0
        else:
            decided = self._group.claim(_DECIDED, "")
        return "" if decided == _READY else decided

    @property
    def rank(self) -> int:
        """This rank, as it was numbered when the round began."""
        return self._group.rank

    @property
    def stale(self) -> bool:
        """Whether the agent has said that the group changes, and it has not changed yet."""
        change = self._agent.change
        return change is not None and change.number > self._number

    def saved(self) -> None:
        """The script has written a checkpoint: if members wait to come back, it is the one with which they do."""
        self._saved = self._agent.awaited

    def run(
        self,
        operation: str,
        attempt: Callable[[bool], None],
        root: int = -1,
        *,
        steps: bool = False,
        counts: Sequence[int] = (),
    ) -> Sequence[int]:
        """Do one operation; `attempt(again)` does it in the present group, `again` restores its input before.

        `steps`: it is a part of a step that begins after each save of the step before, at all ranks. Returns the sums
        of the `counts` of all ranks whose input is in the result.
        """
        if self._inside:  # a part of another one
            attempt(False)
            return counts
        self._inside = True
        try:
            said = [int(steps and self._saved), self._arrived() if steps else 0]
            self._sums = self._run(operation, attempt, root, [*said, *counts])
        finally:
            self._inside = False
        self._finished += 1
        self._entry = self._sums[1] or self._entry
        if self._sums[0]:
            self._hold()
        return self._sums[2:]

    @property
    def enters(self) -> bool:
        """Whether ranks come into the group before the next step; the same at all ranks."""
        return self._entry > self._number  # a rank that was lost meanwhile has changed the group, and ended their way

    def open(self, step: int) -> bool:
        """Form the group with the ranks that have come, before this step of the script; all ranks call it.

        False: it stays as it is. Raises ShrinkError.
        """
        number, rank = self._entry, self._group.rank
        self._entry = 0
        self._group.write(_entry(number, rank), self._group.handle())
        if rank == 0:
            entry = Entry(self._handles(number), self._finished, step)
            self._group.write(_entry(number), json.dumps(entry))
        elif self._group.read([_entry(number)], 2 * _FORM_SECONDS) is None:
            raise ShrinkError("rank 0 does not say whether lost ranks come back")
        return self._enter(number) is not None

    def come_in(self) -> int:
        """Come into the group as a rank that was not in it; returns the script's next step. Raises ShrinkError."""
        number = int(os.environ[ENTERS])
        self._group.write(_entry(number, self._group.rank), self._group.handle())
        while self._group.read([_entry(number)], _STAND_SECONDS) is None:
            pass  # the agent ends this process with the round
        entry = self._enter(number)
        if entry is None:
            raise ShrinkError("the others go on without this rank")
        return entry.step

    def _arrived(self) -> int:
        """Return the change by which ranks come into the group, if all of them wait for it; 0: none. Rank 0 knows."""
        change = self._agent.change
        if self._group.rank or change is None or not change.entering or change.number != self._number:
            return 0
        number, self._entering = change.number + 1, change.entering
        return number if self._group.has([_entry(number, rank) for rank in change.entering]) else 0

    def _handles(self, number: int) -> Mapping[str, str]:
        """Return how all ranks of the larger group are reached; nothing if the group changes otherwise."""
        ranks, until = sorted({*self.ranks, *self._entering}), time.monotonic() + _FORM_SECONDS
        while not self.stale and time.monotonic() < until:
            found = self._group.read([_entry(number, rank) for rank in ranks], _LOOK_SECONDS)
            if found is not None:
                return {str(rank): handle for rank, handle in zip(ranks, found, strict=True)}
        return {}

    def _enter(self, number: int) -> Entry | None:
        """Form the larger group, as rank 0 has written; None: it is not formed. Raises ShrinkError."""
        [said] = self._group.read([_entry(number)], _LOOK_SECONDS) or [""]
        entry = Entry(*json.loads(said))
        if not entry.handles:
            return None
        ranks = sorted(map(int, entry.handles))
        try:
            handles, place = [entry.handles[str(rank)] for rank in ranks], ranks.index(self._group.rank)
            self._group.form(number, handles, place, _FORM_SECONDS)
        except RuntimeError as error:
            self._agent.tell(problem="OperationNotRepeatable")
            raise ShrinkError(f"a rank was lost while others came back: {error}") from None
        self._number, self._finished = number, entry.finished
        self.entered = [place for place, rank in enumerate(ranks) if rank in self._entering]
        self.ranks = tuple(ranks) if len(ranks) < self._group.size else ()
        self.unchecked = True
        self.on_change(number)
        self._agent.tell(entered=number)
        return entry

    def _hold(self) -> None:
        """Stand still before the step ends, as all ranks do: the round restarts from the save, and repeats no step."""
        self._saved = False
        self._agent.tell(held=True)
        self._agent.hold(self._number, _HELD_SECONDS)
        self._agent.tell(held=False)

    def _run(self, operation: str, attempt: Callable[[bool], None], root: int, numbers: Sequence[int]) -> Sequence[int]:
        again = False
        while True:
            done = ShrinkError("the group changes") if self.stale else self._try(attempt, again, numbers)
            if not isinstance(done, RuntimeError):
                return done
            # Outside of the `except` block: a traceback would keep the failed works, and so their connections.
            taken = self._go_on(operation, root, done)
            if taken is not None:
                return taken
            again = True

    def _try(
        self, attempt: Callable[[bool], None], again: bool, numbers: Sequence[int]
    ) -> Sequence[int] | RuntimeError:
        """Do the operation and its barrier; return the error of a connection. Other errors are the script's."""
        self._attempt = object()
        try:
            attempt(again)
            return self._group.barrier(numbers)
        except RuntimeError as error:
            if not self._group.has_lost(error):
                raise
            error.__traceback__ = error.__context__ = None
            self._agent.tell(broken=True)
            return error
        finally:
            self._attempt = None

    def _go_on(self, operation: str, root: int, failure: RuntimeError) -> Sequence[int] | None:
        """Form the group of those that go on. Returns the barrier's sums if the result here is complete; None: it is
        to be repeated. Raises `failure` if nobody goes on.
        """
        began = time.monotonic()
        self._group.leave()
        while True:
            change = self._agent.wait(self._number, _HOLD_SECONDS)
            if change is None or self._group.rank not in change.ranks:
                raise failure
            self._number = change.number
            self._agent.tell(broken=False)
            standing = RankStanding(self._finished, operation, root, self._group.handle(), self._sums)
            standings = self._standings(change, standing)
            if standings is None:
                continue
            outcome = self._formed(change, standings)
            if outcome is not None:
                self._agent.tell(seconds=time.monotonic() - began)
                ahead = max(standings.values(), key=lambda each: each.finished)
                return ahead.sums if outcome is Resolution.TAKE else None

    def _standings(self, change: GroupChange, own: RankStanding) -> Mapping[int, RankStanding] | None:
        """Write this rank's standing and wait for all others'; None: a later change has come."""
        self._group.write(_key(change.number, self._group.rank), json.dumps(own))
        keys = [_key(change.number, rank) for rank in change.ranks]
        until = time.monotonic() + _STAND_SECONDS
        while time.monotonic() < until:
            values = self._group.read(keys, _LOOK_SECONDS)
            if values is not None:
                return {
                    rank: RankStanding(*json.loads(value)) for rank, value in zip(change.ranks, values, strict=True)
                }
            if self.stale:
                return None
        raise ShrinkError(f"a rank is lost, and others have come to no operation for {_STAND_SECONDS:.0f} s")

    def _formed(self, change: GroupChange, standings: Mapping[int, RankStanding]) -> Resolution | None:
        """Form the group and return what to do about the operation; None: another rank was lost meanwhile.

        Raises ShrinkError.
        """
        try:
            outcome = agree(standings, self._group.rank)
        except ShrinkError as error:
            self._agent.tell(problem="OperationNotRepeatable")
            raise ShrinkError(f"a rank is lost, and the others cannot go on: {error}") from None
        try:
            handles, place = [standings[rank].handle for rank in change.ranks], change.ranks.index(self._group.rank)
            self._group.form(change.number, handles, place, _FORM_SECONDS)
        except RuntimeError as error:
            error.__traceback__ = None
            self._agent.tell(broken=True)
            return None
        self.ranks, self.unchecked = change.ranks, True
        self.on_change(change.number)
        return outcome


def _able(rank: int) -> str:
    return f"pytorchjob/shrink/able/{rank}"


def _entry(number: int, rank: int | None = None) -> str:
    return f"pytorchjob/shrink/{number}/enters{'' if rank is None else f'/{rank}'}"


def _key(number: int, rank: int) -> str:
    return f"pytorchjob/shrink/{number}/{rank}"


def address() -> str:
    """Return where the agent is; empty: the workers of this round do not go on by themselves."""
    return os.environ.get(SHRINK, "")
