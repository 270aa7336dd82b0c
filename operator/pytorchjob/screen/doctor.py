"""The answer of `doctor`: each cause with its evidence and its remedy, or that nothing is wrong."""

from collections.abc import Iterator

from pytorchjob.screen.colour import StyledLine
from pytorchjob.screen.status import finding_lines, noticed_lines
from pytorchjob.view.cluster_view import ClusterCheck, ClusterView
from pytorchjob.view.job_view import JobView

_MARKS = {True: ("ok", "green"), False: ("WRONG", "red"), None: ("-", "")}


def job_lines(view: JobView) -> Iterator[StyledLine]:
    """Yield what is wrong with a job."""
    yield StyledLine(f"PyTorchJob {view.namespace}/{view.name} is {view.state.value}.", "bold")
    if not view.findings:
        yield StyledLine(view.reason)
        yield StyledLine("No cause of a problem was found.", "green")
    for noticed in view.observations:
        yield StyledLine("")
        yield from noticed_lines(noticed)
    for number, finding in enumerate(view.findings, 1):
        yield StyledLine("")
        yield from finding_lines(finding, number)
    if view.consequences:
        names = ", ".join(finding.cause.name for finding in view.consequences)
        yield StyledLine("")
        yield StyledLine(f"Probably follows from it: {names}")
    yield from _advice(view)


def _advice(view: JobView) -> Iterator[StyledLine]:
    if not view.findings and not view.observations and view.next_command:
        yield StyledLine(f"Next: {view.next_step}  {view.next_command}")


def cluster_lines(view: ClusterView) -> Iterator[StyledLine]:
    """Yield the state of a cluster."""
    for check in view.checks:
        yield from _check(check)
    for number, finding in enumerate(view.findings, 1):
        yield StyledLine("")
        yield from finding_lines(finding, number)
    if not view.findings and all(check.ok is not False for check in view.checks):
        yield StyledLine("Nothing is wrong here. `pytorchjob doctor JOB` examines a job.", "green")


def _check(check: ClusterCheck) -> Iterator[StyledLine]:
    mark, style = _MARKS[check.ok]
    yield StyledLine(f"{mark:<6} {check.name:<11} {check.text}", style)
    if check.ok is False and check.step:
        yield StyledLine(f"{'':<6} {'':<11} Next: {check.step.text}")
        if check.step.command:
            yield StyledLine(f"{'':<6} {'':<11} $ {check.step.command}", "cyan")
