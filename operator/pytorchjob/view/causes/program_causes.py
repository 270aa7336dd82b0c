"""The causes for which programs end with an error: rows of the table. `programs` recognizes them."""

from pytorchjob.view.causes.cause import FIRST_ERROR, Cause, CauseLevel, Remedy, Symptom, delete_and_apply
from pytorchjob_operator.names import CONTAINER

ENDED, AGAIN = "ended", "again"
"""The values of a finding whose container has not been started again, or has."""
_OF_ALL = "pytorchjob logs {job} -n {namespace}"
_OF_RANK = f"{_OF_ALL} --rank {{rank}}"
_OF_POD = f"kubectl logs {{pod}} -n {{namespace}} -c {CONTAINER}"
_LOGS = (
    Remedy("Read the log of the rank that failed first.", _OF_RANK, ("rank", ENDED)),
    Remedy("If its container was started again, read the log before that.", f"{_OF_RANK} --previous", ("rank", AGAIN)),
    Remedy("Read the log of the pod.", f"{_OF_POD} --tail=100", (ENDED,)),
    Remedy(
        "If its container was started again, read its log before that.", f"{_OF_POD} --previous --tail=100", (AGAIN,)
    ),
)
_IMAGE = "Install it in the image, then build and push the image under a new tag."
_SIGN = "The container ends, and its last line is"

