"""Makes the user's own command a member of the job's rounds; it runs before the program, in `site`.

- A launcher that lets torch start its workers, such as torchrun or `accelerate launch`, runs in a process below this
  one, which supervises it. It parses its own arguments. Where torch would start its agent, ours starts.
- Any other program that lets torch start workers: the same, without a process that supervises it.
- The container's first process, if it is a program of the user's, becomes the worker, below an agent.
- Any other program that forms a process group by the variables of its pod, such as one that a shell starts, is started
  again there, and then becomes the worker. What it has done before is done twice. So nothing is decided for programs
  that train with nobody.

All others stay as they are. So does everything without a coordinator, and below an agent.

Every process of the container waits for this file: it imports nothing before it is known to be needed.
"""

import os
import sys

from pytorchjob_agent.command.beginning import Beginning
from pytorchjob_agent.workers.startup import pytorchjob_after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FIRST_PROCESS_PARENT = "PYTORCHJOB_FIRST_PROCESS_PARENT"  # literals of the contract, whose imports take too long here
PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
_LOCAL_RANK = "LOCAL_RANK"
"""A launcher has started a process that has it: it is a worker of that one."""
_STARTED_AGAIN = "PYTORCHJOB_STARTED_AGAIN"
_API = "torch.distributed.launcher.api"
_GROUPS = "torch.distributed.distributed_c10d"
_QUIET = "TORCH_CPP_LOG_LEVEL"
_PID_ONE = 1
_TAKES_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_AGENTS_OWN = ("pytorchjob-agent", "pytorchjob_agent")
_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate-launch",
    "accelerate.commands.launch",
)
_WITH_COMMAND = {
    "accelerate": "launch",
    "accelerate.commands.accelerate_cli": "launch",
    "fabric": "run",
    "lightning": "run",
    "lightning.fabric.cli": "run",
}
"""Launchers that are one command of a program with others."""
_FILES = ("torch/distributed/run.py", "torch/distributed/launch.py")

AGENT, LAUNCHER, WORKER, OTHER = "agent", "launcher", "worker", "other"
"""What a process is to the job. A worker is the container's first process and a program of the user's, or one that was
started again. Another one may turn out to be a launcher, or a worker."""


class Target:
    """What an interpreter runs."""

    def __init__(self, options: "Sequence[str]", name: str, module: bool, arguments: "Sequence[str]") -> None:
        """Take the interpreter's options without -m, the script's path or the module's name, and its arguments."""
        self.options, self.name, self.module, self.arguments = options, name, module, arguments


def begin() -> None:
    """Let this process be what it is to the job; in the first process of a member it does not return."""
    target = read(sys.orig_argv[1:])
    if target is None:
        return
    began = Beginning()
    again = os.environ.pop(_STARTED_AGAIN, None) is not None
    kind = WORKER if again else kind_of(target, first=_is_first())
    if kind == LAUNCHER:
        below = _supervised()
        if _QUIET not in os.environ:  # torch reads it when it is imported, and a peer's store may be gone
            os.environ[_QUIET] = "ERROR"
            pytorchjob_after_import.after_import(["torch"], _be_loud)
        _take_over(below)
    elif kind == WORKER:
        below = _supervised()
        from pytorchjob_agent.command import command_worker

        command_worker.run(torchruns_arguments(target), below, began)
    elif kind == OTHER:
        _take_over(None)
        _start_again_in_group(began)


def read(argv: "Sequence[str]") -> "Target | None":
    """Return what the interpreter's arguments tell it to run; None for a text, a console, or standard input."""
    options: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word.startswith("-m"):
            name = word[2:] or (rest.pop(0) if rest else "")
            return Target(options, name, True, rest) if name else None
        if word.startswith("-c") or word == "-":
            return None
        if not word.startswith("-"):
            return Target(options, word, False, rest)
        options.append(word)
        if word in _TAKES_VALUE and rest:
            options.append(rest.pop(0))
    return None


