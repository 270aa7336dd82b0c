"""Prints the agent's lines for the readers of the pod's log, with its name in front."""

import sys


def say(words: str) -> None:
    """Print a line and flush it."""
    print(f"pytorchjob-agent: {words}", file=sys.stderr, flush=True)
