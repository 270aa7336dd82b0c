"""The part of a pod's environment that leads to the coordinator: both sides use this one file. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pytorchjob_agent.contract.environment import ContractError

COORDINATOR = "PYTORCHJOB_COORDINATOR"
COORDINATOR_CA = "PYTORCHJOB_COORDINATOR_CA"
TOKEN = "PYTORCHJOB_TOKEN"  # noqa: S105  (a name, no secret)
JOB = "PYTORCHJOB_JOB"
POD = "PYTORCHJOB_POD"
POD_UID = "PYTORCHJOB_POD_UID"
INDEX = "PYTORCHJOB_INDEX"

BACKEND = "pytorchjob"
"""The name of our rendezvous in torch's registry."""
SERVER_NAME = "pytorchjob-coordinator"
"""What the coordinator's certificate is made out to."""


@dataclass(frozen=True, slots=True)
class MeetingEnv:
    """Where the coordinator is, and who we are to it."""

    host: str
    port: int
    token: str
    job: str
    pod: str
    index: int
    pod_uid: str = ""
    """Empty as written by the operator: the pod's own uid is known once the pod is made (fieldRef)."""
    ca: str = ""
    """The coordinator's certificate, base64 of DER; empty: no TLS."""

    def to_env(self) -> list[dict[str, Any]]:
        """Return the variables as a container has them."""
        plain = {
            COORDINATOR: f"{self.host}:{self.port}",
            COORDINATOR_CA: self.ca,
            TOKEN: self.token,
            JOB: self.job,
            POD: self.pod,
            INDEX: str(self.index),
        }
        listed: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items() if value]
        return [*listed, {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Read what `to_env` wrote; None without a coordinator."""
        where = env.get(COORDINATOR)
        if not where:
            return None
        host, _, port = where.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
            raise ContractError(f"{COORDINATOR}: {where[:80]!r} is not host:port")
        missing = [name for name in (TOKEN, JOB, POD, INDEX) if not env.get(name)]
        if missing:
            raise ContractError(f"{COORDINATOR} is set but {', '.join(missing)} is not: the operator writes them all")
        index = env[INDEX]
        if not index.isascii() or not index.isdigit():
            raise ContractError(f"{INDEX}: {index[:80]!r} is not a replica's number: expected 0, 1, 2, ...")
        return cls(
            host=host.strip("[]"),
            port=int(port),
            token=env[TOKEN],
            job=env[JOB],
            pod=env[POD],
            index=int(index[:9]),
            pod_uid=env.get(POD_UID, ""),
            ca=env.get(COORDINATOR_CA, ""),
        )
