"""This machine as a cluster of one node: the pods of one run and their processes.

It does what a kubelet does and no more. Restarts in place are decided by `kubelet`; whether a pod is there at all is
decided by the plan. Time comes in as a number of monotonic seconds.
"""

import selectors
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytorchjob_agent.contract.environment import TERMINATION_LIMIT, TERMINATION_LOG, ContractError, TerminationMessage
from pytorchjob_operator.local import kubelet, processes
from pytorchjob_operator.local.command import Command
from pytorchjob_operator.local.gpus import Pool
from pytorchjob_operator.local.logs import LineBuffer
from pytorchjob_operator.local.processes import Ended, Process
from pytorchjob_operator.local.screen import Screen
from pytorchjob_operator.local.translate import replica
from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import Pod, PodPhase

DEFAULT_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL where the template sets none; a cluster has 30, a person at a prompt less."""

_NOT_ENDED = (PodPhase.PENDING, PodPhase.RUNNING)

Translate = Callable[[Mapping[str, Any], str | None], Command]


@dataclass(eq=False)
class LocalPod:
    """One pod and, while its container runs, its process."""

    body: Mapping[str, Any]
    command: Command
    uid: str
    number: int
    start_at: float
    phase: PodPhase = PodPhase.PENDING
    process: Process | None = None
    started: float = 0.0
    kill_at: float | None = None
    deleting: bool = False
    exit_code: int | None = None
    restarts: int = 0
    lines: LineBuffer = field(default_factory=LineBuffer)

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return str(self.body["metadata"]["name"])

    @property
    def label(self) -> str:
        """Its name without the job's."""
        replica_type, index = replica(self.body)
        return f"{replica_type.label}-{index}"

    @property
    def policy(self) -> RestartPolicy:
        """What the kubelet would do when the container ends."""
        return RestartPolicy(self.body["spec"]["restartPolicy"])

    def observe(self, version: int) -> Pod:
        """The pod as a plan sees it."""
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
            exit_code=None if self.phase in _NOT_ENDED else self.exit_code,
            restarts=self.restarts,
        )


