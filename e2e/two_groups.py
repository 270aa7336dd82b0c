"""Jobs whose whole group is cut off while other pods train in their place, and what both groups write to one volume.

The volume is the folder /shared of the cluster's workers (e2e/cluster/kind.yaml), which is one folder of the host. So
the times of all files are from one clock, and the tests read them without the help of a pod.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.conftest import ROOT
from e2e.elastic import elastic_job
from e2e.kubectl import Kubectl, until

HERE, IN_NODES = ROOT / "out" / "shared", "/shared"
SAVE_STEPS = 5
Round = tuple[int, ...]

# Rank 0 saves every few steps, under names of its round's own, so that no save replaces another. It ignores
# refusals: that these saves have no effect does not depend on the script's good will.
TRAIN = f"""
import json, os, pathlib, time
import torch, torch.distributed as dist
from pytorchjob_agent import FencedError, save, take_over

folder, guarded = pathlib.Path("{IN_NODES}", os.environ["FOLDER"]), os.environ["GUARDED"] == "yes"
checkpoints, round_ = folder / "checkpoints", os.environ["PYTORCHJOB_ROUND_ID"]
dist.init_process_group("gloo")
rank = dist.get_rank()
lines = open(folder / f"{{round_}}.{{rank}}.lines", "a", buffering=1)


def note(event, step, words=""):
    lines.write(json.dumps(dict(time=time.time(), event=event, step=step, words=words)) + chr(10))


def plainly(path, write):
    new = path.with_name(f".{{path.name}}")
    write(new)
    new.replace(path)


def keep(step):
    path = checkpoints / f"step-{{step}}-of-{{round_}}"
    try:
        (save if guarded else plainly)(path, lambda new: new.write_text(str(step)))
    except FencedError as error:
        note("refused", step, str(error))


first = torch.zeros(1, dtype=torch.int64)
if rank == 0:
    if guarded:
        take_over(checkpoints)
    first += max((int(path.name.split("-")[1]) for path in checkpoints.glob("step-*")), default=0)
dist.broadcast(first, 0)
note("start", int(first))
for step in range(int(first) + 1, 1_000_000):
    dist.all_reduce(torch.ones(1))
    note("step", step)
    if rank == 0 and step % {SAVE_STEPS} == 0:
        keep(step)
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class Group:
    """What one round of a job has written."""

    round: Round
    start: int
    """The step that it went on from; -1: it has not begun."""
    steps: list[float]
    """When rank 0 did each step, in seconds by the host's clock."""
    saved: dict[int, float]
    """When each checkpoint got its name, by its step."""
    refused: list[tuple[float, str]]
    """When saves were refused, and with which words."""

    @property
    def name(self) -> str:
        return ".".join(map(str, self.round))


class Volume:
    """One folder for each job of a namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._here = HERE / namespace

    def add(self, job: str) -> None:
        """Make the folder of a job, which its pods may write to."""
        checkpoints = self._here / job / "checkpoints"
        checkpoints.mkdir(parents=True)
        for path in (checkpoints, checkpoints.parent):
            path.chmod(0o777)

    def groups(self, job: str) -> list[Group]:
        """All groups of a job that have written anything, by their rounds."""
        folder = self._here / job
        files = {_round(path.name.removesuffix(".0.lines")): path for path in folder.glob("*.0.lines")}
        return [_group(files[round_], folder / "checkpoints") for round_ in sorted(files)]


def _round(text: str) -> Round:
    return tuple(map(int, text.split(".")))


def _group(path: Path, checkpoints: Path) -> Group:
    name = path.name.removesuffix(".0.lines")
    *whole, _ = path.read_text().split("\n")
    lines = [json.loads(line) for line in whole]
    return Group(
        _round(name),
        next((line["step"] for line in lines if line["event"] == "start"), -1),
        [line["time"] for line in lines if line["event"] == "step"],
        # A rename is the last change of a file's entry: it sets the time of the last change of its inode.
        {int(file.name.split("-")[1]): file.stat().st_ctime for file in checkpoints.glob(f"step-*-of-{name}")},
        [(line["time"], line["words"]) for line in lines if line["event"] == "refused"],
    )


@contextmanager
def volume(kubectl: Kubectl, node: str) -> Iterator[Volume]:
    """A volume that pods of the namespace mount by its name, on every node."""
    name = kubectl.namespace
    (HERE / name).mkdir(parents=True)
    rights = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    where = {"path": f"{IN_NODES}/{name}", "type": "Directory"}
    spec = {**rights, "capacity": {"storage": "1Gi"}, "hostPath": where}
    claim = {**rights, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    for kind, content in (("PersistentVolume", spec), ("PersistentVolumeClaim", claim)):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": content}
        kubectl("apply", "-f", "-", stdin=json.dumps(body))
    try:
        yield Volume(name)
    finally:
        kubectl("delete", "pytorchjobs", "--all", "--wait=false")
        kubectl("delete", "persistentvolume", name, "--wait=false")
        until(lambda: _removed(node, name), 60)


def _removed(node: str, name: str) -> bool:
    """Remove a folder whose files belong to the pods' user; pods that still write there put some of it back."""
    subprocess.run(["docker", "exec", node, "rm", "-rf", f"{IN_NODES}/{name}"], timeout=60, check=False)
    return not (HERE / name).exists()


def job(kubectl: Kubectl, name: str, workers: int, *, guarded: bool, fence_seconds: int) -> dict[str, Any]:
    """A job of fixed size that saves to its folder of the volume."""
    made = elastic_job(name, workers, train=TRAIN, agent={"fenceSeconds": fence_seconds})
    spec = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = spec["containers"]
    container["env"] += [{"name": "FOLDER", "value": name}, {"name": "GUARDED", "value": "yes" if guarded else "no"}]
    container["volumeMounts"] = [{"name": "shared", "mountPath": IN_NODES}]
    spec["volumes"] = [{"name": "shared", "persistentVolumeClaim": {"claimName": kubectl.namespace}}]
    return made
