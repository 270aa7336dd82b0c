"""`init`: a job's file and a Dockerfile to begin with. It overwrites nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

import click

from pytorchjob.commands.outcome import INVALID, fail, suggest
from pytorchjob_operator.terminal import say

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST = 40
JOB_FILE, DOCKERFILE = "pytorchjob.yaml", "Dockerfile"

_JOB = """\
# Check it: pytorchjob validate {file}     Try it here, without a cluster: pytorchjob run -f {file}
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
spec:
  nprocPerNode: "{processes}"  # worker processes in each pod{why}
  agent:
    inject: true  # puts the agent into the pods: the image needs only PyTorch, 2.4 or newer
{elastic}  pytorchReplicaSpecs:
    Worker:
      replicas: {workers}
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: {image}
              command: [python, -m, pytorchjob_agent, run, --, {script}]  # instead of torchrun: also finds hangs
{mount}              resources:
                requests: {{cpu: {cpus}, memory: {memory}{gpu_request}}}
                limits: {{memory: {memory}{gpu_request}}}
{volume}"""
_IN_SCRIPT = """\
              workingDir: /script
"""
_PRESET = """\
              envFrom:  # NCCL's settings for your network, if this ConfigMap exists: examples/presets
                - configMapRef: {name: nccl-ethernet, optional: true}
"""
_MOUNTS = """\
              volumeMounts:
"""
_MOUNT = """\
                - {{name: {name}, mountPath: {path}}}
"""
_VOLUMES = """\
          volumes:
"""
_SCRIPT_VOLUME = """\
            - name: script
              configMap: {{name: {name}}}  # kubectl create configmap {name} --from-file={script}
"""
_SHM_VOLUME = """\
            - name: shm
              emptyDir: {{medium: Memory, sizeLimit: {size}Gi}}  # for NCCL and DataLoaders; a container has 64 MB
"""
_SHM_OF_A_GPU = 8
"""GiB of /dev/shm for each GPU; what is used of it counts against the memory limit."""
_ELASTIC = """\
  elasticPolicy:
    minReplicas: {low}  # training continues with this number of pods, and stops below
    maxReplicas: {high}
    maxRestarts: 10
"""
_DOCKER = """\
# The image of {name}. Build it where your cluster can pull it: docker build -t {image} . && docker push {image}
# Choose the PyTorch and CUDA versions that fit your GPUs.
FROM pytorch/pytorch:latest
WORKDIR /workspace
COPY {script} ./
"""


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What the files are about."""

    name: str
    image: str
    script: str
    workers: int
    gpus: int
    low: int | None
    mounted: bool
    """Whether the script comes from a ConfigMap instead of the image."""

    def job(self) -> str:
        """Return the job's file."""
        return _JOB.format(
            file=JOB_FILE,
            name=self.name,
            image=self.image,
            script=self.script,
            workers=self.workers,
            processes=self.gpus or 1,
            why=", one for each GPU" if self.gpus else "",
            elastic=_ELASTIC.format(low=self.low, high=self.workers) if self.low else "",
            cpus=8 * self.gpus or "500m",
            memory=f"{64 * self.gpus}Gi" if self.gpus else "2Gi",
            mount=self._mounts(),
            volume=self._volumes(),
            gpu_request=f", nvidia.com/gpu: {self.gpus}" if self.gpus else "",
        )

    def _mounts(self) -> str:
        """Return what the container adds for a mounted script and for GPUs."""
        script = _MOUNT.format(name="script", path="/script") if self.mounted else ""
        shm = _MOUNT.format(name="shm", path="/dev/shm") if self.gpus else ""  # noqa: S108 - a path in the pod
        found = script + shm
        return (_IN_SCRIPT if script else "") + (_PRESET if shm else "") + (_MOUNTS + found if found else "")

    def _volumes(self) -> str:
        script = _SCRIPT_VOLUME.format(name=self.name, script=self.script) if self.mounted else ""
        shm = _SHM_VOLUME.format(size=_SHM_OF_A_GPU * self.gpus) if self.gpus else ""
        return _VOLUMES + script + shm if script or shm else ""

    def dockerfile(self) -> str:
        """Return the Dockerfile."""
        return _DOCKER.format(name=self.name, image=self.image, script=self.script)


@click.command("init")
@click.argument("name", default="train")
@click.option("--image", metavar="IMAGE", help="The image of the pods. Default: NAME:1.")
@click.option("--script", default="train.py", show_default=True, metavar="FILE", help="The training script.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(min=1), metavar="N", help="Pods.")
@click.option("--gpus", default=0, show_default=True, type=click.IntRange(min=0), metavar="N", help="GPUs of each pod.")
@click.option(
    "--min-workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Make the job elastic: it trains with N pods or more.",
)
@click.option(
    "--configmap",
    is_flag=True,
    help="Mount the script from a ConfigMap, so that no image has to be built. Needs --image.",
)
@click.option("--directory", default=".", metavar="FOLDER", help="Where to write the files. Default: here.")
def init_command(
    name: str,
    image: str | None,
    script: str,
    workers: int,
    gpus: int,
    min_workers: int | None,
    configmap: bool,
    directory: str,
) -> None:
    """Write pytorchjob.yaml for a new job called NAME, and without --image a Dockerfile.

    Existing files are never changed.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        remedy = f"use at most {_LONGEST} small letters, digits and dashes, for example {_suggested(name)}"
        fail(f"{name!r} cannot be the name of a job", remedy, INVALID)
    if min_workers is not None and min_workers > workers:
        fail(f"--min-workers {min_workers} is more than --workers {workers}", "correct one of the two", INVALID)
    if configmap and not image:
        fail("--configmap needs an image", "name one that has PyTorch, with --image", INVALID)
    if configmap and "/" in script:
        fail(f"--configmap mounts one file, and {script} is in a folder", "change into its folder first", INVALID)
    scaffold = Scaffold(name, image or f"{name}:1", script, workers, gpus, min_workers, configmap)
    _write(Path(directory) / JOB_FILE, scaffold.job(), required=True)
    if not image:
        _write(Path(directory) / DOCKERFILE, scaffold.dockerfile(), required=False)
    file = Path(directory) / JOB_FILE
    if not any((folder / script).exists() for folder in (Path(), Path(directory))):
        say(f"note: {script} does not exist yet: write it, or name another with --script", err=True)
    suggest(f"`pytorchjob run -f {file}` runs it on this machine, `pytorchjob submit {file}` in a cluster")


def _write(path: Path, text: str, *, required: bool) -> None:
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        if required:
            fail(f"{path} exists", "remove it, or choose another folder with --directory", INVALID)
        say(f"{path} exists and stays as it is")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", "choose another folder with --directory", INVALID)
    else:
        say(f"{path} written")


def _suggested(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
    return plain[:_LONGEST].strip("-") or "train"
