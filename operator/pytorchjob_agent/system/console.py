"""What the agent tells the people who read the pod's log: lines with its name in front."""

import sys


def say(words: str) -> None:
    """Print a line, at once."""
    print(f"pytorchjob-agent: {words}", file=sys.stderr, flush=True)
