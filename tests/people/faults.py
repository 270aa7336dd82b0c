# ruff: noqa: E501 - messages as their components write them, in one piece
"""The table of seeded faults. A diagnosis has to name the cause of each, and no other cause."""

from collections.abc import Callable
from typing import NamedTuple

from pytorchjob_operator import names
from tests.people import seeds
from tests.people.fake_cluster import FakeCluster, an_event, timestamp
from tests.people.seeds import (
    JOB,
    MASTER,
    RUNNING,
    W0,
    W1,
    Object,
    degraded,
    ended,
    job,
    pending,
    pod,
    refused,
    starting,
)

Part = Object | Callable[[FakeCluster], None]
NONE = ""
"""The job has no problem: a diagnosis names no cause."""


class Fault(NamedTuple):
    """A job with a fault."""

    what: str
    cause: str
    parts: tuple[Part, ...]


def fault(what: str, cause: str, *parts: Part) -> Fault:
    return Fault(what, cause, parts)


def crash(what: str, cause: str, message: str, code: int = 1, reason: str = "Error") -> Fault:
    """A worker that ends with this message; the others run."""
    return fault(
        what, cause, job(RUNNING), pod(MASTER), pod(W0, ended(code, message, reason=reason), phase="Failed"), pod(W1)
    )


def creation(what: str, cause: str, message: str, reason: str = "FailedCreatePod") -> Fault:
    """A pod that the operator cannot create."""
    return fault(what, cause, job(refused(message, reason)), pod(MASTER))


