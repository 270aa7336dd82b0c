"""The corpus of invalid jobs: what every judge refuses, what only the making of pods shows, and what v1 took and ran.

The first come from the schema (`generated`), from the table that has one job per rule (`corpus`), and from here, by
hand. `BROKEN_PODS` are accepted, because a pod template is the API server's own business: they end in a condition.
"""

from typing import Any

from tests.model.corpus import BAD, Bad, Job, changed, elastic, job, role
from tests.model.generated import generated

_ROLES = "spec.pytorchReplicaSpecs"
_WORKER = f"{_ROLES}.Worker"
_POD = f"{_WORKER}.template.spec"
_MAIN = f"{_POD}.containers.0"
_RUN, _ELASTIC, _CONF = "spec.runPolicy", "spec.elasticPolicy", "spec.elasticPolicy.rdzvConf"
_NAMED_MAIN = f"{_POD}.containers[0]"
_NAME = "metadata.name"


def _each(path: str, values: tuple[Any, ...], field: str = "", flexible: bool = False) -> tuple[Bad, ...]:
    """One job for each value that must not be there."""
    named = field or path.replace(".0", "[0]")
    return tuple(Bad(f"{path} is {value!r}"[:100], {path: value}, named, flexible) for value in values)


_SIZES: dict[str, Job] = {
    "a Master alone": {_ROLES: {"Master": role()}},
    "one worker": {_ROLES: {"Worker": role()}},
    "ten workers": {_ROLES: {"Worker": role(10)}},
    "eleven workers": {_ROLES: {"Worker": role(11)}},
    "up to a hundred workers": {_ROLES: {"Worker": role()}, _ELASTIC: {"maxReplicas": 100}},
}
NAMES = tuple(
    Bad(f"a name of {length} letters with {size}", {_NAME: "a" * length, **changes}, _NAME)
    for length in range(57, 65)
    for size, changes in _SIZES.items()
) + _each(
    _NAME,
    (*("", "-a", "a-", "a_b", "A", "1a", "a b", "a.b", "a/b", "a\n", "é", "日本", "\U0001f525", "a\u200b", "a" * 254),),
)
ROLES = (
    *_each(f"{_ROLES}", ({}, {"master": role()}, {"Master ": role()}, {"Wörker": role()}, {"Launcher": role()})),
    *_each(f"{_WORKER}.restartPolicy", ("never", "onFailure", "ALWAYS", "Exitcode", "None", "On Failure")),
    *_each(_ROLES, (None,)),
    *_each(f"{_WORKER}.template", (None, [], "pod")),
    *_each(f"{_WORKER}.template", ({},), f"{_POD}"),
    *_each("spec", (None, [], "x")),
)
NUMBERS = (
    *_each(
        "spec.nprocPerNode",
        (*("-1", "1.5", "01", "1e3", "10000", " 2", "2 ", "2\n", "AUTO", "gpus", "cuda", "٣", "none", "1,2", "0x2"),),
    ),
    *_each(f"{_WORKER}.replicas", (2.0, "1", "0x10", -(2**31), -(2**63))),
    *_each(f"{_RUN}.activeDeadlineSeconds", (-1, 2**53, "1h", 0.5)),
    *_each(f"{_RUN}.ttlSecondsAfterFinished", ("24h", "∞", -(2**31))),
    *_each(f"{_RUN}.suspend", ("true", "yes", "", 1)),
    *_each(f"{_RUN}.managedBy", ("kubeflow.org/Training-Operator", "kueue.x-k8s.io", "Kueue.x-k8s.io/multikueue")),
    *_each(
        f"{_RUN}.schedulingPolicy.minResources.cpu",
        (*("", "1x", "1 Gi", "Gi", "1,5", "--1", "-1", "1GiB", "٣", "1e", "1\n", -1, -(2**31)),),
    ),
)
RENDEZVOUS = (
    *_each(f"{_ELASTIC}.rdzvBackend", ("", " ", "c10d ", "c10d\n", "c10d,etcd", "-x", "é", "etcd://x"), "", True),
    *_each(
        f"{_ELASTIC}.rdzvHost",
        (*("", " ", "tcp://etcd", "etcd:2379", "a b", "a,b", "etcd/", "[::1]", "münchen", "a\n", "me@host", "::1%e"),),
        "",
        True,
    ),
    *_each(_CONF, ([{"value": "1"}], [{"key": "", "value": "1"}]), f"{_CONF}[0].key", True),
    *_each(f"{_CONF}", ([{"key": "a,b", "value": "1"}],), f"{_CONF}[0].key", True),
    *_each(f"{_CONF}", ([{"key": "a", "value": ""}], [{"key": "a", "value": ","}]), f"{_CONF}[0].value", True),
    *_each(_CONF, ([{"key": "a", "value": 1}], [{"key": "a", "value": True}]), f"{_CONF}[0].value", True),
    *_each(f"{_ELASTIC}.metrics", ([{}], [{"resource": {}}]), f"{_ELASTIC}.metrics[0].type", True),
    *_each(
        f"{_ELASTIC}.metrics",
        tuple([{"type": kind}] for kind in ("Resource", "ContainerResource", "Object", "External")),
        f"{_ELASTIC}.metrics[0]",
        True,
    ),
    Bad("etcd-v2 without a host", {f"{_ELASTIC}.rdzvBackend": "etcd-v2"}, f"{_ELASTIC}.rdzvHost", True),
    Bad("a static job with a higher limit", {_ELASTIC: {"rdzvBackend": "static", "maxReplicas": 3}},
        f"{_ELASTIC}.rdzvBackend", True),
    Bad("a static job with a lower limit", {_ELASTIC: {"rdzvBackend": "static", "minReplicas": 1}},
        f"{_ELASTIC}.rdzvBackend", True),
    Bad("a standalone job that may grow", {_ELASTIC: {"standalone": True, "maxReplicas": 2}, f"{_WORKER}.replicas": 1},
        f"{_ELASTIC}.standalone", True),
    Bad("a standalone worker beside a Master", {_ELASTIC: {"standalone": True}, f"{_WORKER}.replicas": 1},
        f"{_ELASTIC}.standalone"),
    Bad("a standalone job by etcd", {_ELASTIC: {"standalone": True, "rdzvBackend": "mine"}, f"{_WORKER}.replicas": 1},
        f"{_ELASTIC}.standalone", True),
)  # fmt: skip
CONTAINERS = (
    *_each(f"{_POD}.containers", (None, [])),
    *_each(f"{_POD}.containers", ([None],), _NAMED_MAIN),
    *_each(f"{_POD}.containers", ([{"name": "pytorch", "image": "i"}] * 2,), f"{_POD}.containers[1]"),
    *_each(f"{_MAIN}.name", (None, 1, "a" * 64), f"{_NAMED_MAIN}.name"),
    *_each(f"{_MAIN}.name", ("PyTorch", "pytorch ", ""), f"{_POD}.containers"),
    *_each(
        f"{_POD}.containers.1",
        tuple({"name": name, "image": "i"} for name in ("Side", "a_b", "-a", "a-", "a.b", "é", "")),
        f"{_POD}.containers[1].name",
    ),
    *_each(f"{_MAIN}.image", (None, "", 1), f"{_NAMED_MAIN}.image"),
    *_each(f"{_MAIN}.env", ([None], ["A=1"]), f"{_NAMED_MAIN}.env[0]"),
    *_each(f"{_MAIN}.env", ([{"value": "1"}],), f"{_NAMED_MAIN}.env[0].name"),
    *_each(f"{_MAIN}.env", ({"A": "1"}, "A=1"), f"{_NAMED_MAIN}.env"),
    *_each(f"{_MAIN}.command", ([None], [1], [True]), f"{_NAMED_MAIN}.command[0]"),
    *_each(f"{_MAIN}.ports", ([{"containerPort": 0}], [{"containerPort": -1}], [{"containerPort": "80"}], [{}]),
           f"{_NAMED_MAIN}.ports[0].containerPort"),
    *_each(f"{_MAIN}.resources.limits.cpu", ("1 core", "", "1,5", "٣", [], {}), f"{_NAMED_MAIN}.resources.limits.cpu"),
    *_each(f"{_POD}.nodeSelector", ("gpu", ["gpu"], 1)),
    *_each(f"{_POD}.volumes", ([{"name": "a"}, {"name": "a"}],), f"{_POD}.volumes[1]"),
    *_each(f"{_POD}.terminationGracePeriodSeconds", ("30s", 1.5, 1e100)),
)  # fmt: skip
INVALID = (*BAD, *generated(), *NAMES, *ROLES, *NUMBERS, *RENDEZVOUS, *CONTAINERS)
"""Every one is refused, by the API server and by `validate_dict`, with the field."""

