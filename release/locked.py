"""What an image contains, from what decided it: the locked requirements, and the package list of its base."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from release.common import StepError

_PINNED = re.compile(
    r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)(?:\s*;\s*([^\\\n]+?))?\s*\\?$", re.MULTILINE
)
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


@dataclass(frozen=True, order=True)
class Package:
    """One package of an image."""

    kind: str
    """`pypi`, or `deb` for a package of the base."""
    name: str
    version: str
    architecture: str = ""
    """Of a package of the base."""


def facts(platform: str, python: str) -> dict[str, str]:
    """Return the variables of environment markers for CPython on a platform such as `linux/arm64`."""
    system, _, architecture = platform.partition("/")
    return {
        "sys_platform": system,
        "platform_system": system.capitalize(),
        "os_name": "posix",
        "platform_machine": _MACHINES.get(architecture, architecture),
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "extra": "",
    }


def locked(text: str, environment: Mapping[str, str]) -> list[Package]:
    """Return the packages that a locked requirements file installs in this environment."""
    return [
        Package("pypi", re.sub(r"[-_.]+", "-", name).lower(), version)
        for name, version, marker in _PINNED.findall(text)
        if not marker or holds(marker, environment)
    ]


def holds(marker: str, environment: Mapping[str, str]) -> bool:
    """Return whether an environment marker is true; its grammar is a part of Python's own."""
    try:
        return _truth(ast.parse(marker.strip(), mode="eval").body, environment)
    except (SyntaxError, KeyError, TypeError) as wrong:
        raise StepError(
            f"the requirement's marker `{marker}` is not understood", "renew the file with `make lock`"
        ) from wrong


def _truth(node: ast.expr, environment: Mapping[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        found = (_truth(value, environment) for value in node.values)
        return all(found) if isinstance(node.op, ast.And) else any(found)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise TypeError(ast.dump(node))
    sides = (node.left, node.comparators[0])
    about_version = any(isinstance(side, ast.Name) and side.id.startswith("python_") for side in sides)
    left, right = (_value(side, environment) for side in sides)
    compare = _OPERATORS[type(node.ops[0])]
    return compare(_numbers(left), _numbers(right)) if about_version else compare(left, right)


def _value(node: ast.expr, environment: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return environment[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise TypeError(ast.dump(node))


def _numbers(version: str) -> tuple[int, ...]:
    found = [int(part) for part in re.findall(r"\d+", version)]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def debian(status: str) -> list[Package]:
    """Return the installed packages of dpkg's status file."""
    found = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append(Package("deb", fields["Package"], fields["Version"], fields.get("Architecture", "")))
    return found
