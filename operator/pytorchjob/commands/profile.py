"""`profile`: where one rank spends its time, as a file on this machine. The pod's own program takes the samples."""

import re
import subprocess
import tempfile
from pathlib import Path

import click

from pytorchjob.cluster.api import Cluster
from pytorchjob.commands.exec import EXEC, kubectl_with, pod_argument, processes_of, rank_option, running_pod
from pytorchjob.commands.options import DURATION, job_argument, with_cluster
from pytorchjob.commands.outcome import TIMED_OUT, fail
from pytorchjob_operator import names
from pytorchjob_operator.terminal import say

_IN_POD = """
why="the image has no agent"
if python -c "import pytorchjob_agent.stacks.profile" 2>/dev/null; then
    python -m pytorchjob_agent profile --local-rank "$1" --seconds "$2" --rate "$3"
    status=$?
    [ $status -eq 78 ] || exit $status
    why="no worker of the coordinator's rounds runs there"
fi
if command -v py-spy >/dev/null 2>&1; then
    exec py-spy record --pid 1 --subprocesses --duration "$2" --rate "$3" --format raw --output /dev/stdout
fi
echo "$why, and no py-spy" >&2
exit 78
"""
_STACK = re.compile(rb"\S.* [1-9]\d*")
_LATE = 90.0
_MOST_SECONDS = 600.0
_LEAST_SECONDS = 1.0


@click.command("profile")
@job_argument
@pod_argument
@rank_option
@click.option("--seconds", type=DURATION, default="10s", show_default=True, metavar="TIME", help="For how long.")
@click.option("--rate", type=click.IntRange(1, 1000), default=100, show_default=True, help="Samples a second.")
@click.option("-o", "--output", metavar="FILE", help="The file to write. Default: JOB-rank-R.collapsed here.")
@with_cluster
def profile_command(
    cluster: Cluster, job: str, pod: str | None, rank: int | None, seconds: float, rate: int, output: str | None
) -> None:
    """Take a profile of a rank, or of the first process in POD: how often which Python code was running.

    The training continues. The file has collapsed stacks, which speedscope.app and flamegraph.pl show. py-spy takes
    the samples if the image has it and the container may trace processes. Else the worker samples itself, if it trains
    in the coordinator's rounds. Without both there is no profile. Needs kubectl on PATH.
    """
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise click.BadParameter(f"expected {_LEAST_SECONDS:g}s to {_MOST_SECONDS:g}s", param_hint="--seconds")
    name = running_pod(cluster, job, rank, pod)["metadata"]["name"]
    local_rank = (rank or 0) % (processes_of(cluster.job(job)) or 1)
    inner = ["sh", "-c", _IN_POD, "profile", str(local_rank), f"{seconds:.0f}", str(rate)]
    command = kubectl_with(cluster, [EXEC], ["exec", name, "-c", names.CONTAINER, "--", *inner])
    path = Path(output or f"{job}-{pod or f'rank-{rank or 0}'}.collapsed")
    stacks = _read(command, seconds + _LATE, name)
    try:
        path.write_bytes(stacks)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", "choose another place with -o")
    samples = sum(int(line.rpartition(b" ")[2]) for line in stacks.splitlines())
    say(f"{path}: {samples} samples of {name}; speedscope.app shows them")


def _read(command: list[str], limit: float, pod: str) -> bytes:
    """Return the stacks that the pod prints; ends the command if it prints something else."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=limit, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            fail(f"the pod {pod} has sent no profile for {limit:.0f} s", "repeat the command", TIMED_OUT)
        out.seek(0)
        err.seek(0)
        text, notes = out.read(), err.read().decode(errors="replace").split("\n")
    notes = [line for line in notes if line.strip()]
    if done.returncode:
        fail(
            f"the pod {pod} gives no profile: {notes[-1] if notes else f'status {done.returncode}'}",
            "put py-spy into the image, or let the agent run the script: docs/agent.md",
        )
    for note in notes:
        say(f"note: {note}", err=True)
    stacks = [line for line in text.splitlines() if _STACK.fullmatch(line)]
    if not stacks:
        fail(f"the pod {pod} gives a profile without samples", "repeat the command with more --seconds")
    return b"\n".join([*stacks, b""])
