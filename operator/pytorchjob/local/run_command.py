"""One `pytorchjob run`: read and check the file, print what is ignored, run the job, print how it ended."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from pytorchjob.local import addresses, gpus, image_paths, notes, process_tree, processes, result, source
from pytorchjob.local.addresses import Claims
from pytorchjob.local.job_file import JobFile
from pytorchjob.local.log_filter import LogFilter
from pytorchjob.local.loopback_coordinator import LoopbackCoordinator
from pytorchjob.local.node import LocalNode
from pytorchjob.local.record import Record
from pytorchjob.local.runner import ExitStatus, Runner, RunResult
from pytorchjob.local.screen import Screen, duration
from pytorchjob.local.supervisor import Command
from pytorchjob.local.translate import LocalMachine, agent_directory, from_source, to_command
from pytorchjob_operator.errors import CannotRun, InvalidJob
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.problem import last_words

_LONGEST_TEMPORARY = 70
"""Bytes of a temporary folder's path; the path of a socket may have 107, and programs add folders of their own."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of the command line."""

    path: str
    job: str | None = None
    namespace: str | None = None
    workers: int | None = None
    timeout: float | None = None
    grace: float | None = None
    output: str | None = None
    verbose: bool = False
    status_file: str | None = None
    maps: tuple[tuple[str, str], ...] = ()
    max_restarts: int | None = None

    def file(self) -> JobFile:
        """Return the files of the run."""
        return JobFile(self.path, self.job, self.namespace, self.status_file, self.max_restarts)


def run(options: RunOptions) -> ExitStatus:
    """Run one job to its end; raises InvalidJob for a job and CannotRun for a machine with which that is impossible."""
    given = options.file().load(options.workers)
    notes.check(given)
    if missing := image_paths.problems(given, options.maps, os.path.exists):
        raise InvalidJob(missing)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a replica may print characters that the terminal lacks
    out, err = (stream or _nowhere() for stream in (sys.stdout, sys.stderr))
    screen = Screen(err if options.output else out, err, os.environ.get("NO_COLOR"))
    claims = Claims()
    try:
        ended = _run(options, given, claims, screen)
    finally:
        claims.release()
        screen.close()
    _print_result(options, given, ended, screen)
    return ended.status


def _nowhere() -> TextIO:
    """Return a stream in the place of one that was closed before the start, as by `2>&-`."""
    return open(os.devnull, "w")


def _run(options: RunOptions, given: PyTorchJob, claims: Claims, screen: Screen) -> RunResult:
    with _explained("no address and port can be taken on this machine"):
        job, places, port_notes = addresses.settle(source.as_local(given), claims)
    devices = gpus.found(os.environ)
    job, process_notes = processes.settle(job, _cpus(), len(devices))
    for note in [*notes.collect(given, len(devices), sys.executable), *process_notes, *port_notes]:
        screen.message(f"note: {note}")
    with _explained("no temporary folder can be made: set TMPDIR to a folder that you may write to"):
        scratch = tempfile.mkdtemp(prefix="pytorchjob-run-")
    process_tree.adopt_orphans()
    try:
        machine = LocalMachine(places, _environment(scratch), os.getcwd(), scratch, maps=options.maps)
        if given.spec.agent is not None and given.spec.agent.inject:
            _install_agent(machine)
        lines = LogFilter(verbose=options.verbose, cwd=os.getcwd())
        record = Record(job)
        node = LocalNode(partial(_translate, machine), gpus.Pool(devices, job), screen, lines, options.grace, record)
        with closing(record), LoopbackCoordinator(node.selector, scratch) as coordinator:
            return Runner(job, node, screen, options.timeout, options.file(), record).run(coordinator, lines)
    finally:
        process_tree.kill_descendants()
        shutil.rmtree(scratch, ignore_errors=True)


def _cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _environment(scratch: str) -> dict[str, str]:
    """Return the environment for replicas; their temporary files lie below `scratch`, which the run removes.

    A path may be too long for the sockets that programs make in it; then the caller's folder stays.
    """
    temporary = Path(scratch) / "tmp"
    temporary.mkdir()
    own = {"TMPDIR": str(temporary)} if len(str(temporary)) <= _LONGEST_TEMPORARY else {}
    return {**os.environ, **own}


def _install_agent(machine: LocalMachine) -> None:
    """Install the agent for the replicas, with the command that the init container runs in a cluster."""
    directory = agent_directory(machine.scratch)
    command = from_source(Command(("install", directory), machine.env, machine.cwd), machine)
    with _explained(f"the agent cannot be installed in {directory}"):
        done = subprocess.run(  # noqa: S603 - a command of this package
            command.argv, env=dict(command.env), cwd=command.cwd, capture_output=True, text=True, check=False
        )
    if done.returncode:
        why = last_words(done.stderr)[1] or f"exit code {done.returncode}"
        raise CannotRun(f"the agent cannot be installed in {directory}: {why}")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what the machine refuses into one sentence."""
    try:
        yield
    except OSError as error:
        raise CannotRun(f"{what}: {error.strerror or error}") from error


def _translate(machine: LocalMachine, pod: Mapping[str, Any], devices: str | None) -> Command:
    return to_command(pod, machine, devices)


def _print_result(options: RunOptions, given: PyTorchJob, ended: RunResult, screen: Screen) -> None:
    screen.message(result.summary(ended.job, duration(ended.elapsed), ended.restarts))
    for line in ended.failure:
        screen.message(f"  {line}")
    if ended.time_spent:
        screen.message(f"  {ended.time_spent}")
    for line in result.next_steps(options.path, ended.job):
        screen.message(line)
    screen.flush()
    if options.output and sys.stdout is not None:
        sys.stdout.write(result.FORMATS[options.output](result.final_object(given, ended.job)))
        sys.stdout.flush()
