"""Jobs for the tests: what must be accepted, and what must be refused by the API server and by this machine alike."""

import copy
from dataclasses import dataclass
from typing import Any

Job = dict[str, Any]

GONE = object()
_REPLICAS = "spec.pytorchReplicaSpecs"
_MASTER, _WORKER = f"{_REPLICAS}.Master", f"{_REPLICAS}.Worker"
_POD = f"{_WORKER}.template.spec"
_CONTAINER = f"{_POD}.containers.0"
_LONG = "a" * 63


def role(replicas: int = 1, **container: Any) -> Job:
    """One entry of pytorchReplicaSpecs."""
    main = {"name": "pytorch", "image": "pytorchjob/examples:dev", **container}
    return {"replicas": replicas, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [main]}}}


def job(name: str = "digits", **spec: Any) -> Job:
    """One Master and two Workers."""
    roles = {"Master": role(), "Worker": role(2)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
    }


def elastic(name: str = "elastic", **policy: Any) -> Job:
    """Two workers, elastic between one and four."""
    made = job(name, elasticPolicy={"minReplicas": 1, "maxReplicas": 4, **policy})
    del made["spec"]["pytorchReplicaSpecs"]["Master"]
    return made


def changed(base: Job, changes: dict[str, Any]) -> Job:
    """The job with other values at dotted paths."""
    made = copy.deepcopy(base)
    for path, value in changes.items():
        _put(made, path.split("."), value)
    return made


