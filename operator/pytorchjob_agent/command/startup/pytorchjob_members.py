"""Makes the user's own command a member of the job's rounds; it runs before the program, in `site`.

- A launcher that lets torch start its workers, such as torchrun or `accelerate launch`, runs in a process below this
  one, which supervises it. It parses its own arguments. Where torch would start its agent, ours starts.
- Any other program that lets torch start workers: the same, without a process that supervises it.
- The container's first process, if it is a program of the user's, becomes the worker, below an agent.
- Any other program that forms a process group by the variables of its pod, such as one that a shell starts, is started
  again there, and then becomes the worker. What it has done before is done twice. So nothing is decided for programs
  that train with nobody.

All others stay as they are. So does everything without a coordinator, and below an agent.
"""

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import PurePath
from typing import Any, NoReturn

from pytorchjob_agent.contract.environment import FIRST_PROCESS_PARENT, MASTER_ADDR, RANK, WORLD_SIZE
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.workers.startup import pytorchjob_after_import

_API = "torch.distributed.launcher.api"
_GROUPS = "torch.distributed.distributed_c10d"
_STARTED_AGAIN = "PYTORCHJOB_STARTED_AGAIN"
_PLACE = (RANK, WORLD_SIZE, MASTER_ADDR)
_LOCAL_RANK = "LOCAL_RANK"
"""Its launcher has started a process that has it: it is a worker of that one."""
_QUIET = "TORCH_CPP_LOG_LEVEL"
_PID_ONE = 1
_TAKES_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_AGENTS_OWN = ("pytorchjob-agent", "pytorchjob_agent")
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate-launch")
_LAUNCH_MODULES = ("accelerate.commands.launch",)
_WITH_COMMAND = {
    "accelerate": "launch",
    "accelerate.commands.accelerate_cli": "launch",
    "fabric": "run",
    "lightning": "run",
    "lightning.fabric.cli": "run",
}
"""Launchers that are one command of a program with others."""
_FILES = ("torch/distributed/run.py", "torch/distributed/launch.py")


class Kind(Enum):
    """What a process is to the job."""

    AGENT = auto()
    LAUNCHER = auto()
    WORKER = auto()
    """The container's first process, and a program of the user's, or one that was started again in a group."""
    OTHER = auto()
    """Unknown: it may turn out to be a launcher, or a worker."""


@dataclass(frozen=True)
class Beginning:
    """How this process began, so that it can be started again."""

    environ: dict[str, str]
    cwd: str
    pid: int


@dataclass(frozen=True)
class Target:
    """What an interpreter runs."""

    options: tuple[str, ...]
    """Of the interpreter, without -m."""
    name: str
    """The script's path, or the module's name."""
    module: bool
    arguments: tuple[str, ...]


def begin() -> None:
    """Let this process be what it is to the job; in the first process of a member it does not return."""
    target = read(sys.orig_argv[1:])
    if target is None:
        return
    began = Beginning(dict(os.environ), os.getcwd(), os.getpid())
    again = os.environ.pop(_STARTED_AGAIN, None) is not None
    match Kind.WORKER if again else kind_of(target, first=_is_first()):
        case Kind.AGENT:
            pass
        case Kind.LAUNCHER:
            below = _supervised()
            if _QUIET not in os.environ:  # torch reads it when it is imported, and a peer's store may be gone
                os.environ[_QUIET] = "ERROR"
                pytorchjob_after_import.after_import(["torch"], _be_loud)
            _take_over(below)
        case Kind.WORKER:
            from pytorchjob_agent.command import launcher_process
            from pytorchjob_agent.workers.started_by import StartedBy

            _leave(launcher_process.run(torchruns_arguments(target), StartedBy.COMMAND))
        case Kind.OTHER:
            _take_over(None)
            _start_again_in_group(began)


def _be_loud(_torch: Any) -> None:
    """Leave the variable to the workers as the user has set it."""
    os.environ.pop(_QUIET, None)


def read(argv: Sequence[str]) -> Target | None:
    """Return what the interpreter's arguments tell it to run; None for a text, a console, or standard input."""
    options: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word.startswith("-m"):
            name = word[2:] or (rest.pop(0) if rest else "")
            return Target(tuple(options), name, True, tuple(rest)) if name else None
        if word.startswith("-c") or word == "-":
            return None
        if not word.startswith("-"):
            return Target(tuple(options), word, False, tuple(rest))
        options.append(word)
        if word in _TAKES_VALUE and rest:
            options.append(rest.pop(0))
    return None


