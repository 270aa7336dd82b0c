"""Python's `site` runs this at the start of every process of the container; then the user's own sitecustomize runs.

The program finds its sys.path unchanged. All of it is written for the moment before a program: it imports next to
nothing.
"""

import os
import sys

_CREDENTIAL = "PYTORCHJOB_TOKEN_FILE"
"""The variable that an agent removes for its workers: in a process that has it, no agent runs yet."""
_NAME = "sitecustomize"


def _begin() -> None:
    """Let this process be a member if it is to be one; whatever happens, the program starts."""
    if os.environ.get(_CREDENTIAL):
        try:
            from pytorchjob_agent.command.startup import pytorchjob_members

            pytorchjob_members.begin()
        except Exception as error:  # for one, a Python that is too old for the agent
            print(f"pytorchjob-agent: this process trains without the agent: {error}", file=sys.stderr)


def _chain() -> None:
    """Import the module of this name that Python would have found without this folder."""
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    own = sys.modules.pop(_NAME)
    try:
        __import__(_NAME)
    except ImportError as error:
        if error.name != _NAME:
            raise
        sys.modules[_NAME] = own


_begin()
_chain()