OUT_OF_MEMORY = Cause(
    "OOMKilled",
    Symptom.CRASHING,
    "A container has ended with `OOMKilled`, exit code 137.",
    "The container {container} of {pod} needed more memory than its limit.",
    (
        *delete_and_apply("Raise `resources.limits.memory`, or use smaller batches or fewer DataLoader workers."),
        Remedy("While it runs, see what it needs.", "kubectl top pod {pod} -n {namespace} --containers"),
    ),
)
NO_TORCH = Cause(
    "TorchMissing",
    Symptom.CRASHING,
    f"{_SIGN} `No module named 'torch'`, or the agent ends with `torch cannot be imported`.",
    "The image {image} has no usable torch.",
    (
        Remedy("Try it.", "docker run --rm --entrypoint python {image} -c 'import torch; print(torch.__version__)'"),
        *delete_and_apply("Install torch 2.4 or newer in the image, and name the new tag in the job's file."),
    ),
)
NO_AGENT = Cause(
    "AgentMissing",
    Symptom.CRASHING,
    "The container does not start, and the message names `pytorchjob-agent`.",
    "The image {image} does not contain the agent that the command starts.",
    (
        Remedy(
            "Let the operator add the agent, with `spec.agent: {{inject: true}}`, and write "
            "`python -m pytorchjob_agent` in the place of `pytorchjob-agent`."
        ),
        *delete_and_apply("Or install the agent in the image, as docs/agent.md shows."),
    ),
)
NO_MODULE = Cause(
    "ModuleMissing",
    Symptom.CRASHING,
    f"{_SIGN} `ModuleNotFoundError: No module named ...`.",
    "The Python module {name} is not in the image.",
    delete_and_apply(_IMAGE),
)
NO_SCRIPT = Cause(
    "ScriptMissing",
    Symptom.CRASHING,
    f"{_SIGN} `can't open file ...: [Errno 2] No such file or directory`.",
    "The script {name} does not exist in the container.",
    (
        Remedy("See what the image has.", "docker run --rm --entrypoint ls {image} -la DIRECTORY"),
        *delete_and_apply("Correct the path in `command` or `args`, `workingDir`, or copy the script into the image."),
    ),
)
NO_FILE = Cause(
    "FileMissing",
    Symptom.CRASHING,
    f"{_SIGN} `FileNotFoundError: [Errno 2] No such file or directory: ...`.",
    "The program needs {name}, which does not exist in the container.",
    delete_and_apply("Mount the volume that has it, or correct the path in the job's file."),
)
WRONG_COMMAND = Cause(
    "CommandNotFound",
    Symptom.CRASHING,
    "The container ends with `StartError` or code 127, and the message has `executable file not found` or `not found`.",
    "The command {name} does not exist in the image {image}.",
    delete_and_apply("Correct `command` in the job's file: the first element is a program of the image."),
)
NOT_EXECUTABLE = Cause(
    "CommandNotExecutable",
    Symptom.CRASHING,
    "The container ends with code 126, or the message has `permission denied` or `exec format error`.",
    "The command {name} cannot be executed: it lacks the permission, or is built for another processor.",
    delete_and_apply(
        "Call scripts by their interpreter (`python train.py`), and build the image for the node's processor."
    ),
)
GPU_MEMORY = Cause(
    "CudaOutOfMemory",
    Symptom.CRASHING,
    f"{_SIGN} `torch.OutOfMemoryError: CUDA out of memory`.",
    "A GPU of {pod} has too little memory for the model and the batch.",
    (
        *_LOGS,
        *delete_and_apply("Use a smaller batch, gradient checkpointing or FSDP, or GPUs with more memory."),
    ),
)
NO_GPU = Cause(
    "GpuNotUsable",
    Symptom.CRASHING,
    f"{_SIGN} `Found no NVIDIA driver`, `Torch not compiled with CUDA enabled` or `driver ... is too old`.",
    "The program asks for a GPU, and torch in {pod} has none that it can use.",
    (
        Remedy("See what torch finds.", "kubectl exec {pod} -n {namespace} -- pytorchjob-agent doctor"),
        *delete_and_apply("Request GPUs in `resources.limits`, and use a build of torch for the node's driver."),
    ),
)
WRONG_NPROC = Cause(
    "WrongNprocPerNode",
    Symptom.CRASHING,
    "The message has `invalid device ordinal`, `Duplicate GPU detected`, or the agent's check `gpus` has failed.",
    "{pod} starts more processes than it has GPUs.",
    delete_and_apply("Set `spec.nprocPerNode` to the number of GPUs in `resources.limits`, or to `gpu`."),
)
UNFIT = Cause(
    "PreflightFailed",
    Symptom.CRASHING,
    "The container ends with code 200, `PreflightFailed`.",
    "The agent's checks found {pod} unfit for the job: {words}",
    (
        Remedy(
            "The message has the fix. All checks by hand:",
            "kubectl exec {pod} -n {namespace} -- pytorchjob-agent doctor",
        ),
        Remedy("docs/doctor.md explains each check, and how to switch it off."),
    ),
)
DEVICE = Cause(
    "DeviceFailed",
    Symptom.CRASHING,
    "The container ends with code 200, `DeviceFailed`.",
    "A device of the node of {pod} is broken: {words}",
    (
        Remedy(
            "The operator replaces the pod, and prefers another node for it. See which node it was.",
            "kubectl get pytorchjob {job} -n {namespace} -o jsonpath='{{.status.unfitPods}}'",
        ),
        Remedy("Take the node out of use (`kubectl cordon`), and check its devices: `dmesg`, `nvidia-smi -q`."),
    ),
)
SETUP = Cause(
    "BadSetup",
    Symptom.CRASHING,
    "The container ends with code 78, `BadSetup`.",
    "The image or the environment of {pod} is wrong: {words}",
    delete_and_apply("Correct what the message names."),
)
USAGE = Cause(
    "BadUsage",
    Symptom.CRASHING,
    "The container ends with code 2, `BadUsage`.",
    "The command line of {pod} is wrong: {words}",
    (Remedy("See the arguments.", "pytorchjob-agent run --help"), *delete_and_apply("Correct `command` or `args`.")),
)
SHARED_MEMORY = Cause(
    "SharedMemoryFull",
    Symptom.CRASHING,
    "The message has `Bus error`, `insufficient shared memory` or `unable to open shared memory object`.",
    "Shared memory in {pod} is full: a container has 64 MiB of /dev/shm by default.",
    delete_and_apply("Mount an `emptyDir` with `medium: Memory` at `/dev/shm` in every role."),
)
DISK_FULL = Cause(
    "DiskFull",
    Symptom.CRASHING,
    f"{_SIGN} `OSError: [Errno 28] No space left on device`.",
    "A disk or volume that {pod} writes to is full.",
    (
        Remedy("See which, while the pod runs.", "kubectl exec {pod} -n {namespace} -- df -h"),
        Remedy("Delete old checkpoints, or use a larger volume."),
    ),
)
PORT_IN_USE = Cause(
    "PortInUse",
    Symptom.CRASHING,
    f"{_SIGN} `Address already in use`.",
    "A port that {pod} wants to open is in use: with hostNetwork another pod of the node may have it.",
    (
        Remedy(
            "See whether pods share the node's network.", "kubectl get pods -n {namespace} -o yaml | grep hostNetwork"
        ),
        *delete_and_apply("Remove `hostNetwork`, or give this job another `pytorchjob-port`."),
    ),
)
DNS = Cause(
    "NameNotResolved",
    Symptom.NOT_JOINING,
    "The message has `Name or service not known` or `Temporary failure in name resolution`.",
    "{pod} cannot resolve a host name: {words}",
    (
        Remedy(
            "See whether the job's Service and its pods exist.", "kubectl get service,endpointslices -n {namespace}"
        ),
        Remedy(
            "Try the name from the pod.",
            "kubectl exec {pod} -n {namespace} -- getent hosts {host}",
        ),
        Remedy("See whether the cluster's DNS runs.", "kubectl get pods -n kube-system -l k8s-app=kube-dns"),
    ),
    CauseLevel.LIKELY_CONSEQUENCE,
)
COLLECTIVE_TIMEOUT = Cause(
    "CollectiveTimeout",
    Symptom.STOPPING,
    "The message has `Watchdog caught collective operation timeout` or `Timed out waiting`.",
    "A collective of {pod} timed out: another rank did not take part in it.",
    (
        FIRST_ERROR,
        Remedy("Without an error, compare the last lines: a rank is elsewhere.", f"{_OF_ALL} --tail 5"),
        Remedy("Set `spec.agent: {{inject: true}}`: the agent finds hangs sooner, and names the rank and the line."),
    ),
    CauseLevel.LIKELY_CONSEQUENCE,
)
NCCL_INTERFACE = Cause(
    "NcclInterface",
    Symptom.NOT_JOINING,
    "The message has `no socket interface found`.",
    "NCCL finds no network interface: NCCL_SOCKET_IFNAME names one that {pod} does not have.",
    (
        Remedy("See the interfaces of the pod.", "kubectl exec {pod} -n {namespace} -- ls /sys/class/net"),
        *delete_and_apply("Remove `NCCL_SOCKET_IFNAME` from the template, or correct it (mostly `eth0`)."),
    ),
)
NCCL = Cause(
    "NcclError",
    Symptom.STOPPING,
    "The message has `NCCL error`, `ncclSystemError` or `ncclRemoteError`.",
    "NCCL failed in {pod}: the network between the pods, or another rank, broke.",
    (
        FIRST_ERROR,
        *delete_and_apply("If all ranks fail at once, set `NCCL_DEBUG: INFO` in the environment and read the reason."),
    ),
    CauseLevel.LIKELY_CONSEQUENCE,
)
PEER_GONE = Cause(
    "PeerGone",
    Symptom.STOPPING,
    "The message has `Connection closed by peer`, `Connection reset by peer` or `Broken pipe`.",
    "{pod} lost its connection to another rank.",
    (FIRST_ERROR,),
    CauseLevel.LIKELY_CONSEQUENCE,
)
EXCEPTION = Cause(
    "PythonException",
    Symptom.CRASHING,
    f"{_SIGN} an exception of Python.",
    "The training script failed in {pod}: {words}",
    (*_LOGS, *delete_and_apply("Correct the script, build and push the image under a new tag.")),
)
KILLED = Cause(
    "WorkerKilled",
    Symptom.CRASHING,
    "A worker was `killed by SIGKILL`, or the container ended with code 137 without `OOMKilled`.",
    "A process of {pod} was killed from outside, mostly because memory ran out.",
    (
        Remedy("See the memory limit and the node's events.", "kubectl describe pod {pod} -n {namespace}"),
        *delete_and_apply("Raise `resources.limits.memory`, or use smaller batches or fewer DataLoader workers."),
    ),
    CauseLevel.LIKELY_CONSEQUENCE,
)
NATIVE_CRASH = Cause(
    "NativeCrash",
    Symptom.CRASHING,
    "The container ended with code 139 (SIGSEGV), 134 (SIGABRT), 135 (SIGBUS) or 132 (SIGILL).",
    "A native library crashed in {pod} ({words}).",
    (*_LOGS, Remedy('Set `PYTHONFAULTHANDLER: "1"` in the environment: Python then prints its stack.')),
    CauseLevel.LIKELY_CONSEQUENCE,
)
EXIT_CODE = Cause(
    "ProgramFailed",
    Symptom.CRASHING,
    "A container has ended with another exit code than 0.",
    "The container {container} of {pod} ended with code {code}.",
    _LOGS,
    CauseLevel.LIKELY_CONSEQUENCE,
)
ROWS = (
    OUT_OF_MEMORY,
    NO_TORCH,
    NO_AGENT,
    WRONG_COMMAND,
    NOT_EXECUTABLE,
    NO_SCRIPT,
    NO_MODULE,
    NO_FILE,
    GPU_MEMORY,
    NO_GPU,
    WRONG_NPROC,
    UNFIT,
    DEVICE,
    SETUP,
    USAGE,
    SHARED_MEMORY,
    DISK_FULL,
    PORT_IN_USE,
    NCCL_INTERFACE,
    EXCEPTION,
    DNS,
    NCCL,
    COLLECTIVE_TIMEOUT,
    PEER_GONE,
    KILLED,
    NATIVE_CRASH,
    EXIT_CODE,
)
