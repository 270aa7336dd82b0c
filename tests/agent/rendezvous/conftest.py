"""A job of real agents on this machine: a coordinator in this process, each agent on a loopback address of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from pytorchjob_agent.contract import coordinator_endpoint
from pytorchjob_agent.contract.environment import GRACE, PREFLIGHT, TERMINATION_LOG
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_agent.system.processes import descendants
from pytorchjob_operator import tokens
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.thread import Coordinator, Hooks
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import Forget, Sync
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.rounds.state import JobEvent
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.waiting import SECONDS, until

ROOT = Path(__file__).parents[3]
TRAIN = Path(__file__).parent / "train.py"
KEY = b"k" * tokens.KEY_BYTES
JOB = "job-uid"
_STEP = re.compile(r"step (\d+) sum (\d+) of (\d+) restarts (\d+)")


@dataclass
class Pod:
    """One agent."""

    index: int
    process: subprocess.Popen[bytes]
    output: Path
    words: Path
    seen: int = 0

    def text(self) -> str:
        """What it printed since `forget`."""
        return self.output.read_text(errors="replace")[self.seen :]

    def forget(self) -> None:
        """Leave out what it has printed so far."""
        self.seen = len(self.output.read_text(errors="replace"))

    def says(self, words: str, seconds: float = SECONDS) -> None:
        """Wait until it prints this."""
        until(
            lambda: re.search(words, self.text()),
            seconds,
            lambda: f"{words!r} in:\n{self.output.read_text()[-4000:]}",
        )

    def steps(self) -> list[tuple[int, int, int, int]]:
        """Its steps: number, sum, world size, restarts."""
        return [tuple(int(part) for part in found) for found in _STEP.findall(self.text())]  # type: ignore[misc]

    def worker(self) -> int:
        """The pid of its worker, which has a rank in its environment and is no agent."""
        for pid in descendants(self.process.pid):
            try:
                env, command = Path(f"/proc/{pid}/environ").read_bytes(), Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"\0LOCAL_RANK=0\0" in env and b"pytorchjob_agent\0run" not in command:
                return pid
        raise AssertionError("no worker")

    def process_at_work(self, words: str) -> int:
        """The pid that its script has printed last, in a line like this."""
        return int(re.findall(words, self.output.read_text())[-1])

    def launcher(self) -> int:
        """The pid of the process below its first one."""
        children = [pid for pid in descendants(self.process.pid) if _parent(pid) == self.process.pid]
        return children[0]

    def message(self) -> TerminationMessage:
        """Its last words."""
        return TerminationMessage.from_json(self.words.read_text())


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _certificates(size: int) -> list[str]:
    return certificate.make_for_members(datetime.now(UTC), size)  # noqa: TID251 - agents verify them now


@dataclass
class Job:
    """One job."""

    folder: Path
    env: dict[str, str]
    policy: Policy = field(default_factory=lambda: Policy(2, 2))
    pods: dict[int, Pod] = field(default_factory=dict)
    expected: dict[int, ExpectedPod] = field(default_factory=dict)
    zones: dict[int, str] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    port: int = 0
    term: int = 0
    coordinator: Coordinator | None = None

    def lead(self) -> None:
        """Start a coordinator that knows nothing but the job's pods."""
        self.term += 1
        self.coordinator = Coordinator(
            KeyedTokens(KEY),
            self.term,
            hooks=Hooks(lambda uid, new: self.events.extend(new), make_certificates=_certificates),
        )
        self.port = self.coordinator.start("127.0.0.1", self.port)
        self.coordinator.apply(JOB, Sync(self.policy, self.expected))

    def away(self) -> None:
        """Stop the coordinator."""
        assert self.coordinator is not None
        self.coordinator.stop()
        self.coordinator = None

    def begin_anew(self) -> None:
        """As if the job were deleted and created again: a job that has ended takes no more agents."""
        assert self.coordinator is not None
        self.coordinator.apply(JOB, Forget())
        self.expected.clear()

    def expect(self, *indices: int, uid: str = "u", terminating: Mapping[int, str] | None = None) -> None:
        """Say which pods there are, and which ones are being deleted, with their uids."""
        known = self.expected
        self.expected = {index: known.get(index) or self._pod(index, uid) for index in indices}
        if self.coordinator is not None:
            self.coordinator.apply(JOB, Sync(self.policy, self.expected, terminating=terminating or {}))

    def _pod(self, index: int, uid: str) -> ExpectedPod:
        return ExpectedPod(f"pod-{index}", f"{uid}-{index}", zone=self.zones.get(index, ""))

    def start(self, index: int, uid: str = "u", command: tuple[str, ...] = (), **env: str) -> Pod:
        """Start the agent of one pod; it becomes the expected pod of its replica."""
        self.expected[index] = self._pod(index, uid)
        self.expect(*self.expected)
        output, words = self.folder / f"pod-{index}-{uid}.log", self.folder / f"pod-{index}-{uid}.words"
        own = coordinator_endpoint.CoordinatorEndpoint(
            "127.0.0.1", self.port, str(self._credential(index)), JOB, f"pod-{index}", index
        )
        named = {variable["name"]: variable["value"] for variable in own.to_env() if "value" in variable}
        given = {
            TERMINATION_LOG: str(words),
            "PET_LOCAL_ADDR": f"127.0.0.{index + 1}",
            "PET_NODE_RANK": str(index),
            coordinator_endpoint.POD_UID: f"{uid}-{index}",
        }
        argv = command or (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(TRAIN))
        with output.open("wb") as out:
            process = subprocess.Popen(
                argv,
                env={**self.env, **named, **given, **env},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pods[index] = Pod(index, process, output, words)
        return self.pods[index]

    def _credential(self, index: int) -> Path:
        path = self.folder / f"pod-{index}.token"
        path.write_text(tokens.token(KEY, JOB, f"pod-{index}"))
        return path

    def start_all(self, **env: str) -> list[Pod]:
        """Start as many as there may be."""
        self.expected = {index: self._pod(index, "u") for index in range(self.policy.max_members)}
        return [self.start(index, **env) for index in range(self.policy.max_members)]

    def report(self) -> Report:
        """How the coordinator sees it, once it has read of the job."""
        assert self.coordinator is not None
        found = until(partial(self.coordinator.report, JOB))
        assert found is not None
        return found

    def hurry(self) -> None:
        """Let a script that lingers end soon: the test has seen enough of it."""
        (self.folder / "hurry").touch()

    def end(self) -> list[int]:
        """Wait for all pods; returns their exit codes by index."""
        return [pod.process.wait(100) for _, pod in sorted(self.pods.items())]


@contextmanager
def led(folder: Path) -> Iterator[Job]:
    """A job whose coordinator leads; nothing of it is left behind."""
    places = ("TORCHINDUCTOR_", "TRITON_", "CUDA_CACHE", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "XDG_CACHE")
    # torch sets some of them in the process of a test
    foreign = {name for name in os.environ if name.startswith(("PET_", "PYTORCHJOB_", *places))}
    clean = {name: value for name, value in os.environ.items() if name not in foreign}
    env = {
        **clean,
        "PYTHONPATH": str(ROOT / "operator"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PET_NPROC_PER_NODE": "1",
        "PET_NNODES": "2",
        PREFLIGHT: "off",
        GRACE: "15",
        "STEPS": "60",
        "CHECKPOINT": str(folder / "checkpoint"),
        "HURRY": str(folder / "hurry"),
    }
    made = Job(folder, env)
    made.lead()
    try:
        yield made
    finally:
        for pod in made.pods.values():
            end(pod)
        if made.coordinator is not None:
            made.coordinator.stop()


def end(pod: Pod) -> None:
    """Kill all processes of a pod."""
    for pid in [pod.process.pid, *descendants(pod.process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pod.process.wait(60)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job whose coordinator leads."""
    with led(tmp_path) as made:
        yield made
