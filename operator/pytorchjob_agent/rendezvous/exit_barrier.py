"""The exit barrier of an unmodified torchrun: it ends with the job, not with torch's timeout.

torchrun starts no workers again once its own have succeeded. It waits in the round's store for the others, up to 300 s,
and then succeeds, whatever has become of them. Here it waits as our own agent does: until all members are done, or
until another round begins. Then this process becomes a new torchrun, which joins that round.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, assert_never

from pytorchjob_agent.contract.messages import Stop
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.rendezvous.decide import StepKind, Workers, decide
from pytorchjob_agent.rendezvous.membership import Membership
from pytorchjob_agent.rendezvous.waiting import POLL_SECONDS
from pytorchjob_agent.system.console import say

KEYS = "torchelastic/agent/terminal_state"
"""What torch's keys of the barrier begin with (`_TERMINAL_STATE_SYNC_ID`)."""


class StoreWithBarrier:
    """A round's store as torch's agent uses it, with another exit barrier."""

    def __init__(self, store: Any, wait_for_all: Callable[[], None]) -> None:
        """Take the round's store; `wait_for_all` returns or ends the process."""
        self._store, self._wait_for_all = store, wait_for_all

    def __getattr__(self, name: str) -> Any:
        """Return what the store has under this name."""
        return getattr(self._store, name)

    def add(self, key: str, amount: int) -> int:
        """Count, but not in the barrier."""
        return 0 if key.startswith(KEYS) else int(self._store.add(key, amount))

    def get(self, key: str) -> bytes:
        """Return a value; older versions of torch wait in the barrier by it."""
        if not key.startswith(KEYS):
            return bytes(self._store.get(key))
        self._wait_for_all()
        return b""

    def wait(self, keys: list[str], *timeout: Any) -> None:
        """Wait for these keys; newer versions of torch wait in the barrier by it."""
        if keys[0].startswith(KEYS):
            self._wait_for_all()
        else:
            self._store.wait(keys, *timeout)


def wait_for_all(membership: Membership, start_again: Callable[[], NoReturn]) -> None:
    """Report that the workers here are done, and return once those of all members are.

    Call `start_again` if another round begins. Raises SystemExit if the job ends otherwise.
    """
    reported = False
    while True:
        reported = reported or membership.done()
        step = decide(membership.snapshot(Workers.DONE, reported_done=reported))
        match step.kind:
            case StepKind.FINISH:
                return membership.linger()
            case StepKind.STOP:
                return _stop(step.stop or Stop(ExitCode.FENCED, "", step.reason))
            case StepKind.REGROUP:
                say(f"starting torchrun again: {step.reason}")
                start_again()
            case StepKind.REPORT_DONE | StepKind.WAIT:
                membership.client.wait(lambda inbox: inbox.finished or inbox.stop is not None, POLL_SECONDS)
            case StepKind.REPORT_FAILURE | StepKind.REPORT_LEAVING | StepKind.LEAVE:
                raise AssertionError(f"workers that are done do not {step.kind}")
            case _:
                assert_never(step.kind)


def _stop(stop: Stop) -> None:
    if stop.exit_code != ExitCode.OK:
        say(stop.message)
        raise SystemExit(stop.exit_code)


def start_again(environment: Mapping[str, str]) -> NoReturn:
    """Become a new process with the command line of this one and this environment: the container goes on."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606
