"""The rights of an account, read from roles and their bindings."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.rights.requests import Request

Object = dict[str, Any]


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    """With its subresource after a slash; a path if it is not a resource."""
    verb: str
    namespace: str = ""
    """The only namespace in which it holds; empty: in all of them, and on objects without a namespace."""
    name: str = ""
    """The only object for which it holds; empty: all of them."""

    def covers(self, request: Request) -> bool:
        """Return whether this right allows a request."""
        return (
            (self.group, self.resource, self.verb) == (request.group, request.resource, request.verb)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        named = f" named {self.name}" if self.name else ""
        return f"{self.verb} {written(self.group, self.resource)}{named} {where}"


def written(group: str, resource: str) -> str:
    """Return a resource as `kubectl auth can-i` takes it: the group after the resource, before the subresource."""
    plural, slash, sub = resource.partition("/")
    return f"{plural}.{group}{slash}{sub}" if group else resource


def granted(objects: Iterable[Object], namespace: str, account: str) -> list[Right]:
    """Return the rights that bindings of this service account itself give; those of its groups are not its own."""
    every = list(objects)
    rules = {_key(role["kind"], role["metadata"]): role.get("rules") or [] for role in every}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    found: set[Right] = set()
    for binding in every:
        if subject in (binding.get("subjects") or []):
            role, where = binding["roleRef"], binding["metadata"].get("namespace", "")
            key = (role["kind"], role["name"], where if role["kind"] == "Role" else "")
            found |= {right for rule in rules.get(key, []) for right in _rights(rule, where)}
    return sorted(found)


def _key(kind: str, metadata: Object) -> tuple[str, str, str]:
    return kind, metadata["name"], metadata.get("namespace", "")


def _rights(rule: Object, namespace: str) -> Iterator[Right]:
    names = rule.get("resourceNames") or [""]
    for group, resource, verb, name in itertools.product(
        rule.get("apiGroups") or [], rule.get("resources") or [], rule["verbs"], names
    ):
        yield Right(group, resource, verb, namespace, name)
    for path, verb in itertools.product(rule.get("nonResourceURLs") or [], rule["verbs"]):
        yield Right("", path, verb, namespace)
