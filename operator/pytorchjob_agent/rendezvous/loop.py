"""Runs the workers of this pod from round to round: torch's LocalElasticAgent with another loop.

The loop sleeps until something happens: a worker ends, the coordinator or a peer says something, a signal comes. What
it then does is decided in `decide`.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.contract.messages import Assigned, Draining, Failed, Heartbeat, Message, Stop
from pytorchjob_agent.contract.termination import EndReason, ExitCode, TerminationMessage, exit_code_of
from pytorchjob_agent.hangs.judge import HangVerdict
from pytorchjob_agent.rendezvous import decide as steps
from pytorchjob_agent.rendezvous import failure_messages, peers
from pytorchjob_agent.rendezvous.decide import Kind, Look, Step, Workers
from pytorchjob_agent.rendezvous.handler import Meeting
from pytorchjob_agent.rendezvous.membership import (
    FencedError,
    LeavingError,
    NobodyError,
    PeerError,
    StoppedError,
    describe,
)
from pytorchjob_agent.rendezvous.round_workers import Crew
from pytorchjob_agent.rendezvous.wakeup import Wakeup
from pytorchjob_agent.system import processes
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers import warm
from pytorchjob_agent.workers.fork_client import ForkServer

_KILL_SECONDS = 10
_SPARE_SECONDS = 5.0
"""Of the grace period, what is kept for the end of the agent itself."""
_DUMP_SECONDS = 1.0
"""How long workers that hang are left as they are, so that the others' stacks show where those wait."""
_KEEN_SECONDS, _AWAY_SECONDS = 0.05, 0.25


@dataclass(frozen=True)
class Means:
    """What an agent works with beside torch's spec."""

    logs: Any
    """The workers' pipes; None where the user asked torchrun for something else."""
    directory: Path
    grace: float
    """Seconds from the signal to go until the kubelet kills."""
    rules: HangRules
    server: ForkServer | None
    """The fork server of warm workers."""


