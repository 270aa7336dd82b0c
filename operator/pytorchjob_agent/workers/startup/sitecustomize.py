"""Python's `site` runs this at the start of every worker; then the user's own sitecustomize runs, if there is one.

The script finds its sys.path unchanged. The module imports little, because every worker waits for it.
"""

import os
import sys
from importlib import import_module

_NAME = "sitecustomize"


_REGISTERED = {
    "pytorchjob_ending": "fast ends after errors",
    "pytorchjob_startup": "stacks of this process",
    "pytorchjob_saves": "times of its saves",
    "pytorchjob_collectives": "times of its waits",
    "pytorchjob_shrink_torch": "going on without a lost rank",
}
"""The modules to register, and what is missing without them."""
_WITH = {"pytorchjob_shrink_torch": "PYTORCHJOB_SHRINK"}
"""Modules that only workers with this variable need: others do not spend the time."""


def _register(here: str) -> None:
    """Register what the agent needs of this process; an error here must never keep a script from starting."""
    for name, what in _REGISTERED.items():
        if name in _WITH and _WITH[name] not in os.environ:
            continue
        try:
            import_module(name).register()
        except Exception as error:  # the script must start in any case
            print(f"pytorchjob-agent: {what} are not available: {error}", file=sys.stderr)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)


def _chain() -> None:
    """Import the module of this name that Python would have found without this folder."""
    own = sys.modules.pop(_NAME)
    try:
        import_module(_NAME)
    except ImportError as error:
        if error.name != _NAME:
            raise
        sys.modules[_NAME] = own


_register(os.path.dirname(__file__))
_chain()
