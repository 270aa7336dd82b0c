"""The options of an installed operator, as far as they are known without a cluster: for `pytorchjob plan`.

They are the chart's defaults. The operator's own environment variables change them, as they do in its Deployment.
"""

from collections.abc import Mapping

from pytorchjob_operator import __version__
from pytorchjob_operator.observed import CoordinatorAccess, Options
from pytorchjob_operator.settings import Settings

NAMESPACE = "pytorchjob-system"
CHART = {
    "PYTORCHJOB_OPERATOR_COORDINATOR": "true",
    "PYTORCHJOB_OPERATOR_COORDINATOR_ADDRESS": f"pytorchjob-operator-coordinator.{NAMESPACE}.svc.cluster.local:29600",
    "PYTORCHJOB_AGENT_IMAGE": f"pytorchjob/operator:{__version__}",
}
"""The variables of the chart's Deployment that pods depend on, with the values of an installation by its defaults."""
CERTIFICATE = "<certificate of the coordinator>"
"""Stands for what only the operator in the cluster knows."""


def options(environ: Mapping[str, str]) -> Options:
    """Return the options of an operator with these variables. Raises OperatorError for a wrong value."""
    settings = Settings.from_env({**CHART, **environ})
    if not settings.coordinator:
        return settings.options()
    ca = CERTIFICATE if settings.coordinator_tls else ""
    return settings.options(CoordinatorAccess(settings.coordinator_address, ca))
