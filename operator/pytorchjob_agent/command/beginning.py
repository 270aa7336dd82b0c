"""How a program began, for one that may have to begin again. Every process of a container imports this file."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Beginning:
    """How this process began, so that it can be started again."""

    def __init__(self) -> None:
        """Note it now."""
        self.environ, self.cwd, self.pid = dict(os.environ), os.getcwd(), os.getpid()

    def again(self, **variables: str) -> "NoReturn":
        """Start the program again, in this process."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(self.cwd)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**self.environ, **variables})  # noqa: S606
