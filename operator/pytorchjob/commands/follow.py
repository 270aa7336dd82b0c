"""Follows jobs to their end, a line for each change that a person wants to know."""

from collections.abc import Sequence

from pytorchjob.cluster.api import Cluster
from pytorchjob.commands.options import here
from pytorchjob.commands.outcome import FAILED, suggest
from pytorchjob.view.listing import UNKNOWN, job_line
from pytorchjob.view.reading import ended
from pytorchjob_operator.terminal import say, visible_line


def follow(cluster: Cluster, jobs: Sequence[str]) -> int:
    """Print each change of these jobs until all have ended; return 0, or 1 if any of them failed or was deleted."""
    left, last, status = set(jobs), dict[str, str](), 0
    for change in cluster.watch(jobs[0] if len(jobs) == 1 else None):
        name = change.object["metadata"]["name"]
        if name not in left:
            continue
        text = f"{name}: deleted" if change.is_deleted else _line(change.object)
        if last.get(name) != text:
            say(text)
            last[name] = text
        end = "Deleted" if change.is_deleted else ended(change.object)
        if end:
            left.discard(name)
            status = status if end == "Succeeded" else FAILED
            if end == "Failed":
                suggest(f"pytorchjob status {name}{here()}")
        if not left:
            return status
    return status


def _line(job: dict[str, object]) -> str:
    line = job_line(job)
    step = f", step {line.step}" if line.step != UNKNOWN else ""
    percent = f" ({line.percent}%)" if line.percent is not None else ""
    message = f": {line.message}" if line.message else ""
    return visible_line(f"{line.name}: {line.state}, {line.ready} ready{step}{percent}{message}")