_SIDE = {"name": "side", "image": "i"}
BROKEN_PODS: dict[str, Job] = {
    "a negative limit": {f"{_MAIN}.resources": {"limits": {"cpu": "-1"}}},
    "a request beyond its limit": {f"{_MAIN}.resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}},
    "half a GPU": {f"{_MAIN}.resources": {"limits": {"nvidia.com/gpu": "500m"}}},
    "a GPU requested and not limited": {f"{_MAIN}.resources": {"requests": {"nvidia.com/gpu": 1}}},
    "a GPU without its domain": {f"{_MAIN}.resources": {"limits": {"gpu": 1}}},
    "a resource of no name": {f"{_MAIN}.resources": {"limits": {"a b": 1}}},
    "a mount of no volume": {f"{_MAIN}.volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    "a volume of no kind's claim": {f"{_POD}.volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": ""}}]},
    "a volume's name with a blank": {f"{_POD}.volumes": [{"name": "a b", "emptyDir": {}}]},
    "an image with a blank before it": {f"{_MAIN}.image": " train:1"},
    "an unknown pull policy": {f"{_MAIN}.imagePullPolicy": "Sometimes"},
    "an unknown DNS policy": {f"{_POD}.dnsPolicy": "Sometimes"},
    "a label with a blank": {f"{_WORKER}.template.metadata": {"labels": {"a": "b c"}}},
    "a label of no name": {f"{_WORKER}.template.metadata": {"labels": {"": "b"}}},
    "a label that is too long": {f"{_WORKER}.template.metadata": {"labels": {"a": "b" * 64}}},
    "an annotation of no name": {f"{_WORKER}.template.metadata": {"annotations": {"a b": "c"}}},
    "a node selector with a blank": {f"{_POD}.nodeSelector": {"a b": "c"}},
    "a toleration of no operator": {f"{_POD}.tolerations": [{"key": "a", "operator": "Like"}]},
    "an affinity of no operator": {
        f"{_POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]
        }
    },
    "a spread of nothing": {
        f"{_POD}.topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]
    },
    "a priority that nobody has defined": {f"{_POD}.priorityClassName": "urgent"},
    "a runtime that nobody has defined": {f"{_POD}.runtimeClassName": "fast"},
    "a user of minus one": {f"{_POD}.securityContext": {"runAsUser": -1}},
    "a user beyond the last": {f"{_POD}.securityContext": {"runAsUser": 2**63 - 1}},
    "a pod's deadline of zero": {f"{_POD}.activeDeadlineSeconds": 0},
    "an address that is none": {f"{_POD}.hostAliases": [{"ip": "here"}]},
    "a variable with two sources": {
        f"{_MAIN}.env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    },
    "a variable of no field": {
        f"{_MAIN}.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.age"}}}]
    },
    "a variable of an empty name": {f"{_MAIN}.env": [{"name": ""}]},
    "a port's name in upper case": {f"{_MAIN}.ports": [{"name": "Web", "containerPort": 80}]},
    "a port's name that is too long": {f"{_MAIN}.ports": [{"name": "a" * 16, "containerPort": 80}]},
    "a host port beyond the last": {f"{_MAIN}.ports": [{"containerPort": 80, "hostPort": 70000}]},
    "two ports of one name": {
        f"{_MAIN}.ports": [{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81}]
    },
    "a protocol that nobody speaks": {f"{_MAIN}.ports": [{"containerPort": 80, "protocol": "HTTP"}]},
    "a probe that does nothing": {f"{_MAIN}.livenessProbe": {}},
    "a probe of no port": {f"{_MAIN}.livenessProbe": {"tcpSocket": {"port": 0}}},
    "a hook that does nothing": {f"{_MAIN}.lifecycle": {"preStop": {}}},
    "an init container without an image": {f"{_POD}.initContainers": [{"name": "i"}]},
    "an init container's name in upper case": {f"{_POD}.initContainers": [{"name": "Init", "image": "i"}]},
    "an ephemeral container": {f"{_POD}.ephemeralContainers": [{"name": "e", "image": "i"}]},
    "a number beyond 64 bits": {f"{_POD}.terminationGracePeriodSeconds": 2**63 - 1, f"{_POD}.dnsPolicy": "?"},
    "a share of a process namespace of the host": {f"{_POD}.shareProcessNamespace": True, f"{_POD}.hostPID": True},
    "a name server too many": {f"{_POD}.dnsConfig": {"nameservers": ["10.0.0.1"] * 4}},
    "a search domain of no form": {f"{_POD}.dnsConfig": {"searches": ["-a-"]}},
    "an operating system that is none": {f"{_POD}.os": {"name": "plan9"}},
    "a scheduling gate of no form": {f"{_POD}.schedulingGates": [{"name": "a b"}]},
    "a finalizer of no form": {f"{_WORKER}.template.metadata": {"finalizers": ["a b"]}},
}
"""Pods that no API server takes: the job is accepted and says so in its condition ReplicaFailure."""

