"""Runs the workers of this pod from round to round: torch's LocalElasticAgent with another loop.

The loop sleeps until something happens: a worker ends, a message of the coordinator or a peer arrives, a signal comes.
`decide` then returns the next step.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, assert_never

from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.collectives import find_fault
from pytorchjob_agent.contract.first_failure import collective_words
from pytorchjob_agent.contract.log_lines import round_line
from pytorchjob_agent.contract.messages import Assigned, Done, Failed, Heartbeat, Message, Shrink, Stop
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.repeated import SHORT_SECONDS, Hangs, why_repeated
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage, exit_code_of
from pytorchjob_agent.rendezvous import decide as steps
from pytorchjob_agent.rendezvous import failure_messages, waiting
from pytorchjob_agent.rendezvous.agreement import MemberStanding
from pytorchjob_agent.rendezvous.decide import Snapshot, Step, StepKind, Workers
from pytorchjob_agent.rendezvous.extension import NotStartedError, RoundEndedError
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.rendezvous.membership import Membership, NoRoundError, PeerError
from pytorchjob_agent.rendezvous.roles import MemberRole
from pytorchjob_agent.rendezvous.round_workers import RoundWorkers
from pytorchjob_agent.rendezvous.tools import Tools
from pytorchjob_agent.rendezvous.wakeup import Wakeup
from pytorchjob_agent.system import processes
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers import warm

_KILL_SECONDS = 10
_UNKILLED_SECONDS = 60.0
"""How long the kernel may take to end killed processes."""
_SPARE_SECONDS = 5.0
"""Of the grace period, what is kept for the end of the agent itself."""
_DUMP_SECONDS = 1.0
"""How long hanging workers are left alone, so that the stacks of the others show where those wait."""
_ENDED_SECONDS = 0.002
"""How long the loop sleeps until it asks again for the exit code of a worker that has ended."""
_BUSY_SECONDS, _AWAY_SECONDS = 0.05, 0.25
"""How long the loop sleeps at most while something is about to happen, and without the coordinator."""


class ElasticAgent(LocalElasticAgent):
    """The agent of one pod."""

    def __init__(self, spec: WorkerSpec, membership: Membership, tools: Tools, **options: Any) -> None:
        """Take what LocalElasticAgent takes in `options`."""
        super().__init__(spec=spec, **options)
        torch_compat.keep_rendezvous(self)
        self._membership, self._tools = membership, tools
        self._wakeup = Wakeup()
        self.last_words: TerminationMessage | None = None
        """Why this agent ends; None: with success."""
        self._reported_leaving = self._reported_done = False
        self._own: TerminationMessage | None = None
        self._result = RunResult(state=WorkerState.HEALTHY)
        self._verdict: HangVerdict | None = None
        self._killed: set[int] = set()
        self._rounds = 0
        self._workers = self._new_workers()
        self._cooperative, self._answered = False, 0
        self._started_at, self._hangs = 0.0, Hangs()
        self._shrunk: Shrink | None = None
        self._membership.on_restart = self._membership.client.on_change = self._wakeup.wake
        self._membership.leaving = self._is_leaving
        self._membership.heartbeat = self._heartbeat
        self._wakeup.on_asked = self._membership.client.nudge

    def _is_leaving(self) -> bool:
        """Return whether this pod has to go, by a signal or by the coordinator's word."""
        if self._membership.client.inbox.terminating and self._wakeup.asked is None:
            self._wakeup.ask(signal.SIGTERM)
        return self._wakeup.asked is not None

    def _new_workers(self) -> RoundWorkers:
        self._rounds += 1
        directory = self._tools.directory / f"round-{self._rounds}"
        nproc = self._worker_group.spec.local_world_size
        extensions = self._membership.extensions
        return RoundWorkers(directory, nproc, self._tools.logs, extensions)

    def _heartbeat(self) -> Heartbeat:
        """Return what is sent once a second; the client's thread calls it."""
        plain, report = self._membership.plain_heartbeat(), self._workers.report(time.monotonic())
        return replace(plain, answered=max(self._answered, self._workers.saved()), **report)

    def _invoke_run(self, role: str = "") -> RunResult:
        group = self._worker_group
        self._wakeup.handle_signals()
        try:
            warm.wait_for_imports(self._tools.server, self._is_leaving)
            self._open(group)
            while not self._act(group, steps.decide(self._snapshot(group))):
                pass
            return self._result
        except NoRoundError as error:
            return self._without_round(error.end)
        except SignalException as error:  # between the start of the workers and our own handlers
            self._wakeup.asked = self._wakeup.asked or (int(error.sigval), time.monotonic())
            return self._left(str(error))

    def _without_round(self, end: waiting.End) -> RunResult:
        match end:
            case waiting.Stopped(stop):
                return self._stopped(stop)
            case waiting.Leaving(reason):
                return self._left(reason)
            case waiting.Fenced(reason):
                return self._end(TerminationMessage(ExitReason.FENCED, ExitCode.FENCED, message=reason))
            case waiting.NotReached(why, reason):
                return self._end(TerminationMessage(why, ExitCode.RENDEZVOUS, message=reason))
            case waiting.Unfit(reason):
                return self._end(TerminationMessage(ExitReason.DEVICE_FAILED, ExitCode.PREFLIGHT, message=reason))

    def _open(self, group: WorkerGroup, *reports: Message, by_members: bool = False, caused: bool = False) -> None:
        """Wait for the next round and start its workers; a round whose store does not answer counts as failed."""
        self._reported_done, self._verdict, self._answered, self._cooperative = False, None, 0, False
        self._shrunk = None
        self._workers.close()  # its progress counts for no other round
        self._membership.extensions.over(clean=self._result.state is WorkerState.SUCCEEDED)
        self._result = RunResult(state=WorkerState.HEALTHY)
        if unkilled := self._of_workers():
            self._await_killed(unkilled, reports)
        while True:
            try:
                self._membership.next_round(*reports, by_members=by_members, caused=caused)
                break
            except RoundEndedError as error:
                say(str(error))
                reports, by_members, caused = (), False, True
            except (NotStartedError, PeerError) as error:
                assigned = self._assigned()
                say(f"the workers do not start: {error}")
                failed = Failed(assigned.round, assigned.first_rank, 0, ExitCode.RENDEZVOUS, str(error)[:4096])
                by_members = isinstance(error, NotStartedError) and self._membership.client.absent()
                reports, caused = (failed,), False
        self._initialize_workers(group)
        self._wakeup.handle_signals()

    def _of_workers(self) -> list[int]:
        """Return the processes of the last workers that live, wherever they are by now; none before the first round."""
        if self._rounds == 1:
            return []
        server = self._tools.server
        kept = server.pids() if server is not None else ()
        pids = {*processes.descendants(os.getpid()), *processes.left_behind(str(self._tools.directory))}
        return [pid for pid in pids if pid not in kept and processes.is_alive(pid)]

    def _await_killed(self, unkilled: list[int], reports: tuple[Message, ...]) -> None:
        """Wait until the killed workers have ended. Raises NoRoundError.

        The kernel ends no process while a device does not answer it. Until then the process has that device's memory,
        so new workers would fail, or find less of it. The coordinator hears the reports before; it knows one that is
        repeated.
        """
        for report in reports:
            self._membership.client.send(report)
        say(f"killed processes have not ended: {unkilled}; the next workers wait for that")
        until = time.monotonic() + _UNKILLED_SECONDS
        while (left := self._of_workers()) and not self._is_leaving():
            if time.monotonic() > until:
                words = f"killed processes have not ended within {_UNKILLED_SECONDS:.0f} s: {left}"
                raise NoRoundError(waiting.Unfit(f"{words}; the kernel waits for a device, or for storage"))
            time.sleep(_BUSY_SECONDS)

    def _assigned(self) -> Assigned:
        assigned = self._membership.assigned
        assert assigned is not None
        return assigned

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Take the ranks that the coordinator assigned; only roles need an exchange through the store."""
        assigned = self._assigned()
        self._remaining_restarts = spec.max_restarts - assigned.restarts  # TORCHELASTIC_RESTART_COUNT: one for all
        say(round_line(assigned, spec.local_world_size))
        role = self._membership.role_place(MemberRole(spec.role, spec.local_world_size))
        return [
            Worker(local, assigned.first_rank + local, role.first + local, assigned.world_size, role.size)
            for local in range(spec.local_world_size)
        ]

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._workers = self._new_workers()
        job = worker_group.spec.rdzv_handler.get_run_id()
        with warm.warm_starts(self._tools.server), self._workers.equipping(job, self._assigned().round):
            started: dict[int, Any] = super()._start_workers(worker_group)
        context: Any = self._pcontext
        self._killed, self._started_at = set(), time.monotonic()
        closing = context.close

        def close(death_sig: Any = None, timeout: int = _KILL_SECONDS) -> None:
            # torch stops the others of a failed worker by SIGTERM and waits for them up to 30 s.
            self._killed |= {rank for rank, pid in context.pids().items() if processes.is_alive(pid)}
            closing(death_sig or signal.SIGKILL, timeout)

        context.close = close
        self._wakeup.watch(context.pids().values())
        self._workers.begin(
            context.pids(),
            self._assigned(),
            self._membership.share,
            self._membership.client.heartbeat_now,
            self._started_at,
        )
        return started

    def _snapshot(self, group: WorkerGroup) -> Snapshot:
        self._wakeup.sleep(self._pause())
        self._is_leaving()
        workers = self._check_workers(group, time.monotonic())
        self._report_progress(workers)
        return replace(
            self._membership.snapshot(workers, reported_done=self._reported_done),
            leave_by=self._leave_by(),
            reported_leaving=self._reported_leaving,
            shrunk=self._shrunk,
        )

    def _pause(self) -> float:
        if self._workers.asked:
            return _BUSY_SECONDS
        if self._membership.client.away() > 0.0:
            return _AWAY_SECONDS
        if self._wakeup.watches or self._result.state is not WorkerState.HEALTHY:
            return self._workers.pause(time.monotonic())
        return (
            _ENDED_SECONDS if self._wakeup.just_ended else min(self._worker_group.spec.monitor_interval, _BUSY_SECONDS)
        )

    def _check_workers(self, group: WorkerGroup, now: float) -> Workers:
        if self._result.state is WorkerState.HEALTHY:
            self._result = self._monitor_workers(group)
            group.state = self._result.state
        if self._result.state is WorkerState.HEALTHY:
            self._verdict = self._workers.judge(now)
            return Workers.RUN if self._verdict is None else Workers.HANG
        self._wakeup.forget()
        self._membership.share(MemberStanding(inf))  # none is left that could move
        if self._result.state is WorkerState.SUCCEEDED:
            return Workers.STOPPED if self._workers.obeys() else Workers.DONE
        return Workers.FAILED

    def _report_progress(self, workers: Workers) -> None:
        """Report without waiting for the next heartbeat that a request is answered, or that workers accept requests."""
        inbox = self._membership.client.inbox
        request = inbox.save_request
        if workers is Workers.RUN:
            self._workers.request(request, inbox.save_and_continue)
        cooperative = self._cooperative or self._workers.cooperative()
        answered = request.number if request is not None and workers is Workers.STOPPED else self._workers.answered()
        leaves = answered > self._answered and self._reported_leaving
        if leaves and not self._membership.extensions.settled(ended=workers is Workers.STOPPED):
            answered = self._answered  # the others continue once they have a copy
        if answered > self._answered or cooperative > self._cooperative:
            self._answered, self._cooperative = max(answered, self._answered), cooperative
            self._membership.client.heartbeat_now()

    def _time_to_leave(self) -> float:
        return max(self._tools.grace - _SPARE_SECONDS, self._tools.grace / 2)

    def _act(self, group: WorkerGroup, step: Step) -> bool:
        """Take the step; True when this agent ends."""
        match step.kind:
            case StepKind.REPORT_FAILURE:
                return self._fail(group, step)
            case StepKind.REGROUP:
                self._regroup(group, step)
            case StepKind.SHRINK:
                self._shrink(step.reason)
            case StepKind.REPORT_DONE:
                self._done()
            case StepKind.REPORT_LEAVING:
                self._report_leaving()
            case StepKind.LEAVE:
                say(f"leaving: {step.reason}")
                self._left(step.reason)
            case StepKind.STOP:
                self._stopped(step.stop or Stop(ExitCode.FENCED, ExitReason.FENCED, step.reason))
            case StepKind.FINISH:
                self._membership.linger()
            case StepKind.WAIT:
                pass
            case _:
                assert_never(step.kind)
        return step.kind in (StepKind.LEAVE, StepKind.STOP, StepKind.FINISH)

    def _report_leaving(self) -> None:
        self._reported_leaving = True
        client, seconds, reason = self._membership.client, self._time_to_leave(), self._wakeup.asked_by()
        client.heartbeat_now()  # the coordinator needs to know before whether the workers save on request
        handles = any(processes.handles(pid, signal.SIGTERM) for pid in self._pids())
        client.update(lambda session: session.leave(seconds, reason, handles=handles))

    def _fail(self, group: WorkerGroup, step: Step) -> bool:
        """Report what failed, kill the workers, and wait for the next round; True if this agent ends instead."""
        self._membership.client.heartbeat_now()  # the coordinator learns the last step before the failure
        assigned, waits, found_at, fault = self._assigned(), False, time.monotonic(), None
        at: dict[str, str | None] = {}
        idle, is_stopped = 0.0, False
        if self._verdict is not None:
            idle, is_stopped = self._verdict.idle, self._verdict.stopped
            places = self._workers.places()
            positions = self._workers.positions(assigned.first_rank)
            at = failure_messages.ranks_at(places, assigned.first_rank)
            fault = find_fault(positions, places=at) if self._verdict.idle else None
            own, waits = failure_messages.hang(self._verdict, places, assigned.first_rank, fault)
            self._hangs = self._hangs.then(at, self._workers.report(found_at).get("step"), found_at)
            self._membership.client.send(
                failure_messages.message(
                    assigned, own, waits=waits, stopped=is_stopped, idle=idle, places=at, positions=positions
                )
            )
            time.sleep(_DUMP_SECONDS)
        self._report_killed(group)
        self._kill()
        if self._verdict is None:
            own = failure_messages.explain(self._result.failures, group, self._killed, self._tools.logs)
            positions = self._workers.positions(assigned.first_rank)
            self._hangs = Hangs()
        self._own = own
        say(f"{own.reason}: rank {own.rank}: {own.message}")
        if fault is not None:
            say(f"rank {own.rank}: {collective_words(fault)}")
        if step.by_members and (why := self._why_repeated(own, found_at)):
            self._end(replace(own, message=f"{own.message}. {why}"))
            return True
        if step.by_members:
            self._membership.ask_for_restart(own.message)
        group.state = WorkerState.STOPPED
        age = time.monotonic() - found_at if self._verdict is not None else self._wakeup.age()
        failed = failure_messages.message(
            assigned, own, waits=waits, stopped=is_stopped, age=age, idle=idle, places=at, positions=positions
        )
        if own.reason == ExitReason.DEVICE_FAILED:
            self._membership.client.send(failed)
            self._end(replace(own, exit_code=ExitCode.PREFLIGHT))
            return True
        self._open(group, failed, by_members=step.by_members)
        return False

    def _report_killed(self, group: WorkerGroup) -> None:
        """Report the end of a pod's only worker by SIGKILL at once: nothing that it printed explains it better.

        The report is repeated with the request to join; the coordinator knows it then.
        """
        ends = [failed.exitcode for failed in self._result.failures.values()]
        if self._verdict is None and len(group.workers) == 1 and ends == [-signal.SIGKILL]:
            own = failure_messages.explain(self._result.failures, group, (), self._tools.logs)
            positions = self._workers.positions(self._assigned().first_rank)
            failed = failure_messages.message(self._assigned(), own, age=self._wakeup.age(), positions=positions)
            self._membership.client.send(failed)

    def _shrink(self, reason: str) -> None:
        """Let the workers go on without the members that have left."""
        shrink = self._membership.client.inbox.shrink
        assert shrink is not None
        if self._shrunk is None or self._shrunk.number != shrink.number:
            missing = f" without rank {', '.join(map(str, shrink.ranks[:10]))}" if shrink.ranks else ""
            say(f"the workers go on{missing}{f': {reason}' if reason else ''}")
        self._shrunk = shrink
        self._membership.shrink(shrink)

    def _why_repeated(self, own: TerminationMessage, now: float) -> str:
        """Return why no round of the members helps; without a coordinator this agent has to see it by itself."""
        if self._verdict is not None:
            return self._hangs.why
        early = now - self._started_at < SHORT_SECONDS and self._workers.report(now).get("step") is None
        return why_repeated(own.errors, own.exit_code, early=early)

    def _regroup(self, group: WorkerGroup, step: Step) -> None:
        say(f"stopping the workers: {step.reason}")
        told, reports = time.monotonic(), tuple[Message, ...]()
        command = self._membership.client.inbox.restart
        if command is not None and command.dump:
            places, first = self._workers.places(), self._assigned().first_rank
            positions = self._workers.positions(first)
            found, waits = failure_messages.bystander(places, first, find_fault(positions))
            at = failure_messages.ranks_at(places, first)
            reports = (failure_messages.message(self._assigned(), found, waits=waits, places=at, positions=positions),)
        if step.by_members:
            self._membership.ask_for_restart(step.reason)
        if command is not None and command.grace > 0:
            until = time.monotonic() + command.grace
            self._terminate(lambda: max(until, self._leave_by() or until))
        self._kill()
        if self._workers_succeeded():
            reports += (Done(self._assigned().round, self._wakeup.age()),)  # if others failed, it may be why
        elif not reports and (noted := failure_messages.noted_before(told, group, self._tools.logs)):
            reports = (failure_messages.message(self._assigned(), noted, age=time.monotonic() - told),)
        group.state = WorkerState.STOPPED
        self._open(group, *reports, by_members=step.by_members, caused=step.caused)

    def _workers_succeeded(self) -> bool:
        """Return whether the workers have ended with success by themselves, or were about to when they were killed."""
        if self._workers.asked:
            return False
        if self._result.state is WorkerState.HEALTHY:
            return failure_messages.all_succeeded(self._worker_group, self._killed, self._tools.logs)
        return self._result.state is WorkerState.SUCCEEDED

    def _leave_by(self) -> float | None:
        asked = self._wakeup.asked
        return None if asked is None else asked[1] + self._time_to_leave()

    def _pids(self) -> list[int]:
        context: Any = self._pcontext
        return [] if context is None else [pid for pid in context.pids().values() if processes.is_alive(pid)]

    def _terminate(self, until: Callable[[], float]) -> None:
        """Send SIGTERM to the workers and wait until they have ended, until that time at the latest.

        The time is read again and again: this pod itself may be asked to go meanwhile, with a grace period of its own.
        """
        for pid in self._pids():
            processes.terminate(pid)
        while self._pids() and time.monotonic() < until():
            time.sleep(_BUSY_SECONDS / 5)

    def _kill(self) -> None:
        """Kill the workers and all that they have started, and print the last of their output."""
        self._wakeup.forget()
        context: Any = self._pcontext
        self._pcontext = None
        super()._shutdown()  # the watchdogs alone
        self._pcontext = context
        if context is not None:
            context.close(signal.SIGKILL, _KILL_SECONDS)
        processes.kill_all(self._of_workers)
        if self._tools.logs is not None:
            self._tools.logs.close()

    def _done(self) -> None:
        if not self._reported_done and self._membership.extensions.finished():
            self._membership.client.heartbeat_now()  # the coordinator learns the last step
            self._reported_done = self._membership.done(self._wakeup.age())

    def _stopped(self, stop: Stop) -> RunResult:
        """End on the coordinator's command."""
        if stop.exit_code == ExitCode.DRAINED:
            return self._left(stop.message)
        if stop.exit_code != ExitCode.FENCED:  # another agent's workers may already write where these do
            until = self._leave_by() or time.monotonic() + self._time_to_leave()
            self._terminate(lambda: until)
        self._kill()
        if stop.exit_code == ExitCode.OK:
            return self._end(None)
        return self._end(failure_messages.stopped(stop, self._own))

    def _left(self, reason: str) -> RunResult:
        """End because this pod has to go; the workers get the rest of the grace period."""
        started = time.monotonic()
        signum, at = self._wakeup.asked or (signal.SIGTERM, started)
        self._terminate(lambda: max(at + self._time_to_leave(), started + 1.0))
        self._kill()
        return self._end(TerminationMessage(ExitReason.DRAINED, exit_code_of(-signum), message=reason))

    def _end(self, words: TerminationMessage | None) -> RunResult:
        self.last_words = words
        self._membership.extensions.leave((self._wakeup.asked or (0, time.monotonic()))[1] + self._time_to_leave())
        state = WorkerState.SUCCEEDED if words is None else WorkerState.FAILED
        values = {worker.global_rank: None for worker in self._worker_group.workers} if words is None else {}
        self._result = RunResult(state=state, return_values=values)
        return self._result

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Clear up at the end; torch calls it with SIGTERM and would wait."""
        self._kill()
        self._workers.close()
        sys.stdout.flush()
