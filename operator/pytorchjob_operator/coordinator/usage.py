"""What jobs and namespaces use of the coordinator now: connections, and bytes of messages that wait. Pure."""

from collections import Counter
from dataclasses import dataclass

from pytorchjob_operator.coordinator.limits import Limits


@dataclass(frozen=True, slots=True)
class Title:
    """How people know a job."""

    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """Return namespace and name."""
        return f"job {self.namespace}/{self.name}"


UNNAMED = Title()
"""The job of a run without a cluster."""


@dataclass(frozen=True, slots=True)
class Share:
    """Connections of a job, of a namespace or of all, with their limit."""

    owner: str
    used: int
    most: int


class ConnectionUsage:
    """Counts connections and bytes. A count that returns to 0 takes no memory."""

    def __init__(self, limits: Limits) -> None:
        """Start without connections."""
        self._limits = limits
        self._links: Counter[str] = Counter()
        """By namespace."""
        self._held: Counter[Title] = Counter()

    def enter(self, title: Title) -> None:
        """Count a connection of a job."""
        self._links[title.namespace] += 1

    def leave(self, title: Title) -> None:
        """Count a connection of a job no more."""
        self._links[title.namespace] -= 1
        if not self._links[title.namespace]:
            del self._links[title.namespace]

    def shares(self, title: Title, links: int, pods: int) -> tuple[Share, ...]:
        """Return how many connections the job, all jobs and its namespace have, each with its limit.

        The job has so many connections (`links`) and pods.
        """
        limits = self._limits
        return (
            Share(str(title), links, limits.links(pods)),
            Share("the coordinator", self._links.total(), limits.connections),
            Share(
                f"namespace {title.namespace}", self._links[title.namespace], limits.of_namespace(limits.connections)
            ),
        )

    def hold(self, title: Title, more: int) -> str | None:
        """Count more bytes that wait, or fewer; return why a connection of this job must go, if they are too many."""
        self._held[title] += more
        if self._held[title] <= 0:
            del self._held[title]
        if more <= 0:
            return None
        limits = self._limits
        namespace = sum(held for other, held in self._held.items() if other.namespace == title.namespace)
        for owner, held, most in (
            (str(title), self._held[title], limits.held // 2),
            (f"namespace {title.namespace}", namespace, limits.of_namespace(limits.held)),
            ("the coordinator", self._held.total(), limits.held),
        ):
            if held > most:
                return f"{owner} has {held} bytes of messages that wait, and {most} is the limit; {title} must wait"
        return None
