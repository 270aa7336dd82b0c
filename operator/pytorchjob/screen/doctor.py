"""The answer of `doctor`: each cause with its evidence and its remedy, or that nothing is wrong."""

from collections.abc import Iterator

from pytorchjob.screen.colour import Line
from pytorchjob.screen.status import finding_lines, noticed_lines
from pytorchjob.view.cluster_view import Check, ClusterView
from pytorchjob.view.job_view import JobView

_MARKS = {True: ("ok", "green"), False: ("WRONG", "red"), None: ("-", "")}


def job_lines(view: JobView) -> Iterator[Line]:
    """Yield what is wrong with a job."""
    yield Line(f"PyTorchJob {view.namespace}/{view.name} is {view.state.value}.", "bold")
    if not view.findings:
        yield Line(view.reason)
        yield Line("No cause of a problem was found.", "green")
    for noticed in view.observations:
        yield Line("")
        yield from noticed_lines(noticed)
    for number, finding in enumerate(view.findings, 1):
        yield Line("")
        yield from finding_lines(finding, number)
    if view.consequences:
        names = ", ".join(finding.cause.name for finding in view.consequences)
        yield Line("")
        yield Line(f"Probably follows from it: {names}")
    yield from _advice(view)


def _advice(view: JobView) -> Iterator[Line]:
    if not view.findings and not view.observations and view.next_command:
        yield Line(f"Next: {view.next_step}  {view.next_command}")


def cluster_lines(view: ClusterView) -> Iterator[Line]:
    """Yield the state of a cluster."""
    for check in view.checks:
        yield from _check(check)
    for number, finding in enumerate(view.findings, 1):
        yield Line("")
        yield from finding_lines(finding, number)
    if not view.findings and all(check.ok is not False for check in view.checks):
        yield Line("Nothing is wrong here. `pytorchjob doctor JOB` examines a job.", "green")


def _check(check: Check) -> Iterator[Line]:
    mark, style = _MARKS[check.ok]
    yield Line(f"{mark:<6} {check.name:<11} {check.text}", style)
    if check.ok is False and check.step:
        yield Line(f"{'':<6} {'':<11} Next: {check.step.text}")
        if check.step.command:
            yield Line(f"{'':<6} {'':<11} $ {check.step.command}", "cyan")
