"""Where the replicas of a local run are found: a loopback address for each, ports that no other run uses.

In a cluster a name service and one network per pod do this. The port where the ranks meet is claimed for the whole
run, because torch's store listens on every address of the machine; the addresses follow from that port, so runs at
the same time never share one. Where only 127.0.0.1 exists (macOS) all replicas have that.
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
"""Addresses of one block, less the Master's."""

_TRIES = 1000
_LAST_PORT = 65535


@dataclass(frozen=True)
class Addresses:
    """The addresses of one job's replicas; `block` is the first three numbers, None where all share one address."""

    job: str
    namespace: str
    block: str | None

    def of(self, replica_type: ReplicaType, index: int) -> str:
        """The address of one replica, whether it runs or not."""
        if self.block is None:
            return LOOPBACK
        return f"{self.block}.{1 if replica_type is ReplicaType.MASTER else index + 2}"

    def translate(self, text: str, *, whole_words: bool = False) -> str:
        """Put addresses where replicas are named.

        A name with its Service is found anywhere; a bare pod name (v1's short form) where a port follows, or, with
        `whole_words`, where it stands alone.
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
        roles = "|".join(one.label for one in ReplicaType)
        pod = rf"{re.escape(self.job)}-(?P<role>{roles})-(?P<index>\d{{1,6}})"
        return re.compile(rf"(?<![\w.-]){pod}(?P<service>{service})?(?P<port>:\d+)?(?![\w-])")


@dataclass
class Claims:
    """Ports that this run holds until it ends or dies; other runs see that they are taken."""

    _held: list[socket.socket] = field(default_factory=list)

    def claim(self, port: int) -> bool:
        """Take a port, if nothing listens on it and no other run has it.

        The claim is the UDP port of the same number: nobody else uses that, it leaves the TCP port to torch, and
        the kernel gives it back whatever becomes of us.
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
        """Take the wanted port or the next one that is free."""
        for port in range(wanted, min(wanted + _TRIES, _LAST_PORT + 1)):
            if self.claim(port):
                return port
        raise InvalidJob([Problem("", f"no port is free from {wanted} to {wanted + _TRIES - 1}: choose another port")])

    def release(self) -> None:
        """Give all ports back."""
        for one in self._held:
            one.close()
        self._held.clear()


def settle(job: PyTorchJob, claims: Claims) -> tuple[PyTorchJob, Addresses, list[str]]:
    """Claim the job's ports and choose its addresses; the job comes back with the ports that it got, and notes."""
    check_size(job)
    got = {port: claims.first_free(port) for port in dict.fromkeys(_ports(job))}
    notes = [f"port {old} is in use on this machine: this run has {new}" for old, new in got.items() if old != new]
    block = _block(next(iter(got.values())))
    if block is None:
        notes.append(f"this machine has no loopback address but {LOOPBACK}: all replicas share it")
    return _with_ports(job, got), Addresses(job.metadata.name, job.metadata.namespace, block), notes


def check_size(job: PyTorchJob) -> None:
    """Refuse a job that has more replicas than a block has addresses."""
    workers = replicas.count(job, ReplicaType.WORKER)
    if workers > MAX_WORKERS:
        field_name = "spec.pytorchReplicaSpecs.Worker.replicas"
        raise InvalidJob([Problem(field_name, f"{workers} is too many for one machine: at most {MAX_WORKERS}")])


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
        "spec": {**pod, "containers": [changed if one is main else one for one in pod["containers"]]},
    }
