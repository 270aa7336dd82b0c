"""Differences between torch's versions (2.4 to 2.15) and builds, kept out of the launcher."""

import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed

_log = logging.getLogger(__name__)
_dist: Any = torch.distributed  # TCPStore is put there at run time, which type checkers do not see
_USE_LIBUV = "USE_LIBUV"
_SHARE_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def supported(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return those of the arguments that this version of the function knows."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def separate_stores() -> None:
    """Give every round a store of its own, unless the user decided.

    Workers that share the agents' store meet the addresses of dead workers after a restart, and hang.
    """
    os.environ.setdefault(_SHARE_STORE, "1")


def lacks_libuv(store: Callable[..., Any]) -> bool:
    """Whether this build's TCPStore refuses its own default; it says so only when one is made."""
    try:
        store("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        return "libuv" in str(error)
    return False


def use_plain_stores() -> None:
    """Make torch's rendezvous and the workers work on builds without libuv, or when USE_LIBUV=0 asks for it.

    torch reads that variable in the workers, but its rendezvous in the agent always asks for libuv.
    """
    if os.environ.get(_USE_LIBUV) != "0":
        if not lacks_libuv(_dist.TCPStore):
            return
        _log.info("this torch has no libuv: TCPStore works without")
        os.environ[_USE_LIBUV] = "0"
    replace_store(plain(_dist.TCPStore))


def plain(store: Any) -> Any:
    """Return a TCPStore that does not ask for libuv unless told to."""

    class PlainTCPStore(store):  # type: ignore[misc]
        """TCPStore on plain sockets."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **({"use_libuv": False} | kwargs))

    return PlainTCPStore


def replace_store(replacement: Any) -> None:
    """Put the replacement wherever torch's modules hold TCPStore by name."""
    original = _dist.TCPStore
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and getattr(module, "TCPStore", None) is original:
            module.TCPStore = replacement  # type: ignore[attr-defined]