def kind_of(target: Target, *, first: bool) -> Kind:
    """Return what a process is that runs this; `first`: it is the container's first one."""
    path = PurePath(target.name)
    name = target.name if target.module else path.name
    if name.partition(".")[0] in _AGENTS_OWN:
        return Kind.AGENT
    command = _WITH_COMMAND.get(name)
    known = name in _LAUNCHERS or name in _LAUNCH_MODULES or (not target.module and path.as_posix().endswith(_FILES))
    if known or (command is not None and target.arguments[:1] == (command,)):
        return Kind.LAUNCHER
    own = target.module or path.suffix == ".py"  # the scripts of installed packages start other programs
    return Kind.WORKER if first and own else Kind.OTHER


def torchruns_arguments(target: Target) -> list[str]:
    """Return torchrun's arguments for one worker that runs this; torchrun itself gives Python -u."""
    if set(target.options) <= {"-u"}:
        program = ["--module", target.name] if target.module else [target.name]
    else:
        module = ["-m"] if target.module else []
        program = ["--no-python", sys.executable, *target.options, *module, target.name]
    return ["--nproc-per-node=1", *program, *target.arguments]


def _is_first() -> bool:
    """Return whether this is the container's first process. A local run names the process that starts it."""
    parent = os.environ.get(FIRST_PROCESS_PARENT)
    return os.getpid() == _PID_ONE if parent is None else str(os.getppid()) == parent


def _supervised() -> Any:
    """Go on in a process below this one, and return what it reports to; here it does not return."""
    from pytorchjob_agent.command import first_process

    supervisor = os.getpid()
    try:
        below = first_process.run()
    except (ContractError, FileNotFoundError):  # of the settings, or without a folder for temporary files
        raise
    except BaseException:
        if os.getpid() == supervisor:  # the program runs below
            traceback.print_exc()
            _leave(1)
        raise
    if isinstance(below, int):
        _leave(below)
    return below


def _leave(code: int) -> NoReturn:
    """End without the exit handlers of a program that has not run here."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _take_over(below: Any) -> None:
    """Start our agent where this process lets torch start its own."""

    def replace(api: Any) -> None:
        torchs = api.launch_agent

        def launch_agent(config: Any, entrypoint: Any, args: Any, **options: Any) -> Any:
            from pytorchjob_agent.command import member_launch

            if member_launch.joins(config, entrypoint):
                return member_launch.run(config, entrypoint, args, below)
            return torchs(config, entrypoint, args, **options)

        api.launch_agent = launch_agent

    pytorchjob_after_import.after_import([_API], replace)


def _start_again_in_group(began: Beginning) -> None:
    """Start this program again, as a worker, once it forms the process group that its pod's variables describe."""

    def replace(groups: Any) -> None:
        torchs = groups.init_process_group

        @functools.wraps(torchs)
        def init_process_group(*args: Any, **options: Any) -> Any:
            given = inspect.signature(torchs).bind(*args, **options).arguments
            here = os.getpid() == began.pid and forms_jobs_group(given, began.environ, os.environ)
            if here and not _has_finished():
                _start_again(began)
            return torchs(*args, **options)

        groups.init_process_group = init_process_group

    pytorchjob_after_import.after_import([_GROUPS], replace)


def forms_jobs_group(given: Mapping[str, Any], began: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether these arguments of `init_process_group` describe the group of all pods of the job.

    `began` are the variables with which the process has begun.
    """
    if given.get("store") is not None or _LOCAL_RANK in now:
        return False
    if any(name not in began or began[name] != now.get(name) for name in _PLACE):
        return False
    method = given.get("init_method") or "env://"
    numbers = {"rank": RANK, "world_size": WORLD_SIZE}
    same = all(str(given.get(name, -1)) in ("-1", began[variable]) for name, variable in numbers.items())
    return same and str(method).startswith(("env://", "tcp://"))


def _has_finished() -> bool:
    """Return whether a program of this container has trained in rounds: there is none for a second one."""
    from pytorchjob_agent.command import finished_program
    from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint

    endpoint = CoordinatorEndpoint.from_env(os.environ)
    return endpoint is None or finished_program.is_there(endpoint)


def _start_again(began: Beginning) -> None:
    from pytorchjob_agent.system import processes
    from pytorchjob_agent.system.console import say

    say("this program forms the process group of the job: it is started again, as a worker of the agent")
    sys.stdout.flush()
    sys.stderr.flush()
    processes.kill_below(os.getpid())
    os.chdir(began.cwd)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**began.environ, _STARTED_AGAIN: "1"})  # noqa: S606
