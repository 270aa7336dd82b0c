"""The pages of docs/transcripts: what README's commands print in a fresh clone.

A test that runs such commands hands their output to `keep`. `make transcript` sets KEEP_TRANSCRIPTS, and then the page
is written; otherwise nothing is.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.readme import CLUSTER, LOCAL, REGISTRY, ROOT, Done, commit, sections, with_registry

FOLDER = ROOT / "docs/transcripts"
_HEAD = """# {title}

The output of {what},
on {date}, at commit {commit}. The machine has {cores} cores.
{masked}
`make transcript` writes this page. `{test}` runs the same
commands.

```text
{text}
```
"""
_ADDRESS = re.compile(r"https?://[^\s)]+")


@dataclass(frozen=True)
class Page:
    """One page of the folder."""

    name: str
    title: str
    what: str
    test: str
    commands: Callable[[], list[str]]
    """README's lines that the page has, in their order."""
    masked: str = "CLONE is the folder of the clone."

    def path(self, folder: Path = FOLDER) -> Path:
        return folder / f"{self.name}.md"


def section(heading: str) -> Callable[[], list[str]]:
    """What returns the lines of a section's blocks."""
    return lambda: [line for block in sections()[heading] for line in block.splitlines()]


PAGES = (
    Page(
        name="local",
        title="README's local section, run in a fresh clone",
        what="each block of [README's local section](../../README.md#try-it-one-machine-no-cluster)",
        test="tests/test_readme.py::test_the_local_section_works_as_written",
        commands=section(LOCAL),
        masked="CLONE is the folder of the clone. That machine does not reach PyTorch's own index.",
    ),
    Page(
        name="cluster",
        title="README's cluster section, run in a fresh clone",
        what="the block of [README's cluster section](../../README.md#on-a-cluster)",
        test="e2e/test_readme.py::test_the_cluster_section_works_as_written",
        commands=section(CLUSTER),
    ),
    Page(
        name="registry",
        title="README's commands for a cluster with a registry, run in a fresh clone",
        what="the second row of the table in [README's cluster section](../../README.md#on-a-cluster), then a job",
        test="e2e/test_registry.py::test_operator_and_job_come_from_the_registry",
        commands=with_registry,
        masked=f"CLONE is the folder of the clone. {REGISTRY} is a registry on that machine.",
    ),
    Page(
        name="v1",
        title="Three jobs of training-operator v1, unchanged, that lose a pod",
        what="[three jobs in the manner of v1's examples](../../e2e/v1) in a namespace with a label",
        test="e2e/test_v1_examples.py::test_jobs_of_v1_in_a_labelled_namespace_outlive_a_pod",
        commands=list,
        masked="NAMESPACE is a namespace of the test.",
    ),
    Page(
        name="kueue",
        title="Jobs in a queue of Kueue, as the command line shows them",
        what="[real training](../../e2e/test_kueue.py) in a queue of the real Kueue that has quota for four pods",
        test="e2e/test_kueue.py::test_what_people_see_of_jobs_in_a_queue",
        commands=list,
        masked="NAMESPACE is a namespace of the test.",
    ),
)


def clean(printed: str, masks: Mapping[str, str]) -> str:
    """What a terminal shows at the end: without what only this machine has, and without spaces at the ends of lines."""
    for found, name in {**masks, socket.gethostname(): "MACHINE"}.items():
        printed = printed.replace(found, name)
    lines = _ADDRESS.sub("ADDRESS", printed).strip().split("\n")
    return "\n".join(line.rsplit("\r", 1)[-1].rstrip() for line in lines)


def keep(name: str, done: Done, checkout: Path, masks: Mapping[str, str], folder: Path | None = None) -> None:
    """Write the page of commands that ran in a clone, if a folder is given or KEEP_TRANSCRIPTS is set."""
    to = folder or (FOLDER if os.environ.get("KEEP_TRANSCRIPTS") else None)
    if to is None:
        return
    [page] = [page for page in PAGES if page.name == name]
    words = {"title": page.title, "what": page.what, "test": page.test, "masked": page.masked}
    when = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit(checkout), "cores": os.cpu_count() or 1}
    to.mkdir(parents=True, exist_ok=True)
    page.path(to).write_text(
        _HEAD.format(**words, **when, text=clean(done.transcript, {**masks, str(checkout): "CLONE"}))
    )
