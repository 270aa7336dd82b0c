"""Every name that is visible outside, once: labels, ports, reasons, and the names of children.

Values are training-operator v1's wherever v1 has one, because the Kubeflow SDK, Katib and Kueue select by them.
"""

from enum import StrEnum

GROUP = "kubeflow.org"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "PyTorchJob"
PLURAL = "pytorchjobs"
CONTROLLER = "pytorchjob-controller"

_PREFIX = "training.kubeflow.org"
LABEL_OPERATOR_NAME = f"{_PREFIX}/operator-name"
LABEL_JOB_NAME = f"{_PREFIX}/job-name"
LABEL_REPLICA_TYPE = f"{_PREFIX}/replica-type"
LABEL_REPLICA_INDEX = f"{_PREFIX}/replica-index"
LABEL_JOB_ROLE = f"{_PREFIX}/job-role"
JOB_ROLE_MASTER = "master"
LABEL_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
"""Annotation or label of a job: the Workload that exists for it. MultiKueue sets it on a job that it hands over."""
LABEL_KUEUE_ORIGIN = "kueue.x-k8s.io/multikueue-origin"
"""On a job that MultiKueue has made here: who has handed it over."""
LABEL_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
GATE_KUEUE = "kueue.x-k8s.io/admission"
LABEL_ZONE = "topology.kubernetes.io/zone"
"""On nodes; Kubernetes 1.35 copies it to the pods of a node."""
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""Set by Kubernetes on a node that is cordoned."""
TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Set on a node by a person or a fencing tool: the node is off, and nothing runs on it."""
LABEL_RESERVE_FOR = f"{_PREFIX}/reserve-for"
"""On a reserve pod, in place of a replica's labels: the name of the pod for which it keeps a place."""
LABEL_AGENT = f"{_PREFIX}/agent"
"""On a namespace, `Inject` or `Off`: whether its jobs get the agent that do not mention it."""
ANNOTATION_SPEC_HASH = f"{_PREFIX}/spec-hash"
"""On children that the operator updates: a hash of the spec that it wrote last."""

ANNOTATION_ROTATED = f"{_PREFIX}/rotated"
"""On the coordinator's Secret: the operator may change it, because it made it."""

VOLCANO = "volcano"
NATIVE = "native"
"""Schedulers with kinds of PodGroups of their own; `native` is Kubernetes itself. Every other name counts as
scheduler-plugins (v1).
"""
ANNOTATION_VOLCANO_GROUP = "scheduling.k8s.io/group-name"
ANNOTATION_VOLCANO_TASK = "volcano.sh/task-spec"
LABEL_POD_GROUP = "scheduling.x-k8s.io/pod-group"
ANNOTATION_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

TOKEN_AUDIENCE = "pytorchjob-operator"  # noqa: S105  (a name, no secret)
"""The audience of the pods' service account tokens: only the coordinator accepts them."""
CONTAINER = "pytorch"
PORT_NAME = "pytorchjob-port"
DEFAULT_PORT = 23456
IN_AGENT_COMMANDS = "pytorchjob"
"""In every command that starts the agent: its own name, the module's, and that of the rendezvous backend."""

MAX_NAME = 63
"""Longest host name, Service name and label value that Kubernetes accepts."""


class ReplicaType(StrEnum):
    """The two roles of a job; the value is the key in `spec.pytorchReplicaSpecs`."""

    MASTER = "Master"
    WORKER = "Worker"

    @property
    def label(self) -> str:
        """The role in labels and pod names: lower case."""
        return self.value.lower()


class ChildKind(StrEnum):
    """The kinds of children that a job may have besides its pods; `kube/resource` has their API paths."""

    SERVICE = "Service"
    AUTOSCALER = "HorizontalPodAutoscaler"
    NETWORK_POLICY = "NetworkPolicy"
    VOLCANO_POD_GROUP = "PodGroup.scheduling.volcano.sh"
    POD_GROUP = "PodGroup.scheduling.x-k8s.io"
    NATIVE_POD_GROUP = "PodGroup.scheduling.k8s.io"
    WORKLOAD = "Workload.kueue.x-k8s.io"

    @property
    def kind(self) -> str:
        """The `kind` of its objects."""
        return self.value.partition(".")[0]


