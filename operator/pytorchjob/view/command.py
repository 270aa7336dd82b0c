"""Whether the command of a job starts the agent, which finds hangs and reads progress."""

import re

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob_operator.names import IN_AGENT_COMMANDS

_AGENT = re.compile(r"pytorchjob[-_]agent")
_PLAIN = re.compile(r"(?:\S*/)?(?:torchrun|python[\d.]*)(?:\s|$)")


def starts_agent(job: Object) -> bool | None:
    """Return whether any role's command starts the agent; None if a shell script or the image's own command decides."""
    commands = [" ".join(reading.words_of(reading.main_spec(template))) for _, _, template in reading.roles(job)]
    if any(map(_AGENT.search, commands)):
        return True
    plain = [_PLAIN.match(command) is not None and IN_AGENT_COMMANDS not in command for command in commands]
    return False if plain and all(plain) else None
