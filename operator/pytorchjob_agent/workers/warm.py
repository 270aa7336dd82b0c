"""Lets torch's agent start warm workers: starts the fork server, requests workers, falls back to cold ones.

To torch a warm worker is like a cold one: a process in a session of its own with `pid`, `poll` and `wait`.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.distributed.elastic.multiprocessing import PContext, SubprocessContext
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.launcher.api import LaunchConfig

from pytorchjob_agent import torch_compat
from pytorchjob_agent.system import cgroup
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers import start_choice
from pytorchjob_agent.workers.fork_client import ForkServer, cold_start
from pytorchjob_agent.workers.forked_program import Program

_CHECK_SECONDS = 0.25
_CHECKS = 480


def start_server(
    config: LaunchConfig, entrypoint: tuple[Any, list[str]], early: ForkServer | None = None
) -> ForkServer | None:
    """Start a fork server if the user's environment and torchrun's configuration allow it; else log why, if requested.

    A server that was started early is used, or stopped.

    Call it after torch has set OMP_NUM_THREADS and before the rendezvous: the imports take seconds.
    """
    requested = start_choice.requested_start(os.environ)
    modules = start_choice.preloaded_modules(os.environ)
    command, arguments = entrypoint
    forked = Program.of((command, *arguments), {}, os.getcwd()) if isinstance(command, str) else None
    request = start_choice.StartRequest(
        requested,
        no_python=isinstance(command, str) and forked is None,
        run_path=not isinstance(command, str),
        start_method=config.start_method,
        numa_binding=getattr(config, "numa_options", None) is not None,
        virtual_local_rank=getattr(config, "virtual_local_rank", False),
        memory=cgroup.memory(),
        linux=sys.platform == "linux",
    )
    choice = start_choice.choose_start(request)
    if choice.warm and early is not None:
        early.makes_ready = choice.ready
        return early
    if early is not None:
        early.close()
    if choice.warm and forked is not None:
        server = ForkServer.start(modules, forked.folder)
        server.makes_ready = choice.ready
        return server
    if requested != start_choice.RequestedStart.COLD:
        say(cold_start(choice.reason))
    return None


def wait_for_imports(server: ForkServer | None, enough: Callable[[], bool]) -> None:
    """Wait until the imports are done, or `enough` is True, or two minutes are over.

    The members of a running job stop for a new member as soon as it joins, so it joins when it is ready.
    """
    for _ in range(_CHECKS):
        if server is None or enough() or server.wait(_CHECK_SECONDS):
            return


def warm_starts(server: ForkServer | None) -> AbstractContextManager[None]:
    """Within this context LocalElasticAgent's own `_start_workers` starts warm workers; None changes nothing."""

    def start(original: Callable[..., PContext], **options: Any) -> PContext:
        if server is None or not isinstance(options["entrypoint"], str):
            return original(**options)
        return start_processes(server, **options)

    return torch_compat.changed_start(start)


def start_processes(server: ForkServer, **options: Any) -> PContext:
    """Start workers; the parameters are those of torch's function of this name for a command."""
    context = WarmContext(server, **torch_compat.supported(SubprocessContext.__init__, **options))
    try:
        context.start()
    except Exception:
        context.close()
        raise
    return context


class WarmContext(SubprocessContext):
    """torch's set of workers that run a command; they start warm where possible."""

    def __init__(self, server: ForkServer, **options: Any) -> None:
        """Take the parameters of SubprocessContext."""
        super().__init__(**options)
        self._server = server

    def _start(self) -> None:
        for local_rank in range(self.nprocs):
            self.subprocess_handlers[local_rank] = _Handler(
                self._server,
                entrypoint=self.entrypoint,
                args=self.args[local_rank],
                env=self.envs[local_rank],
                stdout=self.stdouts[local_rank],
                stderr=self.stderrs[local_rank],
                local_rank_id=local_rank,
                numa_options=getattr(self, "_numa_options", None),
            )
        self._server.revive()
        self._server.prepare(self.nprocs)


class _Handler(SubprocessHandler):
    def __init__(self, server: ForkServer, **options: Any) -> None:
        self._server = server
        super().__init__(**torch_compat.supported(SubprocessHandler.__init__, **options))

    def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Any:
        return self._server.popen(args, env, self._stdout, self._stderr) or super()._popen(args, env)
