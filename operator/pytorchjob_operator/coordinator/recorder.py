"""Writes the inputs of all decisions to a file, for `pytorchjob-operator rounds --replay`."""

import logging
from pathlib import Path

from pytorchjob_operator.rounds import recording
from pytorchjob_operator.rounds.state import Input, JobState

_log = logging.getLogger(__name__)
_MAX_BYTES = 256 * 1024 * 1024


class Recording:
    """One recording. It replaces an earlier file, and stops at 256 MiB."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises OSError."""
        self._path = path
        self._file = path.open("w", buffering=1)
        self._left = _MAX_BYTES
        self._write(recording.header())

    def __call__(self, job: str, state: JobState, input_: Input, now: float) -> None:
        """Record an input. A write that fails ends the recording, never the coordinator."""
        if self._left > 0:
            self._write(recording.line(job, state, input_, now))

    def close(self) -> None:
        """Close the file."""
        self._left = 0
        self._file.close()

    def _write(self, text: str) -> None:
        self._left -= len(text)
        try:
            self._file.write(text)
        except OSError as error:
            _log.warning("the recording of rounds in %s ends: %s", self._path, error)
            self._left = 0
        else:
            if self._left <= 0:
                _log.warning("the recording of rounds in %s ends: it has reached %d bytes", self._path, _MAX_BYTES)
