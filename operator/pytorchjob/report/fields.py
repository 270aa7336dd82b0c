"""Which fields of objects a report holds: those listed here, and no others. Pure.

A value of an environment variable, an annotation of an unknown tool or the header of a probe is on no list, so it is
left out whatever it looks like. What is listed still loses what is shaped like a secret (`redaction`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

NOT_LISTED = "not listed"
"""The kind of marker that stands in place of a value that is not listed."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A field whose value is kept."""

    whole: bool
    """Whether objects are kept too, not only single values and lists of them."""


Tree: TypeAlias = Union[_Leaf, "Mapping[str, Tree]"]
"""The listed fields of an object, by their names. A list has the fields of its items."""
_VALUE, _WHOLE = _Leaf(whole=False), _Leaf(whole=True)
_BY_DOMAIN = "*/"
"""The key is listed if the name of its owner is: labels, annotations."""
_DOMAINS = ("kubernetes.io", "k8s.io", "x-k8s.io", "kubeflow.org", "volcano.sh")


def _fields(names: str, **more: Tree) -> dict[str, Tree]:
    return {**dict.fromkeys(names.split(), _VALUE), **more}


def _whole(names: str) -> dict[str, Tree]:
    return dict.fromkeys(names.split(), _WHOLE)


_META = _fields(
    "name namespace uid generateName creationTimestamp deletionTimestamp deletionGracePeriodSeconds generation "
    "resourceVersion finalizers",
    labels={_BY_DOMAIN: _VALUE},
    annotations={_BY_DOMAIN: _VALUE},
    ownerReferences=_fields("apiVersion kind name uid controller blockOwnerDeletion"),
)
_NAMED = _fields("name optional defaultMode prefix", items=_fields("key path mode"))
_SECRET = _fields("secretName name optional defaultMode", items=_fields("key path mode"))
_KEY = _fields("name key optional")
_ACTION: dict[str, Tree] = {
    "exec": _fields("command"),
    "httpGet": _fields("path port scheme host"),
    **_whole("tcpSocket grpc sleep"),
}
_PROBE: Tree = {
    **_fields("initialDelaySeconds periodSeconds timeoutSeconds successThreshold failureThreshold"),
    **_fields("terminationGracePeriodSeconds"),
    **_ACTION,
}
_CONTAINER: Tree = {
    **_fields("name image imagePullPolicy command args workingDir restartPolicy stdin stdinOnce tty"),
    **_fields("terminationMessagePath terminationMessagePolicy"),
    "env": _fields(
        "name",
        valueFrom={"secretKeyRef": _KEY, "configMapKeyRef": _KEY, **_whole("fieldRef resourceFieldRef")},
    ),
    "envFrom": _fields("prefix", secretRef=_NAMED, configMapRef=_NAMED),
    **_whole("ports resources resizePolicy restartPolicyRules securityContext volumeMounts volumeDevices"),
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _PROBE),
    "lifecycle": _fields("stopSignal", postStart=_ACTION, preStop=_ACTION),
}
_VOLUME: Tree = _fields(
    "name",
    configMap=_NAMED,
    secret=_SECRET,
    projected=_fields(
        "defaultMode",
        sources={
            "configMap": _NAMED,
            "secret": _SECRET,
            **_whole("serviceAccountToken clusterTrustBundle downwardAPI"),
        },
    ),
    csi=_fields("driver readOnly fsType", nodePublishSecretRef=_fields("name")),
    nfs=_fields("server path readOnly"),
    ephemeral={"volumeClaimTemplate": {"metadata": _META, "spec": _WHOLE}},
    **_whole("persistentVolumeClaim emptyDir hostPath downwardAPI image"),
)
_POD_SPEC: Tree = {
    **_fields("activeDeadlineSeconds automountServiceAccountToken dnsPolicy enableServiceLinks hostIPC hostNetwork"),
    **_fields("hostPID hostUsers hostname nodeName preemptionPolicy priority priorityClassName restartPolicy"),
    **_fields("runtimeClassName schedulerName serviceAccount serviceAccountName setHostnameAsFQDN subdomain"),
    **_fields("shareProcessNamespace terminationGracePeriodSeconds"),
    **_whole("affinity dnsConfig hostAliases nodeSelector os overhead readinessGates resourceClaims resources"),
    **_whole("schedulingGates securityContext tolerations topologySpreadConstraints"),
    "imagePullSecrets": _fields("name"),
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), _CONTAINER),
    "volumes": _VOLUME,
}
_TYPE = _fields("apiVersion kind")
_REPLICA = _fields("replicas restartPolicy", template={"metadata": _META, "spec": _POD_SPEC})
JOB: Tree = {
    **_TYPE,
    "metadata": _META,
    "spec": _fields(
        "nprocPerNode",
        pytorchReplicaSpecs={"Master": _REPLICA, "Worker": _REPLICA},
        elasticPolicy={
            **_fields(
                "minReplicas maxReplicas rdzvBackend rdzvPort rdzvHost rdzvId standalone nProcPerNode maxRestarts"
            ),
            "rdzvConf": _fields("key"),
            "metrics": _WHOLE,
        },
        **_whole("agent runPolicy"),
    ),
    "status": _WHOLE,
}
POD: Tree = {**_TYPE, "metadata": _META, "spec": _POD_SPEC, "status": _WHOLE}
SERVICE: Tree = {
    **_TYPE,
    "metadata": _META,
    "spec": _fields(
        "clusterIP clusterIPs type publishNotReadyAddresses ipFamilies ipFamilyPolicy sessionAffinity",
        **_whole("ports selector"),
    ),
}
EVENT: Tree = {
    **_TYPE,
    "metadata": _META,
    **_fields("type reason message action count firstTimestamp lastTimestamp eventTime reportingComponent"),
    **_fields("reportingInstance"),
    **_whole("involvedObject source series related"),
}


def listed(value: Any, tree: Tree, instead: Any) -> Any:
    """Return an object with its listed fields; `instead` stands in place of each other value."""
    if isinstance(value, list | tuple):
        return [listed(each, tree, instead) for each in value]
    if isinstance(tree, _Leaf):
        return value if tree.whole or not isinstance(value, Mapping) else instead
    if not isinstance(value, Mapping):
        return value if value is None else instead
    found = {key: _of(str(key), tree) for key in value}
    return {
        key: instead if (part := found[key]) is None else listed(each, part, instead) for key, each in value.items()
    }


def _of(key: str, tree: Mapping[str, Tree]) -> Tree | None:
    if _BY_DOMAIN in tree:
        domain = key.partition("/")[0] if "/" in key else ""
        return _VALUE if any(domain == each or domain.endswith(f".{each}") for each in _DOMAINS) else None
    return tree.get(key)
