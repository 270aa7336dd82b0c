"""`python -m website.pictures [NAME...]`: draw docs/pictures/NAME.svg; without names, every picture of a terminal."""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from website.pictures import cluster as on_cluster
from website.pictures import jobs
from website.pictures.drawing import draw
from website.pictures.recording import record
from website.pictures.scenes import FAILING, ON_MACHINE, PROGRESS, SCENES, STATUS, STATUS_BLOCKED, TRAINING, Scene

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
_ENVIRONMENT = re.compile("|".join(re.escape(f"{path}/") for path in {sys.prefix, str(Path(sys.prefix).resolve())}))
_LEFT_OUT = ("COLUMNS", "LINES", "NO_COLOR", "KUBECONFIG")
"""Variables that would change what a terminal shows."""


def main(names: list[str]) -> None:
    """Draw the pictures with these names, or all."""
    unknown = {*names} - {scene.name for scene in SCENES}
    if unknown:
        sys.exit(f"no such picture: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in SCENES)}")
    chosen = [scene for scene in SCENES if not names or scene.name in names]
    with tempfile.TemporaryDirectory() as folder:
        _run_on_machine([scene for scene in chosen if scene in ON_MACHINE], Path(folder))
        _run_on_cluster([scene for scene in chosen if scene not in ON_MACHINE], Path(folder))


def _run_on_machine(scenes: list[Scene], folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / f"{TRAINING}.yaml").write_text(json.dumps(jobs.training(ROOT)))
    (folder / f"{FAILING}.yaml").write_text(json.dumps(jobs.failing()))
    (folder / "train.py").write_text(jobs.FAILING_SCRIPT)
    for scene in scenes:
        _draw(scene, folder)


def _run_on_cluster(scenes: list[Scene], folder: Path) -> None:
    if not scenes:
        return
    prepare = {
        STATUS_BLOCKED: on_cluster.waits_for_gpus,
        STATUS: on_cluster.trains_through_a_hang,
        PROGRESS: on_cluster.trains,
    }
    cluster = on_cluster.Cluster(folder)
    with cluster.namespace():
        for scene in scenes:
            prepare[scene](cluster, ROOT)
            _draw(scene, folder, KUBECONFIG=str(cluster.kubeconfig))


def _draw(scene: Scene, folder: Path, **more: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    env |= {"TERM": "xterm-256color", **more}
    screens = record(scene.command, env, folder, scene.columns, scene.moments)
    lines = [*_shown(screens, folder)]
    date = time.strftime("%Y-%m-%d", time.gmtime())
    made = f"Output of a real run, drawn by `make pictures` on {date}"
    PICTURES.mkdir(exist_ok=True)
    picture = draw(scene.name, scene.command, lines, scene.columns, made)
    (PICTURES / f"{scene.name}.svg").write_text(picture)
    print(f"{scene.name}: {len(lines)} lines")


def _shown(screens: list[list[str]], folder: Path) -> Iterator[str]:
    """The lines of all moments, without the paths of this machine."""
    for screen in screens:
        for line in screen:
            yield _ENVIRONMENT.sub(".venv/", line).replace(f"{ROOT}/", "").replace(f"{folder}/", "")


if __name__ == "__main__":
    main(sys.argv[1:])
