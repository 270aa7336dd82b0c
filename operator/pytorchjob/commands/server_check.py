"""Asks the API server about what the operator would create of a job: server-side dry runs, which store nothing.

One pod of each role is enough, since those of a role differ only in names.
"""

import os
from collections.abc import Iterator, Sequence, Set

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import AlreadyExists, NoPermission, Rejected
from pytorchjob_operator import names
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.terminal import say

_DEFAULT_ACCOUNT = "default"


def check_planned(cluster: Cluster, objects: Sequence[Object]) -> bool:
    """Check what jobs become; raises Rejected for the first object that the API server refuses.

    Returns False, after a sentence, if this person may not create these objects: the operator may.
    """
    from pytorchjob_operator.model.load import is_job

    accounts = {str(body["metadata"].get("name")) for body in objects if body["kind"] == "ServiceAccount"}
    complete = True
    for job in (body for body in objects if is_job(body)):
        for body in _planned(job, cluster.namespace, accounts):
            what = f"the {body['kind']} {body['metadata']['name']} that the operator makes of {job['metadata']['name']}"
            try:
                cluster.create(body, dry_run=True)
            except AlreadyExists:
                continue  # a name is compared last: the object itself is accepted
            except NoPermission as error:
                say(f"note: not checked is {what}: {error.message}; the operator may", err=True)
                complete = False
            except Rejected as error:
                raise Rejected(f"{what} would be refused: {error.message}", error.remedy) from error
    return complete


def _planned(job: Object, namespace: str, accounts: Set[str]) -> Iterator[Object]:
    from pytorchjob.commands.plan import planned
    from pytorchjob_operator import installed
    from pytorchjob_operator.model.check import without_nulls
    from pytorchjob_operator.model.parse import parse_job

    try:
        options = installed.options(os.environ)
    except OperatorError as error:
        raise Rejected(str(error), "correct this variable, or unset it") from error
    named = {**job, "metadata": {**job["metadata"], "namespace": job["metadata"].get("namespace") or namespace}}
    named["metadata"].setdefault("name", f"{named['metadata'].get('generateName', '')}abcde")
    roles = set[str]()
    for body in planned(parse_job(without_nulls(named)), options):
        meta = {key: value for key, value in body["metadata"].items() if key != "ownerReferences"}  # no job is stored
        if body["kind"] == "Pod":
            role = str(meta["labels"][names.LABEL_REPLICA_TYPE])
            if role in roles:
                continue
            roles.add(role)
            yield {**body, "metadata": meta, "spec": _without_own(body["spec"], accounts)}
        else:
            yield {**body, "metadata": meta}


def _without_own(spec: Object, accounts: Set[str]) -> Object:
    """Return the pod with an account that exists: one of the same file does not before the file is submitted.

    Without an account, admission would set this one; API servers without that plugin refuse a projected token then.
    """
    if spec.get("serviceAccountName", _DEFAULT_ACCOUNT) not in accounts:
        return {"serviceAccountName": _DEFAULT_ACCOUNT, **spec}
    return {**spec, "serviceAccountName": _DEFAULT_ACCOUNT, "serviceAccount": _DEFAULT_ACCOUNT}
