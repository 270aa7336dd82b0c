"""`report JOB`: an archive about a job for an issue: listed fields of objects, and logs without known secrets."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pytorchjob import __version__
from pytorchjob.cluster.api import Cluster
from pytorchjob.commands.options import job_argument, with_cluster
from pytorchjob.commands.outcome import FAILED, INVALID, fail, suggest
from pytorchjob_operator.terminal import say

_STDOUT = "-"


@click.command("report")
@job_argument
@click.option(
    "-o", "--output", metavar="FILE", help="The archive to write; -: stdout. Default: JOB-report-TIME.tar.gz here."
)
@click.option(
    "--tail",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    metavar="N",
    help="The last N lines of each log.",
)
@click.option("--no-logs", is_flag=True, help="Without the logs of the pods and of the operator.")
@with_cluster
def report_command(cluster: Cluster, job: str, output: str | None, tail: int, no_logs: bool) -> None:
    """Write an archive about a job that you can attach to an issue: a tar.gz of text files.

    It has the job, its pods, Services and events, and the logs of all pods. The answers of `status` and `doctor`, the
    operator's lines about the job and the versions follow. Secrets and ConfigMaps are never read. Objects have listed
    fields only, and no value of an environment variable. In all texts, values with the name or the shape of a secret
    are replaced; a password in a sentence stays. `manifest.json` lists the files, what was left out and why, and what
    was replaced.
    """
    now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
    target = None if output == _STDOUT else Path(output or f"{job}-report-{now:%Y%m%d-%H%M%S}.tar.gz")
    if target is not None:
        _check(target)
    from pytorchjob.report.archive import MANIFEST, make_files, pack
    from pytorchjob.report.collect import collect

    files = make_files(collect(cluster, job, now, 0 if no_logs else tail), __version__)
    data = pack(f"{job}-report", files, now.timestamp())
    if target is None:
        sys.stdout.buffer.write(data)
    else:
        _write(target, data)
        say(target)
    _explain(json.loads(files[MANIFEST]), target)


def _check(target: Path) -> None:
    """End with a sentence before anything is read if the archive cannot be written there."""
    folder = target.parent
    if target.is_dir():
        fail(f"{target} is a directory", f"name the file: -o {target / 'report.tar.gz'}", INVALID)
    if not folder.is_dir():
        fail(f"the directory {folder} does not exist", "create it, or choose another with -o FILE", INVALID)
    if not os.access(folder, os.W_OK):
        fail(f"you may not write in the directory {folder}", "choose another with -o FILE", INVALID)


def _write(target: Path, data: bytes) -> None:
    """Write the archive; a reader never sees half of it, and other users none of it."""
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                Path(file.name).replace(target)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        fail(f"{target} cannot be written: {error.strerror or error}", "choose another place with -o FILE", FAILED)


def _explain(manifest: Mapping[str, Any], target: Path | None) -> None:
    """Print to stderr what is in the archive, and what is not."""
    counts: Mapping[str, int] = manifest["redacted"]
    say(f"files: {len(manifest['files']) + 1}", err=True)
    replaced = ", ".join(f"{number} x {kind}" for kind, number in counts.items()) or "nothing"
    say(f"redacted: {replaced}", err=True)
    for what, why in manifest["leftOut"].items():
        say(f"left out: {what}: {why}", err=True)
    if target is not None:
        suggest(
            "read it before you attach it to an issue: it holds your commands, your logs and messages, without what is "
            f"named or shaped like a secret: tar xzf {target}"
        )