def _put(node: Any, parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    last = int(parts[-1]) if isinstance(node, list) else parts[-1]
    if isinstance(node, list) and last == len(node):
        node.append(None)
    if value is GONE:
        del node[last]
    else:
        node[last] = copy.deepcopy(value)


@dataclass(frozen=True)
class Bad:
    """A job that is wrong in one way: the sentence, the change, and the field that both judges must name."""

    sentence: str
    changes: dict[str, Any]
    field: str
    elastic: bool = False
    only_strict: bool = False
    """The API server prunes it without `fieldValidation=Strict`, which kubectl always asks for."""

    @property
    def job(self) -> Job:
        return changed(elastic() if self.elastic else job(), self.changes)


def _at(sentence: str, path: str, value: Any, field: str = "", **flags: bool) -> Bad:
    return Bad(sentence, {path: value}, field or path.replace(".0", "[0]"), **flags)


_RUN, _ELASTIC = "spec.runPolicy", "spec.elasticPolicy"

BAD_ROLES = (
    _at("a job without a spec", "spec", GONE),
    _at("a job without roles", _REPLICAS, GONE),
    _at("a job with an empty map of roles", _REPLICAS, {}),
    _at("a role in lower case", f"{_REPLICAS}.worker", role(), _REPLICAS),
    _at("a role of another framework", f"{_REPLICAS}.PS", role(), _REPLICAS),
    _at("two Masters", f"{_MASTER}.replicas", 2),
    _at("no Master asked for", f"{_MASTER}.replicas", 0),
    _at("no worker asked for", f"{_WORKER}.replicas", 0),
    _at("a negative number of workers", f"{_WORKER}.replicas", -1),
    _at("more workers than anybody has", f"{_WORKER}.replicas", 10_001),
    _at("replicas as a word", f"{_WORKER}.replicas", "three"),
    _at("replicas as a quoted number", f"{_WORKER}.replicas", "3"),
    _at("replicas as a fraction", f"{_WORKER}.replicas", 1.5),
    _at("an unknown restart policy", f"{_WORKER}.restartPolicy", "Sometimes"),
    _at("a restart policy in lower case", f"{_WORKER}.restartPolicy", "never"),
    _at("a role without a template", f"{_WORKER}.template", GONE),
    _at("a template without a spec", f"{_WORKER}.template.spec", GONE),
    _at("a misspelt field of a role", f"{_WORKER}.replica", 2, only_strict=True),
)
BAD_TEMPLATES = (
    _at("a pod without a list of containers", f"{_POD}.containers", GONE),
    _at("a pod with no container", f"{_POD}.containers", []),
    _at("no container named pytorch", f"{_CONTAINER}.name", "trainer", f"{_POD}.containers"),
    _at("a container without a name", f"{_CONTAINER}.name", GONE),
    _at("a container without an image", f"{_CONTAINER}.image", GONE),
    _at("a container with an empty image", f"{_CONTAINER}.image", ""),
    _at("a mistyped GPU limit", f"{_CONTAINER}.resources", {"limts": {"nvidia.com/gpu": 1}},
        f"{_POD}.containers[0].resources.limts", only_strict=True),
    _at("a mistyped field of the pod", f"{_POD}.nodeSelectr", {}, only_strict=True),
    _at("a limit that is not a quantity", f"{_CONTAINER}.resources", {"limits": {"cpu": "many"}},
        f"{_POD}.containers[0].resources.limits.cpu"),
    _at("a command that is not a list", f"{_CONTAINER}.command", "python train.py"),
    _at("an environment variable set twice", f"{_CONTAINER}.env", [{"name": "A"}, {"name": "A"}],
        f"{_POD}.containers[0].env[1]"),
    _at("an environment value that is a number", f"{_CONTAINER}.env", [{"name": "A", "value": 1}],
        f"{_POD}.containers[0].env[0].value"),
    _at("a port twice", f"{_CONTAINER}.ports", [{"containerPort": 1}, {"containerPort": 1}],
        f"{_POD}.containers[0].ports[1]"),
    _at("a port beyond the last", f"{_CONTAINER}.ports", [{"containerPort": 65536}],
        f"{_POD}.containers[0].ports[0].containerPort"),
    _at("a label that is a number", f"{_WORKER}.template.metadata", {"labels": {"a": 1}},
        f"{_WORKER}.template.metadata.labels.a"),
)  # fmt: skip
BAD_NAMES = (
    _at("a name that begins with a digit", "metadata.name", "1-digits"),
    _at("a name with a dot", "metadata.name", "digits.v2"),
    _at("a name too long for its Master", "metadata.name", "a" * 55),
    _at("a name too long for a label", "metadata.name", _LONG + "a"),
    Bad("a name too long for its last worker", {"metadata.name": "a" * 54, f"{_WORKER}.replicas": 11}, "metadata.name"),
    Bad("a name too long for the largest elastic size", {"metadata.name": "a" * 54, f"{_ELASTIC}.maxReplicas": 11},
        "metadata.name", elastic=True),
)  # fmt: skip
BAD_POLICIES = (
    _at("an elastic job without workers", f"{_REPLICAS}", {"Master": role()}, _ELASTIC, elastic=True),
    Bad("min above max", {f"{_ELASTIC}.minReplicas": 3, f"{_ELASTIC}.maxReplicas": 2}, f"{_ELASTIC}.minReplicas", True),
    _at("fewer workers than min", f"{_ELASTIC}.minReplicas", 3, f"{_WORKER}.replicas", elastic=True),
    _at("more workers than max", f"{_WORKER}.replicas", 5, elastic=True),
    _at("min of zero", f"{_ELASTIC}.minReplicas", 0, elastic=True),
    Bad("both numbers of processes", {"spec.nprocPerNode": "2", f"{_ELASTIC}.nProcPerNode": 2},
        f"{_ELASTIC}.nProcPerNode", True),
    _at("a rendezvous port of zero", f"{_ELASTIC}.rdzvPort", 0, elastic=True),
    _at("a rendezvous setting without a key", f"{_ELASTIC}.rdzvConf", [{"value": "1"}], f"{_ELASTIC}.rdzvConf[0].key",
        elastic=True),
    _at("a negative number of restarts", f"{_ELASTIC}.maxRestarts", -1, elastic=True),
    _at("metrics that are not a list", f"{_ELASTIC}.metrics", {}, elastic=True),
    _at("zero processes", "spec.nprocPerNode", "0"),
    _at("processes as a word", "spec.nprocPerNode", "all"),
    _at("processes as a number, which v1 refuses too", "spec.nprocPerNode", 2),
    _at("an unknown clean-up policy", f"{_RUN}.cleanPodPolicy", "Some"),
    _at("a negative time to live", f"{_RUN}.ttlSecondsAfterFinished", -1),
    _at("a negative deadline", f"{_RUN}.activeDeadlineSeconds", -5),
    _at("a negative backoff limit", f"{_RUN}.backoffLimit", -1),
    _at("a limit beyond 32 bits", f"{_RUN}.backoffLimit", 2**31),
    _at("suspend as a word", f"{_RUN}.suspend", "yes"),
    _at("an unknown manager", f"{_RUN}.managedBy", "me"),
    _at("an empty manager", f"{_RUN}.managedBy", ""),
    _at("a gang of none", f"{_RUN}.schedulingPolicy.minAvailable", 0),
    _at("a gang's resources that are no quantity", f"{_RUN}.schedulingPolicy.minResources", {"cpu": "x"},
        f"{_RUN}.schedulingPolicy.minResources.cpu"),
    _at("a misspelt field of the run policy", f"{_RUN}.backofLimit", 1, only_strict=True),
    _at("an unknown field of the spec", "spec.replicaSpecs", {}, only_strict=True),
)  # fmt: skip
_CONF = f"{_ELASTIC}.rdzvConf"
_SIZE = "spec.runPolicy.schedulingPolicy.minAvailable"
BAD_RENDEZVOUS = (
    _at("a backend with a blank", f"{_ELASTIC}.rdzvBackend", "c 10d", elastic=True),
    _at("a host with a scheme", f"{_ELASTIC}.rdzvHost", "http://etcd", elastic=True),
    _at("a host with a port", f"{_ELASTIC}.rdzvHost", "etcd:2379", elastic=True),
    _at("an empty name of a run", f"{_ELASTIC}.rdzvId", "", elastic=True),
    _at("etcd without a host", f"{_ELASTIC}.rdzvBackend", "etcd", f"{_ELASTIC}.rdzvHost", elastic=True),
    _at("static with room to grow", f"{_ELASTIC}.rdzvBackend", "static", elastic=True),
    _at("two standalone workers", f"{_ELASTIC}.standalone", True, elastic=True),
    Bad("standalone with a host", {_ELASTIC: {"standalone": True, "rdzvHost": "etcd"}, f"{_WORKER}.replicas": 1},
        f"{_ELASTIC}.standalone", True),
    _at("a key with =", _CONF, [{"key": "a=b", "value": "1"}], f"{_CONF}[0].key", elastic=True),
    _at("a value with ,", _CONF, [{"key": "a", "value": "1,2"}], f"{_CONF}[0].value", elastic=True),
    _at("a setting without a value", _CONF, [{"key": "a"}], f"{_CONF}[0].value", elastic=True),
    _at("a metric without its part", f"{_ELASTIC}.metrics", [{"type": "Pods"}], f"{_ELASTIC}.metrics[0]", elastic=True),
)  # fmt: skip
BAD_GANGS = (
    _at("a gang that needs less than nothing", f"{_RUN}.schedulingPolicy.minResources", {"cpu": "-1"},
        f"{_RUN}.schedulingPolicy.minResources.cpu"),
)  # fmt: skip
BAD_CONTAINERS = (
    _at("an init container named as the main one", f"{_POD}.initContainers", [{"name": "pytorch", "image": "i"}]),
    Bad("a container's name in upper case", {f"{_POD}.containers": [
        {"name": "pytorch", "image": "i"}, {"name": "Side", "image": "i"}]}, f"{_POD}.containers[1].name"),
    _at("two ports to meet at", f"{_CONTAINER}.ports", [
        {"name": "pytorchjob-port", "containerPort": 1}, {"name": "pytorchjob-port", "containerPort": 2}],
        f"{_POD}.containers[0].ports"),
)  # fmt: skip
_AGENT = "spec.agent"
_CHECKPOINT, _MEMORY = f"{_AGENT}.checkpoint", {"directory": "/c", "memory": "1Gi"}
_LOGS = f"{_AGENT}.hang.logRules"
_LOSS = {"name": "loss", "pattern": "loss=([0-9.]+)"}
BAD_AGENTS = (
    Bad("an injected agent beside another rendezvous",
        {f"{_AGENT}.inject": True, f"{_ELASTIC}.rdzvBackend": "etcd-v2"}, f"{_AGENT}.inject", True),
    Bad("an injected agent beside a host to meet at",
        {f"{_AGENT}.inject": True, f"{_ELASTIC}.rdzvHost": "me"}, f"{_AGENT}.inject", True),
    _at("modules for a cold start", f"{_AGENT}.preload", ["numpy"]),
    Bad("modules for a start that is cold by word", {f"{_AGENT}.preload": ["numpy"], f"{_AGENT}.startMode": "Cold"},
        f"{_AGENT}.preload"),
    _at("a bound for a pod that never waits", f"{_AGENT}.rejoinWithinSeconds", 60),
    _at("checkpoints without a limit", f"{_AGENT}.checkpoint", {"directory": "/c"}, f"{_AGENT}.checkpoint.memory"),
    _at("checkpoints at the root", f"{_AGENT}.checkpoint", {"directory": "/", "memory": "1Gi"},
        f"{_AGENT}.checkpoint.directory"),
    _at("checkpoints above a directory", f"{_AGENT}.checkpoint", {"directory": "/a/../b", "memory": "1Gi"},
        f"{_AGENT}.checkpoint.directory"),
    _at("checkpoints without room", f"{_AGENT}.checkpoint", {"directory": "/c", "memory": "0Gi"},
        f"{_AGENT}.checkpoint.memory"),
    _at("more copies than pods need", f"{_AGENT}.checkpoint", {"directory": "/c", "memory": "1Gi", "copies": 4},
        f"{_AGENT}.checkpoint.copies"),
    _at("copies at no rate", _CHECKPOINT, {**_MEMORY, "copyRate": "0"}, f"{_CHECKPOINT}.copyRate"),
    _at("copies at a rate that no connection outlives", _CHECKPOINT, {**_MEMORY, "copyRate": "999k"},
        f"{_CHECKPOINT}.copyRate"),
    _at("copies at a rate in words", _CHECKPOINT, {**_MEMORY, "copyRate": "2GB/s"}, f"{_CHECKPOINT}.copyRate"),
    _at("durable checkpoints in memory", _CHECKPOINT, {**_MEMORY, "durable": {"directory": "/c/durable"}},
        f"{_CHECKPOINT}.durable.directory"),
    _at("durable checkpoints above the memory", _CHECKPOINT,
        {"directory": "/a/b", "memory": "1Gi", "durable": {"directory": "/a"}}, f"{_CHECKPOINT}.durable.directory"),
    _at("durable checkpoints at a relative path", _CHECKPOINT, {**_MEMORY, "durable": {"directory": "mnt"}},
        f"{_CHECKPOINT}.durable.directory"),
    _at("durable checkpoints without a pause", _CHECKPOINT,
        {**_MEMORY, "durable": {"directory": "/mnt", "intervalSeconds": 0}}, f"{_CHECKPOINT}.durable.intervalSeconds"),
    _at("a path for a module", f"{_AGENT}.preload", ["./numpy.py"], f"{_AGENT}.preload[0]"),
    _at("a start mode in lower case", f"{_AGENT}.startMode", "warm"),
    _at("two log rules of one name", _LOGS, [{**_LOSS, "faultOnMatch": True}] * 2),
    _at("a log rule that says nothing", _LOGS, [_LOSS], f"{_LOGS}[0]"),
    _at("a log rule that says nothing aloud", _LOGS, [{**_LOSS, "faultOnMatch": False}], f"{_LOGS}[0]"),
    _at("a log rule of no pattern", _LOGS, [{"name": "loss", "everySeconds": 1}], f"{_LOGS}[0].pattern"),
    _at("a log rule of an empty pattern", _LOGS, [{"name": "loss", "pattern": "", "everySeconds": 1}],
        f"{_LOGS}[0].pattern"),
    _at("a number that is compared with nothing", _LOGS, [{**_LOSS, "operator": "gt"}], f"{_LOGS}[0].value"),
    _at("a value that nothing is compared with", _LOGS, [{**_LOSS, "value": 1, "everySeconds": 1}],
        f"{_LOGS}[0].value"),
    _at("a number of matches that are not compared", _LOGS, [{**_LOSS, "points": 2, "everySeconds": 1}],
        f"{_LOGS}[0].points"),
)  # fmt: skip
BAD = (
    *(*BAD_AGENTS, *BAD_ROLES, *BAD_TEMPLATES, *BAD_NAMES, *BAD_POLICIES),
    *(*BAD_RENDEZVOUS, *BAD_GANGS, *BAD_CONTAINERS),
)

GOOD: dict[str, Job] = {
    "one Master and workers": job(),
    "a Master alone": changed(job(), {_REPLICAS: {"Master": role()}}),
    "workers alone": changed(job(), {_REPLICAS: {"Worker": role(4)}}),
    "no number of replicas means one": changed(job(), {f"{_WORKER}.replicas": GONE, f"{_MASTER}.replicas": GONE}),
    "no restart policy": changed(job(), {f"{_WORKER}.restartPolicy": GONE}),
    "the empty restart policy of v1's clients": changed(job(), {f"{_WORKER}.restartPolicy": ""}),
    "the exit code decides": changed(job(), {f"{_WORKER}.restartPolicy": "ExitCode"}),
    "processes in a pod": changed(job(), {"spec.nprocPerNode": "8"}),
    "one process for each GPU": changed(job(), {"spec.nprocPerNode": "gpu"}),
    "elastic": elastic(),
    "elastic with every field of v1": elastic(
        rdzvBackend="etcd-v2", rdzvPort=2379, rdzvHost="etcd", rdzvId="run",
        rdzvConf=[{"key": "timeout", "value": "9"}],
        standalone=False, maxRestarts=100, nProcPerNode=2,
        metrics=[{"type": "Resource", "resource": {"name": "cpu",
                  "target": {"type": "Utilization", "averageUtilization": 80}}}],
    ),
    "elastic with an empty list of settings": elastic(rdzvConf=[]),
    "every limit": changed(job(), {_RUN: {
        "cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 3600, "backoffLimit": 0,
        "suspend": True, "managedBy": "kueue.x-k8s.io/multikueue",
        "schedulingPolicy": {"minAvailable": 2, "queue": "q", "minResources": {"cpu": 8, "memory": "1Gi"},
                             "priorityClass": "high", "scheduleTimeoutSeconds": 60},
    }}),
    "a sidecar, a probe, a volume, a port name": changed(job(), {
        f"{_POD}.volumes": [{"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        f"{_CONTAINER}.volumeMounts": [{"name": "data", "mountPath": "/dev/shm"}],
        f"{_CONTAINER}.ports": [{"name": "pytorchjob-port", "containerPort": 1234}],
        f"{_CONTAINER}.readinessProbe": {"httpGet": {"path": "/", "port": "pytorchjob-port"}},
        f"{_WORKER}.template.metadata": {"annotations": {"a": "b"}, "creationTimestamp": None},
        f"{_CONTAINER}.resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}},
    }),
    "alone, by torchrun's own rendezvous": changed(elastic(standalone=True), {
        f"{_ELASTIC}.maxReplicas": 1, f"{_WORKER}.replicas": 1,
    }),
    "static, of a fixed size": changed(elastic(rdzvBackend="static"), {
        f"{_ELASTIC}.minReplicas": GONE, f"{_ELASTIC}.maxReplicas": 2,
    }),
    "a backend of the image's own": elastic(rdzvBackend="my.backend_2", rdzvHost="10.0.0.1", rdzvId="a run, the 2nd"),
    "a host by its IPv6 address": elastic(rdzvHost="fd00::1:2"),
    "settings with signs that mean nothing": elastic(
        rdzvConf=[{"key": "a", "value": "b=c d"}, {"key": "b", "value": "1"}],
    ),
    "a gang larger than the job, as a job may become that is scaled down": changed(job(), {_SIZE: 9}),
    "a setting twice, of which torch takes the last": changed(
        elastic(), {_CONF: [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}
    ),
    "every field of the agent": changed(elastic(), {_AGENT: {
        "inject": True, "startMode": "Auto", "preload": ["transformers", "my.model_2"], "restartWindowSeconds": 3600,
        "survive": "Auto", "rejoinWithinSeconds": 60,
        "fenceSeconds": 60, "networkPolicy": True, "caches": False, "reservePods": 2,
        "checkpoint": {"directory": "/data/check-points", "memory": "8Gi", "copies": 2, "copyRate": "2G",
                       "durable": {"directory": "/data/check-points-2", "intervalSeconds": 1800}},
        "preflight": "Fail",
        "hang": {"progressSeconds": 0, "firstProgressSeconds": 600, "idleSeconds": 60, "logRules": [
            {**_LOSS, "operator": "gteq", "value": 2.5, "points": 3, "startSeconds": 60, "everySeconds": 10,
             "stopPattern": "saving"},
            {"name": "nan", "pattern": "nan", "faultOnMatch": True},
        ]},
    }}),
    "an agent that is told nothing": changed(job(), {_AGENT: {}}),
    "an agent that is told nothing of log rules": changed(job(), {_AGENT: {"hang": {"logRules": []}, "inject": False}}),
    "an empty queue, as v1's clients write it": changed(job(), {f"{_RUN}.schedulingPolicy": {"queue": ""}}),
    "the longest name that fits eleven workers": changed(job(), {"metadata.name": "a" * 53, f"{_WORKER}.replicas": 11}),
    "the longest name that fits a hundred workers": changed(elastic("a" * 53), {f"{_ELASTIC}.maxReplicas": 100}),
    "the longest name that fits": changed(job(), {"metadata.name": "a" * 54}),
}  # fmt: skip
