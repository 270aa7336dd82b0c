"""Run by Python's `site` at the start of every worker; then the user's own sitecustomize has its turn, if there is one.

The script finds its sys.path as it would be without us. Imports little: every worker waits for it.
"""

import os
import sys
from importlib import import_module

_NAME = "sitecustomize"


def _register(here: str) -> None:
    """Get ready to write stacks; this may never be why a script does not start."""
    try:
        import_module("pytorchjob_startup").register()
    except Exception as error:  # whatever it is, the script matters more
        print(f"pytorchjob-agent: no stacks of this process: {error}", file=sys.stderr)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)


def _chain() -> None:
    """Import the module that Python would have found without this one."""
    own = sys.modules.pop(_NAME)
    try:
        import_module(_NAME)
    except ImportError as error:
        if error.name != _NAME:
            raise
        sys.modules[_NAME] = own


_register(os.path.dirname(__file__))
_chain()
