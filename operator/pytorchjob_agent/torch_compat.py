"""Handles differences between torch's versions (2.4 to 2.15) and builds in one place; `tests/torch` tests them."""

import argparse
import contextlib
import functools
import inspect
import logging
import os
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed
from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import api as rendezvous_api
from torch.distributed.launcher.api import LaunchConfig

from pytorchjob_agent.contract.environment import SEPARATE_STORES

_log = logging.getLogger(__name__)
_dist: Any = torch.distributed  # TCPStore is put there at run time, which type checkers do not see
_agent: Any = local_elastic_agent  # its start_processes is not declared as its own
_USE_LIBUV = "USE_LIBUV"
_QUIET_PORTS = range(20_000, 30_000)
"""From 32768 on Linux takes ports for connections to others, and from 30000 on Kubernetes takes them for NodePorts."""
_LIBUV_LISTENS = (2, 8)  # from here on a store on libuv takes a socket that is bound already


def supported(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return those of the arguments that this version of the function knows."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def version() -> tuple[int, ...]:
    """Return torch's major and minor version."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


@contextlib.contextmanager
def changed_start(change: Callable[..., Any]) -> Iterator[None]:
    """Within this context LocalElasticAgent starts workers by `change(start, **options)`; `start` is torch's own."""
    original = _agent.start_processes
    _agent.start_processes = functools.partial(change, original)
    try:
        yield
    finally:
        _agent.start_processes = original


def set_default_port(parser: argparse.ArgumentParser, default: int | None) -> None:
    """Let torchrun's parser return `default` without a port; older versions return 29500 then, newer ones None."""
    if not isinstance(parser.get_default("master_port"), str):  # a string comes from PET_MASTER_PORT
        parser.set_defaults(master_port=default)


def store_on(listener: socket.socket, **options: Any) -> Any:
    """Open an empty store on the bound socket; the socket stays open after the end of the store."""
    host, port = listener.getsockname()[:2]
    if version() < _LIBUV_LISTENS:
        options["use_libuv"] = False
    fd = os.dup(listener.fileno())  # the store closes its own
    return _dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=fd, **options)


def has_default_output(config: LaunchConfig) -> bool:
    """Return whether torchrun prints what the workers print, and keeps none of it: no option asks for more."""
    specs: Any = config.logs_specs
    newer = ("log_line_prefix_template", "duplicate_stdout_filters", "duplicate_stderr_filters")  # than torch 2.4
    if type(specs) is not DefaultLogsSpecs or any(getattr(config, name, None) for name in newer):
        return False
    chosen = (specs._redirects != Std.NONE, specs._tee != Std.NONE, specs._local_ranks_filter)
    folder, name = os.path.split(specs.root_log_dir)
    return not any(chosen) and folder == tempfile.gettempdir() and name.startswith("torchelastic_")  # torch's own


def keep_rendezvous(agent: Any) -> None:
    """Keep the rendezvous open when workers stop; before 2.8 torch closes it then, also for all other agents."""
    agent._rdzv_handler = None  # torch uses it for nothing else


def failures(agent: Any, result: Any) -> dict[int, Any]:
    """Return the failures by rank, including workers stopped after the first one, which older torch leaves out."""
    context, found = agent._pcontext, dict(result.failures)
    handlers = getattr(context, "subprocess_handlers", {})
    for worker in agent.get_worker_group().workers if handlers else ():
        local_rank, process = worker.local_rank, handlers[worker.local_rank].proc
        if process.poll() and worker.global_rank not in found:
            file = context.error_files[local_rank]
            found[worker.global_rank] = ProcessFailure(local_rank, process.pid, process.poll(), file)
    return found


def separate_stores() -> None:
    """Give every round a store of its own, unless the user sets the variable.

    Workers that share the agents' store find the addresses of dead workers after a restart, and hang. torch chooses the
    port of such a store in rank 0's agent, and its worker opens it a moment later. Meanwhile nobody else may get it.
    """
    os.environ.setdefault(SEPARATE_STORES, "1")
    if hasattr(rendezvous_api, "get_free_port"):
        rendezvous_api.get_free_port = functools.partial(quiet_port, rendezvous_api.get_free_port)


def quiet_port(otherwise: Callable[[], int]) -> int:
    """Return a free port that the system gives to nobody who asks for any; `otherwise` returns one if all are taken."""
    for port in random.sample(_QUIET_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    return otherwise()


def keep_tracebacks_cheap() -> None:
    """Keep torch's log formatter from importing torch._dynamo when a worker has failed: it takes a second or more.

    The formatter imports it for the first record with a traceback, which delayed every agent's first restart.
    """
    for logger in (logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))):
        for handler in logger.handlers:
            if type(handler.formatter).__module__.startswith("torch."):
                handler.addFilter(write_traceback)


def write_traceback(record: logging.LogRecord) -> bool:
    """Format a record's traceback, so that no formatter has to; as a filter it passes every record."""
    if record.exc_info:
        record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True


def lacks_libuv(store: Callable[..., Any]) -> bool:
    """Return whether this build's TCPStore refuses its own default, which shows only when a store is created."""
    try:
        store("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        return "libuv" in str(error)
    return False


def use_plain_stores() -> None:
    """Make torch's rendezvous and the workers work on builds without libuv, and with USE_LIBUV=0.

    torch reads that variable in the workers, but its rendezvous in the agent always requests libuv.
    """
    if os.environ.get(_USE_LIBUV) != "0":
        if not lacks_libuv(_dist.TCPStore):
            return
        _log.info("this torch has no libuv: TCPStore runs without it")
        os.environ[_USE_LIBUV] = "0"
    replace_store(plain(_dist.TCPStore))


def plain(store: Any) -> Any:
    """Return a TCPStore class that uses libuv only if the caller requests it."""

    class PlainTCPStore(store):  # type: ignore[misc]
        """TCPStore on plain sockets."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **({"use_libuv": False} | kwargs))

    return PlainTCPStore


def replace_store(replacement: Any) -> None:
    """Replace TCPStore in all modules of torch that hold it by name."""
    original = _dist.TCPStore
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and getattr(module, "TCPStore", None) is original:
            module.TCPStore = replacement  # type: ignore[attr-defined]
