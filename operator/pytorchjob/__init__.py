"""What a person uses: the command `pytorchjob` (`kubectl pytorch`), and the Python client.

A job's way through it: `cluster` reads and writes objects, `view` turns them into values, `screen` prints values. The
pure parts import no client and no clock. Nothing here runs in the operator or in a training pod.
"""

from pytorchjob_operator import __version__

__all__ = ["__version__"]
