"""What an API server or a kubelet refuses in a pod template, found before a job is sent. Pure.

The definition accepts such a template, because a pod is judged only when it is made: the job would wait without an end.
Only faults that no webhook and no cluster can mend are here; `validate --server` asks a cluster about the rest.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from pytorchjob_operator.errors import Problem
from pytorchjob_operator.model.parse import field_path
from pytorchjob_operator.model.suggest import did_you_mean

Path = tuple[object, ...]

_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
_IMAGE = re.compile(
    rf"(?:{_HOST}(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::[\w][\w.-]{{0,127}})?(?:@[A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
"""A reference as container runtimes read it: [host[:port]/]path[:tag][@digest]."""
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_PAGES = "hugepages-"
_DEVICES = ("nvidia.com/gpu", "amd.com/gpu")


def pod_problems(job: Mapping[str, Any]) -> list[Problem]:
    """Return the faults of the pod templates of a job whose structure fits the schema."""
    roles = job["spec"]["pytorchReplicaSpecs"]
    return [
        Problem(field_path(("spec", "pytorchReplicaSpecs", role, "template", "spec", *path)), words)
        for role, spec in roles.items()
        for path, words in _pod(spec["template"]["spec"])
    ]


def _pod(pod: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    volumes = [volume.get("name") for volume in pod.get("volumes") or ()]
    for group in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(group) or ()):
            for path, words in _container(container, volumes):
                yield (group, index, *path), words


def _container(container: Mapping[str, Any], volumes: list[Any]) -> Iterator[tuple[Path, str]]:
    image = str(container.get("image") or "")
    if image and not _IMAGE.fullmatch(image):
        yield ("image",), f"is no name of an image, got {image!r}: {_image_remedy(image)}"
    for index, variable in enumerate(container.get("env") or ()):
        if variable.get("value") and variable.get("valueFrom"):
            yield ("env", index), f"{variable.get('name')} has both value and valueFrom: remove one of them"
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        name = mount.get("name")
        if name not in volumes:
            remedy = did_you_mean(name, volumes) or f"; add the volume {name} to the pod's `volumes`"
            yield ("volumeMounts", index, "name"), f"the pod has no volume {name}{remedy}"
    yield from _resources(container.get("resources") or {})


def _image_remedy(image: str) -> str:
    if image != image.strip() or " " in image:
        return "remove the blanks"
    if "://" in image:
        return f"leave {image.partition('://')[0]}:// out"
    path, colon, tag = image.rpartition(":")
    if path != path.lower() and "/" not in tag and _IMAGE.fullmatch(path.lower() + colon + tag):
        return "write it in lower case"
    return "write [registry/]name[:tag], for example ghcr.io/team/train:1"


def _resources(resources: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if not _is_known(name):
                yield ("resources", kind, name), _name_remedy(name)
            elif _is_device(name) and not _is_whole(amount):
                yield (
                    ("resources", kind, name),
                    f"must be a whole number, got {amount!r}: a container gets whole devices; write 1 or more",
                )
    for name, amount in requests.items():
        if _is_device(name) and limits.get(name) is None:
            words = f"needs the same limit: add `limits: {{{name}: {amount}}}`, which alone is enough"
            yield ("resources", "requests", name), words
        elif _is_device(name) and str(limits[name]) != str(amount) and _is_whole(amount) and _is_whole(limits[name]):
            yield ("resources", "requests", name), f"must be its limit, {limits[name]}: leave the request out"


def _is_known(name: str) -> bool:
    """Whether a container may ask for it: a resource of Kubernetes itself, or one of a domain."""
    return name in _STANDARD or name.startswith(_PAGES) or "/" in name


def _is_device(name: str) -> bool:
    """Whether it is an extended resource, which is counted."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _name_remedy(name: str) -> str:
    if "gpu" in name.lower() or name.lower() in ("nvidia", "cuda"):
        return f"Kubernetes knows no resource {name}: write {_DEVICES[0]}, or {_DEVICES[1]}"
    known = did_you_mean(name, _STANDARD) or f"; one of a device has a domain, such as {_DEVICES[0]}"
    return f"Kubernetes knows no resource {name}{known}"


def _is_whole(amount: object) -> bool:
    """Whether a quantity is a whole number; one with a larger unit (1k) is."""
    text = str(amount)
    if text.endswith(("m", "u", "n")):
        try:
            return Decimal(text[:-1]) % {"m": 1000, "u": 10**6, "n": 10**9}[text[-1]] == 0
        except InvalidOperation:
            return True
    try:
        return Decimal(text) % 1 == 0
    except InvalidOperation:
        return True
