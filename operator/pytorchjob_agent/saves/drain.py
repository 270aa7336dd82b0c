"""The thread that copies the newest save to the durable directory now and then.

It may hang in the storage for ever: nothing waits for it but the end of the pod, and that for a bounded time.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pytorchjob_agent.checkpoint.fence import FencedError
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.wire import TransferPace
from pytorchjob_agent.saves import drain_choice
from pytorchjob_agent.saves.drain_choice import DrainView
from pytorchjob_agent.saves.durable import CHUNK, DurableSaves
from pytorchjob_agent.saves.held import HeldSaves, SourceError
from pytorchjob_agent.saves.held_saves import Choice, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.system.console import say

KEPT = 2
"""Complete saves that stay in the durable directory."""
_TICK, _RETRY_SECONDS, _LEAVE_PAUSE = 1.0, 10.0, 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """How long storage is waited for, in seconds."""

    silent: float = 60.0
    """Storage that has done nothing for this long is reported, and no longer waited for."""
    final: float = 1800.0
    """How long the end of a job waits for its last save, while the storage makes progress."""
    failing: float = 30.0
    """How long it waits for storage that refuses."""


@dataclass(frozen=True, slots=True)
class RoundOfDrains:
    """What the thread needs to know of a round."""

    round: RoundId
    rank: int
    members: int
    base: Choice | None
    """The save with which the workers have started; None: with none."""
    announce: Callable[[str], None]
    """Publishes what rank 0 copies. May raise RuntimeError."""
    announced: Callable[[], str]
    """Returns what rank 0 has announced; empty: nothing. May raise RuntimeError."""


class Drain:
    """Copies the saves of one agent."""

    def __init__(
        self,
        held: HeldSaves,
        durable: DurableSaves,
        interval: float,
        pace: TransferPace,
        patience: Patience = Patience(),
    ) -> None:
        """Start the thread, without a round; `interval` in seconds."""
        self._pace = pace
        self._held, self._durable, self._interval, self._patience = held, durable, interval, patience
        self._round: RoundOfDrains | None = None
        self._entered: RoundOfDrains | None = None
        self.loose: Manifest | None = None
        """The newest save if memory has no room to hold it: its files are the script's own."""
        self._due_at = self._retry_at = 0.0
        self._moved_at = time.monotonic()
        self._final_since: float | None = None
        self._failing_since: float | None = None
        self._settled = False
        self._failure = ""
        self._reported: set[str] = set()
        self._stored: set[SaveId] = set()
        self._wake, self._ended = threading.Event(), False
        threading.Thread(target=self._run, name="durable", daemon=True).start()

    @property
    def problem(self) -> str:
        """Why the durable directory lacks the newest save; empty without a problem."""
        silent = time.monotonic() - self._moved_at
        if silent > self._patience.silent:
            return self._say(f"DurableDirectorySilent: {self._durable.root} has not answered for {silent:.0f} s")
        return self._failure

    def begin(self, round_: RoundOfDrains) -> None:
        """Copy the saves of these workers from now on."""
        self._final_since, self._settled, self.loose = None, False, None
        self._round = round_
        self._wake.set()

    def stop(self) -> None:
        """Copy nothing until the next round."""
        self._round = None

    def finish(self) -> bool:
        """Return whether the newest save is in the durable directory, or has had its time; call again."""
        if self._round is None:
            return True
        now = time.monotonic()
        if self._final_since is None:
            self._final_since, self._settled = now, False
            self._wake.set()
            return False
        return self._settled or self._has_given_up(now, self._patience.final)

    def leave(self, seconds: float) -> None:
        """Wait this long for the copy of the newest save."""
        while not (self.finish() or self._has_given_up(time.monotonic(), seconds)):
            time.sleep(_LEAVE_PAUSE)

    def close(self) -> None:
        """End the thread, once the storage lets it."""
        self._ended = True
        self._wake.set()

    def _has_given_up(self, now: float, seconds: float) -> bool:
        assert self._final_since is not None
        silent = now - self._moved_at > self._patience.silent
        failing = self._failing_since is not None and now - self._failing_since > self._patience.failing
        if not (silent or failing or now - self._final_since > seconds):
            return False
        why = self.problem or f"it was not done after {now - self._final_since:.0f} s"
        self._say(f"the last checkpoint is not in {self._durable.root}: {why}")
        return True

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait(_TICK)
            self._wake.clear()
            self._moved_at = time.monotonic()
            if self._round is None or self._moved_at < self._retry_at:
                continue
            final = self._final_since
            try:
                copied = self._turn(self._round)
            except RuntimeError as error:  # the round's store is gone, and so is the round; or a later job has come
                if isinstance(error, FencedError):
                    self._fail(str(error))
            except SourceError as error:
                self._due_at = time.monotonic() + min(self._interval, _RETRY_SECONDS)
                self._failure = self._say(
                    f"DurableCopyLate: {error}: the script replaces its saves before they are copied"
                )
            except Exception as error:  # the training goes on
                self._fail(f"{type(error).__name__}: {error}")
            else:
                self._settled = not copied and final is not None and final == self._final_since
                if copied:
                    self._wake.set()

    def _fail(self, words: str) -> None:
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._retry_at = now + min(self._interval, _RETRY_SECONDS)
        self._failure = self._say(f"DurableDirectoryUnusable: no checkpoint is copied to durable storage: {words}")

    def _turn(self, round_: RoundOfDrains) -> bool:
        """Copy what is due; return whether there was anything."""
        if self._entered is not round_:
            self._enter(round_)
        choice = drain_choice.choose(self._view(round_))
        if choice is None:
            return False
        parts = [self._part(choice, owner) for owner in drain_choice.owners(choice, round_.rank, round_.members)]
        missing = [part for part in parts if part is not None and not self._has(part)]
        if not missing:
            return False
        started = time.monotonic()
        self._due_at = started + self._interval
        if round_.rank == 0:
            round_.announce(choice.to_text())
        for part in missing:
            self._copy(part)
            self._stored.add(part.id)
        self._durable.trim(KEPT)
        self._failing_since, self._failure = None, ""
        size = sum(part.size for part in missing)
        say(f"checkpoint {choice.to_text()}: {size} bytes are durable after {time.monotonic() - started:.1f} s")
        return True

    def _has(self, part: Manifest) -> bool:
        """Return whether a save is durable; the storage is asked once."""
        if part.id not in self._stored and self._durable.has(part):
            self._stored.add(part.id)
        return part.id in self._stored

    def _enter(self, round_: RoundOfDrains) -> None:
        self._durable.enter()
        spared = self._durable.spare() if round_.base is None else []
        if spared:
            say(f"this round starts without the saves in {self._durable.root}: they stay there: {', '.join(spared)}")
        self._entered = round_

    def _view(self, round_: RoundOfDrains) -> DrainView:
        announced = None if round_.rank == 0 else Choice.from_text(round_.announced())
        newest = self._newest(round_)
        return DrainView(
            round_.round,
            round_.rank,
            round_.members,
            None if newest is None else newest.held(),
            round_.base,
            announced,
            due=time.monotonic() >= self._due_at,
            final=self._final_since is not None,
        )

    def _newest(self, round_: RoundOfDrains) -> Manifest | None:
        held, loose = self._held.newest(round_.round, round_.rank), self.loose
        return max((each for each in (held, loose) if each is not None), key=lambda each: each.id.number, default=None)

    def _part(self, choice: Choice, owner: int) -> Manifest | None:
        loose = self.loose
        if loose is not None and choice.includes(loose.held()) and loose.id.owner == owner:
            return loose
        return self._held.part(choice, owner)

    def _copy(self, part: Manifest) -> None:
        def step(count: int) -> None:
            if self._final_since is None:  # else nobody trains any more
                self._pace.wait(count)
            self._moved_at = time.monotonic()
            if self._ended:
                raise TimeoutError("the agent ends")

        with self._held.pinned(part.id):
            self._durable.write(part, lambda place, offset: self._held.read(part, place, offset, CHUNK), step)

    def _say(self, words: str) -> str:
        topic = words.partition(":")[0]
        if topic not in self._reported:
            self._reported.add(topic)
            say(f"warning: {words}")
        return words
