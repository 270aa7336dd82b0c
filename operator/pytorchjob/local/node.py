"""This machine as a cluster with one node: the pods of one run and their processes.

It carries out what a kubelet does. `kubelet` decides about restarts in place, the plan about the existence of a pod.
Time is an argument, in monotonic seconds.
"""

import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pytorchjob.local import kubelet, replica_process, worker_ends
from pytorchjob.local.gpus import Pool
from pytorchjob.local.kubelet import EarlyExits
from pytorchjob.local.log_filter import LogFilter, ScriptPlace, without_rank
from pytorchjob.local.record import Record
from pytorchjob.local.replica_process import ProcessEnd, ReplicaProcess
from pytorchjob.local.screen import LineBuffer, Screen
from pytorchjob.local.supervisor import Command
from pytorchjob.local.translate import replica
from pytorchjob_agent.contract.environment import TERMINATION_LOG
from pytorchjob_agent.contract.first_failure import ENDED_EARLY
from pytorchjob_agent.contract.noted_end import NotedEnd
from pytorchjob_agent.contract.printed_error import is_rule
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.root_cause import CHILD_FAILED, Evidence, choose
from pytorchjob_agent.contract.termination import TERMINATION_LIMIT, TerminationMessage, exit_code_of
from pytorchjob_operator import names
from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.problem import Crash, last_words

