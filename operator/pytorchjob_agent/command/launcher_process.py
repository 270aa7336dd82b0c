"""The launcher's process: starts torch and turns everything that can go wrong into a message for its parent."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.environment import PET_MASTER_ADDR, ReplicaEnv
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.termination import ExitCode, ExitReason, TerminationMessage
from pytorchjob_agent.preflight import gate
from pytorchjob_agent.preflight.facts import RunRequest
from pytorchjob_agent.system import garbage_collection, processes, signals
from pytorchjob_agent.system.network import UnreachableError, hurry_names
from pytorchjob_agent.workers import fork_client, start_choice

_STANDALONE = "--standalone"
_CPP_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
_NO_TORCH = "torch cannot be imported in this image ({}): install torch 2.4 or newer, e.g. in the Dockerfile"


def main(argv: list[str], directory: Path, pipe: int) -> int:
    """Run in a forked process; returns its exit code after the message, if any, went through the pipe."""
    os.setpgid(0, 0)  # a terminal's Ctrl-C goes to the parent alone, which passes it on once
    processes.follow_parent()
    signals.restore()
    hurry_names()
    message = _run(argv, directory)
    sys.stdout.flush()
    sys.stderr.flush()
    if message is None:
        return ExitCode.OK
    os.write(pipe, message.to_json().encode())
    # 0 means success to the parent, and only that.
    return message.exit_code if 0 < message.exit_code < 256 else ExitCode.WORKER_FAILED


def _run(argv: list[str], directory: Path) -> TerminationMessage | None:
    try:
        if _STANDALONE not in argv:  # then the variables are those of a job around this run
            ReplicaEnv.from_env(os.environ)
        # With torch's import in this process beside that of the workers, not after it.
        early = (
            fork_client.ForkServer.start(start_choice.TORCH_MODULES) if start_choice.starts_early(os.environ) else None
        )
        with _quiet_stores(), garbage_collection.paused():
            from pytorchjob_agent.command import launcher

        args = launcher.parse(argv)
        gate.check(_request(args))
        return launcher.run(args, directory, early)
    except ContractError as error:
        return TerminationMessage(ExitReason.BAD_SETUP, ExitCode.SETUP, message=str(error))
    except ImportError as error:
        return TerminationMessage(ExitReason.BAD_SETUP, ExitCode.SETUP, message=_NO_TORCH.format(error))
    except gate.PreflightError as error:
        return TerminationMessage(ExitReason.PREFLIGHT_FAILED, ExitCode.PREFLIGHT, message=str(error))
    except UnreachableError as error:
        return TerminationMessage(ExitReason.RENDEZVOUS_FAILED, ExitCode.RENDEZVOUS, message=str(error))
    except SystemExit as error:  # argparse has said on stderr what is wrong
        return _usage(error.code)
    except Exception as error:  # the top of this process: whatever torch raises must reach the parent in words
        return _unforeseen(error)


@contextlib.contextmanager
def _quiet_stores() -> Iterator[None]:
    """Import torch so that its stores keep to themselves what we expect: a peer's may be gone at any time.

    Each such call would print 20 lines of C++ frames. The workers get the variable as the user set it.
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
    """Return what the arguments ask for; torchrun takes this machine for the master where none is named."""
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
    """Tell a rendezvous that did not come about (try again) from everything else."""
    traceback.print_exc()
    name = type(error).__name__
    meeting = name.startswith("Rendezvous") or name in {"DistNetworkError", "DistStoreError", "TimeoutError"}
    reason, code = (
        (ExitReason.RENDEZVOUS_FAILED, ExitCode.RENDEZVOUS)
        if meeting
        else (ExitReason.AGENT_FAILED, ExitCode.WORKER_FAILED)
    )
    return TerminationMessage(reason, code, message=f"{name}: {error}", traceback=traceback.format_exc())
