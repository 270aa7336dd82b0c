"""The command `pytorchjob-agent`; the arguments of `run` are torchrun's. `command/first_process` runs them."""

import argparse
import os
import sys
from typing import NoReturn

from pytorchjob_agent import __version__
from pytorchjob_agent.contract.environment import GRACE, PREFLIGHT, TERMINATION_LOG
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import TERMINATION_LOG_PATH, ExitCode, TerminationMessage
from pytorchjob_agent.system.console import say

_HELP = f"""\
pytorchjob-agent run [--] TORCHRUN-ARGUMENTS SCRIPT [SCRIPT-ARGUMENTS]

Runs what torchrun runs, with the same arguments and PET_* variables, as the first process of a pod.
It handles signals at any time. Its exit code is that of the first worker that failed (128 + its signal),
and it writes the reason as JSON into the termination log.

pytorchjob-agent run --standalone [--master-port PORT] --nproc-per-node N SCRIPT [SCRIPT-ARGUMENTS]

Runs N processes on this machine without other nodes. Any number of runs can run at the same time:
each has a port of its own.

pytorchjob-agent doctor [--json] [--nproc-per-node N]

Checks whether this image, machine and environment are fit for a job, and prints the fix of each problem;
`run` does the same before its first rendezvous. The exit code is 0, or 200 if a check fails.

pytorchjob-agent profile [--local-rank R] [--seconds S] [--rate N]

Prints where a worker in the coordinator's rounds spends its time, as collapsed stacks. The exit code is 78 if there is
no such worker here.

pytorchjob-agent install DIR

Copies the agent into a folder. With the folder in PYTHONPATH, Python finds the agent.

environment:
  {TERMINATION_LOG}  the termination log (default {TERMINATION_LOG_PATH}, if it exists)
  {GRACE}    seconds that workers may take to stop after SIGTERM (default 25)
  {PREFLIGHT}        the severity of failed checks: warn, fail or off; {PREFLIGHT}_<CHECK> sets one
                              check (default: warn, or fail if the job cannot work)
"""


def main(argv: list[str] | None = None) -> int:
    """Run the subcommand in the first argument; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["doctor"]:
        from pytorchjob_agent.preflight import doctor

        return doctor.main(arguments[1:])
    if arguments[:1] == ["profile"]:
        from pytorchjob_agent.stacks import profile

        return profile.main(arguments[1:])
    if arguments[:1] == ["install"]:
        from pytorchjob_agent.command import install

        return install.main(arguments[1:])
    if arguments[:1] != ["run"] or arguments[1:2] in (["-h"], ["--help"]):
        _parser().parse_args([argument for argument in arguments if argument != "run"])
        _parser().error("expected: pytorchjob-agent run [--] TORCHRUN-ARGUMENTS SCRIPT")
    rest = arguments[2:] if arguments[1:2] == ["--"] else arguments[1:]
    if not rest:
        _parser().error("nothing to run: expected a script after `run`")
    from pytorchjob_agent.command import launcher_process

    try:
        return launcher_process.run(rest)
    except (ContractError, FileNotFoundError) as error:  # the second: no folder for temporary files
        say(str(error))
        _report(TerminationMessage(ExitReason.BAD_SETUP, ExitCode.SETUP, message=str(error)))
        return ExitCode.SETUP


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in the pod's status too: the same words fail in every restart."""

    def error(self, message: str) -> NoReturn:
        _report(TerminationMessage(ExitReason.BAD_USAGE, ExitCode.USAGE, message=message))
        super().error(message)


def _report(message: TerminationMessage) -> None:
    from pytorchjob_agent.workers.failure_report import write_termination_log

    write_termination_log(message, os.environ)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "pytorchjob-agent", description=_HELP, usage=argparse.SUPPRESS, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser


if __name__ == "__main__":
    sys.exit(main())
