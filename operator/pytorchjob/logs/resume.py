"""Where to continue a container's log after its stream ended: which lines are new, and whether some are missing.

The node's timestamps are the key. They grow with the lines of a container, over its restarts too. A request for a log
can name whole seconds only, so that the first lines of a later stream are known ones. Lines with the timestamp at which
an earlier stream ended are compared with those taken: several lines can have the same timestamp.

A pass reads the log of the previous container, then that of the current container. The log of the last known line is
one of them, unless the node has removed it.
"""

from pytorchjob.logs.lines import Line


class Resume:
    """What was taken from the logs of one container of one pod, over its restarts."""

    def __init__(self, floor: int | None = None) -> None:
        """Take no line before `floor` (nanoseconds)."""
        self.floor = floor
        self.at: int | None = None
        """The timestamp of the last line that was taken."""
        self.taken: list[int] = []
        """Hashes of the texts that were taken with this timestamp, in their order."""
        self.found = False
        """True if this pass has shown the last line that was known at its beginning."""
        self._known: int | None = None

    @property
    def since(self) -> int | None:
        """From which moment on a stream must begin; None: from its beginning."""
        return self.floor if self.at is None else self.at

    def begin(self) -> None:
        """Begin a pass."""
        self._known, self.found = self.at, False

    def is_ahead(self, line: Line) -> bool:
        """True if this line is new and the last known line has not been seen: lines between them may be missing."""
        return not self.found and self._known is not None and line.at > self._known

    def accept_gap(self) -> None:
        """Continue although lines may be missing."""
        self.found = True

    def stream(self) -> "ResumedStream":
        """Begin a stream: the log of the previous or of the current container."""
        return ResumedStream(self)

    def record(self, line: Line) -> None:
        """Remember that a line was taken."""
        if line.at != self.at:
            self.at, self.taken = line.at, []
        self.taken.append(hash(line.text))


class ResumedStream:
    """Chooses the new lines of one stream."""

    def __init__(self, resume: Resume) -> None:
        self._resume = resume
        self._end, self._known = resume.at, tuple(resume.taken)
        self._next = 0
        self._is_past = self._end is None

    def takes(self, line: Line) -> bool:
        """True for a new line; it counts as taken from then on."""
        floor = self._resume.floor
        if (floor is not None and line.at < floor) or not (self._is_past or self._is_new(line)):
            return False
        self._resume.record(line)
        return True

    def _is_new(self, line: Line) -> bool:
        """Compare with the end of the known lines; all that comes after it, or after a newer line, is new."""
        if self._end is None or line.at > self._end:
            self._is_past = True
            return True
        return line.at == self._end and not self._is_known(line)

    def _is_known(self, line: Line) -> bool:
        """Find the line among those with this timestamp; after a rotation the first of them can be missing."""
        try:
            self._next = self._known.index(hash(line.text), self._next) + 1
        except ValueError:
            return False
        if self._next == len(self._known):
            self._resume.found = self._is_past = True
        return True
