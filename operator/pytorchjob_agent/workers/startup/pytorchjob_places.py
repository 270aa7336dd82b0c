"""Notes in a worker where its main thread works, a few times a second: at which lines of the script.

A rank that is slow at lines at which no other rank is does work of its own. A rank that is slower at the lines of all
ranks has a slow node. Lines of libraries do not count, nor does a wait in a collective. Imports nothing of the agent.
"""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

EVERY = 0.05
"""Seconds between two looks: 20 of them take less than a thousandth of a core."""
PLACES = 16
"""Places that are written: each line of the script on the stack is one, so that a call counts with all that it does."""
_FOREIGN = ("/site-packages/", "/dist-packages/", "/lib/python3", "/pytorchjob_agent/", "/pytorchjob_", "<")
_COLLECTIVES = "distributed_c10d.py"
_LONGEST = 60


def places(frame: FrameType | None) -> list[str]:
    """Return the lines of the script on this stack, each once, the innermost first; none within a collective."""
    found: dict[str, None] = {}
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(_COLLECTIVES):
            return []
        if not any(part in code.co_filename for part in _FOREIGN):
            line = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"
            found[line[:_LONGEST]] = None
        frame = frame.f_back
    return list(found)


class Sampler:
    """Looks at the main thread, and writes after each window which part of it was spent where."""

    def __init__(self, path: str, wanted: Callable[[], bool]) -> None:
        """Write to `path`. `wanted()` is false while the main thread saves: that is left out of its own time too."""
        self._path, self._wanted = path, wanted
        self._seen: Counter[str] = Counter()
        self._looks = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Look from now on, in a thread that ends with the process."""
        main = threading.main_thread().ident
        wait = threading.Event().wait

        def look() -> None:
            while not wait(EVERY):
                self.look(sys._current_frames().get(main or 0))

        threading.Thread(target=look, name="pytorchjob-places", daemon=True).start()

    def look(self, frame: FrameType | None) -> None:
        """Note one look at the main thread."""
        found = places(frame) if self._wanted() else []
        with self._lock:
            self._looks += 1
            self._seen.update(found)

    def write(self) -> None:
        """Write the parts of the window that ends, in thousandths, and begin another one. Raises OSError."""
        with self._lock:
            seen, looks, self._seen, self._looks = self._seen, self._looks, Counter(), 0
        parts = {place: 1000 * count // looks for place, count in seen.most_common(PLACES)} if looks else {}
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            json.dump(parts, file)
        os.replace(f"{self._path}.new", self._path)


def read(text: str, most: int) -> Iterator[tuple[str, int]]:
    """Yield the largest parts that a worker has written; what no worker writes yields nothing."""
    try:
        found = json.loads(text)
    except ValueError:
        return
    if isinstance(found, dict):
        known = [(place, part) for place, part in found.items() if isinstance(part, int) and 0 < part <= 1000]
        yield from sorted(known, key=lambda pair: -pair[1])[:most]
