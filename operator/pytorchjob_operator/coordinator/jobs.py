"""Feeds each job's inputs to `rounds.decide`, sends the commands, hands on the events. Called in one loop only.

`state` may be read from any thread. A decision that violates an invariant is not carried out: the job stalls with the
reason instead.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, assert_never

from pytorchjob_agent.contract.messages import Assigned, FromAgent, Hello, Message, Refused, RoundId, Stop
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator import accounting
from pytorchjob_operator.accounting import Account
from pytorchjob_operator.coordinator.authentication import Admission
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.usage import UNNAMED, ConnectionUsage, Title
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.goodput.ledger import Ledger, book
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.invariants import find_violations
from pytorchjob_operator.rounds.phases import Ended, Stalled, name_of
from pytorchjob_operator.rounds.state import (
    AuthenticationFailed,
    Close,
    ConnectionClosed,
    Decision,
    Input,
    JobEvent,
    JobState,
    JobSynced,
    MessageReceived,
    Send,
    Tick,
)
from pytorchjob_operator.rounds.summary import summarize

_log = logging.getLogger(__name__)
_SECRET_BYTES = 32
_MOST_FORGOTTEN = 10_000
"""Jobs that were forgotten and whose last round is known. Most are over and do not come back."""
_FORGOTTEN = Refused("the job is over or deleted", again=True)

OnChange = Callable[[str, tuple[JobEvent, ...]], None]
Record = Callable[[str, JobState, Input, float], None]
"""Called with each job's uid, its state, an input and the time, before the decision."""


class MemberLink(Protocol):
    """A connection, as far as a job needs it."""

    number: int
    job: str
    title: Title
    index: int

    def send(self, message: Message) -> None:
        """Send a message."""

    def hang_up(self) -> None:
        """Close after all messages are sent."""


@dataclass(slots=True)
class _Job:
    state: JobState
    title: Title
    account: Account = field(default_factory=Account)
    links: dict[int, MemberLink] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    secret: str = ""
    certificates: Sequence[str] = ()
    """Of the last round that was formed; a certificate for each member."""


