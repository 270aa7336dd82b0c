"""What the launcher's process tells the first process above it. It imports next to nothing, like `fork`."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from pytorchjob_agent.contract.termination import TerminationMessage

BEGUN = b"."
"""What a launcher sends first, with its folder, when it runs workers of the agent."""
PASSED_ON = b"-"
"""What it sends when it takes that back."""


class Below:
    """This is the launcher's process, which reports to the first one."""

    def __init__(self, pipe: int) -> None:
        """Report through this pipe."""
        self._pipe = pipe

    def begin(self) -> "Path":
        """Announce that this process runs workers, and will report how they end; returns a folder for its files.

        The first process removes the folder. When it dies, even by SIGKILL, this process gets SIGTERM.
        """
        import tempfile
        from pathlib import Path

        from pytorchjob_agent.system import processes

        processes.follow_parent()
        directory = tempfile.mkdtemp(prefix="pytorchjob-agent-")
        os.write(self._pipe, BEGUN + os.fsencode(directory) + b"\n")
        return Path(directory)

    def pass_on(self) -> None:
        """Take it back: this process becomes a program of the user's, which ends as it likes."""
        os.write(self._pipe, PASSED_ON)

    def report(self, message: "TerminationMessage") -> None:
        """Give the first process the reason of the end."""
        os.write(self._pipe, message.to_json().encode())