AS_V1: dict[str, Job] = {
    "an empty queue is no queue: v1's own clients write it": changed(job(), {f"{_RUN}.schedulingPolicy.queue": ""}),
    "an empty policy is the default: v1's own clients write it": changed(
        job(), {f"{_WORKER}.restartPolicy": "", f"{_RUN}.cleanPodPolicy": ""}
    ),
    "no settings in a list that is there: v1 crashed, the meaning is plain": elastic(rdzvConf=[]),
    "no metrics in a list that is there: an autoscaler has a default of its own": elastic(metrics=[]),
    "a field that is null is not there, as for every Kubernetes object": changed(
        job(), {_ELASTIC: None, f"{_RUN}.suspend": None, f"{_MAIN}.env": None, f"{_WORKER}.replicas": None}
    ),
    "a Master that is null is not there": changed(job(), {f"{_ROLES}.Master": None}),
    "a value that is null is not there": changed(job(), {f"{_MAIN}.resources.limits.cpu": None}),
    "a Master without a number: the default is the only right one": changed(job(), {f"{_ROLES}.Master": {
        "template": role()["template"]
    }}),
    "a name of a run with blanks and commas: rendezvous backends do not mind": elastic(rdzvId="run 1, again"),
    "a port of the same name in a sidecar": changed(job(), {f"{_POD}.containers.0.ports": [
        {"name": "pytorchjob-port", "containerPort": 1}], f"{_POD}.initContainers": [{**_SIDE, "ports": [
            {"name": "pytorchjob-port", "containerPort": 2}]}]}),
    "a variable that the operator sets, too: the operator's wins": changed(job(), {f"{_MAIN}.env": [
        {"name": "RANK", "value": "x"}]}),
    "a deadline at once": changed(job(), {f"{_RUN}.activeDeadlineSeconds": 0}),
}  # fmt: skip
"""What looks wrong and is accepted, with the reason: v1 took it and ran it, or its meaning is plain."""