class Node:
    """The pods of one run."""

    def __init__(self, translate: Translate, gpus: Pool, screen: Screen, grace: float | None) -> None:
        self._translate, self._gpus, self._screen, self._grace = translate, gpus, screen, grace
        self._pods: dict[str, LocalPod] = {}
        self._crashes: dict[str, int] = {}
        self._made = 0
        self.selector = selectors.DefaultSelector()
        self.restarts = 0
        """Containers started again, in place or in a new pod."""

    def pods(self) -> tuple[Pod, ...]:
        """All pods as a plan sees them."""
        return tuple(pod.observe(self._made) for pod in self._pods.values())

    @property
    def ready(self) -> int:
        """How many pods run this moment or have done their work; one that waits for its next start does neither."""
        return sum(
            pod.phase is PodPhase.SUCCEEDED or (pod.process is not None and not pod.deleting)
            for pod in self._pods.values()
        )

    @property
    def busy(self) -> bool:
        """Whether any process is left."""
        return any(pod.process for pod in self._pods.values())

    def create(self, body: Mapping[str, Any], now: float) -> None:
        """Take a pod; it starts in the next round, or after a back-off if its predecessor failed just now."""
        self._made += 1
        name = body["metadata"]["name"]
        if name in self._crashes:
            self.restarts += 1
        wait = kubelet.back_off(self._crashes.get(name, 0))
        uid = f"{name}-{self._made}"
        body = {**body, "metadata": {**body["metadata"], "uid": uid}}
        self._pods[uid] = LocalPod(body, self._translate(body, self._gpus.take(body)), uid, self._made, now + wait)

    def delete(self, uid: str, now: float) -> None:
        """Let a pod go: SIGTERM now, SIGKILL after its grace period."""
        pod = self._pods[uid]
        pod.deleting = True
        if pod.process is None:
            self._remove(pod)
            return
        pod.process.terminate()
        pod.kill_at = now + self._grace_of(pod)

    def stop_all(self, now: float) -> None:
        """End every process as a deletion would, and start no container again."""
        for pod in list(self._pods.values()):
            self.delete(pod.uid, now)

    def kill_all(self) -> None:
        """SIGKILL, no grace."""
        for pod in self._pods.values():
            if pod.process:
                pod.process.kill()

    def advance(self, now: float) -> None:
        """Start what is due, kill what is overdue; every start is known to have worked or not on return."""
        self.advance_deletions(now)
        due = [pod for pod in self._pods.values() if self._waits(pod) and pod.start_at <= now]
        for pod in due:
            self._start(pod, now)
        for pod in due:
            if pod.process:
                pod.process.wait_started()
                self._look(pod, now, only_failed_start=True)

    def advance_deletions(self, now: float) -> None:
        """Kill what is still there after its grace period."""
        for pod in self._pods.values():
            if pod.kill_at is not None and pod.kill_at <= now and pod.process:
                self._screen.say(f"{pod.label}: still there after its grace period, killed")
                pod.kill_at = None
                pod.process.kill()

    def deadline(self) -> float | None:
        """When `advance` has something to do next."""
        times = [pod.start_at for pod in self._pods.values() if self._waits(pod)]
        times += [pod.kill_at for pod in self._pods.values() if pod.kill_at is not None]
        return min(times, default=None)

    def pump(self, timeout: float | None) -> None:
        """Wait for output, an end or a signal, and pass on what was written."""
        for key, _ in self.selector.select(timeout):
            key.data()

    def collect(self, now: float) -> None:
        """Note which containers have ended."""
        for pod in list(self._pods.values()):
            self._look(pod, now)

    def _look(self, pod: LocalPod, now: float, *, only_failed_start: bool = False) -> None:
        ended = pod.process.ended() if pod.process else None
        if ended is not None and (ended.error or not only_failed_start):
            self._release(pod)
            self._note_end(pod, ended, now)

    def _start(self, pod: LocalPod, now: float) -> None:
        Path(pod.command.env[TERMINATION_LOG]).unlink(missing_ok=True)
        pod.started, again = now, pod.phase is PodPhase.RUNNING
        pod.phase = PodPhase.RUNNING
        pod.restarts += again
        self.restarts += again
        try:
            process = processes.spawn(pod.command)
        except OSError as error:
            self._note_end(pod, Ended(kubelet.START_ERROR, f"cannot start a process: {error}"), now)
            return
        pod.process = process
        self.selector.register(process.output, selectors.EVENT_READ, lambda: self._read(pod, process))
        self.selector.register(process.report, selectors.EVENT_READ, process.listen)

    def _read(self, pod: LocalPod, process: Process) -> bool:
        """Pass on what a replica wrote; False when there is nothing more for now."""
        data = process.read()
        if data is None:
            with suppress(KeyError):
                self.selector.unregister(process.output)
        for line in pod.lines.feed(data or b""):
            self._screen.log(pod.label, pod.number, line)
        return bool(data)

    def _release(self, pod: LocalPod) -> None:
        """Show the last lines of a process that has ended and give back what it held."""
        process, pod.process = pod.process, None
        assert process is not None
        while self._read(pod, process):
            pass
        for line in pod.lines.flush():
            self._screen.log(pod.label, pod.number, line)
        for fd in (process.output, process.report):
            with suppress(KeyError):
                self.selector.unregister(fd)
        process.close()

    def _note_end(self, pod: LocalPod, ended: Ended, now: float) -> None:
        pod.exit_code, pod.kill_at = ended.code, None
        if pod.deleting:
            self._remove(pod)
            return
        crashes = kubelet.count_crash(self._crashes.get(pod.name, 0), now - pod.started)
        verdict = kubelet.after_exit(pod.policy, ended.code, crashes)
        pod.phase = verdict.phase
        pod.start_at = now + (verdict.restart_in or 0.0)
        if verdict.phase is not PodPhase.SUCCEEDED:
            self._crashes[pod.name] = crashes
            self._screen.say(f"{pod.label}: {verdict.reason}{self._last_words(pod, ended)}")

    def _last_words(self, pod: LocalPod, ended: Ended) -> str:
        """Why it ended, if the command or the agent in it said so."""
        with suppress(OSError, ContractError), open(pod.command.env[TERMINATION_LOG], "rb") as log:
            text = log.read(TERMINATION_LIMIT).decode(errors="replace")
            told = TerminationMessage.from_json(text)
            return f"\n  {told.reason}: {told.message}"
        return f"\n  {ended.error}" if ended.error else ""

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
