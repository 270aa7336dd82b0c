"""A torchrun whose own workers are done waits for the job, or starts again."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

pytest.importorskip("torch")
from pytorchjob_agent.contract.messages import Refused, Restart, RoundId, Stop
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.rendezvous.exit_barrier import wait_for_all
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.rendezvous.membership import Membership

pytestmark = pytest.mark.torch
ROUND = RoundId(1, 1)


class Member(Membership):
    """A membership whose inbox gets a command while it waits for the first time."""

    def __init__(self, command: dict[str, Any], away: float = 0.0) -> None:
        client = SimpleNamespace(
            inbox=Inbox(ROUND), away=lambda: away, absent=lambda: away > 0, wait=self._command_comes
        )
        self.client: Any = client
        self.heartbeats, self.reported, self.lingered = None, 0, False
        self._command = command

    def _command_comes(self, enough: Callable[[Inbox], bool], seconds: float) -> None:
        self.client.inbox = replace(self.client.inbox, **self._command)

    def done(self, age: float = 0.0) -> bool:
        self.reported += 1
        return True

    def all_done(self) -> bool:
        return self.reported > 0

    def cut_off(self) -> bool:
        return False

    def linger(self) -> None:
        self.lingered = True


class AgainError(Exception):
    """In the place of a new process."""


def again() -> NoReturn:
    raise AgainError


def end(member: Member) -> int | str:
    """The code with which the process ends, or that it succeeds or starts again."""
    try:
        wait_for_all(member, again)
    except SystemExit as exited:
        return int(str(exited.code))
    except AgainError:
        return "starts again"
    return "succeeds"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param({"finished": True}, "succeeds", id="all members are done"),
        pytest.param(
            {"stop": Stop(ExitCode.OK, "Succeeded", "the job is over")}, "succeeds", id="the job has succeeded"
        ),
        pytest.param({"stop": Stop(7, "RestartsUsedUp", "rank 0 failed")}, 7, id="the job has failed"),
        pytest.param({"restart": Restart(ROUND, "rank 0 failed")}, "starts again", id="another round begins"),
        pytest.param({"refused": Refused("a newer pod", fenced=True)}, ExitCode.FENCED, id="another pod has its place"),
    ],
)
def test_the_end_of_a_torchrun_whose_workers_are_done(command: dict[str, Any], expected: int | str) -> None:
    member = Member(command)
    assert end(member) == expected
    assert member.reported == 1


def test_without_a_coordinator_it_ends_when_the_store_has_all_members() -> None:
    member = Member({}, away=10.0)
    assert end(member) == "succeeds"
    assert member.lingered
