"""Which cluster, which namespace and whose rights: what a person may choose with kubectl's own flags."""

from dataclasses import dataclass

DEFAULT_SECONDS = 30.0
"""Time for one request if `--request-timeout` is not given; kubectl has none and waits for ever."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Unset fields mean what they mean to kubectl: the kubeconfig decides."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    request_seconds: float | None = None
    """Time for one request; 0: no limit."""
    local: bool = False
    """The runs of this machine, instead of a cluster."""

    def kubectl(self) -> list[str]:
        """Return the same choice as arguments of kubectl."""
        given = {
            "--kubeconfig": self.kubeconfig,
            "--context": self.context,
            "--namespace": self.namespace,
            "--as": self.as_user,
        }
        chosen = [f"{flag}={value}" for flag, value in given.items() if value]
        return [*chosen, *(f"--as-group={group}" for group in self.as_groups)]
