"""The variables that lead an agent to its coordinator, and identify its pod there. Pure.

The operator writes them with `to_env`. The agent reads them in `rendezvous/own_endpoint`, and connects in
`rendezvous/coordinator_client`. The credential itself is in a file: users with the right to read pods see variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pytorchjob_agent.contract.reading import ContractError, host_and_port, whole_number

COORDINATOR = "PYTORCHJOB_COORDINATOR"
COORDINATOR_CA = "PYTORCHJOB_COORDINATOR_CA"
TOKEN_FILE = "PYTORCHJOB_TOKEN_FILE"  # noqa: S105  (a name, no secret)
CLUSTER_CA_FILE = "ca.crt"
"""The certificates of the cluster's API server, beside the file with the credential."""
JOB = "PYTORCHJOB_JOB"
POD = "PYTORCHJOB_POD"
POD_UID = "PYTORCHJOB_POD_UID"
INDEX = "PYTORCHJOB_INDEX"

BACKEND = "pytorchjob"
"""The name of our rendezvous in torch's registry."""
SERVER_NAME = "pytorchjob-coordinator"
"""The subject of the coordinator's certificate, and a name in those of all members of a round."""
_MEMBER = "pytorchjob-member-"


def member_name(rank: int) -> str:
    """Return the name that the certificate of one member of a round has besides."""
    return f"{_MEMBER}{rank}"


def rank_of(name: str) -> int | None:
    """Return the rank of the member with this name; None: it is not a member's."""
    rank = name.removeprefix(_MEMBER)
    return int(rank) if rank != name and rank.isascii() and rank.isdecimal() else None


@dataclass(frozen=True, slots=True)
class CoordinatorEndpoint:
    """The coordinator's address, and the identity of this pod."""

    host: str
    port: int
    token_file: str
    """The file with the pod's credential, read at each connection: it is renewed while the pod runs."""
    job: str
    pod: str
    index: int
    pod_uid: str = ""
    """The operator leaves it empty: a fieldRef fills it in once the pod exists."""
    ca: str = ""
    """The certificates of the coordinator that the agent trusts, base64 of their DER, one after the other; empty: no
    TLS."""

    @property
    def authorities(self) -> tuple[Path, ...]:
        """The file with the certificates of the cluster's API server; it need not exist."""
        return (Path(self.token_file).with_name(CLUSTER_CA_FILE),)

    def to_env(self) -> list[dict[str, Any]]:
        """Return the variables as a container has them."""
        plain = {
            COORDINATOR: f"{self.host}:{self.port}",
            COORDINATOR_CA: self.ca,
            TOKEN_FILE: self.token_file,
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
        missing = [name for name in (TOKEN_FILE, JOB, POD, INDEX) if not env.get(name)]
        if missing:
            raise ContractError(f"{COORDINATOR} is set but {', '.join(missing)} is not: the operator writes them all")
        return cls(
            host=host,
            port=port,
            token_file=env[TOKEN_FILE],
            job=env[JOB],
            pod=env[POD],
            index=whole_number(INDEX, env[INDEX], "a replica's number"),
            pod_uid=env.get(POD_UID, ""),
            ca=env.get(COORDINATOR_CA, ""),
        )
