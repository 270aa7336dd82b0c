"""Writes what README's local section prints in a fresh clone: `python -m tests.shell.transcript` (`make transcript`).

Minutes: the clone installs its own environment.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.readme import ROOT, clone, commit, follow
from tests.test_readme import LOCAL

PAGE = "docs/transcripts/local.md"
_HEAD = """# README's local section, as it ran

The output of each block of [README's local section](../../README.md#try-it-one-machine-no-cluster) in a fresh clone,
on {date}, at commit {commit}. The machine has {cores} cores. CLONE is the folder of the clone.
`make transcript` writes this page.
`tests/test_readme.py::test_the_local_section_works_as_written` runs the same blocks.

```text
{text}
```
"""


def page(printed: str, folder: Path, at: str, cores: int, date: str) -> str:
    """The page with what a run in a folder printed: without the folder's name and spaces at the ends of lines."""
    lines = printed.replace(str(folder), "CLONE").strip().split("\n")
    text = "\n".join(line.rsplit("\r", 1)[-1].rstrip() for line in lines)
    return _HEAD.format(date=date, commit=at, cores=cores, text=text)


def main() -> int:
    """Run the section and write the page; nothing is written if a command fails."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = clone(Path(folder) / "clone")
        done = follow(LOCAL, checkout, seconds=1800)
    if done.status:
        print(done.transcript, file=sys.stderr)
        return 1
    date = time.strftime("%Y-%m-%d", time.gmtime())
    path = ROOT / PAGE
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(done.transcript, checkout, commit(), os.cpu_count() or 1, date))
    return 0


if __name__ == "__main__":
    sys.exit(main())
