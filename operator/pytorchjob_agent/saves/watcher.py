"""Watches the checkpoint directory while workers run, holds each complete save, and copies it to peers.

One thread does so. Workers wait for none of it, and no failure here reaches them.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.exchange.files import open_for_writing
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import UNLIMITED, PeerRefusedError, TransferPace
from pytorchjob_agent.saves import copies, directory, naming
from pytorchjob_agent.saves.bounded import Progress, while_it_moves
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.recognition import Local, Recognition, Scan, SeenFile
from pytorchjob_agent.saves.rename_watch import RenameWatch
from pytorchjob_agent.saves.taking import (
    Bursts,
    NotTakenError,
    OnPiece,
    Replacing,
    Taking,
    TornError,
    Writer,
    is_proved,
)
from pytorchjob_agent.saves.whole import WholeSaves
from pytorchjob_agent.system import processes
from pytorchjob_agent.system.console import say

SCAN_SECONDS, _LEAST_SECONDS = 0.25, 0.05
"""Between two scans: at most, and at least, however often the script renames files."""
_REST_FACTOR = 120.0
_LOOK_SECONDS = 2.0
"""Between two looks for a save that is whole."""
_SILENT_SECONDS = 10.0
"""The agent waits no longer for a directory that does nothing: it has its coordinator to answer."""
_END_SECONDS = 120.0
"""Nor does it read longer than this for the last save of a round."""


class StoppedError(Exception):
    """The round ended while a save was read."""


@dataclass(frozen=True, slots=True)
class RoundOfSaves:
    """What the watcher needs to know of a round."""

    writer: Writer
    local: Local
    keys: RoundKeys
    copies: int
    peers: Callable[[], Sequence[Peer]]
    """Asks for the peers that may keep copies, the best first; may raise RuntimeError."""
    pace: TransferPace = UNLIMITED
    """Of these copies."""
    whole: WholeSaves | None = None
    """Which saves of several writers are whole. None: it is not known here, and older ones stay."""
    drops: bool = True
    """False: copies on durable storage may still need parts that are older than a whole save."""


class SaveWatcher:
    """Keeps the saves of this agent's workers."""

    def __init__(self, held: HeldSaves, silent: float = _SILENT_SECONDS, longest: float = _END_SECONDS) -> None:
        """Start the thread, without a round.

        `silent`, `longest`: for how many seconds `begin` and `end` wait for a directory that does nothing, and at all.
        """
        self._silent, self._longest = silent, longest
        self._held, self._recognition = held, Recognition()
        self._renames = RenameWatch(held.root)
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._round: RoundOfSaves | None = None
        self._taking: Taking | None = None
        self.bursts, self.replacing = Bursts(), Replacing()
        self._active = self._copying = False
        self._scan_cost = 0.0
        """Seconds of the last scan that found nothing changed."""
        self._busy = ""
        self._settling: bool | None = None
        self._settled = False
        self._pids: tuple[int, ...] = ()
        self._unsent: Manifest | None = None
        self._sent: Manifest | None = None
        self._again = False
        """Whether the last save may have lost a copy since it was sent."""
        self._copied = self._whole = self._dropped = ""
        """Labels: of the last part that was copied, of the save that was whole at the last look, and of the one before
        which all are dropped."""
        self._look_at = 0.0
        self._last: list[SeenFile] | None = None
        self._reported: set[str] = set()
        self._not_kept = self._not_copied = ""
        """Why the last save is not kept, until the next one is; why it has too few copies, in this round."""
        self.on_full: Callable[[Manifest], None] | None = None
        """Receives a save that memory has no room to hold. None: such a save is not read."""
        threading.Thread(target=self._run, name="checkpoints", daemon=True).start()

    def begin(self, round_: RoundOfSaves, pids: Collection[int], placed: Sequence[SeenFile]) -> None:
        """Watch the workers of a round, which started with the `placed` files as their save. Raises OSError."""
        self._copying = True
        try:
            self._wait(lambda progress: self._begin(round_, pids, placed, progress))
        except OSError:
            self._taking = None
            raise

    def _begin(
        self, round_: RoundOfSaves, pids: Collection[int], placed: Sequence[SeenFile], progress: Progress
    ) -> None:
        with self._lock:
            progress.step()
            self._recognition.local = round_.local
            self._recognition.accept(placed)
            self._renames.take()
            files = directory.read(self._held.root)
            base = self._recognition.follow(Scan(tuple(files), time.monotonic(), alive=False)).units if placed else {}
            progress.step()
            readers = copies.connections_for(round_.pace)
            self._taking = Taking(self._held, round_.writer, base, self.bursts, self.replacing, readers)
            self._round, self._pids, self._unsent, self._sent, self._last = round_, tuple(pids), None, None, None
            self._again = False
            self._active = True
            self._settling, self._settled = None, False
            self._copied = self._whole = self._dropped = ""
            self._not_copied = ""  # the members of another round are others, and fetch what lacks copies

    @property
    def problem(self) -> str:
        """Why the last save is not kept, or has too few copies. The next save that has them ends it."""
        return self._not_kept or self._not_copied

    def end(self, *, clean: bool) -> None:
        """Take the last save of a round whose workers have ended; `clean`: all of them with success."""
        self._active = False  # a save that is just being read stops: it is read at full speed below
        try:
            self._wait(lambda progress: self._end(progress, clean=clean))
        except OSError as error:
            self.report(f"the last checkpoint is not kept: {error}")
        self._taking = None

    def _end(self, progress: Progress, *, clean: bool) -> None:
        with self._lock:
            progress.step()
            if self._taking is not None:
                renamed = self._renames.take()
                files = directory.read(self._held.root)
                scan = Scan(tuple(files), time.monotonic(), alive=False, renamed=renamed)
                found = self._recognition.end(scan, clean=clean, is_proved=self._is_proved)
                if found.together:
                    self._take(found.units, lambda _: progress.step(), ended=not clean)

    def _wait(self, call: Callable[[Progress], None]) -> None:
        """Wait for a call in a thread of its own; a directory that hangs must not hang the agent. Raises OSError."""
        until = time.monotonic() + self._longest
        while_it_moves(call, self._silent, lambda: time.monotonic() < until)

    def settle(self, *, ended: bool) -> bool:
        """Return whether the last save is held and copied; call again. `ended`: all workers ended with success."""
        if not self._active:
            return True
        if self._settling is None or ended > self._settling:
            self._settling, self._settled = ended, False
            self._renames.wake()
        return self._settled

    def copy_again(self) -> None:
        """Give the last save to peers anew: one of them has gone or come. Those that hold it only say so."""
        self._again = True
        self._renames.wake()

    def copy_no_more(self) -> None:
        """Hold the last save, but give it to no peer: the job ends."""
        self._copying = False

    def close(self) -> None:
        """End the thread."""
        self._active = False
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_LEAST_SECONDS):
            try:
                self._pause()
                settling = self._settling
                with self._lock:
                    if self._active:
                        self._scan(ended=bool(settling))
                self._send()
                self._drop_older()
                if settling is not None and settling == self._settling:
                    self._settled = not self._busy and self._unsent is None
            except StoppedError:
                continue
            except Exception as error:  # the training goes on without copies
                self.report(f"checkpoints are not copied: {type(error).__name__}: {error}")
        self._renames.close()

    def _pause(self) -> None:
        """Wait for a rename that may end a save, or until it is time to scan again.

        A directory that does not change is read in at most one hundredth of the time, however many files it has.
        """
        seconds = max(SCAN_SECONDS - _LEAST_SECONDS, _REST_FACTOR * self._scan_cost)
        if self._active:
            self._renames.wait(seconds)
        else:
            self._ended.wait(seconds)

    def _scan(self, *, ended: bool) -> None:
        renamed = self._renames.take()
        started = time.monotonic()
        before = directory.read(self._held.root)
        if before == self._last:
            self._scan_cost = time.monotonic() - started
            return
        self._scan_cost = 0.0
        opened = open_for_writing(self._held.root, os.getpid())
        files = directory.read(self._held.root, opened)
        alive = all(processes.is_alive(pid) for pid in self._pids)
        files = directory.still(before, files, self._renames.written())
        scan = Scan(tuple(files), time.monotonic(), alive, renamed)
        found = self._recognition.end(scan, clean=True) if ended else self._recognition.follow(scan)
        self._busy = found.busy
        if not found.busy:
            self._last = files
        if found.together:
            self._take(found.units, self._gently)
        elif found.restless:
            self._held.left = not self._held.list()
            self.report(
                f"CheckpointsNeverRest: no checkpoint is kept: {found.busy} and what belongs to it change all the time;"
                " save less often, or rename each save from a temporary name"
            )

    def _gently(self, seconds: float) -> None:
        """Take half of a core at most; stop when the round ends."""
        if not self._active:
            raise StoppedError
        time.sleep(seconds)

    def _is_proved(self, file: SeenFile) -> bool:
        """Return whether a file that a kill may have cut is whole by its format, and others of a save are known."""
        try:
            return self.bursts.knows and is_proved(self._held.root / file.path, file)
        except OSError:
            return False

    @property
    def long_open(self) -> set[str]:
        """The files that workers kept open for a while."""
        return self._recognition.long_open

    def rests(self, files: Sequence[SeenFile]) -> list[SeenFile]:
        """Return the files that the script may take for a save: not logs, and not what it kept open."""
        return [
            file
            for file in files
            if not (naming.is_log(file.path) or naming.is_temporary(file.path))
            and self._recognition.kept_open.get(file.path) != file.inode
        ]

    def _take(self, units: Mapping[str, tuple[SeenFile, ...]], on_piece: OnPiece, *, ended: bool = False) -> None:
        assert self._taking is not None
        size = sum(file.size for files in units.values() for file in files)
        if self.on_full is None and size > self._held.limit:
            self._give_up(f"the files of a save have {size} bytes, and memory has {self._held.limit}")
            return
        try:
            taken = self._taking.take(units, on_piece, ended=ended)
        except TornError as error:
            self._recognition.reject((error.file,))
            self._last = None  # the other files are taken without it
            self.report(f"no checkpoint: {error}")
            return
        except NotTakenError as error:
            self._held.left = True
            self.report(f"no checkpoint is kept: {error}")
            return
        if self._taking.awaits:
            self._last = None
        if taken is not None:
            self._unsent, self._held.left = taken, False
            if not self.make_room() and self.on_full is not None:
                self.on_full(taken)

    def make_room(self) -> bool:
        """Leave room for the script's next save, which must not fail because of us; return whether saves stay held."""
        try:
            self._held.make_room(0)
            return True
        except FullError as error:
            self._give_up(str(error))
            return False

    def _give_up(self, why: str) -> None:
        """Leave the memory to the script."""
        self._held.clear()
        self._unsent, self._sent, self._held.left = None, None, True
        self.report(f"CheckpointMemoryFull: no checkpoint is kept in memory: {why}")

    def _send(self) -> None:
        again, self._again = self._again, False
        manifest, round_ = self._unsent or (self._sent if again else None), self._round
        if manifest is None or round_ is None or not self._active:
            return
        self._unsent, self._sent, kept, failed = None, manifest, 0, ""
        copies_ = round_.copies if self._copying else 0
        try:
            peers = round_.peers()
        except RuntimeError:  # the round's store is gone, and so is the round
            return
        for peer in peers:
            if kept == copies_:
                break
            try:
                copies.put(self._held, manifest, (peer.address, peer.port, peer.rank), round_.keys, round_.pace)
                kept += 1
            except (PeerRefusedError, ManifestError, OSError) as error:
                failed = f"node {peer.rank} keeps no copy of the last checkpoint: {error}"
        self._not_kept, self._not_copied = "", failed if kept < copies_ else ""
        if self._not_copied:
            self._print(failed)
            return
        if manifest.writers > 1 and round_.whole is not None:
            with suppress(RuntimeError):
                round_.whole.tell(manifest.label)
                self._copied = manifest.label

    def _drop_older(self) -> None:
        """Keep what is whole, and drop what is older one look later: until then other members have heard of it."""
        round_, now = self._round, time.monotonic()
        if not self._active or round_ is None or round_.whole is None or self._dropped == self._copied:
            return
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        with suppress(RuntimeError):
            if self._whole != self._dropped:
                if round_.drops:
                    self._held.drop_before_whole()
                self._dropped = self._whole
            if self._dropped != self._copied:
                self._whole = round_.whole.newest()
                self._held.hear(round_.writer.round, self._whole)

    def report(self, words: str) -> None:
        """Set the problem; print it once, whatever numbers follow its first words."""
        self._not_kept = words
        self._print(words)

    def _print(self, words: str) -> None:
        topic = words.partition(":")[0]
        if topic not in self._reported:
            self._reported.add(topic)
            say(f"warning: {words}")