def scheduler(what: str, cause: str, message: str, *parts: Part, requests: Object | None = None) -> Fault:
    """A pod that finds no node."""
    tail = (
        " no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    return fault(what, cause, job(), pod(MASTER), pending(W0, message + tail, requests=requests), pod(W1), *parts)


def pull(what: str, cause: str, message: str) -> Fault:
    """An image that a node cannot pull."""
    words = f'Back-off pulling image "{seeds.IMAGE}": ErrImagePull: {message}'
    return fault(
        what, cause, job(), starting(MASTER, "ImagePullBackOff", words), starting(W0, "ErrImagePull", message), pod(W1)
    )


_RPC = f'failed to pull and unpack image "{seeds.IMAGE}": failed to resolve reference "{seeds.IMAGE}"'
_TRACE = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n'
_GPU = {"nvidia.com/gpu": "4", "cpu": "8"}
_GPU_TAINT = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
_CONTROL_PLANE = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
_NO_COORDINATOR = (
    "no coordinator within 600 s: the coordinator has not answered for 605 s (is the operator running, may this pod reach its"
    " Service?)"
)
_LOST = "rank 1 (train-worker-0) exited with code 1 at step 7: ValueError: batch size must be positive; 2 other ranks failed too"

IMAGES = (
    pull(
        "an image that was never pushed",
        "ImageNotFound",
        f"rpc error: code = NotFound desc = {_RPC}: {seeds.IMAGE}: not found",
    ),
    pull(
        "a private registry without a pull secret",
        "ImageNoPermission",
        f"{_RPC}: pull access denied, repository does not exist or may require authorization: server message:"
        " insufficient_scope: authorization failed",
    ),
    pull(
        "a pull secret with a wrong password",
        "ImageNoPermission",
        f"{_RPC}: unexpected status from HEAD request to https://registry.example.com/v2/team/train/manifests/1: 403 Forbidden",
    ),
    pull(
        "a registry whose name is wrong",
        "RegistryUnreachable",
        f'{_RPC}: failed to do request: Head "https://registry.example.com/v2/team/train/manifests/1": dial tcp: lookup'
        " registry.example.com: no such host",
    ),
    pull(
        "an image for another processor",
        "ImageWrongPlatform",
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{seeds.IMAGE}": no match for platform in'
        " manifest: not found",
    ),
    pull(
        "a node whose disk is full",
        "NodeDiskFull",
        f'failed to pull and unpack image "{seeds.IMAGE}": failed to extract layer sha256:0a1b: write /var/lib/containerd/x:'
        " no space left on device",
    ),
    fault(
        "an older kubelet, which has the reason in an event only",
        "ImageNotFound",
        job(),
        starting(MASTER, "ImagePullBackOff", f'Back-off pulling image "{seeds.IMAGE}"'),
        seeds.of_pod(MASTER, "Failed", f'Failed to pull image "{seeds.IMAGE}": manifest unknown: manifest unknown'),
        seeds.of_pod(MASTER, "Failed", "Error: ImagePullBackOff", -29),
        pod(W0),
        pod(W1),
    ),
    fault(
        "an image that was not loaded into kind",
        "ImageNotOnNode",
        job(),
        starting(
            MASTER, "ErrImageNeverPull", f'Container image "{seeds.IMAGE}" is not present with pull policy of Never'
        ),
        pod(W0),
        pod(W1),
    ),
    fault(
        "an image with a space in its name",
        "InvalidImageName",
        job(),
        starting(
            MASTER,
            "InvalidImageName",
            'Failed to apply default image tag "my image": couldn\'t parse image name "my image": invalid reference format',
        ),
        pod(W0),
        pod(W1),
    ),
)

SCHEDULING = (
    scheduler(
        "too little CPU", "InsufficientCpu", "0/3 nodes are available: 3 Insufficient cpu.", requests={"cpu": "16"}
    ),
    scheduler(
        "too little memory",
        "InsufficientMemory",
        "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient"
        " memory.",
        requests={"memory": "64Gi"},
    ),
    scheduler(
        "GPUs that other jobs use",
        "InsufficientGpu",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        *(seeds.node(f"node-{index}", gpu="4") for index in (1, 2, 3)),
        requests=_GPU,
    ),
    scheduler(
        "no GPU in the cluster",
        "NoSuchDevice",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        *(seeds.node(f"node-{index}") for index in (1, 2, 3)),
        requests=_GPU,
    ),
    scheduler(
        "GPU nodes with a taint, beside nodes without GPUs",
        "UntoleratedTaint",
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu.",
        seeds.node("node-1"),
        seeds.node("node-2"),
        seeds.node("node-3", taints=_GPU_TAINT, gpu="8"),
        requests=_GPU,
    ),
    scheduler(
        "a taint, with its name in the message",
        "UntoleratedTaint",
        "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) had"
        " untolerated taint {team: vision}.",
    ),
    scheduler(
        "a control plane, and workers that are full",
        "InsufficientCpu",
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.",
        seeds.node("node-0", taints=_CONTROL_PLANE),
        seeds.node("node-1"),
        seeds.node("node-2"),
        requests={"cpu": "6"},
    ),
    scheduler(
        "nodes that are not ready",
        "NodesNotReady",
        "0/3 nodes are available: 3 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
    ),
    scheduler(
        "a node selector that no node matches",
        "NoMatchingNode",
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
    ),
    scheduler("cordoned nodes", "NodesCordoned", "0/3 nodes are available: 3 node(s) were unschedulable."),
    scheduler(
        "several reasons, and nodes that cannot be read",
        "Unschedulable",
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu.",
        FakeCluster.refuse_nodes,
        requests=_GPU,
    ),
    scheduler(
        "host ports in use",
        "HostPortInUse",
        "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.",
    ),
    scheduler("no nodes at all", "NoNodes", "no nodes available to schedule pods."),
    fault(
        "a claim without a volume",
        "ClaimPending",
        job(),
        pod(MASTER),
        pending(
            W0,
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        ),
        pod(W1),
    ),
    fault(
        "a claim that does not exist",
        "ClaimMissing",
        job(),
        pod(MASTER),
        pending(
            W0,
            '0/3 nodes are available: persistentvolumeclaim "data" not found.',
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        ),
        pod(W1),
    ),
)

CREATION = (
    creation("a name that is taken", "NameTaken", "pods 'train-worker-0' is somebody else's", "NameTaken"),
    creation(
        "a deleted job's pod",
        "DeletedJobRemains",
        "pods 'train-worker-0' still exists",
        "DeletedJobRemains",
    ),
    creation(
        "a quota",
        "QuotaExceeded",
        'pods "train-worker-0" is forbidden: exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=3,'
        " limited: requests.cpu=4",
    ),
    creation(
        "a quota that wants requests",
        "QuotaNeedsResources",
        'pods "train-worker-0" is forbidden: failed quota: compute: must specify limits.cpu for: pytorch; limits.memory'
        " for: pytorch",
    ),
    creation(
        "Pod Security",
        "PodSecurity",
        'pods "train-worker-0" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
        ' (container "pytorch" must set securityContext.allowPrivilegeEscalation=false)',
    ),
    creation(
        "a service account that does not exist",
        "ServiceAccountMissing",
        'pods "train-worker-0" is forbidden: error looking up service account team/trainer: serviceaccount "trainer"'
        " not found",
    ),
    creation(
        "a policy engine",
        "AdmissionDenied",
        'admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod/team/train-worker-0 was blocked'
        " due to the following policies",
    ),
    creation(
        "a webhook that is down",
        "AdmissionWebhookAway",
        'Internal error occurred: failed calling webhook "sidecar.istio.io": failed to call webhook: Post'
        ' "https://istiod.istio-system.svc:443/inject?timeout=10s": dial tcp 10.96.1.2:443: connect: connection refused',
    ),
    creation(
        "an operator without rights here",
        "OperatorLacksRight",
        'pods is forbidden: User "system:serviceaccount:pytorchjob-system:pytorchjob-operator" cannot create resource'
        ' "pods" in API group "" in the namespace "team"',
    ),
    creation(
        "a namespace that goes",
        "NamespaceTerminating",
        'pods "train-worker-0" is forbidden: unable to create new content in namespace team because it is being terminated',
    ),
    creation(
        "a priority class that does not exist",
        "PriorityClassMissing",
        'pods "train-worker-0" is forbidden: no PriorityClass with name high was found',
    ),
    creation(
        "a request above its limit",
        "PodInvalid",
        'Pod "train-worker-0" is invalid: spec.containers[0].resources.requests: Invalid value: "4": must be less than or'
        " equal to cpu limit of 2",
    ),
)

QUEUED = job(seeds.condition("Suspended"), runPolicy={"suspend": True}, labels={names.LABEL_KUEUE_QUEUE: "gpu"})
HELD = (
    job(seeds.condition("Waiting", reason="SchedulingGated")),
    *(seeds.held(name) for name in (MASTER, W0, W1)),
)
"""A job whose pods Kueue holds back as a group."""
QUEUES = (
    fault(
        "Kueue holds a group of pods that waits for quota",
        "KueueWaitsForQuota",
        *HELD,
        seeds.kueue(
            seeds.workload(
                "couldn't assign flavors to pod set 47084aeb: insufficient unused quota for cpu", name="group"
            )
        ),
    ),
    fault(
        "Kueue has no Workload yet for a group of pods",
        "KueueWaits",
        *HELD,
        seeds.kueue(seeds.workload("of another group", name="other")),
    ),
    fault(
        "a group of pods in a queue that does not exist",
        "KueueWaits",
        *HELD,
        seeds.kueue(seeds.workload("LocalQueue gpu doesn't exist", "Inadmissible", "group")),
    ),
    fault("suspended by a user", "SuspendedByUser", job(seeds.condition("Suspended"), runPolicy={"suspend": True})),
    fault(
        "Kueue waits for quota",
        "KueueWaitsForQuota",
        QUEUED,
        seeds.kueue(
            seeds.workload(
                "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor default,"
                " 4 more needed"
            )
        ),
    ),
    fault(
        "a queue that does not exist",
        "KueueQueueMissing",
        QUEUED,
        seeds.kueue(seeds.workload("LocalQueue gpu doesn't exist", "Inadmissible")),
    ),
    *(
        fault(name, cause, QUEUED, seeds.kueue(seeds.workload("what Kueue says", reason)))
        for name, cause, reason in (
            ("a job that is larger than its queue", "KueueQuotaTooSmall", "ExceedsMaxQuota"),
            ("no flavor for the job's pods", "KueueFlavorMissing", "NoMatchingFlavor"),
            ("a topology without one place for the job", "KueueTopologyDoesNotFit", "TopologyPlacementFailed"),
            ("a queue that an administrator has stopped", "KueueQueueStopped", "Suspended"),
            ("a job that Kueue has not looked at", "KueueWaits", "PendingEvaluation"),
        )
    ),
    fault(
        "an admission check that is not ready",
        "KueueChecksNotReady",
        QUEUED,
        seeds.kueue(seeds.workload_with(seeds.condition("QuotaReserved"))),
    ),
    fault(
        "a job whose quota Kueue has taken back",
        "KueueEvicted",
        QUEUED,
        seeds.kueue(seeds.workload_with(seeds.condition("QuotaReserved"), seeds.condition("Evicted"))),
    ),
    fault(
        "a Workload that somebody holds",
        "KueueWorkloadHeld",
        QUEUED,
        seeds.kueue(seeds.workload_with(active=False)),
    ),
    fault(
        "a Kueue that is not there",
        "KueueUnavailable",
        job(
            seeds.condition("Suspended", reason="PyTorchJobQueued"),
            seeds.condition("Waiting", "Kueue's Workloads cannot be used", reason="QueueUnavailable"),
            labels={names.LABEL_KUEUE_QUEUE: "gpu"},
        ),
    ),
    fault(
        "a Kueue that does not serve PyTorchJobs",
        "KueueIgnoresJob",
        QUEUED,
        seeds.kueue(),
    ),
    fault(
        "a gang that does not fit",
        "GangWaits",
        job(
            seeds.condition(
                "Waiting",
                "PodGroup train is not in volcano's queue yet (phase: Pending): NotEnoughResources: 3/3 tasks in gang"
                " unschedulable",
                reason="PodGroupUnschedulable",
            )
        ),
    ),
    fault(
        "a gang scheduler that is not installed",
        "GangSchedulerMissing",
        job(
            seeds.condition(
                "Waiting",
                "no pod is created: the resource scheduling.volcano.sh/v1beta1 PodGroup cannot be used: not found",
                reason="GangSchedulerUnavailable",
            )
        ),
    ),
)

PROGRAMS = (
    crash("out of memory", "OOMKilled", "", 137, "OOMKilled"),
    crash(
        "a module that is not in the image", "ModuleMissing", f"{_TRACE}ModuleNotFoundError: No module named 'einops'"
    ),
    crash("no torch", "TorchMissing", f"{_TRACE}ModuleNotFoundError: No module named 'torch'"),
    crash(
        "a script that does not exist",
        "ScriptMissing",
        "python: can't open file '/app/trian.py': [Errno 2] No such file or directory",
        2,
    ),
    crash(
        "a data file that does not exist",
        "FileMissing",
        f"{_TRACE}FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    ),
    crash(
        "a command that does not exist",
        "CommandNotFound",
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable"
        ' to start container process: error during container init: exec: "pyhton": executable file not found in $PATH:'
        " unknown",
        128,
        "StartError",
    ),
    crash("a command that a shell does not find", "CommandNotFound", "/bin/sh: 1: torchrum: not found", 127),
    crash(
        "an image without the agent",
        "AgentMissing",
        "failed to create containerd task: OCI runtime create failed: runc create failed: unable to start container process:"
        ' error during container init: exec: "pytorchjob-agent": executable file not found in $PATH: unknown',
        128,
        "StartError",
    ),
    crash(
        "a GPU with too little memory",
        "CudaOutOfMemory",
        f"{_TRACE}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15 GiB",
    ),
    crash(
        "a build of torch without CUDA",
        "GpuNotUsable",
        f"{_TRACE}AssertionError: Torch not compiled with CUDA enabled",
    ),
    crash(
        "more processes than GPUs",
        "WrongNprocPerNode",
        f"{_TRACE}torch.AcceleratorError: CUDA error: invalid device ordinal\nGPU device may be out of range, do you have"
        " enough GPUs?",
    ),
    crash(
        "too little shared memory",
        "SharedMemoryFull",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        f"{_TRACE}RuntimeError: DataLoader worker (pid 52) is killed by signal: Bus error. It is possible that dataloader's"
        " workers are out of shared memory. Please try to raise your shared memory limit.",
    ),
    crash("a full disk", "DiskFull", f"{_TRACE}OSError: [Errno 28] No space left on device: '/ckpt/step-7.pt'"),
    crash(
        "a port in use",
        "PortInUse",
        f"{_TRACE}torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
        " port: 23456, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    crash(
        "a host name that does not resolve",
        "NameNotResolved",
        f"{_TRACE}socket.gaierror: [Errno -2] Name or service not known",
    ),
    crash(
        "an NCCL interface that does not exist",
        "NcclInterface",
        f"{_TRACE}torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, internal error, NCCL version"
        " 2.27.5\nncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket interface found",
    ),
    crash(
        "an NCCL error",
        "NcclError",
        f"{_TRACE}torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system error,"
        " NCCL version 2.27.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device"
        " error.\nLast error:\nsocketStartConnect: Connect to 10.0.0.7<52822> failed : No route to host",
    ),
    crash("an exception", "PythonException", f"{_TRACE}ValueError: batch size must be positive"),
    crash("a segmentation fault", "NativeCrash", "", 139),
    crash("an exit code without a word", "ProgramFailed", "", 3),
    fault(
        "an exception under torchrun, which reports it again",
        "PythonException",
        job(RUNNING),
        pod(MASTER),
        pod(
            W0,
            ended(
                1,
                f"[rank1]: {_TRACE}[rank1]: KeyError: 'labels'\nE0101 torch.distributed.elastic.multiprocessing.api: failed"
                " (exitcode: 1) local_rank: 0\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
                "============\ntrain.py FAILED\n------------\nexitcode  : 1 (pid: 31)\n============",
            ),
            phase="Failed",
        ),
        pod(W1),
    ),
    *(
        fault(
            f"a worker that a signal ends under torchrun, which saw another one fail first: {name}",
            cause,
            job(RUNNING),
            pod(
                W0,
                ended(
                    1,
                    f"[rank1]: {_TRACE}[rank1]: RuntimeError: [127.0.0.1]:41234: Connection closed by peer\n"
                    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================\n"
                    f"Failures:\n[1]:\n  rank      : 2 (local_rank: 1)\n  exitcode  : {code} (pid: 32)\n"
                    "----------------------------\nRoot Cause (first observed failure):\n[0]:\n"
                    "  rank      : 1 (local_rank: 0)\n  exitcode  : 1 (pid: 31)\n============================",
                ),
                phase="Failed",
            ),
            pod(W1),
        )
        for name, cause, code in (("SIGKILL", "WorkerKilled", -9), ("SIGSEGV", "NativeCrash", -11))
    ),
    fault(
        "a rank out of memory, and the others that lost it",
        "OOMKilled",
        job(seeds.condition("Restarting", "job train is restarting because Worker replica(s) failed.")),
        pod(MASTER, ended(1, f"{_TRACE}RuntimeError: [10.0.0.7]:41234: Connection closed by peer"), phase="Failed"),
        pod(W0, ended(137, reason="OOMKilled", seconds=-25), phase="Failed"),
        pod(W1, ended(134, "terminate called after throwing: NCCL error: remote process exited"), phase="Failed"),
    ),
    fault(
        "a log of which the container left no message",
        "ModuleMissing",
        job(
            RUNNING,
            degraded("CrashLoop", "pod train-worker-0 has ended 5 times, each time soon after its start: exit code 1"),
        ),
        pod(MASTER),
        seeds.looping(W0, ended(1)),
        pod(W1),
        lambda cluster: cluster.write(
            W0, "Traceback (most recent call last):", "ModuleNotFoundError: No module named 'wandb'"
        ),
    ),
    fault(
        "an init container that cannot install the agent",
        "AgentInstallFailed",
        job(agent={"inject": True}),
        pod(MASTER),
        pod(
            W0,
            seeds.waiting("PodInitializing"),
            phase="Pending",
            status={
                "initContainerStatuses": [
                    seeds.container(
                        seeds.waiting("CrashLoopBackOff"),
                        restarts=3,
                        last=ended(
                            1, "pytorchjob-agent: /opt/pytorchjob-agent cannot be written: Read-only file system"
                        ),
                        name="pytorchjob-agent-install",
                    )
                ]
            },
        ),
        pod(W1),
    ),
)

TRAINING = (
    fault(
        "workers that hang",
        "WorkersHang",
        job(
            RUNNING,
            seeds.failed(
                "rank 1 (train-worker-0) hangs at step 7: no step for 120 s (limit 60 s); rank 1 is in train.py:12 load(), rank"
                " 0 waits in all_reduce (train.py:30 step()); 2 other ranks wait for it. All 2 restarts are used up"
            ),
            status=seeds.failure(
                "RestartsUsedUp", kind="WorkersHang", message="no step for 120 s; in train.py:12 load()"
            ),
        ),
        pod(MASTER),
        pod(
            W0, seeds.agent("WorkerHangs", 1, "no step for 120 s; it is in train.py:12 load()", rank=1), phase="Failed"
        ),
        pod(W1),
    ),
    fault(
        "a NetworkPolicy between the pods and the operator",
        "CoordinatorUnreachable",
        job(RUNNING),
        pod(MASTER, seeds.agent("CoordinatorUnreachable", 201, _NO_COORDINATOR)),
        pod(W0, seeds.agent("CoordinatorUnreachable", 201, _NO_COORDINATOR)),
        pod(W1, seeds.agent("CoordinatorUnreachable", 201, _NO_COORDINATOR)),
        seeds.operator(),
    ),
    fault(
        "one pod that cannot reach the operator",
        "CoordinatorUnreachable",
        job(
            RUNNING,
            degraded(
                "CoordinatorUnreachable",
                "train-worker-0 cannot reach the coordinator, but its peers hear it. Its workers continue. Check the"
                " NetworkPolicies between the job's pods and the operator",
            ),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a token of another key",
        "AgentRefused",
        job(
            RUNNING,
            degraded("AgentRefused", "an agent with the name 'train-worker-0' has a wrong token: bad signature"),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "more agents than the operator has room for",
        "AgentLimit",
        job(
            RUNNING,
            degraded("AgentLimit", "no connection for job train: job train has 500 connections, and 500 is the limit"),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a memory for checkpoints that is full",
        "CheckpointsNotKept",
        job(
            RUNNING,
            degraded(
                "CheckpointsNotKept",
                "train-worker-0: CheckpointMemoryFull: no checkpoint is kept in memory: 900.0 MB of 1000.0 MB are used",
            ),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a closed port between pods",
        "PeerUnreachable",
        job(
            RUNNING,
            degraded(
                "PeerUnreachable",
                "train-worker-0 cannot connect to 10.0.0.7:41231: timed out. Allow the job's pods to connect to each other",
            ),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a rank that is slower than the others",
        "SlowRank",
        job(
            RUNNING,
            status={
                "stragglers": [
                    {"rank": 1, "pod": W0, "node": "node-1", "percent": 31, "since": "2026-11-01T12:00:00Z"},
                    {"rank": 2, "pod": W1, "node": "node-1", "percent": 22, "since": "2026-11-01T12:00:00Z"},
                ]
            },
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a rank that logs alone",
        "OwnWorkOfRank",
        job(
            RUNNING,
            status={
                "stragglers": [
                    {
                        "rank": 1,
                        "pod": W0,
                        "node": "node-1",
                        "percent": 31,
                        "since": "2026-11-01T12:00:00Z",
                        "place": "train.py:9 log",
                    },
                    {"rank": 2, "pod": W1, "node": "node-1", "percent": 22, "since": "2026-11-01T12:00:00Z"},
                ]
            },
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "unequal versions",
        "UnequalVersions",
        job(
            RUNNING,
            degraded(
                "UnequalVersions",
                "torch versions differ: train-worker-1 has 2.4.0, the others have 2.15.0; use one image",
            ),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a durable directory without a volume",
        "DurableDirectoryNotMounted",
        job(
            RUNNING,
            seeds.condition(
                "ConfigValid",
                "spec.agent.checkpoint.durable.directory: no volume of Worker contains /mnt/run-1: what is saved there"
                " ends with the pod; mount a volume there",
                reason="DurableDirectoryNotMounted",
                status="False",
            ),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "an agent that cannot be injected",
        "AgentNotInjected",
        job(
            RUNNING,
            seeds.condition(
                "ConfigValid",
                "spec.agent.inject has no effect: elasticPolicy.rdzvBackend chooses another rendezvous",
                reason="AgentUnavailable",
                status="False",
            ),
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "torchrun that waits for more nodes than there are",
        "WrongReplicas",
        job(RUNNING, container={"command": ["torchrun", "--nnodes=4", "train.py"]}),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "torchrun that gave up waiting, without another fault",
        "RendezvousTimeout",
        job(RUNNING),
        pod(
            MASTER,
            ended(
                1,
                f"{_TRACE}torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/3 clients joined.",
            ),
            phase="Failed",
        ),
        pod(W0),
        pod(W1),
    ),
    fault(
        "an elastic job below its minimum, because of an image",
        "ImageNotFound",
        job(
            RUNNING,
            degraded(
                "RendezvousWaiting",
                "1 of at least 2 members are ready; waiting for train-worker-1 (ImagePullBackOff: not found)",
            ),
            elasticPolicy={"minReplicas": 2, "maxReplicas": 3},
        ),
        pod(MASTER),
        pod(W0),
        starting(W1, "ErrImagePull", f"rpc error: code = NotFound desc = {_RPC}: {seeds.IMAGE}: not found"),
    ),
    fault(
        "an elastic job below its minimum, for a reason that is not known",
        "RendezvousWaiting",
        job(
            RUNNING,
            degraded(
                "RendezvousWaiting",
                "1 of at least 2 members are ready; waiting for train-worker-1 (its agent has not connected)",
            ),
            elasticPolicy={"minReplicas": 2, "maxReplicas": 3},
        ),
        pod(MASTER),
        pod(W0),
        pod(W1),
    ),
    fault(
        "a pod that the agent's checks found unfit",
        "PreflightFailed",
        job(RUNNING),
        pod(MASTER),
        pod(W0, seeds.agent("PreflightFailed", 200, "memlock: 64 KiB may be pinned: set ulimits"), phase="Failed"),
        pod(W1),
    ),
    fault(
        "a worker whose GPU is broken",
        "DeviceFailed",
        job(RUNNING),
        pod(MASTER),
        pod(W0, seeds.agent("DeviceFailed", 200, "CUDA error: uncorrectable ECC error encountered"), phase="Failed"),
        pod(W1),
    ),
    fault(
        "an agent in an image without torch",
        "TorchMissing",
        job(
            seeds.failed(
                "pod train-worker-0 ended 3 times in a row soon after its start: TorchMissing: torch cannot be imported"
            )
        ),
        pod(MASTER),
        pod(
            W0,
            seeds.agent(
                "TorchMissing",
                78,
                "torch cannot be imported in this image (No module named 'torch'): install torch 2.4",
            ),
            phase="Failed",
        ),
        pod(W1),
    ),
)

CONTAINERS = (
    fault(
        "a Secret that does not exist",
        "SecretOrConfigMapMissing",
        job(),
        pod(MASTER),
        starting(W0, "CreateContainerConfigError", 'secret "wandb" not found'),
        pod(W1),
    ),
    fault(
        "a key that a Secret does not have",
        "KeyMissing",
        job(),
        pod(MASTER),
        starting(W0, "CreateContainerConfigError", "couldn't find key api-key in Secret team/wandb"),
        pod(W1),
    ),
    fault(
        "an image that runs as root, where that is forbidden",
        "ImageRunsAsRoot",
        job(),
        pod(MASTER),
        starting(
            W0,
            "CreateContainerConfigError",
            'container has runAsNonRoot and image will run as root (pod: "train-worker-0_team(uid)", container: pytorch)',
        ),
        pod(W1),
    ),
    fault(
        "a ConfigMap that a volume needs",
        "SecretOrConfigMapMissing",
        job(),
        pod(MASTER),
        starting(W0, "ContainerCreating"),
        seeds.of_pod(
            W0, "FailedMount", 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found'
        ),
        pod(W1),
    ),
    fault(
        "a volume that another node has",
        "VolumeInUse",
        job(),
        pod(MASTER),
        starting(W0, "ContainerCreating"),
        seeds.of_pod(
            W0,
            "FailedAttachVolume",
            'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) train-master-0',
        ),
        pod(W1),
    ),
    fault(
        "a node without a network plugin",
        "PodNetworkFails",
        job(),
        pod(MASTER),
        starting(W0, "ContainerCreating"),
        seeds.of_pod(
            W0,
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox: plugin"
            ' type="calico" failed (add): connection is unauthorized',
        ),
        pod(W1),
    ),
)

SICK_GPU = {
    **seeds.container(seeds.running()),
    "allocatedResourcesStatus": [
        {
            "name": "nvidia.com/gpu",
            "resources": [
                {"resourceID": "GPU-7", "health": "Healthy"},
                {"resourceID": "GPU-8", "health": "Unhealthy", "message": "Xid 79"},
            ],
        }
    ],
}
NODES = (
    fault(
        "a GPU that fell off the bus",
        "DeviceUnhealthy",
        job(RUNNING),
        pod(MASTER),
        pod(W0, SICK_GPU, node="node-2"),
        pod(W1),
        seeds.node("node-1"),
        seeds.node("node-2"),
    ),
    fault(
        "a node that an autoscaler removes",
        "PodThreatened",
        an_event(
            JOB,
            "PodThreatened",
            "train-worker-0: its node node-2 has the taint ToBeDeletedByClusterAutoscaler. The workers are asked to save",
        ),
        job(RUNNING),
        pod(MASTER, node="node-1"),
        pod(W0, node="node-2"),
        pod(W1, node="node-1"),
        seeds.node("node-1"),
        seeds.node("node-2", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
    ),
    fault(
        "a node that does not answer",
        "NodeLost",
        job(
            RUNNING,
            degraded("RendezvousWaiting", "2 of 3 members are ready; waiting for train-worker-0 (its agent is silent)"),
        ),
        pod(MASTER, node="node-1"),
        {
            **pod(W0, node="node-2"),
            "status": {**pod(W0)["status"], "conditions": [seeds.condition("Ready", status="False")]},
        },
        pod(W1, node="node-1"),
        seeds.node("node-1"),
        seeds.node("node-2", ready=False),
    ),
    fault(
        "a pod that was evicted for memory",
        "EvictedForMemory",
        job(RUNNING),
        pod(MASTER),
        seeds.lost(
            W0,
            "Evicted",
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container pytorch was using"
            " 30Gi, request is 1Gi, has larger consumption of memory. ",
            seeds.condition("DisruptionTarget", "The node was low on resource: memory.", reason="TerminationByKubelet"),
        ),
        pod(W1),
    ),
    fault(
        "a pod that wrote too much to its disk",
        "EvictedForDisk",
        job(RUNNING),
        pod(MASTER),
        seeds.lost(W0, "Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "),
        pod(W1),
    ),
    fault(
        "a pod of higher priority",
        "Preempted",
        job(RUNNING),
        pod(MASTER),
        seeds.deleted(
            W0, "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"
        ),
        pod(W1),
    ),
    fault(
        "a drained node",
        "Drained",
        job(RUNNING),
        pod(MASTER),
        seeds.deleted(W0, "EvictionByEvictionAPI", "Eviction API: evicting"),
        pod(W1),
    ),
    fault(
        "a taint that evicts",
        "EvictedByTaint",
        job(RUNNING),
        pod(MASTER),
        seeds.deleted(W0, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        pod(W1),
    ),
    fault(
        "devices that the node lost",
        "RejectedByNode",
        job(RUNNING),
        pod(MASTER),
        seeds.rejected(
            W0,
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested:"
            " 4, Available: 0, which is unexpected",
        ),
        pod(W1),
    ),
)

REPLACED = (
    fault(
        "a pod out of memory that was replaced since",
        "OOMKilled",
        job(seeds.condition("Restarting", "job train is restarting because Worker replica(s) failed.", seconds=-20)),
        pod(MASTER),
        starting(W0, "ContainerCreating"),
        pod(W1),
        an_event(JOB, "ExitedWithCode", "Pod: team.train-worker-0 exited with code 137 (OOMKilled)", seconds=-25),
    ),
    fault(
        "pods that were evicted until the limit of restarts",
        "EvictedForMemory",
        job(seeds.failed("Job train has failed because it has reached the specified backoff limit")),
        an_event(
            JOB,
            "Evicted",
            "Error pod train-worker-0 status message: The node was low on resource: memory. Container pytorch was using 30Gi",
            seconds=-90,
        ),
    ),
)

LIMITS = (
    fault(
        "a deadline that is over",
        "DeadlineExceeded",
        job(
            seeds.failed("Job train has failed because it was active longer than specified deadline"),
            status=seeds.failure("DeadlineExceeded"),
            runPolicy={"activeDeadlineSeconds": 60},
        ),
    ),
    fault(
        "a backoff limit, and the exception behind it",
        "PythonException",
        job(
            seeds.failed("Job train has failed because it has reached the specified backoff limit"),
            status=seeds.failure("BackoffLimitExceeded"),
            runPolicy={"backoffLimit": 3},
        ),
        pod(W0, ended(1, f"{_TRACE}ValueError: batch size must be positive"), phase="Failed"),
    ),
    fault(
        "a backoff limit, and no pod is left",
        "BackoffLimit",
        job(
            seeds.failed("Job train has failed because it has reached the specified backoff limit"),
            status=seeds.failure("BackoffLimitExceeded"),
            runPolicy={"backoffLimit": 3},
        ),
    ),
    fault(
        "restarts that are used up, with the error in the condition",
        "PythonException",
        job(
            seeds.failed(f"{_LOST}. All 3 restarts are used up"),
            status=seeds.failure("RestartsUsedUp", exitCode=1, message="ValueError: batch size must be positive"),
            elasticPolicy={"maxRestarts": 3},
        ),
    ),
)

_BACK = (seeds.uninstalled, seeds.v1())
_OTHER_KINDS = ("--enable-scheme=tfjob", "--enable-scheme", "mpijob")
OPERATOR = (
    fault("no operator", "OperatorMissing", seeds.new_job(), seeds.no_operator),
    fault(
        "an operator whose pods do not run", "OperatorDown", seeds.new_job(), seeds.operator(available=0, renewed=-900)
    ),
    fault("an operator that was uninstalled, and left its Lease", "OperatorMissing", job(), seeds.uninstalled),
    fault("training-operator v1 in the place of this operator", "ServedByTrainingOperator", seeds.new_job(), *_BACK),
    fault(
        "an operator that is switched off, and v1 instead",
        "ServedByTrainingOperator",
        seeds.new_job(),
        seeds.operator(available=0, wanted=0),
        seeds.v1(),
    ),
    fault("two operators that serve the job", "TwoOperators", seeds.new_job(), seeds.operator(), seeds.v1()),
    fault(
        "two operators, of which v1 lists PyTorchJobs",
        "TwoOperators",
        seeds.new_job(),
        seeds.operator(namespaces="team"),
        seeds.v1("--enable-scheme=tfjob", "--enable-scheme=PyTorchJob", namespace="team"),
    ),
    fault("an operator that lost its Lease", "OperatorDown", seeds.new_job(), seeds.operator(renewed=-900)),
    fault(
        "a namespace that is not served",
        "NamespaceNotServed",
        seeds.new_job(),
        seeds.operator(namespaces="research,vision"),
    ),
    fault("an operator that this person may not see", "JobNotAccepted", seeds.new_job()),
    fault(
        "a job that another controller manages",
        "ManagedByOther",
        seeds.new_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}),
        seeds.operator(),
    ),
    fault(
        "a stored job that the operator cannot read",
        "InvalidSpec",
        seeds.new_job(),
        an_event(JOB, "InvalidSpec", "spec.elasticPolicy.minReplicas: 5 must be at most maxReplicas"),
        seeds.operator(),
    ),
    fault(
        "an operator that went away after it had accepted the job",
        "OperatorDown",
        job(),
        seeds.operator(available=0, renewed=-900),
    ),
)

WELL = (
    fault(
        "a job that trains",
        NONE,
        job(RUNNING, status={"elastic": {"round": "1.1", "members": 3}}),
        *map(pod, (MASTER, W0, W1)),
    ),
    fault(
        "a job beside v1, which serves other kinds only",
        NONE,
        seeds.new_job(created=timestamp(-2)),
        seeds.operator(),
        seeds.v1(*_OTHER_KINDS),
    ),
    fault(
        "a job beside v1, which serves another namespace only",
        NONE,
        seeds.new_job(created=timestamp(-2)),
        seeds.operator(),
        seeds.v1("--namespace=vision"),
    ),
    fault(
        "a job beside v1, which does not run",
        NONE,
        seeds.new_job(created=timestamp(-2)),
        seeds.operator(),
        seeds.v1(available=0),
    ),
    fault("a job that was just created", NONE, seeds.new_job(created=timestamp(-2)), seeds.operator()),
    fault("pods that have no node yet", NONE, job(), pod(MASTER), pending(W0, "", reason=""), pod(W1)),
    fault("containers that are being created", NONE, job(), pod(MASTER), starting(W0, "ContainerCreating"), pod(W1)),
    fault(
        "a container that crashed long ago, and has run well since",
        NONE,
        job(RUNNING),
        pod(MASTER),
        pod(W0, seeds.container(seeds.running(-250), restarts=1, last=ended(1, "ValueError: x", seconds=-260))),
        pod(W1),
    ),
    fault(
        "a pod out of memory that was replaced, in a job that runs again",
        NONE,
        job(RUNNING),
        *map(pod, (MASTER, W0, W1)),
        an_event(JOB, "ExitedWithCode", "Pod: team.train-worker-0 exited with code 137 (OOMKilled)", seconds=-200),
    ),
    fault(
        "a job that has succeeded, with a pod that failed on the way",
        NONE,
        job(seeds.condition("Succeeded")),
        pod(MASTER, ended(0, reason="Completed"), phase="Succeeded"),
        pod(W0, ended(1, "ValueError: x"), phase="Failed"),
        pod(W1, ended(0, reason="Completed"), phase="Succeeded"),
    ),
    fault(
        "an operator that serves the job's namespace, and is slow",
        NONE,
        seeds.new_job(),
        seeds.operator(namespaces="team"),
    ),
)

FAULTS = (
    *IMAGES,
    *SCHEDULING,
    *CREATION,
    *QUEUES,
    *PROGRAMS,
    *TRAINING,
    *CONTAINERS,
    *NODES,
    *REPLACED,
    *LIMITS,
    *OPERATOR,
)
