"""Connects the workers of a round with their agent, which tells them who goes on without a lost member.

A worker connects when its script makes the default process group. It tells whether it can go on without another rank,
or why not. The agent's word is a line of JSON. Workers connect to a port of this pod's loopback interface, and prove
with a secret of their environment that they are workers of this round.
"""

import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pytorchjob_agent.contract.environment import SURVIVE
from pytorchjob_agent.contract.messages import Shrink
from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_agent.rendezvous.extension import (
    Extension,
    OpenRound,
    OwnPod,
    Registered,
    RunningWorkers,
    StartingWorkers,
)
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers.startup.pytorchjob_shrink import ENTERS, SHRINK

_LOOPBACK = "127.0.0.1"
_LONGEST = 64 * 1024
_FIRST_SECONDS = 5.0
"""How long a process may take to introduce itself."""


class ShrinkServer:
    """The connections of one round's workers."""

    def __init__(self, nproc: int) -> None:
        """Open the port. Raises OSError."""
        self._nproc, self._secret = nproc, secrets.token_hex(16)
        self._server = socket.create_server((_LOOPBACK, 0))
        self._lock = threading.Lock()
        self._workers: dict[int, socket.socket] = {}
        self._said: dict[int, dict[str, Any]] = {}
        self._change: dict[str, Any] | None = None
        self.on_news: Callable[[], None] = lambda: None
        """Called when the state is another one: the coordinator has to hear of it at once."""
        self.seconds: list[float] = []
        """For each rank that went on, how long its operation had been interrupted."""
        threading.Thread(target=self._accept, name="shrink", daemon=True).start()

    @property
    def address(self) -> str:
        """What a worker's environment says of it."""
        return f"{self._server.getsockname()[1]}:{self._secret}"

    @property
    def state(self) -> ShrinkState:
        """Whether all workers here can go on without another rank, or the first reason why not."""
        with self._lock:
            said = [dict(each) for each in self._said.values()]
        problems = (each["problem"] for each in said if each.get("problem"))
        if (problem := next(problems, None)) is not None:
            return _state(problem)
        if any(each.get("broken") for each in said):
            return ShrinkState.BROKEN
        if said and all(each.get("held") for each in said):
            return ShrinkState.HELD
        ready = sum(bool(each.get("ready")) for each in said)
        return ShrinkState.READY if ready >= self._nproc else ShrinkState.NOT_READY

    @property
    def shares_state(self) -> bool:
        """Whether all workers here can take in a rank that comes back."""
        with self._lock:
            return sum(bool(each.get("shares_state")) for each in self._said.values()) >= self._nproc

    @property
    def entered(self) -> int:
        """The last change by which ranks have come into the group of all workers here; 0: none has."""
        with self._lock:
            found = [int(each.get("entered", 0)) for each in self._said.values()]
        return min(found) if len(found) >= self._nproc else 0

    def tell(self, number: int, ranks: Sequence[int], *, awaited: bool = False, entering: Sequence[int] = ()) -> None:
        """Tell all workers which ranks go on, whether others are awaited, and which prepare to come in.

        One that connects later hears it too.
        """
        with self._lock:
            self._change = {"number": number, "ranks": [*ranks], "awaited": awaited, "entering": [*entering]}
            connections = [*self._workers.values()]
            for connection in connections:
                _send(connection, self._change)

    def close(self) -> None:
        """End all connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for connection in self._workers.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(connection,), name="shrink", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError), connection, connection.makefile("rb") as lines:
            connection.settimeout(_FIRST_SECONDS)
            hello = json.loads(lines.readline(_LONGEST))
            if not secrets.compare_digest(str(hello["secret"]), self._secret):
                return
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rank = int(hello["rank"])
            with self._lock:
                self._workers[rank], self._said[rank] = connection, {}
                if self._change is not None:
                    _send(connection, self._change)
            try:
                while line := lines.readline(_LONGEST):
                    self._hear(rank, json.loads(line))
            finally:
                with self._lock:
                    if self._workers.get(rank) is connection:  # and not a later one of this rank
                        del self._workers[rank]

    def _hear(self, rank: int, what: Mapping[str, Any]) -> None:
        before = self.state, self.shares_state, self.entered
        with self._lock:
            self._said[rank].update(what)
        if "seconds" in what:
            self.seconds.append(float(what["seconds"]))
            say(f"rank {rank} goes on after {1000 * float(what['seconds']):.0f} ms")
        if (self.state, self.shares_state, self.entered) != before:
            self.on_news()
        if "problem" in what:
            say(f"rank {rank} cannot go on without a lost rank: {what['problem']}")


def _send(connection: socket.socket, what: Mapping[str, Any]) -> None:
    with suppress(OSError):
        connection.sendall(json.dumps(what).encode() + b"\n")


def _state(problem: object) -> ShrinkState:
    try:
        return ShrinkState(str(problem))
    except ValueError:
        return ShrinkState.NOT_READY


class RoundShrinks(Extension):
    """Serves the workers of the present round."""

    def __init__(self) -> None:
        """Begin without workers."""
        self._server: ShrinkServer | None = None
        self._enters = 0

    def open(self, round_: OpenRound) -> None:
        """Take note of whether the workers are to come into a round that runs."""
        self._enters = round_.assigned.enters

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """Return where the workers find the agent."""
        self.close()
        try:
            self._server = server = ShrinkServer(starting.nproc)
        except OSError as error:
            say(f"warning: the workers cannot go on without a lost rank: {error}")
            return [{}] * starting.nproc
        entry = {ENTERS: str(self._enters)} if self._enters else {}
        return [{SHRINK: server.address, **entry}] * starting.nproc

    def report(self, now: float, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return whether the workers here can go on without a lost member."""
        server = self._server
        if server is None:
            return {}
        return {"shrinks": server.state.value, "shares_state": server.shares_state, "entered": server.entered}

    def begin(self, running: RunningWorkers) -> None:
        """Let the coordinator hear at once that the workers stand still, and why."""
        if self._server is not None:
            self._server.on_news = running.report_now

    def shrink(self, change: Shrink, ranks: Sequence[int]) -> None:
        """Tell the workers."""
        if self._server is not None:
            self._server.tell(change.number, ranks, awaited=change.awaited, entering=change.entering)

    def over(self, *, clean: bool) -> None:
        """The workers have ended."""
        self.close()

    def close(self) -> None:
        """Close the port."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


def _create(pod: OwnPod) -> Extension:
    return RoundShrinks() if pod.environ.get(SURVIVE) == "auto" else Extension()


SHRINKS = Registered(_create)