DEFAULT_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL if the template sets none; a cluster uses 30, an interactive user expects less.
"""

_UNCAUGHT = 1
"""The exit code of a Python program that an error has ended."""
_READS = 100
"""So often the output of a replica is read for the last line of a worker that has ended."""
_NOT_ENDED = (PodPhase.PENDING, PodPhase.RUNNING)


class ReplicaEnd(NamedTuple):
    """A replica whose container has ended without success."""

    label: str
    how: str
    """The exit code, and what follows from it."""
    reported: str
    """Why it ended, as its agent or the system reports it; empty if neither does."""
    last_line: str
    """The last line that it wrote."""
    evidence: Evidence = Evidence(0.0, 0)
    """What decides whether its failure caused the others."""
    rank: int | None = None
    """The rank that ended, where it is known."""
    place: ScriptPlace | None = None
    """Where in the script, where the worker has noted it."""

    @property
    def why(self) -> str:
        """The best explanation there is, or nothing."""
        return self.reported or self.last_line


Translate = Callable[[Mapping[str, Any], str | None], Command]


@dataclass(eq=False)
class LocalPod:
    """One pod, and the process of its container while that runs."""

    body: Mapping[str, Any]
    command: Command
    uid: str
    number: int
    start_at: float
    phase: PodPhase = PodPhase.PENDING
    process: ReplicaProcess | None = None
    started: float = 0.0
    kill_at: float | None = None
    deleting: bool = False
    exit_code: int | None = None
    crash: Crash | None = None
    restarts: int = 0
    last_line: str = ""
    since: str = ""
    """When its container was last started, as the API writes it."""
    lines: LineBuffer = field(default_factory=LineBuffer)

    @property
    def name(self) -> str:
        """The pod's name in a cluster."""
        return str(self.body["metadata"]["name"])

    @property
    def label(self) -> str:
        """The pod's name without the job's name."""
        replica_type, index = replica(self.body)
        return f"{replica_type.label}-{index}"

    @property
    def policy(self) -> RestartPolicy:
        """What the kubelet does when the container ends."""
        return RestartPolicy(self.body["spec"]["restartPolicy"])

    def observe(self, version: int) -> Pod:
        """The pod as the plan observes it."""
        replica_type, index = replica(self.body)
        meta = self.body["metadata"]
        return Pod(
            name=self.name,
            namespace=meta["namespace"],
            uid=self.uid,
            resource_version=version,
            owner_uid=meta["ownerReferences"][0]["uid"],
            replica_type=replica_type,
            index=index,
            phase=self.phase,
            deleting=self.deleting,
            ready=self.process is not None,
            exit_code=None if self.phase in _NOT_ENDED else self.exit_code,
            restarts=self.restarts,
            crash=self.crash,
        )

    def to_object(self) -> dict[str, Any]:
        """The pod as an API server would return it."""
        running = {"running": {"startedAt": self.since}}
        code = self.exit_code or 0
        reason = "Error" if code else "Completed"
        ended = {"exitCode": code, "reason": reason, "message": _termination_log(self), "startedAt": self.since}
        last: dict[str, Any] = {} if self.exit_code is None else {"terminated": ended}
        if self.process is not None:
            state: dict[str, Any] = running
        elif self.phase in _NOT_ENDED:
            state = {"waiting": {"reason": "CrashLoopBackOff" if last else "ContainerCreating"}}
        else:
            state, last = last, {}
        container = {
            "name": names.CONTAINER,
            "ready": self.process is not None,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last,
        }
        metadata = {**self.body["metadata"], **({"deletionTimestamp": self.since} if self.deleting else {})}
        spec = {**self.body["spec"], "nodeName": os.uname().nodename}
        ready = {"type": "Ready", "status": str(self.process is not None)}
        status = {"phase": self.phase.value, "conditions": [ready], "containerStatuses": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


class LocalNode:
    """The pods of one run."""

    def __init__(
        self,
        translate: Translate,
        gpus: Pool,
        screen: Screen,
        log_filter: LogFilter,
        grace: float | None,
        record: Record,
    ) -> None:
        self._translate, self._gpus, self._screen, self._grace = translate, gpus, screen, grace
        self._filter, self._record = log_filter, record
        self._ends: list[ReplicaEnd] = []
        self._pods: dict[str, LocalPod] = {}
        self._exits: dict[str, EarlyExits] = {}
        self._created = 0
        self._stopped: list[dict[str, Any]] | None = None
        """The pods that ended because the run does; None before."""
        self.selector = selectors.DefaultSelector()
        self.restarts = 0
        """The number of container restarts, in place or in a new pod."""

    def pods(self) -> tuple[Pod, ...]:
        """All pods as the plan observes them."""
        return tuple(pod.observe(self._created) for pod in self._pods.values())

    def objects(self) -> list[dict[str, Any]]:
        """All pods as an API server would return them, and those that ended with the run."""
        return [*(pod.to_object() for pod in self._pods.values()), *(self._stopped or ())]

    @property
    def ready(self) -> int:
        """The number of pods that run or have succeeded; a pod that waits for its restart is not counted."""
        return sum(
            pod.phase is PodPhase.SUCCEEDED or (pod.process is not None and not pod.deleting)
            for pod in self._pods.values()
        )

    @property
    def busy(self) -> bool:
        """True while any process is left."""
        return any(pod.process for pod in self._pods.values())

    def create(self, body: Mapping[str, Any], now: float) -> None:
        """Add a pod; `advance` starts it, after a back-off if its predecessor has just failed."""
        self._created += 1
        name = body["metadata"]["name"]
        if name in self._exits:
            self.restarts += 1
        wait = kubelet.back_off(self._exits[name].crashes) if name in self._exits else 0.0
        uid = f"{name}-{self._created}"
        body = {**body, "metadata": {**body["metadata"], "uid": uid}}
        self._pods[uid] = LocalPod(body, self._translate(body, self._gpus.take(body)), uid, self._created, now + wait)

    def delete(self, uid: str, now: float) -> None:
        """Delete a pod: SIGTERM now and only once, SIGKILL after its grace period."""
        pod = self._pods[uid]
        if pod.deleting:
            return
        pod.deleting = True
        if pod.process is None:
            self._remove(pod)
            return
        pod.process.terminate()
        pod.kill_at = now + self._grace_of(pod)

    def stop_all(self, now: float) -> None:
        """Delete every pod that has not ended; no container is restarted."""
        self._stopped = self._stopped or []
        for pod in list(self._pods.values()):
            if pod.process is not None or pod.phase in _NOT_ENDED:
                self.delete(pod.uid, now)

    def kill_all(self) -> None:
        """Send SIGKILL to every process, without a grace period."""
        for pod in self._pods.values():
            if pod.process:
                pod.process.kill()

    def advance(self, now: float) -> None:
        """Start pods that are due and kill overdue processes; on return each start has succeeded or failed."""
        self.advance_deletions(now)
        due = [pod for pod in self._pods.values() if self._waits(pod) and pod.start_at <= now]
        for pod in due:
            self._start(pod, now)
        for pod in due:
            if pod.process:
                pod.process.wait_started()
                self._check_end(pod, now, only_failed_start=True)

    def advance_deletions(self, now: float) -> None:
        """Kill processes whose grace period is over."""
        for pod in self._pods.values():
            if pod.kill_at is not None and pod.kill_at <= now and pod.process:
                self._screen.message(f"{pod.label}: did not end within its grace period and is killed")
                pod.kill_at = None
                pod.process.kill()

    def take_ends(self) -> list[ReplicaEnd]:
        """Return the replicas that have ended without success since the last call."""
        taken, self._ends = self._ends, []
        return taken

    def deadline(self) -> float | None:
        """The time at which `advance` has the next start or kill to do; None without such work."""
        times = [pod.start_at for pod in self._pods.values() if self._waits(pod)]
        times += [pod.kill_at for pod in self._pods.values() if pod.kill_at is not None]
        return min(times, default=None)

    def pump(self, timeout: float | None) -> None:
        """Wait for output, an ended process or a signal, and print the output."""
        for key, _ in self.selector.select(timeout):
            key.data()

    def collect(self, now: float) -> None:
        """Process the containers that have ended."""
        for pod in list(self._pods.values()):
            self._check_end(pod, now)

    def _check_end(self, pod: LocalPod, now: float, *, only_failed_start: bool = False) -> None:
        ended = pod.process.ended() if pod.process else None
        if ended is not None and (ended.error or not only_failed_start):
            self._release(pod)
            self._note_end(pod, ended, now)

    def _start(self, pod: LocalPod, now: float) -> None:
        Path(pod.command.env[TERMINATION_LOG]).unlink(missing_ok=True)
        worker_ends.begin(pod.command.env)
        pod.last_line = ""
        self._filter.begin(pod.label)
        pod.started, again = now, pod.phase is PodPhase.RUNNING
        pod.phase = PodPhase.RUNNING
        pod.restarts += again
        self.restarts += again
        pod.since = self._record.begin(pod.uid, pod.restarts)
        try:
            process = replica_process.spawn(pod.command)
        except OSError as error:
            self._note_end(pod, ProcessEnd(kubelet.START_ERROR, f"cannot start a process: {error}"), now)
            return
        pod.process = process
        self.selector.register(process.output, selectors.EVENT_READ, lambda: self._read(pod, process))
        self.selector.register(process.report, selectors.EVENT_READ, process.receive)

    def _read(self, pod: LocalPod, process: ReplicaProcess) -> bool:
        """Print what a replica wrote; False if there is no more output for now."""
        data = process.read()
        if data is None:
            with suppress(KeyError):
                self.selector.unregister(process.output)
        self._print(pod, pod.lines.feed(data or b""))
        return bool(data)

    def _print(self, pod: LocalPod, lines: Sequence[str]) -> None:
        self._record.write(pod.uid, lines)
        for line in lines:
            for shown in self._filter.feed(pod.label, line):
                self._screen.log(pod.label, pod.number, shown)
            if not is_rule(line):
                pod.last_line = without_rank(line).strip() or pod.last_line

    def _release(self, pod: LocalPod) -> None:
        """Print the last lines of an ended process and close its descriptors."""
        process, pod.process = pod.process, None
        assert process is not None
        while self._read(pod, process):
            pass
        self._print(pod, pod.lines.flush())
        for line in self._filter.flush(pod.label):
            self._screen.log(pod.label, pod.number, line)
        for fd in (process.output, process.report):
            with suppress(KeyError):
                self.selector.unregister(fd)
        process.close()

    def _note_end(self, pod: LocalPod, ended: ProcessEnd, now: float) -> None:
        pod.exit_code, pod.kill_at = ended.code, None
        if pod.deleting:
            self._remove(pod)
            if self._stopped is not None:
                pod.deleting, pod.phase = False, PodPhase.FAILED if ended.code else PodPhase.SUCCEEDED
                self._stopped.append(pod.to_object())
            return
        exits = self._exits.get(pod.name, EarlyExits()).then(ended.code, now - pod.started)
        decision = kubelet.after_exit(pod.policy, ended.code, exits.crashes)
        pod.phase = decision.phase
        pod.start_at = now + (decision.restart_in or 0.0)
        pod.crash = self._crash(pod, ended, exits.same) if ended.code and exits.same else None
        if decision.phase is not PodPhase.SUCCEEDED:
            self._exits[pod.name] = exits
            reported = _termination_message(pod)
            why = f"{reported.reason}: {reported.message}" if reported else ended.error
            own = ReplicaEnd(
                pod.label, decision.reason, why, self._last_line(pod), self._evidence(pod, ended, reported, now)
            )
            self._ends.append(self._cause(pod, own))

    def worker_ends(self) -> list[ReplicaEnd]:
        """Return how workers have ended, of all replicas, as far as these have noted it."""
        for pod in self._pods.values():
            for _ in range(_READS):  # a worker notes its end after its last line; others may print without an end
                if pod.process is None or not self._read(pod, pod.process):
                    break
        return [end for pod in self._pods.values() for end in self._noted(pod)]

    def _noted(self, pod: LocalPod) -> list[ReplicaEnd]:
        return [
            ReplicaEnd(
                pod.label,
                _how(noted),
                noted.message,
                self._said(pod, evidence := noted.evidence(rank)),
                evidence,
                rank,
                self._filter.place_in(noted.traceback),
            )
            for rank, noted in worker_ends.read(pod.command.env)
            if CHILD_FAILED not in noted.errors
        ]

    def _cause(self, pod: LocalPod, end: ReplicaEnd) -> ReplicaEnd:
        """Return the end of the replica, with the worker that caused it where a launcher had started several."""
        workers, reported = self._noted(pod), self._filter.reported(pod.label)
        if not reported:
            own = next((worker for worker in workers if worker.evidence.errors), end)
            return end._replace(evidence=own.evidence, place=own.place)
        noted = {worker.rank for worker in workers}
        for place, (rank, code) in enumerate(reported):
            if rank not in noted:
                evidence = Evidence(end.evidence.at + place, rank, exit_code_of(code))
                workers.append(ReplicaEnd(pod.label, kubelet.exited(evidence.exit_code), "", "", evidence, rank))
        first = choose(workers, lambda worker: worker.evidence)
        told = [first.reported] if first.reported else [first.how, self._said(pod, first.evidence)]
        words = ": ".join(filter(None, (f"rank {first.rank}", *told)))
        return end._replace(reported=words, evidence=first.evidence, rank=first.rank, place=first.place)

    def _said(self, pod: LocalPod, evidence: Evidence) -> str:
        """Return a replica's last line, which explains a code that the script has chosen; empty for other ends."""
        return self._filter.last_line(pod.label) if 0 < evidence.exit_code < exit_code_of(-1) else ""

    def _evidence(self, pod: LocalPod, ended: ProcessEnd, reported: TerminationMessage | None, now: float) -> Evidence:
        printed = self._filter.error(pod.label) if ended.code == _UNCAUGHT else None
        errors, raised_in = (printed.errors, printed.raised_in) if printed else ((), "")
        if reported is not None:
            errors, raised_in = reported.errors, reported.raised_in
        return Evidence(ended.at or now, pod.number, ended.code, errors, raised_in)

    def _last_line(self, pod: LocalPod) -> str:
        """Return the error that ended the program, or the last line that it wrote."""
        printed = self._filter.error(pod.label) if pod.exit_code == _UNCAUGHT else None
        return printed.text if printed else pod.last_line

    def _crash(self, pod: LocalPod, ended: ProcessEnd, times: int) -> Crash:
        """Return the early exit: the agent's words, or the last line that the container wrote."""
        reason, message = last_words(_termination_log(pod))
        return Crash(times, ended.code, reason, message or ended.error or last_words(self._last_line(pod))[1])

    def _remove(self, pod: LocalPod) -> None:
        self._gpus.give_back(pod.name)
        del self._pods[pod.uid]

    def _grace_of(self, pod: LocalPod) -> float:
        if self._grace is not None:
            return self._grace
        return float(pod.body["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE))

    @staticmethod
    def _waits(pod: LocalPod) -> bool:
        return pod.process is None and not pod.deleting and pod.phase in _NOT_ENDED


def _how(noted: NotedEnd) -> str:
    if noted.code is None:
        return "ended"
    return ENDED_EARLY if noted.code == 0 else kubelet.exited(noted.code)


def _termination_message(pod: LocalPod) -> TerminationMessage | None:
    """Return why the container ended, as its agent reports it; None without an agent."""
    with suppress(ContractError):
        return TerminationMessage.from_json(_termination_log(pod))
    return None


def _termination_log(pod: LocalPod) -> str:
    with suppress(OSError), open(pod.command.env[TERMINATION_LOG], "rb") as log:
        return log.read(TERMINATION_LIMIT).decode(errors="replace")
    return ""
