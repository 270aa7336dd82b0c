"""Reads the stacks that faulthandler writes, and describes which ranks are not where most ranks are.

Pure: text in, a sentence out. Only the main thread counts, because it is the one that trains.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

LONGEST = 8192  # characters of one rank's stacks
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')
_PACKAGES = ("/site-packages/", "/dist-packages/")
_MEASURES = "/pytorchjob_agent/workers/startup/"
"""Files of the agent that wrap functions of torch in a worker: their frames are no place of a rank."""
_FOREIGN = (*_PACKAGES, "/lib/python3", "<frozen ", "<string>")
_ENGINE = "_engine_run_backward"  # DDP's all-reduce runs below it, without a Python frame
BACKWARD = "backward"
"""Where a rank computes as well as it waits: its own computation and the all-reduce of DDP are one call."""
_WRAPPERS = frozenset({"wrapper", "inner", "_fn", "decorate_context"})
_COLLECTIVES = ("distributed_c10d.py", "functional_collectives.py", "distributed/nn/functional.py")
_HANDLE = re.compile(r"\.(is_completed|wait)\(")
_OUTSIDE = (
    *("/socket.py", "/ssl.py", "/http/client.py", "/urllib/", "/asyncio/"),
    *("/urllib3/", "/botocore/", "/aiohttp/", "/httpx/", "/httpcore/", "/grpc/"),
    *("/pdb.py", "/bdb.py", "/debugpy/", "/pydevd"),
)
_OLDEST = frozenset({"<module>", "_run_module_as_main"})
"""The oldest frame of a main thread: of a script, of `-c` and of a process that was forked from one, and of `-m`."""
_LEFT_OUT = "..."
"""What faulthandler writes in the place of further frames."""
_MOST_RANKS = 8

Source = Callable[[str, int], str]
"""Returns the lines around a line of a file; empty if they cannot be read."""


@dataclass(frozen=True, slots=True)
class StackPlace:
    """Where a rank's main thread is: the line of the user's code, and the collective in which it waits.

    `blocked`: it is in Python's own library, on a queue, a lock, a pipe or a socket. Elsewhere a call into C may also
    wait for other ranks (`work.wait()`), which only the source shows.
    `external`: it waits for the network or a debugger.
    """

    where: str
    collective: str | None = None
    blocked: bool = False
    external: bool = False
    frames: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    """File, line and function of each frame, the innermost first."""

    @property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """Return the frames without their lines."""
        return tuple((file, name) for file, _, name in self.frames)

    @property
    def words(self) -> str:
        """Return the place in words."""
        return f"waits in {self.collective} ({self.where})" if self.collective else f"is in {self.where}"

    @property
    def key(self) -> str:
        """Return the key that ranks at the same place share."""
        return self.collective or self.where


def cut(text: str) -> str:
    """Return the end of the text, which has the main thread's newest frames."""
    if len(text) <= LONGEST:
        return text
    main = _main(text)
    return (main if len(main) <= LONGEST else main[:LONGEST]) or text[-LONGEST:]


def _main(text: str) -> str:
    """Return the stack of the main thread: faulthandler writes the oldest thread last."""
    return text[text.rfind("hread 0x") - 1 :] if "hread 0x" in text else text


def is_whole(text: str) -> bool:
    """Return whether the main thread's stack is written to its end: faulthandler writes its newest frame first.

    A part of it may be a place in Python's library, without the script's own line or the collective that it is in.
    """
    last = text.rpartition("\n")[0].rpartition("\n")[2]
    frame = _FRAME.match(last)
    oldest = last.strip() == _LEFT_OUT if frame is None else frame["name"] in _OLDEST
    return oldest and text.endswith("\n")


def place(text: str | None, source: Source = lambda _file, _line: "") -> StackPlace | None:
    """Return a rank's place from its stacks; None without stacks. `source` has the code, where it can be read."""
    if not text:
        return None
    frames = [
        match for line in _main(text).splitlines() if (match := _FRAME.match(line)) and _MEASURES not in match["file"]
    ]
    if not frames:
        return None
    own = next((frame for frame in frames if not _foreign(frame["file"])), frames[0])
    where = f"{own['file'].rpartition('/')[2]}:{own['line']} {own['name']}"
    library = frames[0]["file"].rpartition("/lib/python3")[2]
    blocked = library != frames[0]["file"] and not any(part in library for part in _PACKAGES)
    return StackPlace(
        where if own["name"].startswith("<") else f"{where}()",
        _collective(frames) or _handle(frames[0], source),
        blocked,
        _waits_outside(frames),
        tuple((frame["file"], frame["line"], frame["name"]) for frame in frames),
    )


