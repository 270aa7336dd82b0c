"""The worker of a container whose command starts no launcher: the command itself."""

import os
from typing import NoReturn

from pytorchjob_agent.command import finished_program, launcher_process
from pytorchjob_agent.command.beginning import Beginning
from pytorchjob_agent.command.below import Below
from pytorchjob_agent.contract.coordinator_endpoint import TOKEN_FILE, CoordinatorEndpoint
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.system import processes
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers.started_by import StartedBy


def run(argv: list[str], below: Below, began: Beginning) -> NoReturn:
    """Run torchrun's arguments for the command, below the first process.

    Without a torch that the agent can use, the command runs as it would without the agent.
    """
    code = 1
    try:
        message = launcher_process.work(argv, below.begin(), StartedBy.COMMAND)
        if message is not None and message.reason is ExitReason.NO_TORCH:
            say(f"this command trains without the agent: {message.message}")
            below.pass_on()
            del began.environ[TOKEN_FILE]  # by which it would come here again
            began.again()
        code = launcher_process.leave(message, below)
    finally:
        os._exit(code)


def start_again(began: Beginning, as_worker: str) -> None:
    """Start the program again with this variable; do nothing in a container whose first program has finished."""
    endpoint = CoordinatorEndpoint.from_env(os.environ)
    if endpoint is None or finished_program.is_there(endpoint):
        return
    say("this program forms the process group of the job: it is started again, as a worker of the agent")
    processes.kill_below(os.getpid())
    began.again(**{as_worker: "1"})