class Jobs:
    """All jobs that the operator has synced."""

    def __init__(
        self,
        term: int,
        clock: Callable[[], float],
        on_change: OnChange,
        limits: Limits,
        record: Record | None = None,
    ) -> None:
        """`on_change(uid, events)` is called when a job's report changes or has events."""
        self._term, self._clock, self._on_change, self._limits = term, clock, on_change, limits
        self._record = record
        self._jobs: dict[str, _Job] = {}
        self._usage = ConnectionUsage(limits)
        self._finished: dict[str, bool] = {}
        """Jobs that have ended while pods of them still run, and whether they failed."""
        self._last_rounds: dict[str, RoundId] = {}
        """The last rounds of jobs that were forgotten: a suspended job comes back, and fences refuse earlier rounds."""
        self.ticked_at = clock()
        self.violations = 0
        """Decisions that violated an invariant or failed, and were not carried out."""
        self.draw_secret: Callable[[], str] = _draw_secret
        """Returns the secret of a new round. A simulation replaces it."""
        self.make_certificates: Callable[[int], Sequence[str]] = no_certificates
        """Gets the size of a new round; returns each member's certificate, or empty texts: they do not encrypt."""

    def state(self, uid: str) -> JobState | None:
        """Return the present state of a job; it never changes afterwards."""
        job = self._jobs.get(uid)
        return None if job is None else job.state

    def report(self, uid: str, now: float) -> Report | None:
        """Return what is shown of a job now; None if it is unknown."""
        job, ledger = self._jobs.get(uid), self.ledger(uid)
        if job is None:
            return None
        return replace(summarize(job.state, now), ledger=None if ledger is None else book(ledger, now))

    def ledger(self, uid: str) -> Ledger | None:
        """Return what is booked of a job's time; None if it is unknown."""
        job = self._jobs.get(uid)
        return None if job is None else job.account.ledger

    def sync_job(
        self,
        uid: str,
        synced: JobSynced,
        title: Title = UNNAMED,
        ledger: Ledger | None = None,
        *,
        lacks_pods: bool = False,
    ) -> None:
        """Take over what a job is now, and what the plan has booked of its time."""
        self._finished.pop(uid, None)
        job = self._jobs.get(uid)
        if job is None:
            last = self._last_rounds.pop(uid, None)
            job = self._jobs[uid] = _Job(JobState(synced.policy, self._term, finished_round=last), title)
        job.places.update({pod.pod: index for index, pod in synced.pods.items()})
        job.account = accounting.synced(job.account, job.state, ledger, lacks_pods, self._clock())
        self._feed(uid, synced)

    def finish_job(self, uid: str, *, failed: bool) -> None:
        """Stop the agents of a job that has ended, and those that connect later."""
        self._finished[uid] = failed
        job = self._jobs.pop(uid, None)
        if job is None or isinstance(job.state.phase, Ended):  # its agents know
            return
        for link in tuple(job.links.values()):
            link.send(_stop(failed, trains=True))

    def stop_for(self, hello: Hello) -> Stop | None:
        """Return the command for an agent of a job that has ended. None: the job has not.

        An agent that connects after the end has nothing to do, and must not be restarted.
        """
        failed = self._finished.get(hello.job)
        return None if failed is None else _stop(failed, trains=hello.round is not None)

    def forget_job(self, uid: str) -> None:
        """Drop a job, and send its agents away. Its rounds go on after the last one, should it come back."""
        self._finished.pop(uid, None)
        job = self._jobs.pop(uid, None)
        last = job.state.last_round if job is not None else None
        if last is not None:
            self._last_rounds[uid] = last
        if len(self._last_rounds) > _MOST_FORGOTTEN:
            del self._last_rounds[next(iter(self._last_rounds))]
        for link in tuple(job.links.values()) if job else ():
            link.send(_FORGOTTEN)
            link.hang_up()

    def admission(self, uid: str) -> Admission | None:
        """Return what authentication needs to know of a job. None: the job is unknown."""
        job = self._jobs.get(uid)
        if job is None:
            return None
        return Admission(job.places, self._usage.shares(job.title, len(job.links), len(job.state.pods)))

    def enter(self, link: MemberLink, hello: Hello) -> None:
        """Take in an authenticated connection."""
        job = self._jobs[hello.job]
        link.job, link.title, link.index = hello.job, job.title, hello.index
        job.links[link.number] = link
        self._usage.enter(link.title)
        self._feed(hello.job, MessageReceived(link.number, None, hello))

    def received(self, link: MemberLink, message: FromAgent) -> None:
        """Handle a message on a connection that has entered."""
        self._feed(link.job, MessageReceived(link.number, link.index, message))

    def left(self, link: MemberLink) -> None:
        """Handle the end of a connection that has entered."""
        job = self._jobs.get(link.job)
        if job is not None and job.links.pop(link.number, None) is not None:
            self._feed(link.job, ConnectionClosed(link.number, link.index))

    def closed(self, link: MemberLink) -> None:
        """Handle the end of a connection's socket, until which it counts for its job."""
        if link.job:
            self._usage.leave(link.title)

    def held(self, link: MemberLink, more: int) -> Refused | None:
        """Count the bytes that wait in a connection that has entered; return why it must go."""
        excess = self._usage.hold(link.title, more)
        return None if excess is None else Refused(excess, again=True)

    def authentication_failed(self, uid: str, reason: TrainingReason, message: str) -> None:
        """Report an agent that may not take part in this job. Nothing happens if the job is unknown."""
        if uid in self._jobs:
            self._feed(uid, AuthenticationFailed(message, reason))

    def tick(self) -> None:
        """Let time pass for all jobs."""
        self.ticked_at = self._clock()
        for uid, job in tuple(self._jobs.items()):
            if job.state.members or job.state.problems:
                self._feed(uid, Tick())

    def _feed(self, uid: str, input_: Input) -> None:
        job = self._jobs.get(uid)
        if job is None:
            return
        before, now = job.state, self._clock()
        if self._record is not None:
            self._record(uid, before, input_, now)
        try:
            decision = decide(before, input_, now)
            violations = find_violations(before, decision)
        except Exception:  # a defect here must not stop the other jobs
            _log.exception("job %s: the decision about %s failed; state: %r", uid, type(input_).__name__, before)
            violations, decision = ["the decision failed, see the operator's log"], None
        if decision is None or violations:
            self._stall(uid, job, input_, violations, now)
            return
        job.state, job.account = decision.state, _booked(job.account, before, input_, decision, now)
        _carry_out(job, self._with_keys(job, decision))
        if decision.events or _shown(before) != _shown(decision.state):
            _log.info("job %s: %s", uid, decision.reason)
            self._on_change(uid, decision.events)

    def _with_keys(self, job: _Job, decision: Decision) -> Decision:
        """Give all members of a round that the decision assigns the same secret, and each one its certificate.

        They are added here, so that no state, log or recording has them, and replayed decisions are equal. A member
        that comes back into its round gets those that it had.
        """
        messages = (command.message for command in decision.commands if isinstance(command, Send))
        assigned = next((message for message in messages if isinstance(message, Assigned)), None)
        if assigned is None:
            return decision
        if not assigned.enters:
            job.secret, job.certificates = self.draw_secret(), self.make_certificates(assigned.size)
        commands = tuple(
            replace(
                command,
                message=replace(command.message, secret=job.secret, certificate=job.certificates[command.message.rank]),
            )
            if isinstance(command, Send) and isinstance(command.message, Assigned)
            else command
            for command in decision.commands
        )
        return replace(decision, commands=commands)

    def _stall(self, uid: str, job: _Job, input_: Input, violations: list[str], now: float) -> None:
        """Keep the state, send nothing, and show the defect."""
        self.violations += 1
        message = f"defect of the coordinator: {'; '.join(violations)}. Running workers continue. Please report it."
        _log.error("job %s: %s Input: %r State: %r", uid, message, input_, job.state)
        if isinstance(input_, MessageReceived) and input_.connection in job.links:
            job.links[input_.connection].hang_up()
        if isinstance(job.state.phase, Ended):
            return
        phase = Stalled(now, message, job.state.round)
        problems = {**job.state.problems, TrainingReason.COORDINATOR_DEFECT: message}
        job.state = replace(job.state, phase=phase, problems=problems)
        self._on_change(uid, (JobEvent(TrainingReason.COORDINATOR_DEFECT, message, warning=True),))


