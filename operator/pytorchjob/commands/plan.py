"""`plan FILE`: the objects that the installed operator would create, as YAML; no cluster is contacted.

It imports what it needs when it runs, so that `--help` is fast.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pytorchjob_operator.errors import InvalidJob, OperatorError
from pytorchjob_operator.terminal import say, visible_yaml

if TYPE_CHECKING:
    from pytorchjob_operator.model import PyTorchJob
    from pytorchjob_operator.observed import Observed, Options
    from pytorchjob_operator.plan.writes import AgentUse

INVALID = 2
"""The exit status for a file or a command line that is wrong."""


@click.command("plan")
@click.argument("file", metavar="FILE")
def plan_command(file: str) -> None:
    """Print the objects that the installed operator would create.

    The output is YAML, for each job of the file. FILE - is standard input. The operator has the chart's default values;
    its environment variables change them, for example PYTORCHJOB_OPERATOR_COORDINATOR=false. The cluster sets the job's
    uid and the coordinator's certificate.
    """
    from pytorchjob_operator import installed

    try:
        options = installed.options(os.environ)
    except OperatorError as error:
        say(f"error: {error}", err=True)
        sys.exit(INVALID)
    for job in read_or_exit(file):
        for document in plan_documents(job, options):
            say(document, nl=False)


def plan_documents(job: "PyTorchJob", options: "Options") -> Iterator[str]:
    """Yield the objects that the first plan of a job creates as YAML documents, the plan's reason first."""
    from pytorchjob_operator.plan import make_plan

    seen = _first_seen(job, options)
    plan = make_plan(seen)
    yield f"# {job.metadata.name}: {plan.reason}\n"
    if plan.agent is not None:
        yield f"# agent: {agent_words(plan.agent)}\n"
    for manifest in _manifests(seen):
        yield f"---\n# {manifest['kind']} {manifest['metadata']['name']}\n{_to_yaml(manifest)}"


def agent_words(use: "AgentUse") -> str:
    """Return what the pods get, and why."""
    from pytorchjob_operator.names import LABEL_AGENT, AgentSource

    done = "injected" if use.injects else "not injected"
    match use.source:
        case AgentSource.JOB:
            return f"{done}, by spec.agent.inject"
        case AgentSource.NAMESPACE:
            return f"{done}, by the label {LABEL_AGENT} of the namespace"
        case AgentSource.OPERATOR:
            return f"{done}, by the operator's setting: the job says nothing, and no namespace was read for its label"
        case AgentSource.PODS:
            return f"{done}, as in the pods that are there"
        case AgentSource.IMAGE:
            return f"{done}: the command starts the image's own"
        case AgentSource.NO_EFFECT:
            return f"{done}: it would have no effect in these pods (docs/agent.md)"


def planned(job: "PyTorchJob", options: "Options") -> "Iterator[dict[str, Any]]":
    """Yield the objects that the first plan of a job creates."""
    return _manifests(_first_seen(job, options))


def _first_seen(job: "PyTorchJob", options: "Options") -> "Observed":
    from pytorchjob.local.source import as_stored, override
    from pytorchjob_operator.observed import Observed

    now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
    return Observed(as_stored(override(job, None, None)), now, options=options)


def _manifests(seen: "Observed") -> "Iterator[dict[str, Any]]":
    """Yield what the plan creates; with a gang scheduler also the pods that follow once the PodGroup is admitted."""
    from pytorchjob_operator.observed import Child
    from pytorchjob_operator.plan import make_plan
    from pytorchjob_operator.plan.writes import CreateChild, CreatePod, manifests

    plan = make_plan(seen)
    yield from manifests(plan)
    if any(isinstance(write, CreatePod) for write in plan.writes):
        return
    writes = [write for write in plan.writes if isinstance(write, CreateChild)]
    admitted = tuple(Child.from_api(write.kind, {**write.body, "status": {"phase": "Inqueue"}}) for write in writes)
    yield from manifests(make_plan(replace(seen, children=admitted)))


def _to_yaml(manifest: object) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes shared parts of the pods' templates out instead of using YAML anchors, which are hard to read."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return visible_yaml(lambda letters: str(yaml.dump(manifest, Dumper=Dumper, sort_keys=False, allow_unicode=letters)))


def read_or_exit(file: str) -> list["PyTorchJob"]:
    """Return the jobs of a file; prints what is wrong and ends the process with 2 if there is a problem."""
    from pytorchjob.local.source import read_jobs

    try:
        return read_jobs(file)
    except InvalidJob as error:
        sys.exit(refuse(error))


def refuse(error: InvalidJob) -> int:
    """Print all problems, one per line, and return the exit status."""
    for line in str(error).splitlines():
        say(f"error: {line}", err=True)
    return INVALID
