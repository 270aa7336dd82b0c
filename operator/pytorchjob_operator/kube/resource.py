"""The API resources that the operator uses, and the URL paths of their objects."""

from dataclasses import dataclass
from urllib.parse import quote

from pytorchjob_operator.names import ChildKind


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object, as URLs name it."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of a collection (all namespaces if None), an object or its subresource."""
        root = ["apis", self.group, self.version] if self.group else ["api", self.version]
        where = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [*root, *where, self.plural, *(part for part in (name, subresource) if part)]
        return "/" + "/".join(quote(part, safe="") for part in parts)


PODS = Resource("", "v1", "pods")
SERVICES = Resource("", "v1", "services")
SECRETS = Resource("", "v1", "secrets")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers")
CHILDREN = {
    ChildKind.SERVICE: SERVICES,
    ChildKind.AUTOSCALER: AUTOSCALERS,
    ChildKind.NETWORK_POLICY: Resource("networking.k8s.io", "v1", "networkpolicies"),
    ChildKind.VOLCANO_POD_GROUP: Resource("scheduling.volcano.sh", "v1beta1", "podgroups"),
    ChildKind.POD_GROUP: Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups"),
    ChildKind.NATIVE_POD_GROUP: Resource("scheduling.k8s.io", "v1beta1", "podgroups"),
    ChildKind.WORKLOAD: Resource("kueue.x-k8s.io", "v1beta2", "workloads"),
}
"""The resource of each kind of child."""
CLUSTER_OBJECTS = {
    "ResourceFlavor": Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", namespaced=False),
    "WorkloadPriorityClass": Resource("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", namespaced=False),
    "PriorityClass": Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
}
"""By the kind of a `ClusterObject`."""
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
NODES = Resource("", "v1", "nodes", namespaced=False)
EVENTS = Resource("", "v1", "events")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
