"""From a person's options to a cluster that answers. Importing it loads the kubernetes package: do it when needed."""

from collections.abc import Callable

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.http import Http
from pytorchjob.cluster.kubeconfig import load
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob.cluster.remote import RemoteCluster

_Warn = Callable[[str], None]


def connect(options: ConnectOptions | None = None, warn: _Warn = lambda text: None) -> Cluster:
    """Find the cluster and the credentials; sends no request yet. `warn` gets the server's warnings.

    Raises NoCluster if there is no usable kubeconfig.
    """
    chosen = options or ConnectOptions()
    http = Http(lambda: load(chosen), chosen.request_seconds, warn)
    return RemoteCluster(http, http.access.namespace)
