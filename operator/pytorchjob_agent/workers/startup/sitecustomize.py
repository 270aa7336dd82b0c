"""Python's `site` runs this at the start of every worker; then the user's own sitecustomize runs, if there is one.

The script finds its sys.path unchanged. The module imports little, because every worker waits for it.
"""

import os
import sys
from importlib import import_module

_NAME = "sitecustomize"


def _register(here: str) -> None:
    """Install the handler for stacks; an error here must never keep a script from starting."""
    try:
        import_module("pytorchjob_startup").register()
    except Exception as error:  # the script must start in any case
        print(f"pytorchjob-agent: stacks of this process are not available: {error}", file=sys.stderr)
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
