"""`pytorchjob run`, put together: read, check, say what is ignored, run, tell how it ended."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path

from pytorchjob_agent.command.install import install
from pytorchjob_operator.local import addresses, gpus, keeper, notes, result, source
from pytorchjob_operator.local.addresses import Addresses, Claims
from pytorchjob_operator.local.command import Command
from pytorchjob_operator.local.loopback_coordinator import LoopbackCoordinator
from pytorchjob_operator.local.node import Node
from pytorchjob_operator.local.runner import ExitStatus, Result, Runner
from pytorchjob_operator.local.screen import Screen, duration
from pytorchjob_operator.local.translate import Machine, agent_directory, to_command
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import replicas


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    path: str
    job: str | None = None
    namespace: str | None = None
    workers: int | None = None
    timeout: float | None = None
    grace: float | None = None
    output: str | None = None


def run(request: Request) -> ExitStatus:
    """Run one job to its end; raises InvalidJob for one that cannot be run here."""
    given = _load(request, request.workers)
    notes.check(given)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a replica may write what the terminal cannot show
    screen = Screen(sys.stderr if request.output else sys.stdout, sys.stderr, os.environ.get("NO_COLOR"))
    claims = Claims()
    try:
        ended = _run(request, given, claims, screen)
    finally:
        claims.release()
        screen.close()
    _tell(request, given, ended, screen)
    return ended.status


def _load(request: Request, workers: int | None = None) -> PyTorchJob:
    job = source.choose(source.read_jobs(request.path), request.job, request.path)
    return source.override(job, request.namespace, workers)


def _run(request: Request, given: PyTorchJob, claims: Claims, screen: Screen) -> Result:
    job, places, told = addresses.settle(source.as_local(given), claims)
    devices = gpus.found(os.environ)
    for note in [*notes.collect(given, len(devices), sys.executable), *told]:
        screen.say(f"note: {note}")
    scratch = tempfile.mkdtemp(prefix="pytorchjob-run-")
    keeper.adopt_orphans()
    try:
        if given.spec.agent is not None and given.spec.agent.inject:
            install(Path(agent_directory(scratch)))
        node = Node(_translator(places, scratch), gpus.Pool(devices, job), screen, request.grace)
        with LoopbackCoordinator(node.selector) as coordinator:
            return Runner(job, node, screen, request.timeout, partial(_workers, request)).run(coordinator)
    finally:
        keeper.kill_descendants()
        shutil.rmtree(scratch, ignore_errors=True)


def _translator(places: Addresses, scratch: str) -> Callable[..., Command]:
    machine = Machine(places, dict(os.environ), os.getcwd(), scratch)
    return lambda pod, devices: to_command(pod, machine, devices)


def _workers(request: Request) -> int | None:
    """The number of workers that the job's file asks for now."""
    job = _load(request)
    addresses.check_size(job)
    return replicas.count(job, ReplicaType.WORKER) or None


def _tell(request: Request, given: PyTorchJob, ended: Result, screen: Screen) -> None:
    screen.say(result.summary(ended.job, duration(ended.elapsed)))
    for line in result.next_steps(request.path, ended.job):
        screen.say(line)
    screen.flush()
    if request.output:
        sys.stdout.write(result.FORMATS[request.output](result.final_object(given, ended.job)))
        sys.stdout.flush()
