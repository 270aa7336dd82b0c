"""A Python function as a job: its source travels in the job, so no image has to be built. Pure but for reading source.

The function runs in every process. It has to import what it uses inside, because only its own source travels.
"""

import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem

SCRIPT = "PYTORCHJOB_SCRIPT"
"""The variable that holds the script; a container writes it to a file and starts it."""
_MOST_BYTES = 96 * 1024
"""Linux takes 128 KiB for one variable."""
_START = f'f="$(mktemp -d)/train.py" && printf %s "${SCRIPT}" > "$f" && exec {{launcher}} "$f"'


@dataclass(frozen=True, slots=True)
class TrainFunction:
    """What to run, and where: the defaults are one pod with one process."""

    function: Callable[..., None]
    image: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function; everything that JSON can hold."""
    pods: int = 1
    processes: int | str | None = None
    """Processes per pod: a number, or `gpu`, `cpu`, `auto`; None: one for each GPU, or a single one."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Resources of each pod, for example {"nvidia.com/gpu": "8"}."""
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: str = "torchrun"
    """The command that starts the script. `pytorchjob-agent run --` in an image that has the agent."""

    def job(self, name: str) -> dict[str, Any]:
        """Return the job; raises InvalidJob if the function cannot travel."""
        container: dict[str, Any] = {
            "name": names.CONTAINER,
            "image": self.image,
            "command": ["sh", "-c", _START.format(launcher=self.launcher)],
            "env": [
                {"name": SCRIPT, "value": _literal(self.script())},
                *({"name": key, "value": value} for key, value in self.environment.items()),
            ],
        }
        if self.limits:
            container["resources"] = {"limits": dict(self.limits)}
        role = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
        roles = {names.ReplicaType.MASTER.value: {"replicas": 1, **role}}
        if self.pods > 1:
            roles[names.ReplicaType.WORKER.value] = {"replicas": self.pods - 1, **role}
        spec: dict[str, Any] = {"pytorchReplicaSpecs": roles}
        if self.processes is not None:
            spec["nprocPerNode"] = str(self.processes)
        return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}

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


def _literal(text: str) -> str:
    """Return the text as a value in which Kubernetes replaces no `$(NAME)` and shortens no `$$`."""
    return text.replace("$", "$$")


def _invalid(message: str) -> InvalidJob:
    return InvalidJob([Problem("function", message)])
