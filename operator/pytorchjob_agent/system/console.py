"""Prints the agent's lines for the readers of the pod's log, with its name in front."""

import sys

from pytorchjob_agent.contract.log_lines import AGENT


def say(words: str) -> None:
    """Print a line and flush it."""
    print(f"{AGENT}{words}", file=sys.stderr, flush=True)
