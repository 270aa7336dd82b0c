"""What the coordinator tells the operator of one job: values only, a snapshot of the moment it was asked for.

Pure. Plans look at it; what it means for the job's status and end is theirs to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LastRestart:
    """The newest restart of workers after a failure."""

    age: float
    """Seconds since."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How the members' training ended, by the coordinator's judgement."""

    reason: str
    message: str
    exit_code: int
    """0: every member is done."""

    @property
    def failed(self) -> bool:
        """Whether the job is to fail with it."""
        return self.exit_code != 0


@dataclass(frozen=True, slots=True)
class Report:
    """How a job's rounds stand."""

    round: str = ""
    """The newest round, as the agents' logs name it (3.7); empty: none yet."""
    running: bool = False
    """Whether its workers run: not between two rounds, and not after the end."""
    members: int = 0
    """Pods of that round."""
    world: int = 0
    """Processes of that round; 0 while the coordinator does not know all of its members."""
    restarts: int = 0
    """Restarts after failures so far; a change of the members is none."""
    last_restart: LastRestart | None = None
    step: int | None = None
    """Steps done, by the member that is furthest; None: nobody told."""
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers of that same member."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """What is wrong without having ended the job: a sentence by its reason."""
    ended: Ended | None = None
    waiting: int = 0
    """Pods that wait for the next round to begin."""
    spares: int = 0
    """Pods that wait beside a round that runs without them."""
