"""The operator's settings: read once from the environment, each with its default and its meaning."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.observed import AgentDefault, CoordinatorAccess, Options

PREFIX = "PYTORCHJOB_"
OWN_PREFIX = PREFIX + "OPERATOR_"
_MOST = 999_999_999
_MOST_PORTS = 65535
_CONDITION = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?=(True|False|Unknown)")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]{2,45}\]")


@dataclass(frozen=True)
class Settings:
    """Each field is set by an environment variable: PYTORCHJOB_ and the field's name in capitals.

    The coordinator's fields use PYTORCHJOB_OPERATOR_ instead: the shorter names are variables of the jobs' pods.
    """

    namespaces: tuple[str, ...] = field(default=(), metadata={"help": "Namespaces to serve; empty: all namespaces"})
    lease_namespace: str = field(
        default="", metadata={"help": "Namespace of the Lease; empty: the operator's own namespace"}
    )
    lease_name: str = field(default="pytorchjob-operator", metadata={"help": "Name of the leader election's Lease"})
    leader_elect: bool = field(default=True, metadata={"help": "Whether to become the leader before any write"})
    cluster_domain: str = field(default="cluster.local", metadata={"help": "The cluster's DNS domain"})
    accelerators: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Resource names that count as devices for nprocPerNode, in addition to the known ones; may end in *"
        },
    )
    replica_services: bool = field(
        default=False, metadata={"help": "Whether each replica also gets a Service of its own name, as under v1"}
    )
    stuck_pod_seconds: int = field(
        default=60,
        metadata={
            "help": "Seconds after which a terminating pod on a dead node is force-deleted; 0: never",
            "least": 0,
        },
    )
    watch_nodes: bool = field(
        default=True,
        metadata={"help": "Whether to watch nodes for what announces the loss of pods; needs list and watch on nodes"},
    )
    node_conditions: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Conditions of nodes that announce the loss of their pods, in addition to the known ones, as"
            " Type=Status"
        },
    )
    gang_scheduler: str = field(
        default="",
        metadata={
            "help": "Gang scheduler, which places all pods of a job or none: volcano, native (Kubernetes itself),"
            " or the name of a scheduler with scheduler-plugins; empty or none: no gang scheduling, unless a job names"
            " a scheduler"
        },
    )
    kueue: bool = field(
        default=False,
        metadata={
            "help": "Whether the operator makes the Workloads of jobs in a queue of Kueue, whose configuration then has"
            " integrations.externalFrameworks: [PyTorchJob.v1.kubeflow.org]"
        },
    )
    coordinator: bool = field(
        default=False,
        metadata={"help": "Whether the operator runs the coordinator, which forms the rounds of elastic jobs"},
    )
    coordinator_port: int = field(
        default=29600, metadata={"help": "Port that the leading operator opens for agents", "most": _MOST_PORTS}
    )
    coordinator_address: str = field(
        default="", metadata={"help": "host:port at which agents reach the coordinator; required with the coordinator"}
    )
    coordinator_tls: bool = field(default=True, metadata={"help": "Whether agents and coordinator use TLS"})
    coordinator_check_addresses: bool = field(
        default=True,
        metadata={"help": "Whether an agent must connect from an IP address of its pod; false: where addresses change"},
    )
    coordinator_secret: str = field(
        default="pytorchjob-operator-coordinator",
        metadata={"help": "Secret with the coordinator's key and certificate, in the operator's own namespace"},
    )
    coordinator_recording: str = field(
        default="",
        metadata={"help": "File to which the coordinator records its decisions, for `rounds --replay`; empty: none"},
    )
    agent_image: str = field(
        default="",
        metadata={
            "help": "Image from which spec.agent.inject copies the agent; empty: spec.agent.inject has no effect"
        },
    )
    agent_default: str = field(
        default=AgentDefault.OFF.value,
        metadata={"help": "Off, or Inject: every job gets the agent that does not set spec.agent.inject"},
    )
    http_port: int = field(
        default=8080, metadata={"help": "Port of /healthz, /readyz and /metrics", "most": _MOST_PORTS}
    )
    workers: int = field(default=16, metadata={"help": "Number of jobs that are reconciled at the same time"})
    max_in_flight: int = field(default=32, metadata={"help": "Maximum number of concurrent writes, over all jobs"})
    log_level: str = field(default="INFO", metadata={"help": "DEBUG, INFO, WARNING or ERROR"})
    log_format: str = field(default="text", metadata={"help": "text, or json for one JSON object per line"})

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Settings":
        """Read the settings; raises OperatorError with the variable, what is wrong and which values are valid."""
        given: dict[str, Any] = {}
        for setting in fields(cls):
            name = variable(setting.name)
            if environ.get(name):
                bounds = setting.metadata.get("least", 1), setting.metadata.get("most", _MOST)
                given[setting.name] = _parse(name, environ[name], setting.default, bounds)
        settings = cls(**given)
        if settings.coordinator:
            _address(variable("coordinator_address"), settings.coordinator_address)
        for condition in settings.node_conditions:
            _condition(variable("node_conditions"), condition)
        _choice(variable("agent_default"), settings.agent_default, tuple(AgentDefault))
        _choice(PREFIX + "LOG_LEVEL", settings.log_level, ("DEBUG", "INFO", "WARNING", "ERROR"))
        _choice(PREFIX + "LOG_FORMAT", settings.log_format, ("text", "json"))
        return settings

    def options(self, coordinator: CoordinatorAccess | None = None) -> Options:
        """Return what the objects of jobs depend on; `coordinator` is known once its credentials are."""
        return Options(
            cluster_domain=self.cluster_domain,
            stuck_pod_seconds=self.stuck_pod_seconds,
            accelerators=self.accelerators,
            replica_services=self.replica_services,
            gang_scheduler=self.gang_scheduler,
            coordinator=coordinator,
            agent_image=self.agent_image,
            agent_default=AgentDefault(self.agent_default),
            kueue=self.kueue,
        )


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    prefix = OWN_PREFIX if name.startswith("coordinator") else PREFIX
    return prefix + name.upper()


def _address(name: str, text: str) -> None:
    host, _, port = text.rpartition(":")
    if not (_HOST.fullmatch(host) and port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _MOST_PORTS):
        raise OperatorError(
            f"{name}: {text[:300]!r} is not host:port; set it to the address at which agents reach the operator"
        )


def _condition(name: str, text: str) -> None:
    if not _CONDITION.fullmatch(text):
        raise OperatorError(f"{name}: {text[:300]!r} is not Type=True, Type=False or Type=Unknown")


def _parse(name: str, text: str, default: object, bounds: tuple[int, int]) -> object:
    match default:
        case bool():
            return _choice(name, text.lower(), ("true", "false")) == "true"
        case int():
            least, most = bounds
            if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
                raise OperatorError(f"{name}: {text!r} is not a number from {least} to {most}")
            return int(text)
        case tuple():
            return tuple(part.strip() for part in text.split(",") if part.strip())
        case _:
            return text


def _choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise OperatorError(f"{name}: {text!r} is not one of {', '.join(allowed)}")
    return text
