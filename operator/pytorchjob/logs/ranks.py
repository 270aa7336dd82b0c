"""Which rank printed a line, how the line is labelled, and which ranks a person wants to read."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pytorchjob.view import reading
from pytorchjob_agent.contract.log_lines import AGENT, ranks_of

_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_RANK = re.compile(rb"\[rank(\d{1,9})\]: ?(?:\[rank\1\]: ?)*")
"""Before each line of a worker that the agent started, and before what torch itself reports about a rank."""
_TORCHRUN = re.compile(rb"\[default(\d{1,9})\]:")
"""Before each line of torchrun's `--tee`: the number of the process in its pod."""
_AGENT = AGENT.encode()


class Ranks(NamedTuple):
    """A choice of ranks, as `--rank 0,3-5` names it."""

    spans: tuple[tuple[int, int], ...]

    def has(self, rank: int) -> bool:
        """True if this rank is chosen."""
        return any(first <= rank <= last for first, last in self.spans)

    def has_any(self, ranks: Iterable[int]) -> bool:
        """True if at least a single rank of these is chosen."""
        return any(self.has(rank) for rank in ranks)


def parse_ranks(text: str) -> Ranks:
    """Read a choice of ranks; raises ValueError with a sentence for people."""
    return Ranks(tuple(_span(part.strip()) for part in text.split(",")))


def _span(part: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(part)
    if found is None:
        raise ValueError(f"`{part}` is not a rank: write ranks and ranges of ranks, such as 0,3-5")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ValueError(f"the range `{part}` ends before it begins: write {last}-{first}")
    return first, last


class LineOrigin(NamedTuple):
    """Where a line comes from."""

    label: str
    """`rank3`; `worker-1:0` for the first process of a pod whose ranks are unknown; `worker-1` for the pod itself."""
    rank: int | None
    text: bytes
    """The line without the prefix that named its rank."""


class PodRanks:
    """Knows the ranks of a pod: from its environment, and from what its log has shown."""

    def __init__(self, name: str, first: int | None = None, count: int | None = None) -> None:
        """Take the pod's short name (`worker-1`), its first rank if it is fixed, and how many processes it has."""
        self.name = name
        self._first, self._count = first, count
        self._known = set(range(first, first + count)) if first is not None and count else set()
        self._named = False

    @property
    def fixed(self) -> frozenset[int]:
        """The ranks that this pod has from its start to its end; empty if they can change."""
        if self._first is None or self._count is None:
            return frozenset()
        return frozenset(range(self._first, self._first + self._count))

    def origin(self, text: bytes) -> LineOrigin:
        """Find the origin of the pod's next line."""
        if found := _RANK.match(text):
            rank = int(found[1])
            self._named = True
            self._known.add(rank)
            return LineOrigin(f"rank{rank}", rank, text[found.end() :])
        if found := _TORCHRUN.match(text):
            return self._process(int(found[1]), text[found.end() :])
        if text.startswith(_AGENT):
            self._read_round(text)
        elif self._first is not None and self._count == 1 and not self._named:
            return LineOrigin(f"rank{self._first}", self._first, text)
        return LineOrigin(self.name, None, text)

    def shows(self, origin: LineOrigin, ranks: Ranks) -> bool:
        """True if a person who chose these ranks wants the line: lines of the pod come with those of its ranks."""
        return ranks.has_any(self._known) if origin.rank is None else ranks.has(origin.rank)

    def _process(self, number: int, text: bytes) -> LineOrigin:
        if self._first is None or self._count is None:
            return LineOrigin(f"{self.name}:{number}", None, text)
        return LineOrigin(f"rank{self._first + number}", self._first + number, text)

    def _read_round(self, text: bytes) -> None:
        if (found := ranks_of(text)) is not None:
            self._known = set(found)


def pod_ranks(pod: dict[str, Any], name: str, container: str) -> PodRanks:
    """Read the ranks of a pod from the environment that the operator gave its container."""
    named = (item for item in pod["spec"].get("containers", ()) if item.get("name") == container)
    spec: dict[str, Any] = next(named, {})
    env = {item.get("name"): item.get("value") for item in spec.get("env") or ()}
    node, processes = _number(env.get("RANK")), reading.processes(spec)
    first = node * processes if node is not None and processes else None
    return PodRanks(name, first, processes)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
