"""The launcher's process: reads the pod's environment, imports torch, and reports every error to its parent.

`first_process` supervises it and receives the message through a pipe; `launcher` does the work. In a launcher of the
user's `member_launch` does it.
"""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from pytorchjob_agent.command import fork
from pytorchjob_agent.command.below import Below
from pytorchjob_agent.command.flags import UsageError
from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.environment import PET_MASTER_ADDR, ReplicaEnv
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from pytorchjob_agent.preflight import gate
from pytorchjob_agent.preflight.facts import RunRequest
from pytorchjob_agent.rendezvous import own_endpoint
from pytorchjob_agent.system import garbage_collection, signals
from pytorchjob_agent.system.network import UnreachableError, shorten_name_lookups
from pytorchjob_agent.workers import fork_client, start_choice
from pytorchjob_agent.workers.started_by import StartedBy

_STANDALONE = "--standalone"
_CPP_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
_NO_TORCH = "torch cannot be imported in this image ({}): install torch 2.4 or newer, e.g. in the Dockerfile"


def run(argv: list[str]) -> int:
    """Run torchrun's arguments to their end, in a forked process; returns the exit code of the pod."""
    below = fork.run()
    if isinstance(below, int):
        return below
    code: int = ExitCode.WORKER_FAILED
    try:
        code = leave(work(argv, below.begin(), StartedBy.AGENT), below)
    finally:
        os._exit(code)  # the frames of the first process stay where they are


def work(argv: list[str], directory: Path, started_by: StartedBy) -> TerminationMessage | None:
    """Run torchrun's arguments in this process, which is below the first one; None if the workers have succeeded."""
    signals.restore()
    return explained(lambda: _run(argv, directory, started_by))


def leave(message: TerminationMessage | None, below: Below) -> int:
    """Give the first process the reason of the end; returns the exit code of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    if message is None:
        return ExitCode.OK
    below.report(message)
    return exit_code(message)


def exit_code(message: TerminationMessage) -> int:
    """Return the code with which a launcher ends after this message: to its parent 0 means success."""
    return message.exit_code if 0 < message.exit_code < 256 else ExitCode.WORKER_FAILED


def join() -> None:
    """Read what the operator has set, before the first process that may load a library. Raises ContractError."""
    ReplicaEnv.from_env(os.environ)
    own_endpoint.take()
    from pytorchjob_agent import extensions  # not in a caller of `run_standalone`, which may be ending

    extensions.equip(os.environ)


def _run(argv: list[str], directory: Path, started_by: StartedBy) -> TerminationMessage | None:
    shorten_name_lookups()
    if _STANDALONE not in argv:  # a standalone run ignores the variables of a job around it
        join()
    own_endpoint.drop_credential()  # before the first child process: no worker inherits it
    # The workers' imports run at the same time as torch's import in this process, not after it.
    early = fork_client.ForkServer.start(start_choice.TORCH_MODULES) if start_choice.starts_early(os.environ) else None
    with _quiet_stores(), garbage_collection.paused():
        from pytorchjob_agent.command import launcher

    args = launcher.parse(argv)
    gate.check(_request(args))
    return launcher.run(args, directory, started_by, early)


def explained(work: Callable[[], TerminationMessage | None]) -> TerminationMessage | None:
    """Return how the workers ended, as `work` returns it, or why they could not run."""
    try:
        return work()
    except UsageError as error:
        return TerminationMessage(ExitReason.BAD_USAGE, ExitCode.USAGE, message=str(error))
    except ContractError as error:
        return TerminationMessage(ExitReason.BAD_SETUP, ExitCode.SETUP, message=str(error))
    except ImportError as error:
        return TerminationMessage(ExitReason.NO_TORCH, ExitCode.SETUP, message=_NO_TORCH.format(error))
    except gate.PreflightError as error:
        return TerminationMessage(ExitReason.PREFLIGHT_FAILED, ExitCode.PREFLIGHT, message=str(error))
    except UnreachableError as error:
        return TerminationMessage(ExitReason.RENDEZVOUS_FAILED, ExitCode.RENDEZVOUS, message=str(error))
    except SystemExit as error:  # --help, or a plugin of torch's parser
        return _usage(error.code)
    except Exception as error:  # the top of this process: every error of torch's must reach the parent as a message
        return _unforeseen(error)


@contextlib.contextmanager
def _quiet_stores() -> Iterator[None]:
    """Import torch with quiet stores: a peer's store may be gone at any time, which the agent expects.

    Each failed call would print 20 lines of C++ frames. The workers get the variable as the user set it.
    """
    if not os.environ.get(COORDINATOR) or _CPP_LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_CPP_LOG_LEVEL] = "ERROR"
    try:
        yield
    finally:
        del os.environ[_CPP_LOG_LEVEL]


def _request(args: argparse.Namespace) -> RunRequest:
    """Return the requested run; torchrun takes this machine for the master if no other one is named."""
    elsewhere = args.master_addr not in (None, "127.0.0.1", "localhost")
    addressed = bool(args.rdzv_endpoint or os.environ.get(PET_MASTER_ADDR) or elsewhere)
    return RunRequest.of(args.nproc_per_node, args.nnodes, addressed)


def _usage(code: object) -> TerminationMessage | None:
    if not code:
        return None  # --help
    return TerminationMessage(
        ExitReason.BAD_USAGE, ExitCode.USAGE, message="torchrun's arguments are wrong, see the log"
    )


def _unforeseen(error: Exception) -> TerminationMessage:
    """Distinguish a failed rendezvous, which can be retried, from all other errors."""
    traceback.print_exc()
    name = type(error).__name__
    rendezvous = name.startswith("Rendezvous") or name in {"DistNetworkError", "DistStoreError", "TimeoutError"}
    reason, code = (
        (ExitReason.RENDEZVOUS_FAILED, ExitCode.RENDEZVOUS)
        if rendezvous
        else (ExitReason.AGENT_FAILED, ExitCode.WORKER_FAILED)
    )
    return TerminationMessage(reason, code, message=f"{name}: {error}", traceback=traceback.format_exc())