def kind_of(target: Target, *, first: bool) -> str:
    """Return what a process is that runs this; `first`: it is the container's first one."""
    name = target.name if target.module else os.path.basename(target.name)
    if name.partition(".")[0] in _AGENTS_OWN:
        return AGENT
    command = _WITH_COMMAND.get(name)
    known = name in _LAUNCHERS or (not target.module and target.name.endswith(_FILES))
    if known or (command is not None and list(target.arguments[:1]) == [command]):
        return LAUNCHER
    own = target.module or name.endswith(".py")  # the scripts of installed packages start other programs
    return WORKER if first and own else OTHER


def torchruns_arguments(target: Target) -> "list[str]":
    """Return torchrun's arguments for one worker that runs this; torchrun itself gives Python -u."""
    if set(target.options) <= {"-u"}:
        program = ["--module", target.name] if target.module else [target.name]
    else:
        module = ["-m"] if target.module else []
        program = ["--no-python", sys.executable, *target.options, *module, target.name]
    return ["--nproc-per-node=1", *program, *target.arguments]


def forms_jobs_group(given: "Mapping[str, Any]", began: "Mapping[str, str]", now: "Mapping[str, str]") -> bool:
    """Return whether these arguments of `init_process_group` describe the group of all pods of the job.

    `began` are the variables with which the process has begun.
    """
    if given.get("store") is not None or _LOCAL_RANK in now:
        return False
    if any(name not in began or began[name] != now.get(name) for name in PLACE):
        return False
    method = given.get("init_method") or "env://"
    rank, size, _ = (began[name] for name in PLACE)
    same = str(given.get("rank", -1)) in ("-1", rank) and str(given.get("world_size", -1)) in ("-1", size)
    return same and str(method).startswith(("env://", "tcp://"))


def _is_first() -> bool:
    """Return whether this is the container's first process. A local run names the process that starts it."""
    parent = os.environ.get(FIRST_PROCESS_PARENT)
    return os.getpid() == _PID_ONE if parent is None else str(os.getppid()) == parent


def _supervised() -> "Any":
    """Go on in a process below this one, and return what it reports to; here it does not return."""
    from pytorchjob_agent.command import fork

    below = fork.run()
    if isinstance(below, int):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(below)  # without the exit handlers of a program that has not run here
    return below


def _be_loud(_torch: "Any") -> None:
    """Leave the variable to the workers as the user has set it."""
    os.environ.pop(_QUIET, None)


def _take_over(below: "Any") -> None:
    """Start our agent where this process lets torch start its own."""

    def replace(api: "Any") -> None:
        torchs = api.launch_agent

        def launch_agent(config: "Any", entrypoint: "Any", args: "Any", **options: "Any") -> "Any":
            try:
                from pytorchjob_agent.command import member_launch
            except ImportError as error:
                print(f"pytorchjob-agent: this torch is too old for the agent: {error}", file=sys.stderr)
                return torchs(config, entrypoint, args, **options)
            if member_launch.joins(config, entrypoint):
                return member_launch.run(config, entrypoint, args, below)
            return torchs(config, entrypoint, args, **options)

        api.launch_agent = launch_agent

    pytorchjob_after_import.after_import([_API], replace)


def _start_again_in_group(began: Beginning) -> None:
    """Start this program again, as a worker, once it forms the process group that its pod's variables describe."""

    def replace(groups: "Any") -> None:
        import functools
        import inspect

        torchs = groups.init_process_group

        @functools.wraps(torchs)
        def init_process_group(*args: "Any", **options: "Any") -> "Any":
            given = inspect.signature(torchs).bind(*args, **options).arguments
            if os.getpid() == began.pid and forms_jobs_group(given, began.environ, os.environ):
                from pytorchjob_agent.command import command_worker

                command_worker.start_again(began, _STARTED_AGAIN)
            return torchs(*args, **options)

        groups.init_process_group = init_process_group

    pytorchjob_after_import.after_import([_GROUPS], replace)
