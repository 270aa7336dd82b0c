"""The table of job files as people write them: the job ends right, or the file is refused with problem and fix."""

from typing import NamedTuple

_PLAIN = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime
              command: [python, train.py]
              resources:
                limits:
                  cpu: "1"
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime
              command: [python, train.py]
              env:
                - name: LR
                  value: "0.1"
"""
_ELASTIC = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  nprocPerNode: "2"
  elasticPolicy:
    minReplicas: 1
    maxReplicas: 2
    maxRestarts: 3
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example.com/team/train:1
              command: [COMMAND]
"""
TORCHRUN = _ELASTIC.replace("COMMAND", "torchrun, train.py")
AGENT = _ELASTIC.replace("COMMAND", "pytorchjob-agent, run, --, train.py")
WORKERS = (
    _ELASTIC.replace("COMMAND", "python, train.py")
    .replace('  nprocPerNode: "2"\n', "")
    .replace("  elasticPolicy:\n    minReplicas: 1\n    maxReplicas: 2\n    maxRestarts: 3\n", "")
)
ONCE = "import os\nprint('rank', os.environ['RANK'], 'is done')\n"
GROUP = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.all_reduce(torch.ones(1))\n"
ONE_CRASH = (
    "import os, pathlib\nfirst = pathlib.Path('seen-' + os.environ['RANK'])\n"
    "if not first.exists():\n    first.touch()\n    raise OSError('a node of the data store is away')\n"
)


class File(NamedTuple):
    """A job file."""

    name: str
    text: str
    says: tuple[str, ...]
    """All that people have to read: of a mistake the field, the problem and the fix."""
    script: str = ONCE
    status: int = 2
    """The exit status: 0 for success, 2 for a file that is refused."""

    @property
    def torch(self) -> bool:
        """Whether a process imports torch."""
        return not self.status and ("torch" in self.script or "python, train.py" not in self.text)


def wrong(what: str, before: str, after: str, *says: str, text: str = _PLAIN) -> File:
    """Return a file with a mistake."""
    assert before in text, what
    return File(what, text.replace(before, after, 1), says)


MISTAKES = (
    wrong("apiVersion of the trainer", "kubeflow.org/v1", "trainer.kubeflow.org/v1alpha1", "apiVersion"),
    wrong("apiVersion without its group", "kubeflow.org/v1", "v1", "apiVersion"),
    wrong("kind with wrong letters", "PyTorchJob", "PytorchJob", "kind"),
    wrong("no name", "  name: train\n", "  labels: {a: b}\n", "metadata.name"),
    wrong("name with an underscore", "name: train", "name: my_train", "metadata.name"),
    wrong("no image", "              image: pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\n", "", "image"),
    wrong("replicas as text", "replicas: 1", 'replicas: "1"', "replicas"),
    wrong("replicas below zero", "replicas: 1", "replicas: -1", "replicas", "at least 1"),
    wrong("two Masters", "replicas: 1", "replicas: 2", "Master"),
    wrong("replica type in lower case", "    Worker:", "    worker:", "worker", "Worker"),
    wrong("Worker one level too high", "    Worker:", "  Worker:", "Worker"),
    wrong("no replicas at all", "  pytorchReplicaSpecs:", "  replicaSpecs:", "pytorchReplicaSpecs"),
    wrong("unknown field of the spec", "spec:\n", "spec:\n  numWorkers: 4\n", "numWorkers"),
    wrong(
        "field of runPolicy in spec",
        "spec:\n",
        "spec:\n  activeDeadlineSeconds: 60\n",
        "activeDeadlineSeconds",
        "runPolicy",
    ),
    wrong("typing error in a field", "restartPolicy", "restartpolicy", "restartpolicy", "restartPolicy"),
    wrong("restartPolicy in lower case", "OnFailure", "onFailure", "restartPolicy", "OnFailure"),
    wrong("restartPolicy of another system", "OnFailure", "UnlessStopped", "restartPolicy"),
    wrong(
        "indentation",
        "      replicas: 1\n      restart",
        "      replicas: 1\n       restart",
        "job.yaml:9",
        "indentation",
    ),
    wrong("tab", "      replicas: 1", "\t  replicas: 1", "tab"),
    wrong("colon without a blank", "name: train", "name:train", "metadata", "name: train"),
    wrong("minReplicas above maxReplicas", "minReplicas: 1", "minReplicas: 3", "minReplicas", text=AGENT),
    wrong("replicas beyond the elastic limits", "replicas: 1", "replicas: 5", "maxReplicas", text=AGENT),
    wrong("nprocPerNode is a word", '"2"', "all", "nprocPerNode", text=AGENT),
    wrong("nprocPerNode is zero", '"2"', '"0"', "nprocPerNode", text=AGENT),
    wrong("maxRestarts is text", "maxRestarts: 3", "maxRestarts: three", "maxRestarts", text=AGENT),
    wrong("command as text", "[python, train.py]", "python train.py", "command", "["),
    wrong(
        "a number among the arguments",
        "[python, train.py]",
        "[python, train.py, --epochs, 3]",
        "command[3]",
        "quote it",
    ),
    wrong("a number as a variable", 'value: "0.1"', "value: 0.1", "env[0].value", "quote it"),
    wrong(
        "env as a map",
        '                - name: LR\n                  value: "0.1"\n',
        "                LR: 0.1\n",
        "env",
        "'- '",
    ),
    wrong("container of another name", "- name: pytorch", "- name: main", "pytorch"),
    wrong(
        "containers as a map",
        "            - name: pytorch\n              image",
        "              name: pytorch\n              image",
        "containers",
        "'- '",
    ),
    wrong("unit of memory", '"1"', '"1GB"', "cpu"),
    wrong(
        "time with a unit",
        "spec:\n",
        "spec:\n  runPolicy:\n    ttlSecondsAfterFinished: 1h\n",
        "ttlSecondsAfterFinished",
        "3600",
    ),
    wrong(
        "command without train.py's folder",
        "[python, train.py]",
        "[python, /workspace/train.py]",
        "/workspace",
        "--map",
    ),
    File(
        "a Deployment",
        _PLAIN.replace("kubeflow.org/v1", "apps/v1").replace("PyTorchJob", "Deployment"),
        ("no PyTorchJob", "Deployment"),
    ),
    File("an empty file", "", ("contains no object", "PyTorchJob")),
    File("a Helm template", _PLAIN.replace("name: train", "name: {{ .Values.name }}"), ("Helm",)),
    File(
        "JSON with a comma too many",
        '{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",,}',
        ("job.yaml:1", "a value is missing"),
    ),
)

GOOD = (
    File("python, Master and Worker", _PLAIN, ("Succeeded",), status=0),
    File(
        "python, Workers alone",
        WORKERS,
        ("Succeeded",),
        status=0,
    ),
    File("torchrun", TORCHRUN, ("Succeeded",), GROUP, 0),
    File("agent", AGENT, ("Succeeded",), GROUP, 0),
    File(
        "agent in two Workers",
        AGENT.replace('"2"', '"1"').replace("replicas: 1", "replicas: 2"),
        ("Succeeded",),
        GROUP,
        0,
    ),
    File("agent, one crash on each rank", AGENT, ("Succeeded", "1 restart"), ONE_CRASH, 0),
    File("python, one crash on each rank", _PLAIN, ("Succeeded", "2 restarts"), ONE_CRASH, 0),
)
FILES = (*GOOD, *MISTAKES)
