"""The durable directory of one agent: what it offers for a round, what it restores from there, what it copies there.

Every call blocks for a bounded time, whatever the storage does.
"""

from collections.abc import Callable
from pathlib import Path

from pytorchjob_agent.contract.checkpoint_rules import DurableRules
from pytorchjob_agent.exchange.wire import TransferPace
from pytorchjob_agent.saves import durable
from pytorchjob_agent.saves.bounded import STORAGE, Progress, while_it_moves
from pytorchjob_agent.saves.drain import Drain
from pytorchjob_agent.saves.durable import DurableSaves, StoredSave
from pytorchjob_agent.saves.held import HeldSaves, SourceError
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, Parts
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.system.background import Call
from pytorchjob_agent.system.console import say

FIRST_SECONDS, LATER_SECONDS = 15.0, 2.0
"""How long a request to join waits for the list of the directory: the first one, and one while memory has saves."""
READ_SECONDS = 30.0
"""How long a read may make no progress when a save is restored."""


class DurableTier:
    """The durable directory of one agent."""

    def __init__(self, held: HeldSaves, rules: DurableRules, job: str, pace: TransferPace) -> None:
        """Touch nothing yet, and start the thread that copies."""
        self._held, self._saves = held, DurableSaves(Path(rules.directory), job)
        self.drain = Drain(held, self._saves, rules.interval, pace)
        self._stored: list[StoredSave] = []
        self._listing: Call[list[StoredSave]] | None = None
        self._unread = ""

    @property
    def problem(self) -> str:
        """Why the directory could not be read or written last."""
        return self._unread or self.drain.problem

    def offered(self) -> tuple[HeldSave, ...]:
        """Return the complete saves in the directory; nothing if it does not answer in time."""
        seconds = LATER_SECONDS if self._held.list() else FIRST_SECONDS
        if self._listing is None or self._listing.is_done:
            self._listing = Call(self._saves.stored, STORAGE)
        elif self._unread:
            seconds = 0.0  # it has hung since an earlier request
        try:
            self._stored = self._listing.result(seconds)
        except OSError as error:
            self._stored = []
            self._unread = f"DurableDirectoryUnusable: its checkpoints are not found: {error}"
            say(f"warning: {self._unread}")
            return ()
        self._unread = ""
        return durable.offered(self._stored)

    def parts(self) -> tuple[Parts, ...]:
        """Return the saves of which the directory had only some parts when it was read last."""
        return durable.incomplete(self._stored)

    def offers(self, choice: Choice, owner: int) -> bool:
        """Return whether this owner's part of a save was in the directory when it was read last."""
        return durable.part(self._stored, choice, owner) is not None

    def fetch(self, choice: Choice, owner: int, goes_on: Callable[[], bool]) -> Manifest:
        """Bring this owner's part of a save into memory. Raises SourceError, FullError and OSError."""
        stored = durable.part(self._stored, choice, owner)
        if stored is None:
            raise SourceError("it is not in the durable directory")
        return while_it_moves(lambda progress: self._bring(stored, progress), READ_SECONDS, goes_on)

    def _bring(self, stored: StoredSave, progress: Progress) -> Manifest:
        manifest = stored.manifest
        with self._held.receiving(manifest.size, keep=(manifest.id,)) as folder:
            for place, file in enumerate(manifest.files):
                if not file.link:
                    durable.copy_out(stored, place, folder / str(place), progress.step)
            progress.step()
            self._held.keep(manifest, folder)
        return manifest
