"""The coordinator of a local run: on the loopback interface, with a key of its own, without TLS.

Each replica has its credential in a file that only the user can read, as a pod has it in a volume.

Its events wake the runner's loop, as an ended process does.
"""

import os
import secrets
import selectors
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pytorchjob.local.addresses import LOOPBACK
from pytorchjob.local.translate import credential_directory
from pytorchjob_operator import tokens
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.thread import Coordinator, Hooks
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate
from pytorchjob_operator.errors import CannotRun
from pytorchjob_operator.observed import CoordinatorAccess, Options
from pytorchjob_operator.plan import credential
from pytorchjob_operator.rounds.state import JobEvent

_TERM = 1
_MAX_EVENTS = 1000
_EARLY_EXITS = 3
"""A person waits for the result: a replica that ends the same way this often in a row, soon after its start, ends the
job. In a cluster v1's restarts go on."""
_NO_IMAGE = "none"
"""A local run needs no agent image: `run_command` installs the agent of this machine."""


class LoopbackCoordinator:
    """Serves the one job of a run, from its first pod to its end."""

    def __init__(self, selector: selectors.BaseSelector, scratch: str) -> None:
        """`selector` is the selector with which the runner waits; `scratch` is the directory for the credentials."""
        self._selector, self._scratch = selector, scratch
        self._key = secrets.token_bytes(tokens.KEY_BYTES)
        self._events: deque[JobEvent] = deque(maxlen=_MAX_EVENTS)
        self._coordinator = Coordinator(KeyedTokens(self._key), _TERM, hooks=Hooks(self._changed))
        self._readable, self._writable = os.pipe()
        for fd in (self._readable, self._writable):
            os.set_blocking(fd, False)
        self.options = Options(early_exits=_EARLY_EXITS)
        """The coordinator's endpoint, for the pods' environment, and the limits of a local run."""

    def __enter__(self) -> Self:
        """Open the port; raises CannotRun if that fails."""
        try:
            port = self._coordinator.start(LOOPBACK, 0)
        except OSError as error:
            raise CannotRun(f"the coordinator cannot open a port on {LOOPBACK}: {error.strerror or error}") from error
        at = CoordinatorAccess(f"{LOOPBACK}:{port}")
        self.options = Options(coordinator=at, agent_image=_NO_IMAGE, early_exits=_EARLY_EXITS)
        self._selector.register(self._readable, selectors.EVENT_READ, self._drain)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the port and every connection."""
        self._coordinator.stop()
        self._selector.unregister(self._readable)
        os.close(self._readable)
        os.close(self._writable)

    def report(self, uid: str) -> Report | None:
        """Return how the job's rounds stand; None if the coordinator does not know the job."""
        return self._coordinator.report(uid)

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about the job."""
        self._coordinator.apply(uid, update)

    def write_credential(self, job_uid: str, pod: str) -> None:
        """Write the file with a replica's credential; raises CannotRun if that fails."""
        path = Path(credential_directory(self._scratch, pod), Path(credential.FILE).name)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                file.write(tokens.token(self._key, job_uid, pod))
        except OSError as error:
            raise CannotRun(
                f"the credential of {pod} cannot be written to {path}: {error.strerror or error}"
            ) from error

    def take_events(self) -> list[JobEvent]:
        """Return the events since the last call."""
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken

    def _changed(self, _uid: str, events: tuple[JobEvent, ...]) -> None:
        """Store the events and wake the runner; the coordinator's thread calls this."""
        self._events.extend(events)
        with suppress(BlockingIOError, OSError):  # a full pipe wakes the runner too; a closed one: the run has ended
            os.write(self._writable, b".")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._readable, 4096)
