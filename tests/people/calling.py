"""Calls commands with a cluster in memory."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from pytorchjob.cli import main
from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.options import ConnectOptions
from tests.people.fake_cluster import FakeCluster, a_job


def call(cluster: FakeCluster | None, *arguments: object, stdin: str | None = None) -> Result:
    """Run a command. Without a cluster given, the command must not ask for one."""

    def connect(options: ConnectOptions) -> Cluster:
        assert cluster is not None, "the command asked for a cluster"
        cluster.namespace = options.namespace or cluster.namespace
        return cluster

    return CliRunner().invoke(main, [str(argument) for argument in arguments], obj=connect, input=stdin)


def job_file(folder: Path, *others: dict[str, Any], name: str = "digits", **fields: Any) -> Path:
    """A file with this job, after other objects."""
    job = a_job(name, state="", **fields)
    del job["metadata"]["creationTimestamp"], job["status"]
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all([*others, job]))
    return path