class ElasticAgent(LocalElasticAgent):
    """The agent of one pod."""

    def __init__(self, spec: WorkerSpec, meeting: Meeting, means: Means, **options: Any) -> None:
        """Take what LocalElasticAgent takes in `options`."""
        super().__init__(spec=spec, **options)
        torch_compat.keep_rendezvous(self)
        self._meeting, self._membership, self._means = meeting, meeting.membership, means
        self._wakeup = Wakeup()
        self.last_words: TerminationMessage | None = None
        """Why this agent ends; None: with success."""
        self._told_leaving = self._told_done = False
        self._own: TerminationMessage | None = None
        self._result = RunResult(state=WorkerState.HEALTHY)
        self._verdict: HangVerdict | None = None
        self._killed: set[int] = set()
        self._rounds = 0
        self._crew = self._new_crew()
        self._listens, self._answered = False, 0
        self._membership.on_wanted = self._membership.client.on_news = self._wakeup.wake
        self._membership.leaving = lambda: self._wakeup.asked is not None
        self._membership.beat = self._beat
        self._wakeup.on_asked = self._membership.client.nudge

    def _new_crew(self, *, reports: bool = False) -> Crew:
        self._rounds += 1
        directory = self._means.directory / f"crew-{self._rounds}"
        nproc = self._worker_group.spec.local_world_size
        return Crew(directory, nproc, self._means.rules, self._means.logs, reports=reports)

    def _beat(self) -> Heartbeat:
        """Return what is told once a second; called in the client's thread."""
        told, heartbeat = self._crew.told(), self._membership.pulse
        return Heartbeat(
            step=told.step,
            total=told.total,
            metrics=told.metrics or {},
            heard=heartbeat.heard() if heartbeat is not None else (),
            cooperative=told.cooperative,
            answered=self._answered,
        )

    def _invoke_run(self, role: str = "") -> RunResult:
        group = self._worker_group
        self._wakeup.handle_signals()
        try:
            warm.wait_for_imports(self._means.server, lambda: self._wakeup.asked is not None)
            self._open(group)
            while not self._act(group, steps.decide(self._look(group))):
                pass
            return self._result
        except StoppedError as error:
            return self._stopped(error.stop)
        except LeavingError as error:
            return self._left(str(error))
        except SignalException as error:  # between the start of the workers and our own handlers
            self._wakeup.asked = self._wakeup.asked or (int(error.sigval), time.monotonic())
            return self._left(str(error))
        except FencedError as error:
            return self._end(TerminationMessage(EndReason.FENCED, ExitCode.FENCED, message=str(error)))
        except NobodyError as error:
            return self._end(TerminationMessage(EndReason.RENDEZVOUS_FAILED, ExitCode.RENDEZVOUS, message=str(error)))

    def _open(self, group: WorkerGroup, *told: Message, by_members: bool = False) -> None:
        """Get into the next round and start its workers; a round whose store does not answer counts as failed."""
        self._meeting.tell, self._meeting.by_members = told, by_members
        self._told_done, self._verdict, self._answered, self._listens = False, None, 0, False
        self._crew.close()  # what it told counts for no other round
        self._result = RunResult(state=WorkerState.HEALTHY)
        while True:
            try:
                self._initialize_workers(group)
                break
            except PeerError as error:
                assigned = self._assigned()
                failed = Failed(assigned.round, assigned.first_rank, 0, ExitCode.RENDEZVOUS, str(error)[:4096])
                self._meeting.tell, self._meeting.by_members = (failed,), False
        self._wakeup.handle_signals()

    def _assigned(self) -> Assigned:
        assigned = self._membership.assigned
        assert assigned is not None
        return assigned

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Take the ranks from the coordinator's word, without a round through the store."""
        assigned = self._assigned()
        self._remaining_restarts = spec.max_restarts - assigned.restarts  # TORCHELASTIC_RESTART_COUNT: one for all
        say(describe(assigned, spec.local_world_size))
        return [
            Worker(local, rank, rank, assigned.world_size, assigned.world_size)
            for local in range(spec.local_world_size)
            for rank in (assigned.first_rank + local,)
        ]

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._crew = self._new_crew(reports=self._crew.reports)
        with warm.warm_starts(self._means.server), self._crew.equipping():
            started: dict[int, Any] = super()._start_workers(worker_group)
        context: Any = self._pcontext
        self._killed = set()
        closing = context.close

        def close(death_sig: Any = None, timeout: int = _KILL_SECONDS) -> None:
            # torch stops the others of a failed worker by SIGTERM and waits for them up to 30 s.
            self._killed |= {rank for rank, pid in context.pids().items() if processes.is_alive(pid)}
            closing(death_sig or signal.SIGKILL, timeout)

        context.close = close
        self._crew.begin(context.pids(), leads=self._assigned().first_rank == 0)
        self._wakeup.watch(context.pids().values())
        return started

    def _look(self, group: WorkerGroup) -> Look:
        membership = self._membership
        self._wakeup.sleep(self._pause())
        now = time.monotonic()
        workers = self._workers(group, now)
        self._tell_progress(workers)
        heartbeat, refused = membership.pulse, membership.client.inbox.refused
        asked = self._wakeup.asked
        return Look(
            now=now,
            workers=workers,
            inbox=membership.client.inbox,
            away=membership.client.away(),
            silence=heartbeat.silence() if heartbeat is not None else 0.0,
            wanted=heartbeat.wanted if heartbeat is not None else None,
            all_done=self._all_done(),
            leave_by=None if asked is None else asked[1] + self._time_to_leave(),
            told_leaving=self._told_leaving,
            fenced=refused is not None and refused.fenced,
        )

    def _pause(self) -> float:
        if self._crew.asked:
            return _KEEN_SECONDS
        if self._membership.client.away() > 0.0:
            return _AWAY_SECONDS
        if self._wakeup.watches or self._result.state is not WorkerState.HEALTHY:
            return self._crew.pause(time.monotonic())
        return min(self._worker_group.spec.monitor_interval, _KEEN_SECONDS)

    def _workers(self, group: WorkerGroup, now: float) -> Workers:
        if self._result.state is WorkerState.HEALTHY:
            self._result = self._monitor_workers(group)
            group.state = self._result.state
        if self._result.state is WorkerState.HEALTHY:
            self._verdict = self._crew.look(now)
            return Workers.RUN if self._verdict is None else Workers.HANG
        self._wakeup.forget()
        if self._result.state is WorkerState.SUCCEEDED:
            return Workers.STOPPED if self._crew.obeys() else Workers.DONE
        return Workers.FAILED

    def _tell_progress(self, workers: Workers) -> None:
        """Tell without waiting for the next beat that a request is answered, or that they listen to one."""
        order = self._membership.client.inbox.checkpoint
        if order is not None and not self._crew.asked and workers is Workers.RUN:
            say(f"the workers are asked to save: {order.reason}")
            self._crew.request(order.number, order.seconds)
        listens = self._listens or self._crew.told().cooperative
        answered = order.number if order is not None and workers is Workers.STOPPED else self._crew.answered()
        if answered > self._answered or listens > self._listens:
            self._answered, self._listens = max(answered, self._answered), listens
            self._membership.client.beat_now()

    def _all_done(self) -> bool:
        if not self._told_done or self._membership.client.away() == 0.0:
            return False
        with suppress(RuntimeError):
            return peers.all_done(self._membership.store, self._assigned().size)
        return False

    def _time_to_leave(self) -> float:
        return max(self._means.grace - _SPARE_SECONDS, self._means.grace / 2)

    def _act(self, group: WorkerGroup, step: Step) -> bool:
        """Take the step; True once this agent has come to its end."""
        match step.kind:
            case Kind.TELL_FAILURE:
                self._fail(group, step)
            case Kind.REGROUP:
                self._regroup(group, step)
            case Kind.TELL_DONE:
                self._done()
            case Kind.TELL_LEAVING:
                self._told_leaving = True
                self._membership.client.beat_now()  # whether the workers would save decides how the others are told
                self._membership.client.stand(Draining(self._time_to_leave(), self._wakeup.asked_by()))
            case Kind.LEAVE:
                self._left(step.reason)
            case Kind.STOP:
                self._stopped(step.stop or Stop(ExitCode.FENCED, EndReason.FENCED, step.reason))
            case Kind.FINISH:
                self._membership.linger()
        return step.kind in (Kind.LEAVE, Kind.STOP, Kind.FINISH)

    def _fail(self, group: WorkerGroup, step: Step) -> None:
        """Say what failed, clear up, and go for the next round."""
        self._membership.client.beat_now()  # how far it got, before the failure is told
        assigned, waits = self._assigned(), False
        if self._verdict is not None:
            own, waits = failure_messages.hang(self._verdict, self._crew.places(), assigned.first_rank)
            self._membership.client.say(failure_messages.message(assigned, own, waits=waits))
            time.sleep(_DUMP_SECONDS)
        self._kill()
        if self._verdict is None:
            own = failure_messages.explain(self._result, group, self._killed, self._means.logs)
        self._own = own
        say(f"{own.reason}: rank {own.rank}: {own.message}")
        if step.by_members:
            self._want(own.message)
        group.state = WorkerState.STOPPED
        self._open(group, failure_messages.message(assigned, own, waits=waits), by_members=step.by_members)

    def _want(self, reason: str) -> None:
        with suppress(RuntimeError):
            if self._membership.store is not None:
                peers.want(self._membership.store, reason)

    def _regroup(self, group: WorkerGroup, step: Step) -> None:
        say(f"stopping the workers: {step.reason}")
        told: tuple[Message, ...] = ()
        order = self._membership.client.inbox.restart
        if order is not None and order.dump:
            found, waits = failure_messages.bystander(self._crew.places(), self._assigned().first_rank)
            told = (failure_messages.message(self._assigned(), found, waits=waits),)
        if step.by_members:
            self._want(step.reason)
        self._kill()
        group.state = WorkerState.STOPPED
        self._open(group, *told, by_members=step.by_members)

    def _kill(self, signum: signal.Signals = signal.SIGKILL, seconds: float = _KILL_SECONDS) -> None:
        """Stop the workers and all that they have started, and print the last of their output."""
        self._wakeup.forget()
        context: Any = self._pcontext
        self._pcontext = None
        super()._shutdown()  # the watchdogs alone
        self._pcontext = context
        if context is not None:
            context.close(signum, max(int(seconds), 1))
        server = self._means.server
        processes.kill_below(os.getpid(), keep=server.pids() if server is not None else ())
        if self._means.logs is not None:
            self._means.logs.close()

    def _done(self) -> None:
        if self._told_done:
            return
        self._told_done = True
        with suppress(RuntimeError):
            peers.done(self._membership.store, self._assigned().rank)
        self._membership.done()

    def _stopped(self, stop: Stop) -> RunResult:
        """End because the coordinator says so."""
        if stop.exit_code == ExitCode.DRAINED:
            return self._left(stop.message)
        self._kill()
        if stop.exit_code == ExitCode.OK:
            return self._end(None)
        return self._end(failure_messages.ordered(stop, self._own))

    def _left(self, reason: str) -> RunResult:
        """End because this pod has to go; the workers get what is left of the grace period."""
        signum, at = self._wakeup.asked or (signal.SIGTERM, time.monotonic())
        self._kill(signal.SIGTERM, max(at + self._time_to_leave() - time.monotonic(), 1.0))
        return self._end(TerminationMessage(EndReason.DRAINED, exit_code_of(-signum), message=reason))

    def _end(self, words: TerminationMessage | None) -> RunResult:
        self.last_words = words
        state = WorkerState.SUCCEEDED if words is None else WorkerState.FAILED
        values = {worker.global_rank: None for worker in self._worker_group.workers} if words is None else {}
        self._result = RunResult(state=state, return_values=values)
        return self._result

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Clear up at the very end; torch calls it with SIGTERM and would wait."""
        self._kill()
        self._crew.close()
        sys.stdout.flush()
