"""The addresses of a local run's replicas: one loopback address for each, and ports that no other run uses.

In a cluster DNS and a network per pod do this. The master port is claimed for the whole run, because torch's store
listens on every address of the machine. The addresses are derived from that port, so that concurrent runs never share
an address. Where only 127.0.0.1 exists (macOS) all replicas use it.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model import PyTorchJob, main_container, master_port
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import replicas

LOOPBACK = "127.0.0.1"
MAX_WORKERS = 253
"""The number of addresses in one block, without the Master's."""

_TRIES = 1000
_LAST_PORT = 65535


@dataclass(frozen=True)
class Addresses:
    """The addresses of one job's replicas; `block` is the first three numbers, None where all share one address."""

    job: str
    namespace: str
    block: str | None

    def of(self, replica_type: ReplicaType, index: int) -> str:
        """The address of a replica, whether the replica runs or not."""
        if self.block is None:
            return LOOPBACK
        return f"{self.block}.{1 if replica_type is ReplicaType.MASTER else index + 2}"

    def translate(self, text: str, *, whole_words: bool = False) -> str:
        """Replace the names of replicas by their addresses.

        A name with its Service is replaced anywhere. A pod name alone (v1's short form) is replaced before a port, or,
        with `whole_words`, if it is the whole text or the whole value after `=`.
        """

        def address(match: re.Match[str]) -> str:
            bare = match["service"] is None and match["port"] is None
            if bare and not (whole_words and match[0] == match.string.rpartition("=")[2]):
                return match[0]
            return self.of(ReplicaType(match["role"].capitalize()), int(match["index"])) + (match["port"] or "")

        return self._pattern.sub(address, text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        service = (
            rf"\.{re.escape(names.service_name(self.job))}(?:\.{re.escape(self.namespace)}(?:\.svc(?:\.[\w.-]+)?)?)?"
        )
        roles = "|".join(replica_type.label for replica_type in ReplicaType)
        pod = rf"{re.escape(self.job)}-(?P<role>{roles})-(?P<index>\d{{1,6}})"
        return re.compile(rf"(?<![\w.-]){pod}(?P<service>{service})?(?P<port>:\d+)?(?![\w-])")


@dataclass
class Claims:
    """Ports that this run holds until it ends or is killed; other runs find them in use."""

    _held: list[socket.socket] = field(default_factory=list)

    def claim(self, port: int) -> bool:
        """Claim a port; False if a process listens on it or another run has claimed it.

        The claim is the UDP port of the same number. No other program uses it, the TCP port stays free for torch, and
        the kernel releases it however this process ends.
        """
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
            held.bind((LOOPBACK, port))
        except OSError:
            held.close()
            return False
        self._held.append(held)
        return True

    def first_free(self, wanted: int) -> int:
        """Claim the wanted port or the next free port; raises InvalidJob if no port is free."""
        for port in range(wanted, min(wanted + _TRIES, _LAST_PORT + 1)):
            if self.claim(port):
                return port
        text = f"no port from {wanted} to {wanted + _TRIES - 1} is free: set another port in the job"
        raise InvalidJob([Problem("", text)])

    def release(self) -> None:
        """Release all ports."""
        for held in self._held:
            held.close()
        self._held.clear()


def settle(job: PyTorchJob, claims: Claims) -> tuple[PyTorchJob, Addresses, list[str]]:
    """Claim the job's ports and choose its addresses; returns the job with these ports, and notes for the user."""
    check_size(job)
    claimed = {port: claims.first_free(port) for port in dict.fromkeys(_ports(job))}
    notes = [f"port {old} is in use on this machine: this run uses {new}" for old, new in claimed.items() if old != new]
    block = _block(next(iter(claimed.values())))
    if block is None:
        notes.append(f"this machine has only the loopback address {LOOPBACK}: all replicas share it")
    return _with_ports(job, claimed), Addresses(job.metadata.name, job.metadata.namespace, block), notes


def check_size(job: PyTorchJob) -> None:
    """Raise InvalidJob for a job with more workers than a block has addresses."""
    workers = replicas.count(job, ReplicaType.WORKER)
    if workers > MAX_WORKERS:
        field_name = "spec.pytorchReplicaSpecs.Worker.replicas"
        text = f"{workers} is too many: one machine runs at most {MAX_WORKERS}"
        raise InvalidJob([Problem(field_name, text)])


def _ports(job: PyTorchJob) -> Iterator[int]:
    for _, spec in job.spec.pytorch_replica_specs.items():
        yield master_port(spec.template)
    elastic = job.spec.elastic_policy
    if elastic is not None and elastic.rdzv_port and not elastic.rdzv_host:
        yield elastic.rdzv_port


def _block(port: int) -> str | None:
    block = f"127.{port >> 8}.{port & 255}"
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((f"{block}.1", 0))
        return block
    return None


def _with_ports(job: PyTorchJob, ports: dict[int, int]) -> PyTorchJob:
    if all(old == new for old, new in ports.items()):
        return job
    specs = job.spec.pytorch_replica_specs
    changed = {
        replica_type.label: spec.model_copy(
            update={"template": _with_port(spec.template, ports[master_port(spec.template)])}
        )
        for replica_type, spec in specs.items()
    }
    elastic = job.spec.elastic_policy
    if elastic is not None and elastic.rdzv_port in ports and not elastic.rdzv_host:
        elastic = elastic.model_copy(update={"rdzv_port": ports[elastic.rdzv_port]})
    update = {"pytorch_replica_specs": specs.model_copy(update=changed), "elastic_policy": elastic}
    return job.model_copy(update={"spec": job.spec.model_copy(update=update)})


def _with_port(template: dict[str, Any], number: int) -> dict[str, Any]:
    main = main_container(template)
    if main is None:
        return template
    others = [port for port in main.get("ports") or () if port.get("name") != names.PORT_NAME]
    changed = {**main, "ports": [*others, {"name": names.PORT_NAME, "containerPort": number}]}
    pod = template["spec"]
    return {
        **template,
        "spec": {**pod, "containers": [changed if other is main else other for other in pod["containers"]]},
    }
