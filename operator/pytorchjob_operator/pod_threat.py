"""Why a running pod may be lost soon, by its own status: an announced disruption, or an unhealthy device. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST = 200
"""Characters that are kept of what others write."""


def find_threat(status: Mapping[str, Any]) -> str:
    """Return the reason without a subject; empty if nothing is known."""
    return next(_disruptions(status), "") or next(_unhealthy(status), "")


def _disruptions(status: Mapping[str, Any]) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("DisruptionTarget", "True"):
            words = condition.get("message") or condition.get("reason")
            yield f"it is about to be deleted: {words}"[:_LONGEST] if words else "it is about to be deleted"


def _unhealthy(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the devices that the kubelet reports as unhealthy (`allocatedResourcesStatus`)."""
    for container in status.get("containerStatuses") or ():
        for resource in container.get("allocatedResourcesStatus") or ():
            for device in resource.get("resources") or ():
                if device.get("health") == "Unhealthy":
                    words = f"its {resource.get('name') or 'device'} {device.get('resourceID') or ''}".strip()
                    yield f"{words} is unhealthy"[:_LONGEST]
