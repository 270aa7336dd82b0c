"""64 ranks over HTTP; containers restart, pods are replaced, connections break: every line comes once."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pytorchjob.cluster.connect import connect
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob.logs.printing import Entry
from pytorchjob.logs.session import LogOptions, LogSession
from pytorchjob_operator import names
from tests import waiting
from tests.people.fake_cluster import a_job, a_pod
from tests.people.logs.log_server import LogServer

RANKS = 64
ROUNDS = 6
LINES = 25
"""Lines of a rank in a round."""


class Drama:
    """Changes of a job while its logs are followed. No line goes away before the reader has read it."""

    def __init__(self, server: LogServer) -> None:
        self.server = server
        self.printed: dict[str, list[str]] = defaultdict(list)
        self.read: dict[str, list[str]] = defaultdict(list)
        self.restarts, self.replaced = [0] * RANKS, [0] * RANKS
        self._needed: dict[int, int] = defaultdict(int)

    def begin(self) -> None:
        self.server.put_job(a_job(workers=RANKS - 1))
        for rank in range(RANKS):
            self._put(rank)

    def write(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.read[entry.label].append(entry.text.decode())

    def play(self) -> None:
        for number in range(ROUNDS):
            for rank in range(RANKS):
                self._print(rank)
            self._break(number)
            for rank in range(number % 3, RANKS, 3):
                self._restart(rank)
            if number % 2:
                self._replace(number * 7 % RANKS)
        for rank in range(RANKS):
            self._print(rank)
            self.server.end(_name(rank))
            self._put(rank, phase="Succeeded")
        self.server.put_job(a_job(workers=RANKS - 1, state="Succeeded"))

    def _print(self, rank: int) -> None:
        label = f"rank{rank}"
        first = len(self.printed[label])
        lines = ["same" if number % 5 == 0 else f"line {number}" for number in range(first, first + LINES)]
        self.server.print(_name(rank), [f"[rank{rank}]: {line}" for line in lines])
        self.printed[label] += lines

    def _break(self, number: int) -> None:
        if number == 2:
            self.server.is_down = True
        self.server.cut_all()
        if number == 2:
            waiting.until(lambda: self.server.refused > RANKS)
            self.server.is_down = False

    def _restart(self, rank: int) -> None:
        """The node keeps one previous log: the reader must have read a log before the node forgets it."""
        self._wait(rank, self._needed[rank])
        self._needed[rank] = len(self.printed[f"rank{rank}"])
        self.server.restart(_name(rank))
        self.restarts[rank] += 1
        self._put(rank)

    def _replace(self, rank: int) -> None:
        self._wait(rank, len(self.printed[f"rank{rank}"]))
        self.server.remove_pod(_name(rank))
        self.replaced[rank] += 1
        self.restarts[rank] = 0
        self._put(rank)

    def _wait(self, rank: int, lines: int) -> None:
        label = f"rank{rank}"
        waiting.until(lambda: len(self.read[label]) >= lines, story=lambda: f"{label}: {len(self.read[label])}/{lines}")

    def _put(self, rank: int, phase: str = "Running") -> None:
        replica = "master-0" if rank == 0 else f"worker-{rank - 1}"
        pod: dict[str, Any] = a_pod("digits", replica, phase=phase, restarts=self.restarts[rank])
        pod["metadata"] |= {"uid": f"uid-{rank}-{self.replaced[rank]}", "namespace": "team"}
        if phase == "Succeeded":
            terminated = {"exitCode": 0, "startedAt": "2026-01-02T03:04:05Z"}
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": terminated}
        self.server.put_pod(pod)


def _name(rank: int) -> str:
    return "digits-master-0" if rank == 0 else f"digits-worker-{rank - 1}"


@pytest.mark.parametrize("seed", [1, 2])
def test_of_64_ranks_with_restarts_no_line_is_lost_and_none_comes_twice(tmp_path: Path, seed: int) -> None:
    server = LogServer(seed)
    drama = Drama(server)
    notes: list[str] = []
    with server.running(tmp_path) as kubeconfig:
        drama.begin()
        cluster = connect(ConnectOptions(kubeconfig=str(kubeconfig)))
        session = LogSession(cluster, "digits", LogOptions(names.CONTAINER), notes.append)
        player = Thread(target=drama.play, daemon=True)
        player.start()
        succeeded = session.follow(cluster.pods("digits"), drama.write)
        player.join(waiting.SECONDS)
    assert succeeded
    assert {label: drama.read[label] for label in drama.printed} == dict(drama.printed)
    assert set(drama.read) == set(drama.printed)
    assert [note for note in notes if "may be missing" not in note] == []  # where the node had forgotten the last line
    assert sum(drama.restarts) > RANKS
