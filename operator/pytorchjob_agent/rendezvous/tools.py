"""What the loop of an agent works with beside torch's own specification of its workers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchjob_agent.workers.fork_client import ForkServer


@dataclass(frozen=True)
class Tools:
    """What an agent works with beside torch's specification."""

    logs: Any
    """The workers' pipes; None if the user asked torchrun for another output."""
    directory: Path
    grace: float
    """Seconds from the signal to go until the kubelet kills."""
    server: ForkServer | None
    """The fork server of warm workers."""
