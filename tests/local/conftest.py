from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.jobs import Run, write


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts `pytorchjob run` for a job; whatever a test leaves running is killed."""
    runs: list[Run] = []

    def run(spec: dict[str, Any] | Path, *options: str, env: dict[str, str] | None = None) -> Run:
        path = spec if isinstance(spec, Path) else write(tmp_path / f"job-{len(runs)}.yaml", spec)
        runs.append(Run(tmp_path, "run", "-f", str(path), "--grace", "2", *options, env=env))
        return runs[-1]

    yield run
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
