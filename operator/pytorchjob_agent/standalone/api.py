"""Runs one independent set of workers from any process: a Spark executor, a test, one thread of many.

The agent runs in a process of its own: the caller needs neither torch nor signal handlers, and survives every failure.
"""

import os
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pytorchjob_agent.command import launcher_process
from pytorchjob_agent.command.isolation import without_job_variables
from pytorchjob_agent.contract.environment import TERMINATION_LOG
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage, exit_code_of
from pytorchjob_agent.standalone import function
from pytorchjob_agent.system import processes
from pytorchjob_agent.workers.failure_report import sentence, write_termination_log

_LOG, _CODE = "termination-log", "exit-code"


@dataclass(frozen=True, slots=True)
class StandaloneResult:
    """How a run ended; it can be pickled if its values can."""

    exit_code: int
    values: dict[int, Any] = field(default_factory=dict)  # what a function returned, by rank; empty for a script
    failure: TerminationMessage | None = None  # the first failure: rank, message, traceback, ranks that failed later

    @property
    def success(self) -> bool:
        """Return whether every worker succeeded."""
        return self.exit_code == ExitCode.OK

    def check(self) -> Self:
        """Return this result; raises StandaloneError if the run failed."""
        if self.success:
            return self
        raise StandaloneError(self)


class StandaloneError(RuntimeError):
    """A run failed; `result` has the details."""

    def __init__(self, result: StandaloneResult) -> None:
        """Keep the result as the only argument, so that the error can be pickled."""
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        """Return the first failure as a sentence, with its traceback."""
        failure = self.result.failure
        return f"{sentence(failure)}\n{failure.traceback}".rstrip() if failure else f"exit code {self.result.exit_code}"


def run_standalone(
    what: Callable[..., Any] | str | os.PathLike[str],
    nproc: int | str = 1,
    env: Mapping[str, str] | None = None,
    args: Sequence[Any] = (),
    options: Sequence[str] = (),
) -> StandaloneResult:
    """Run a function or a script in `nproc` processes that form one world, and return how it ended.

    `env` is added to the caller's variables; `options` are torchrun's flags, `--master-port=29500` for one.
    Wrong arguments raise ContractError. The result of a failed run is returned, and its `check()` raises.
    """
    _check(what, nproc, env or {})
    with tempfile.TemporaryDirectory(prefix="pytorchjob-standalone-") as name:
        directory = Path(name)
        if callable(what):
            function.save(what, args, directory)
            program = ["--module", function.__name__, name]
        else:
            program = [os.fspath(what), *map(str, args)]
        argv = ["--standalone", f"--nproc-per-node={nproc}", *options, *program]
        returncode = _run(argv, _environment(os.environ, env or {}, directory), directory)
        return _result(directory, returncode)


def _check(what: object, nproc: object, env: Mapping[str, str]) -> None:
    """Refuse arguments that would fail later with a less clear error."""
    if not callable(what):
        if not isinstance(what, str | os.PathLike):
            raise ContractError(f"what: {what!r} is neither a function nor the path of a script")
        if not Path(what).is_file():
            raise ContractError(f"what: {os.fspath(what)!r} is not a file: expected a function or the path of a script")
    words = ("gpu", "cpu", "xpu", "auto")
    if nproc not in words and not (isinstance(nproc, int) and nproc is not True and nproc >= 1):
        raise ContractError(f"nproc: {nproc!r} is not a number of processes: expected 1 or more, or one of {words}")
    for key, value in env.items():
        if not isinstance(value, str):
            raise ContractError(f"env: {key}: {value!r} is not a string: write it as {str(value)!r}")
    if not sys.executable:
        raise ContractError("sys.executable is empty, because Python is embedded: set it to the path of an interpreter")


def _environment(inherited: Mapping[str, str], own: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the agent's variables: the caller's without those of a surrounding job, and the run's own."""
    env = without_job_variables(inherited, below_worker=True) | dict(own)
    root = str(Path(__file__).parents[2])
    if root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), root]))  # this package, uninstalled
    return env | {TERMINATION_LOG: str(directory / _LOG)}


def _run(argv: list[str], env: dict[str, str], directory: Path) -> int:
    """Start the agent and wait for it; an interruption of the caller stops the agent first."""
    # -P: modules in the working folder are for the script only. Its own group: Ctrl-C reaches only the caller.
    command = [sys.executable, "-P", "-m", __name__, str(directory), str(os.getpid()), *argv]
    with subprocess.Popen(  # noqa: S603 - running the user's program is the purpose
        command, env=env, stdin=subprocess.DEVNULL, process_group=0
    ) as agent:
        try:
            return agent.wait()
        except BaseException:
            agent.terminate()
            raise  # Popen waits for it


def _result(directory: Path, returncode: int) -> StandaloneResult:
    """Read the files that the agent wrote; a caller that reaps all its children may have taken its return code."""
    try:
        code = int((directory / _CODE).read_text())
    except (OSError, ValueError):
        code = exit_code_of(returncode) or ExitCode.WORKER_FAILED
    if code == ExitCode.OK:
        return StandaloneResult(code, function.values(directory))
    return StandaloneResult(code, failure=_failure(directory, code))


def _failure(directory: Path, code: int) -> TerminationMessage:
    try:
        return TerminationMessage.from_json((directory / _LOG).read_text())
    except (OSError, ContractError):
        return TerminationMessage(
            ExitReason.AGENT_FAILED, code, message=f"the agent ended with {code} and wrote no message"
        )


def main(directory: Path, parent: int, argv: list[str]) -> int:
    """Run as the agent of one run; writes its exit code to a file, and ends with the caller's thread."""
    processes.follow_parent()
    if os.getppid() != parent:
        return ExitCode.DRAINED  # the caller died before `follow_parent`
    try:
        code = launcher_process.run(argv)
    except (ContractError, FileNotFoundError) as error:
        code = ExitCode.SETUP
        write_termination_log(TerminationMessage(ExitReason.BAD_SETUP, code, message=str(error)), os.environ)
    (directory / _CODE).write_text(str(int(code)))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
