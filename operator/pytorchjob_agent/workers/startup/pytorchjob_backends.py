"""Runs in a worker: what the backends of torch's default group differ in when ranks go on without a lost one.

With gloo a rank notices a loss itself, because a connection ends. A rank leaves its group by closing its own ones. With
NCCL a kernel waits for the lost rank on the GPU, and no call returns before the group is revoked. torch revokes a group
only if its user forms it, from the first time on. `pytorchjob_shrink_torch` makes one of these objects for the default
group.
"""

import itertools
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

BACKENDS = "PYTORCHJOB_SURVIVE_BACKENDS"  # besides gloo, names joined by commas. Not by default: no GPU has shown it
_FORM_SECONDS = 300.0
"""How long all ranks may take to come to `init_process_group`."""
_LIBRARY = "/gloo/transport/"
_TOO_OLD, _OTHER = "TorchTooOld", "BackendNotSupported"
_made = itertools.count()
"""A process may end its default group and make another one; torch takes each number once."""


class Gloo:
    """The default group by gloo, or by a backend that cannot lose a rank."""

    options: Mapping[str, Any] = {}
    """What `init_process_group` needs besides what the script gives."""
    takes_in = True
    """Whether a rank that was not in the group may come in."""

    def __init__(self, c10d: Any, all_reduce: Any) -> None:
        """Take torch's module and its function; the group is not made yet."""
        self.torch: Any = sys.modules["torch"]
        self.device = self.torch.device("cpu")
        """Where tensors have to be."""
        self._c10d, self._all_reduce = c10d, all_reduce
        self._before, self._sockets = sockets(), dict[int, str]()

    def begin(self) -> None:
        """The group is made. Raises RuntimeError."""
        self._sockets = opened(self._before)

    def problem(self) -> str:
        """Return why the group cannot lose a rank; empty: it can."""
        if not hasattr(self._c10d, "_reconfigure") or not hasattr(self._c10d._get_default_group(), "reconfigure"):
            return _TOO_OLD
        return "" if self._c10d.get_backend() == "gloo" else _OTHER

    def handle(self) -> str:
        """Return how torch reaches this rank; it changes with the group."""
        return str(self._c10d._get_reconfigure_handle())

    def form(self, number: int, handles: Sequence[str], place: int, seconds: float) -> None:
        """Form the group again, as `pytorchjob_shrink.Group` says. Raises RuntimeError."""
        before, given = sockets(), distinct(handles, place)
        self._c10d._reconfigure(uuid=number, handles=given, timeout=timedelta(seconds=seconds)).wait()
        self._sockets = opened(before)

    def leave(self) -> None:
        """Let the operation that this rank is in fail at once; any thread may call it."""
        leave(self._sockets)

    def barrier(self, numbers: Sequence[int]) -> list[int]:
        """Wait until all ranks are here, by the cheapest collective; returns the sums of their numbers.

        Raises RuntimeError.
        """
        summed = self.torch.tensor(numbers, dtype=self.torch.int32, device=self.device)
        self._all_reduce(summed)
        found: list[int] = summed.tolist()
        return found

    def has_lost(self, error: RuntimeError) -> bool:
        """Return whether a rank was lost. gloo has no type of its own for that; other errors name no file of it."""
        return _LIBRARY in str(error)


