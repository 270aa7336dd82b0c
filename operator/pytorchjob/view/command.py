"""Whether the pods of a job have the agent, which finds hangs and reads progress."""

import re

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob_operator.names import IN_AGENT_COMMANDS

_AGENT = re.compile(r"pytorchjob[-_]agent")
_PLAIN = re.compile(r"(?:\S*/)?(?:torchrun|python[\d.]*)(?:\s|$)")


def starts_agent(job: Object) -> bool | None:
    """Return whether the agent is injected, or a role's command starts it; None if its image or a script decides."""
    spec = reading.part(job, "spec")
    if reading.part(spec, "agent").get("inject") or reading.part(job, "status", "elastic"):
        return True
    commands = [" ".join(reading.words_of(reading.main_spec(template))) for _, _, template in reading.roles(job)]
    if any(map(_AGENT.search, commands)):
        return True
    plain = [_PLAIN.match(command) is not None and IN_AGENT_COMMANDS not in command for command in commands]
    return False if plain and all(plain) else None
