"""A torchrun whose own workers are done waits for the job, or its container starts again."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from pytorchjob_agent.contract.messages import Refused, Restart, RoundId, Stop
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.rendezvous.exit_barrier import wait_for_all
from pytorchjob_agent.rendezvous.inbox import Inbox

pytestmark = pytest.mark.torch
ROUND = RoundId(1, 1)


class Member:
    """A membership whose inbox gets a command while it waits for the first time."""

    def __init__(self, command: dict[str, Any], away: float = 0.0) -> None:
        self.client = SimpleNamespace(inbox=Inbox(ROUND), away=lambda: away, wait=self._wait)
        self.heartbeats, self.reported, self.lingered = None, 0, False
        self._command = command

    def _wait(self, enough: Callable[[Inbox], bool], seconds: float) -> None:
        self.client.inbox = replace(self.client.inbox, **self._command)

    def done(self) -> bool:
        self.reported += 1
        return True

    def all_done(self) -> bool:
        return self.reported > 0

    def cut_off(self) -> bool:
        return False

    def linger(self) -> None:
        self.lingered = True


def ends(member: Any) -> int | None:
    """The code with which the process ends; None if it goes on to succeed."""
    try:
        wait_for_all(member)
    except SystemExit as end:
        return int(str(end.code))
    return None


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param({"finished": True}, None, id="all members are done"),
        pytest.param({"stop": Stop(ExitCode.OK, "Succeeded", "the job is over")}, None, id="the job has succeeded"),
        pytest.param({"stop": Stop(7, "RestartsUsedUp", "rank 0 failed")}, 7, id="the job has failed"),
        pytest.param({"restart": Restart(ROUND, "rank 0 failed")}, ExitCode.RENDEZVOUS, id="another round begins"),
        pytest.param({"refused": Refused("a newer pod", fenced=True)}, ExitCode.FENCED, id="another pod has its place"),
    ],
)
def test_the_end_of_a_torchrun_whose_workers_are_done(command: dict[str, Any], code: int | None) -> None:
    member = Member(command)
    assert ends(member) == code
    assert member.reported == 1


def test_without_a_coordinator_it_ends_when_the_store_has_all_members() -> None:
    member = Member({}, away=10.0)
    assert ends(member) is None
    assert member.lingered
