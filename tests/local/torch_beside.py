"""A stand-in for torch beside a script: its import takes no time, and its saves and loads take what they should."""

from pathlib import Path

_SERIALIZATION = """
import time
def save(obj, f):
    time.sleep({save})
    with open(f, "w") as file:
        file.write(str(obj))

def load(f):
    time.sleep({load})
    with open(f) as file:
        return int(file.read())
"""


def write_torch(directory: Path, *, save: float, load: float) -> None:
    """Write it beside the script. `save` and `load`: how many seconds a call takes."""
    package = directory / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("from torch.serialization import load, save")
    (package / "serialization.py").write_text(_SERIALIZATION.format(save=save, load=load))
