"""The agent's side of the files in which workers write their own time (`workers/startup/pytorchjob_own_time`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorchjob_agent.contract.environment import FIND_STRAGGLERS
from pytorchjob_agent.rendezvous.extension import Extension, OwnPod, Registered, StartingWorkers
from pytorchjob_agent.workers.startup import pytorchjob_collectives, pytorchjob_places
from pytorchjob_agent.workers.startup.pytorchjob_collectives import OWN_TIME, SIZE

_ALL = 1000


class OwnTimes:
    """The files of one round's workers."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Make `nproc` files below `directory`, which exists."""
        self._paths = [directory / f"{local_rank}.own" for local_rank in range(nproc)]
        for path in self._paths:
            path.write_bytes(bytes(SIZE))

    def env(self, local_rank: int) -> dict[str, str]:
        """Return the variables that this worker needs."""
        return {OWN_TIME: str(self._paths[local_rank])}

    def report(self) -> dict[str, Any]:
        """Return the fields of a heartbeat; none until each worker has written a window."""
        found = [pytorchjob_collectives.read(_read(path)) for path in self._paths]
        known = [each for each in found if each is not None and each[2] > 0]
        if len(known) < len(found):
            return {}
        shares = tuple(min(max(_ALL * own // wall, 0), _ALL) for _, own, wall in known)
        return {"own_windows": tuple(windows for windows, _, _ in known), "own_shares": shares, **self._places()}

    def _places(self) -> dict[str, Any]:
        most = max(pytorchjob_places.PLACES // max(len(self._paths), 1), 1)
        found: dict[str, float] = {}
        for local_rank, path in enumerate(self._paths):
            text = _read(path.with_name(f"{path.name}.places")).decode(errors="replace")
            found |= {f"{local_rank} {place}": float(part) for place, part in pytorchjob_places.read(text, most)}
        return {"own_places": found} if found else {}


class RoundOwnTimes(Extension):
    """Reads the own times of the workers of the present round."""

    def __init__(self) -> None:
        """Begin without workers."""
        self._times: OwnTimes | None = None

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """Return where each worker writes its own time."""
        self._times = times = OwnTimes(starting.directory, starting.nproc)
        return [times.env(local_rank) for local_rank in range(starting.nproc)]

    def report(self, now: float, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the workers have written."""
        times = self._times
        return {} if times is None else times.report()


def _create(pod: OwnPod) -> Extension:
    return Extension() if pod.environ.get(FIND_STRAGGLERS) == "0" else RoundOwnTimes()


STRAGGLERS = Registered(_create)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