def _handle(frame: re.Match[str], source: Source) -> str | None:
    """Return the call of the script's own line that waits for a collective in C: `work.wait()` leaves no frame."""
    if _foreign(frame["file"]) or not frame["line"].isdecimal():
        return None
    found = _HANDLE.search(source(frame["file"], int(frame["line"])))
    return None if found is None else found[1]


def _waits_outside(frames: Sequence[re.Match[str]]) -> bool:
    """Return whether the calls below the script's own line are those of a network client or a debugger."""
    for frame in frames:
        if not _foreign(frame["file"]):
            return False
        if any(part in frame["file"] for part in _OUTSIDE):
            return True
    return False


def _foreign(file: str) -> bool:
    return any(part in file for part in _FOREIGN)


def _collective(frames: Sequence[re.Match[str]]) -> str | None:
    """Return the call of torch.distributed that the rank is in; if they are nested, the one that the script made."""
    found = None
    for frame in frames:
        if not _foreign(frame["file"]):
            return found
        if frame["file"].endswith(_COLLECTIVES) and frame["name"] not in _WRAPPERS:
            found = frame["name"]
        elif frame["name"] == _ENGINE:
            found = BACKWARD
    return found


def describe_ranks(places: Mapping[int, StackPlace | None], steps: Mapping[int, int | None] | None = None) -> str:
    """Describe which ranks are not where most ranks are, from stacks and steps; None is a rank without a stack."""
    mute = sorted(rank for rank, where in places.items() if where is None)
    known = {rank: where for rank, where in places.items() if where is not None}
    if not known:
        return f"no stack of {_ranks(mute)}" if mute else "no stacks"
    crowd = _crowd(known)
    others = {rank: where for rank, where in known.items() if where.key != crowd}
    parts = [f"{_ranks(mute)} {_gives(mute)} no stack: stopped, or stuck in the kernel"] if mute else []
    parts += _apart(others)
    rest = sorted(known.keys() - others.keys())
    if not parts:
        return _together(rest, known[rest[0]], steps or {})
    return "; ".join([*parts, f"{_ranks(rest)} {_verb(rest, known[rest[0]])}"])


def _crowd(known: Mapping[int, StackPlace]) -> str:
    """Return the place of most ranks; prefer one where ranks wait for others, because it is not the cause."""
    waits = {where.key: where.collective is not None for where in known.values()}
    counts = Counter(where.key for where in known.values())
    return max(sorted(counts), key=lambda key: (counts[key] + (len(known) if waits[key] else 0), waits[key]))


def _apart(others: Mapping[int, StackPlace]) -> list[str]:
    """Describe the ranks that are elsewhere; those that wait for no other rank come first."""
    groups: dict[tuple[bool, str], list[int]] = {}
    for rank in sorted(others):
        where = others[rank]
        groups.setdefault((where.collective is not None, where.key), []).append(rank)
    named = [(ranks, others[ranks[0]]) for _, ranks in sorted(groups.items())]
    return [f"{_ranks(ranks)} {_verb(ranks, where)}" for ranks, where in named[:_MOST_RANKS]]


def _together(ranks: Sequence[int], where: StackPlace, steps: Mapping[int, int | None]) -> str:
    """Describe ranks that are all at one place: name those with the fewest steps."""
    words = f"{_ranks(ranks)} {_verb(ranks, where)}"
    known = {rank: step for rank in ranks if (step := steps.get(rank)) is not None}
    if len(set(known.values())) < 2:
        return words
    least, most = min(known.values()), max(known.values())
    behind = [rank for rank, step in known.items() if step == least]
    return f"{words}; {_ranks(behind)} {_be(behind)} at step {least}, the others at up to {most}"


def _verb(ranks: Sequence[int], where: StackPlace) -> str:
    return where.words if len(ranks) == 1 else where.words.replace("waits", "wait", 1).replace("is in", "are in", 1)


def _be(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _gives(ranks: Sequence[int]) -> str:
    return "gives" if len(ranks) == 1 else "give"


def _ranks(ranks: Iterable[int]) -> str:
    """Return `rank 3`, or `ranks 3, 4 and 90 more`."""
    listed = sorted(ranks)
    shown = ", ".join(map(str, listed[:_MOST_RANKS]))
    more = f" and {len(listed) - _MOST_RANKS} more" if len(listed) > _MOST_RANKS else ""
    return f"rank {shown}" if len(listed) == 1 else f"ranks {shown}{more}"
