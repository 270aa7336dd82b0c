"""A Python function as a job: its source travels in the job, so no image has to be built. Pure but for reading source.

The function runs in every process. It has to import what it uses inside, because only its own source travels.
"""

import inspect
import json
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem

SCRIPT = "PYTORCHJOB_SCRIPT"
"""The variable that holds the script; a container writes it to a file and starts it."""
_MOST_BYTES = 96 * 1024
"""Linux takes 128 KiB for one variable."""
AGENT = "python -m pytorchjob_agent run --"
"""The launcher of the agent that the operator puts into the pods."""
_FILE = f'f="$(mktemp -d)/train.py" && printf %s "${SCRIPT}" > "$f"'
_INSTALL = "PIP_BREAK_SYSTEM_PACKAGES=1 python -m pip install --quiet --disable-pip-version-check {packages}"
_WITH_AGENT = f"""if python -c "import pytorchjob_agent" 2>/dev/null; then exec {AGENT} "$f"; fi
echo "the operator has put no agent into this pod: torchrun starts the function" >&2
exec torchrun "$f\""""
_JOB_ONLY = (names.LABEL_KUEUE_QUEUE,)
"""Labels that pods must not have: Kueue would admit each of them beside its job."""


@dataclass(frozen=True, slots=True)
class TrainFunction:
    """What to run, and where: the defaults are one pod with one process, which the operator's agent starts.

    A field that is missing here is set in the job: `body = function.job("fit")`, then `client.create_job(body)`.
    """

    function: Callable[..., None]
    image: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function; everything that JSON can hold."""
    pods: int = 1
    processes: int | str | None = None
    """Processes per pod: a number, or `gpu`, `cpu`, `auto`; None: one for each GPU, or a single one."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Resources of each pod, for example {"nvidia.com/gpu": "8"}."""
    environment: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    """Variables of each process: a value, or where it comes from, as in a pod:
    `{"HF_TOKEN": {"secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}}}`."""
    launcher: str = AGENT
    """The command that starts the script. By default the agent, which the operator puts into the pods: training goes on
    after the loss of a pod, and hangs are found. `torchrun`: without the agent. `pytorchjob-agent run --`: that of the
    image."""
    _: KW_ONLY
    min_pods: int | None = None
    """The least pods with which training goes on; None: `pods`, and the job is elastic only if `max_pods` is set."""
    max_pods: int | None = None
    """The most pods to which the job may be scaled; None: `pods`, and the job is elastic only if `min_pods` is set."""
    packages: Sequence[str] = ()
    """Python packages to install by pip in each pod before the function starts: `["tqdm>=4.66"]`. pip reads its
    settings from the environment: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL."""
    volumes: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    """What is mounted at a path: the name of a PersistentVolumeClaim, or the source of a volume as in a pod:
    `{"/data": "datasets", "/dev/shm": {"emptyDir": {"medium": "Memory"}}}`."""
    secrets: Sequence[str] = ()
    """Names of Secrets, all keys of which become environment variables."""
    image_pull_secrets: Sequence[str] = ()
    """Names of Secrets with which the nodes pull the image."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the job and its pods. Kueue's queue is one of the job alone."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job and its pods."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node has to have."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Taints that the pods bear, as in a pod: `[{"key": "nvidia.com/gpu", "operator": "Exists"}]`."""
    service_account: str = ""
    """The ServiceAccount of the pods; empty: that of the namespace."""

    def job(self, name: str) -> dict[str, Any]:
        """Return the job; raises InvalidJob if the function cannot travel."""
        given = [_variable(key, value) for key, value in self.environment.items()]
        container: dict[str, Any] = {
            "name": names.CONTAINER,
            "image": self.image,
            "command": ["sh", "-c", self._command()],
            "env": [{"name": SCRIPT, "value": _literal(self.script())}, *given],
        }
        if self.limits:
            container["resources"] = {"limits": dict(self.limits)}
        spec: dict[str, Any] = {"pytorchReplicaSpecs": self._roles(self._pod(container))}
        if self._is_elastic():
            spec["elasticPolicy"] = {
                "minReplicas": self.pods if self.min_pods is None else self.min_pods,
                "maxReplicas": self.pods if self.max_pods is None else self.max_pods,
            }
        if self.processes is not None:
            spec["nprocPerNode"] = str(self.processes)
        if self.launcher == AGENT:
            spec["agent"] = {"inject": True}
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": self._metadata(name),
            "spec": spec,
        }

    def _pod(self, container: Mapping[str, Any]) -> dict[str, Any]:
        """Return the template of the pods."""
        mounts = [
            (f"volume-{number}", path, source if isinstance(source, Mapping) else _claim(source))
            for number, (path, source) in enumerate(self.volumes.items())
        ]
        main = {
            **container,
            "envFrom": [{"secretRef": {"name": name}} for name in self.secrets],
            "volumeMounts": [{"name": name, "mountPath": path} for name, path, _ in mounts],
        }
        spec = {
            "containers": [_filled(main)],
            "volumes": [{"name": name, **source} for name, _, source in mounts],
            "imagePullSecrets": [{"name": name} for name in self.image_pull_secrets],
            "nodeSelector": dict(self.node_selector),
            "tolerations": [dict(toleration) for toleration in self.tolerations],
            "serviceAccountName": self.service_account,
        }
        labels = {key: value for key, value in self.labels.items() if key not in _JOB_ONLY}
        metadata = _filled({"labels": labels, "annotations": dict(self.annotations)})
        return _filled({"metadata": metadata, "spec": _filled(spec)})

    def _metadata(self, name: str) -> dict[str, Any]:
        """Return the metadata of the job."""
        return _filled({"name": name, "labels": dict(self.labels), "annotations": dict(self.annotations)})

    def _is_elastic(self) -> bool:
        return self.min_pods is not None or self.max_pods is not None

    def _roles(self, template: dict[str, Any]) -> dict[str, Any]:
        """Return the pods by role. An elastic job has workers alone: v1 does not count its Master."""
        role = {"restartPolicy": "OnFailure", "template": template}
        workers = self.pods if self._is_elastic() else self.pods - 1
        roles = {} if self._is_elastic() else {names.ReplicaType.MASTER.value: {"replicas": 1, **role}}
        return {**roles, names.ReplicaType.WORKER.value: {"replicas": workers, **role}} if workers else roles

    def _command(self) -> str:
        """Return what a shell does in each pod."""
        install = [_INSTALL.format(packages=shlex.join(self.packages))] if self.packages else []
        start = _WITH_AGENT if self.launcher == AGENT else f'exec {self.launcher} "$f"'
        return "\n".join(["set -e", _FILE, *install, start])

    def script(self) -> str:
        """Return the source of the function, and a call of it."""
        if inspect.ismethod(self.function):
            raise _invalid("it is a method: its object cannot travel, use a plain function")
        try:
            source = textwrap.dedent(inspect.getsource(self.function))
            arguments = json.dumps(dict(self.arguments))
        except OSError as error:
            raise _invalid("its source cannot be read: define it in a file or a notebook cell") from error
        except TypeError as error:
            raise _invalid(f"the function or its arguments cannot travel: {error}") from error
        try:
            inspect.signature(self.function).bind(**self.arguments)
        except TypeError as error:
            raise _invalid(f"the arguments do not fit: {error}") from error
        if not source.startswith("def "):
            raise _invalid("it is not a plain function: use `def`, without a decorator, and no lambda or method")
        text = f"import json\n\n{source}\n\n{self.function.__name__}(**json.loads({arguments!r}))\n"
        if len(text.encode()) > _MOST_BYTES:
            raise _invalid(f"it has {len(text.encode())} bytes, {_MOST_BYTES} is the most: put the code into the image")
        return text


def _claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


def _variable(name: str, value: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, **({"value": value} if isinstance(value, str) else {"valueFrom": dict(value)})}


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value}


def _literal(text: str) -> str:
    """Return the text as a value in which Kubernetes replaces no `$(NAME)` and shortens no `$$`."""
    return text.replace("$", "$$")


def _invalid(message: str) -> InvalidJob:
    return InvalidJob([Problem("function", message)])
