"""The variables that lead an agent to its coordinator, and identify its pod there. Pure.

The operator writes them with `to_env`; the agent reads them with `from_env` and connects in
`rendezvous/coordinator_client`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pytorchjob_agent.contract.reading import ContractError, host_and_port, whole_number

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
"""The subject of the coordinator's certificate."""


@dataclass(frozen=True, slots=True)
class CoordinatorEndpoint:
    """The coordinator's address, and the identity of this pod."""

    host: str
    port: int
    token: str
    job: str
    pod: str
    index: int
    pod_uid: str = ""
    """The operator leaves it empty: a fieldRef fills it in once the pod exists."""
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
        host, port = host_and_port(COORDINATOR, where)
        missing = [name for name in (TOKEN, JOB, POD, INDEX) if not env.get(name)]
        if missing:
            raise ContractError(f"{COORDINATOR} is set but {', '.join(missing)} is not: the operator writes them all")
        return cls(
            host=host,
            port=port,
            token=env[TOKEN],
            job=env[JOB],
            pod=env[POD],
            index=whole_number(INDEX, env[INDEX], "a replica's number"),
            pod_uid=env.get(POD_UID, ""),
            ca=env.get(COORDINATOR_CA, ""),
        )