def _booked(account: Account, before: JobState, input_: Input, decision: Decision, now: float) -> Account:
    """Return the account after a decision. A defect of the ledger must not keep the decision from its agents."""
    try:
        return accounting.observe(account, before, input_, decision, now)
    except Exception:
        _log.exception("the time of a job is not booked; its ledger begins again with the status")
        return Account()


def _draw_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)


def no_certificates(size: int) -> Sequence[str]:
    """Return none for each of so many members."""
    return [""] * size


def _carry_out(job: _Job, decision: Decision) -> None:
    """Send the commands. A connection that has ended meanwhile gets none."""
    for command in decision.commands:
        link = job.links.get(command.connection)
        if link is None:
            continue
        match command:
            case Send(message=message):
                link.send(message)
            case Close():
                link.hang_up()
            case _:
                assert_never(command)


def _stop(failed: bool, *, trains: bool) -> Stop:
    code = ExitCode.WORKER_FAILED if failed and trains else ExitCode.OK
    return Stop(code, *(("JobFailed", "the job has failed") if failed else ("JobSucceeded", "the job has succeeded")))


def _shown(state: JobState) -> tuple[Any, ...]:
    """What the job's status shows. Of progress, which changes all the time, only whether there is any."""
    round_ = state.round
    shows = round_ is not None and round_.shows
    lasting = (state.restarts, state.problems, {*state.silent}, {*state.own_times.slow})
    return (round_.id if round_ else None, name_of(state.phase), shows, lasting)