class Nccl(Gloo):
    """The default group by a backend that torch revokes: NCCL. Its group is formed here, also the first time."""

    options: Mapping[str, Any] = {"enable_reconfigure": True}
    takes_in = False
    _left = False
    _backend: Any = None

    def begin(self) -> None:
        """Form the group with all ranks. Raises RuntimeError."""
        group, store = self._c10d._get_default_group(), self._c10d._get_default_store()
        if not group.supports_reconfigure:  # torch has ignored the option
            return
        self.device = self._own_device(group)
        self._backend = group._get_backend(self.device)
        own, made = group.rank(), next(_made)
        keys = [f"pytorchjob/backend/{made}/{rank}" for rank in range(group.size())]
        store.set(keys[own], self.handle())
        store.wait(keys, timedelta(seconds=_FORM_SECONDS))
        self.form(-2 - made, [store.get(key).decode() for key in keys], own, _FORM_SECONDS)  # changes count from 1 up

    def problem(self) -> str:
        """Return why the group cannot lose a rank; empty: it can."""
        return "" if self._backend is not None else _OTHER

    def form(self, number: int, handles: Sequence[str], place: int, seconds: float) -> None:
        """Form the group again. Raises RuntimeError."""
        self._left = False
        with self.torch.cuda.device(self.device) if self.device.index is not None else nullcontext():
            self._c10d._reconfigure(uuid=number, handles=[*handles], timeout=timedelta(seconds=seconds)).wait()

    def leave(self) -> None:
        """Revoke the group: its kernels end, and what they have written is worth nothing."""
        self._left = True
        with suppress(RuntimeError):  # the process ends if the operation does not
            self._backend.abort()

    def barrier(self, numbers: Sequence[int]) -> list[int]:
        """Wait until all ranks are here. Only the GPU has waited in the operations before."""
        sums = super().barrier(numbers)
        if self._left or self._backend.get_error().name != "SUCCESS":
            raise self.torch.distributed.DistBackendError("the group was left, or has lost a rank")
        return sums

    def has_lost(self, error: RuntimeError) -> bool:
        """Return whether a rank was lost, or this one has left the group."""
        return self._left or isinstance(error, self.torch.distributed.DistBackendError) or super().has_lost(error)

    def _own_device(self, group: Any) -> Any:
        """Return the device of this rank, and bind the group to it, as torch does for groups that it forms itself."""
        count = self.torch.cuda.device_count()
        if not count:  # another backend of this kind
            return self.device
        if group.bound_device_id is None:
            place = int(os.environ.get("LOCAL_RANK", group.rank()))
            group.bound_device_id = self.torch.device("cuda", place % count)
        return group.bound_device_id


def choose(c10d: Any, all_reduce: Any, given: Mapping[str, Any]) -> Gloo:
    """Return the object for a default group that `init_process_group` is about to make of these arguments."""
    named = str(given.get("backend") or "").lower()
    tried = named and named in os.environ.get(BACKENDS, "").lower().split(",")
    if tried and hasattr(c10d, "_reconfigure") and not given.get("enable_reconfigure"):  # else the script forms it
        return Nccl(c10d, all_reduce)
    return Gloo(c10d, all_reduce)


def distinct(handles: Sequence[str], place: int) -> list[str]:
    """Return the handles such that all differ, as torch demands; it looks for its own in them, and reads no other.

    Ranks that come in together have equal ones: each was rank 0 of a group of its own.
    """
    if len(set(handles)) == len(handles):
        return [*handles]
    others = (each.split(":", 2) for each in handles)
    numbered = [":".join([kind, str(len(handles) + at), *rest]) for at, (kind, _, *rest) in enumerate(others)]
    return [handles[at] if at == place else each for at, each in enumerate(numbered)]


def sockets() -> dict[int, str]:
    """Return the sockets of this process, by descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found[int(name)] = target
    return found


def opened(before: dict[int, str]) -> dict[int, str]:
    """Return the sockets that were opened since."""
    known = set(before.values())
    return {number: target for number, target in sockets().items() if target not in known}


def leave(known: dict[int, str]) -> None:
    """End the connections of these sockets to other ranks, for both sides; the round's store stays.

    gloo reads the end, and closes its side. It must not find the connection closed for writing: its thread may be about
    to send what another rank has asked for, and forgets the operation whose data it cannot write.
    """
    store = os.environ.get("MASTER_PORT", "")
    for number, target in known.items():
        with suppress(Exception):  # it is closed, or no connection
            if os.readlink(f"/proc/self/fd/{number}") != target:
                continue
            with socket.socket(fileno=os.dup(number)) as connection:
                inet = connection.family in (socket.AF_INET, socket.AF_INET6)
                if inet and str(connection.getpeername()[1]) != store:
                    connection.shutdown(socket.SHUT_RD)
