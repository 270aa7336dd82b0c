"""How often a job has restarted, and which number ends it: what `backoffLimit` and `maxRestarts` count."""

from dataclasses import dataclass

from pytorchjob.view import reading
from pytorchjob.view.seen import Seen


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restarts of a job's life, and its limits."""

    total: int
    """Of containers, of replaced pods, and of workers inside their pods."""
    counted: int
    """Those that count against `runPolicy.backoffLimit`."""
    ends_at: int | None
    """The number of counted restarts at which the job fails; None without a `backoffLimit`."""


def count(seen: Seen) -> Restarts:
    """Return the restarts as the operator counts them."""
    replaced, inside = reading.whole(seen.status.get("restarts")) or 0, _inside(seen)
    by_role = {role: _of_containers(seen, role) for role, _, _ in reading.roles(seen.job)}
    counting = sum(number for role, number in by_role.items() if _policy(seen, role) != "Never")
    limit = reading.whole(reading.part(seen.job, "spec", "runPolicy").get("backoffLimit"))
    return Restarts(
        total=replaced + sum(by_role.values()) + inside,
        counted=replaced + counting + (inside if most_inside(seen) is None else 0),
        ends_at=None if limit is None else max(limit, 1),
    )


def most_inside(seen: Seen) -> int | None:
    """Return how many restarts inside pods `elasticPolicy.maxRestarts` allows; None if it is not set."""
    return reading.whole(reading.part(seen.job, "spec", "elasticPolicy").get("maxRestarts"))


def window(seen: Seen) -> int | None:
    """Return the seconds within which `maxRestarts` counts; None: over the job's life."""
    return reading.whole(reading.part(seen.job, "spec", "agent").get("restartWindowSeconds"))


def _inside(seen: Seen) -> int:
    return reading.whole(reading.part(seen.status, "elastic").get("restarts")) or 0


def _of_containers(seen: Seen, role: str) -> int:
    """Return the restarts of containers of a role. Those of pods that are replaced are in `status.restarts`."""
    listed = seen.status.get("replacing")
    included = listed if isinstance(listed, list | tuple) else ()
    pods = (pod for pod in seen.pods if reading.uid_of(pod) not in included)
    return sum(reading.restarts(pod) for pod in pods if reading.role_of(pod) == role)


def _policy(seen: Seen, role: str) -> str:
    return str(reading.part(seen.job, "spec", "pytorchReplicaSpecs", role).get("restartPolicy") or "")