class EventType(StrEnum):
    """The two types of events that Kubernetes knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Reason(StrEnum):
    """Reasons of conditions and events; v1's wherever v1 has one (docs/compatibility.md)."""

    CREATED = "PyTorchJobCreated"
    RUNNING = "PyTorchJobRunning"
    RESTARTING = "PyTorchJobRestarting"
    SUCCEEDED = "PyTorchJobSucceeded"
    FAILED = "PyTorchJobFailed"
    SUSPENDED = "PyTorchJobSuspended"
    RESUMED = "PyTorchJobResumed"
    INVALID = "InvalidSpec"
    ELASTIC_WITH_KUEUE = "ElasticWithKueueUnsupported"
    AUTOSCALER_UNAVAILABLE = "AutoscalerUnavailable"
    NETWORK_POLICY_UNAVAILABLE = "NetworkPolicyUnavailable"
    POD_GROUP_PENDING = "PodGroupPending"
    POD_GROUP_UNSCHEDULABLE = "PodGroupUnschedulable"
    GANG_SCHEDULER_UNAVAILABLE = "GangSchedulerUnavailable"
    QUEUED = "PyTorchJobQueued"
    QUEUE_WAITS = "WaitsInQueue"
    QUEUE_NO_QUOTA = "WaitsForQuota"
    QUEUE_TOO_SMALL = "ExceedsQuota"
    QUEUE_NO_FLAVOR = "NoMatchingFlavor"
    QUEUE_NO_TOPOLOGY = "WaitsForTopology"
    QUEUE_MISSING = "QueueMissing"
    QUEUE_STOPPED = "QueueStopped"
    QUEUE_CHECKS = "WaitsForAdmissionChecks"
    QUEUE_EVICTED = "EvictedFromQueue"
    QUEUE_HELD = "HeldInQueue"
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    PRIORITY_CLASS_MISSING = "PriorityClassMissing"
    TAKEN_OVER = "TakenOver"
    CREATED_POD = "SuccessfulCreatePod"
    DELETED_POD = "SuccessfulDeletePod"
    FORCE_DELETED_POD = "ForceDeletedPod"
    NODE_FAILS = "NodeFailsRepeatedly"
    RESERVED = "ReservePodCreated"
    RESERVE_REFUSED = "ReservePodRefused"
    RESERVE_UNAVAILABLE = "ReservePodsUnavailable"
    STRAGGLER_FOUND = "StragglerFound"
    STRAGGLER_RECOVERED = "StragglerRecovered"
    FAILED_CREATE_POD = "FailedCreatePod"
    FAILED_CREATE_SERVICE = "FailedCreateService"
    FAILED_CREATE_AUTOSCALER = "FailedCreateAutoscaler"
    FAILED_CREATE_NETWORK_POLICY = "FailedCreateNetworkPolicy"
    FAILED_CREATE_POD_GROUP = "FailedCreatePodGroup"
    FAILED_CREATE_WORKLOAD = "FailedCreateWorkload"
    DELETED_POD_GROUP = "SuccessfulDeletePodGroup"
    NAME_TAKEN = "NameTaken"
    """An object that belongs to no job of this name has the name of one of the job's."""
    DELETED_JOB_REMAINS = "DeletedJobRemains"
    """An object of the deleted job of this name has its name still."""
    FAILED_UPDATE = "FailedUpdate"
    FAILED_DELETE = "FailedDelete"
    EXITED = "ExitedWithCode"
    AGENT_UNAVAILABLE = "AgentUnavailable"
    AGENT_ABSENT = "AgentAbsent"
    DURABLE_NOT_MOUNTED = "DurableDirectoryNotMounted"
    CRASH_LOOP = "CrashLoop"
    TEMPLATE_RESTART_POLICY = "SetPodTemplateRestartPolicy"
    TEMPLATE_SCHEDULER_NAME = "SetPodTemplateSchedulerName"


class AgentSource(StrEnum):
    """What decides whether the operator puts the agent into a job's pods."""

    JOB = "Job"
    """`spec.agent.inject`."""
    NAMESPACE = "Namespace"
    """The label `LABEL_AGENT` of its namespace."""
    OPERATOR = "Operator"
    """The operator's setting."""
    PODS = "Pods"
    """Its pods: new ones are like them."""
    IMAGE = "Image"
    """Its command names the agent, so its image has it."""
    NO_EFFECT = "NoEffect"
    """An agent would not train with the coordinator, or there is no image to take it from."""


class LossCause(StrEnum):
    """Why a pod was lost: a closed set, because metrics carry it as a label."""

    OOM_KILLED = "OOMKilled"
    ERROR = "Error"
    """Exit code 1 to 127: the program's own."""
    SIGNAL = "Signal"
    """Exit code 128 to 255: killed, or an error after which another attempt makes sense."""
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_SHUTDOWN = "NodeShutdown"
    NODE_LOST = "NodeLost"
    REJECTED = "Rejected"
    """The kubelet refused to start it."""
    DEADLINE = "DeadlineExceeded"
    DELETED = "Deleted"
    """A client deleted it."""
    UNKNOWN = "Unknown"


AGENT_INSTALL = "pytorchjob-agent-install"
"""The init container that copies the agent into a pod."""


def service_name(job: str) -> str:
    """Return the name of a job's headless Service."""
    return job


def pod_name(job: str, replica_type: ReplicaType, index: int) -> str:
    """Return the name of a replica's pod, which is its host name too."""
    return f"{job}-{replica_type.label}-{index}"


def reserve_name(pod: str) -> str:
    """Return the name of the reserve pod of a replica's pod. It is no host name, so it may be longer than one."""
    return f"{pod}-reserve"


def host_name(job: str, replica_type: ReplicaType, index: int) -> str:
    """Return the replica's DNS name inside its namespace; it does not depend on the cluster's domain."""
    return f"{pod_name(job, replica_type, index)}.{service_name(job)}"


def job_labels(job: str) -> dict[str, str]:
    """Return the labels of every child of a job, which also select them."""
    return {LABEL_OPERATOR_NAME: CONTROLLER, LABEL_JOB_NAME: job}


def replica_labels(job: str, replica_type: ReplicaType, index: int) -> dict[str, str]:
    """Return the labels of a replica's pod except the job role."""
    return {
        **job_labels(job),
        LABEL_REPLICA_TYPE: replica_type.label,
        LABEL_REPLICA_INDEX: str(index),
    }


def pod_group_name(job: str) -> str:
    """Return the name of a job's PodGroup."""
    return job


def workload_name(job: str) -> str:
    """Return the name of a job's Workload; one of another kind of job may have the job's name."""
    return f"pytorchjob-{job}"


def selector(job: str, replica_type: ReplicaType) -> str:
    """Return the `selector` of a replica status: sorted, as v1 prints it; autoscalers read it."""
    labels = {**job_labels(job), LABEL_REPLICA_TYPE: replica_type.label}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def operator_selector() -> str:
    """Return the selector of the children of all jobs of this operator."""
    return f"{LABEL_OPERATOR_NAME}={CONTROLLER}"
