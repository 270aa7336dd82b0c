"""Creates, updates and deletes the children that follow the spec.

A child is compared by the hash of the spec that was written last. Fields that the API server or other controllers add
make no difference. Pods and Services have policies of their own.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan import owner
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild, UpdateChild, Write


def build_child(job: PyTorchJob, api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Build a child with the job's name and the hash of its spec."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": names.job_labels(job.metadata.name),
            "annotations": {names.ANNOTATION_SPEC_HASH: spec_hash(spec)},
            "ownerReferences": owner.references(job),
        },
        "spec": spec,
    }


def spec_hash(spec: Any) -> str:
    """Return the hash by which a spec is compared with the one that was written last."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def converge(seen: Observed, kind: ChildKind, wanted: dict[str, Any] | None) -> Iterator[Write]:
    """Create, update or delete the child of this kind; do nothing if the kind cannot be read."""
    if kind in seen.unserved:
        return
    found = next(iter(seen.of(kind)), None)
    if found is None:
        if wanted is not None:
            yield CreateChild(kind, wanted)
    elif found.deleting:
        return
    elif wanted is None:
        yield DeleteChild(kind, found.name, found.uid)
    elif found.spec_hash != wanted["metadata"]["annotations"][names.ANNOTATION_SPEC_HASH]:
        yield UpdateChild(kind, found.uid, wanted)


def release(seen: Observed) -> Iterator[Write]:
    """Delete what only a running job may have: all children except pods, Services and finished Workloads."""
    for child in seen.children:
        if child.kind not in (ChildKind.SERVICE, ChildKind.WORKLOAD) and not child.deleting:
            yield DeleteChild(child.kind, child.name, child.uid)
