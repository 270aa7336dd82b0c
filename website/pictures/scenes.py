"""What each picture of a terminal shows: a command, and the words that a reader has to find in its picture."""

from dataclasses import dataclass

HANGING, BLOCKED, TRAINING = "elastic", "digits", "fsdp2"
"""The jobs, by their examples: one trains through a hang, one finds no nodes, one trains."""
FAILING = "tiny"
"""The job whose script raises an error."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture. Its name is that of its file."""

    name: str
    command: str
    shows: tuple[str, ...]
    """Words of the picture."""
    moments: tuple[str, ...] = ()
    """Regular expressions for the terminal's last line: the picture shows these moments. Without any: the end."""
    columns: int = 110


ON_MACHINE = (
    Scene(
        "local-run",
        "pytorchjob run -f examples/digits/pytorchjob.yaml",
        ("Starting", "Joining", "accuracy=0.9", "Succeeded after", "pytorchjob plan"),
        columns=122,
    ),
    Scene(
        "local-training",
        f"pytorchjob run -f {TRAINING}.yaml",
        ("Training", "steps/s", "left", "2/2 ready, 0 restarts"),
        (r"Training .*step (2[5-9]|3\d)/.* left.*restarts, \d+ s$",),
        122,
    ),
    Scene(
        "local-failure",
        f"pytorchjob run -f {FAILING}.yaml",
        ("Traceback", "ValueError: the loss is nan", "Failed after", "at train.py:", "next: correct train.py"),
        columns=122,
    ),
)
"""Scenes of local runs."""
STATUS = Scene(
    "status",
    f"pytorchjob status {HANGING}",
    (
        "State:     Training",
        "Round:",
        "1 of 10 restarts inside pods",
        "WorkersHang",
        "Progress:",
        "LAST LINE",
        "Recently:",
    ),
    columns=150,
)
STATUS_BLOCKED = Scene(
    "status-blocked",
    f"pytorchjob status {BLOCKED}",
    ("State:     Pending", "Insufficient nvidia.com/gpu", "Next:"),
    columns=150,
)
PROGRESS = Scene(
    "progress",
    f"pytorchjob progress {TRAINING}",
    ("Running", "━", "steps/s", "left"),
    (r" 2\d%.* left$", r" 5\d%.* left$", r" 8\d%.* left$"),
    100,
)
SCENES = (*ON_MACHINE, STATUS, STATUS_BLOCKED, PROGRESS)
