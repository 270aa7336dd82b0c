"""What can be done to a job on the cluster of `make cluster`: processes, pods, nodes, the operator.

Each fault that has one moment returns it: seconds by the host's clock, which all nodes share. Nodes are Docker
containers, so killing a process of a pod needs no right and no shell inside the pod, and reaches its first process too.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.kubectl import JOB_LABEL, Kubectl, until

Pod = dict[str, Any]

CONTAINER = "pytorch"
AGENT = 1
"""The first process of a container, as the container counts: torchrun or pytorchjob-agent."""
CUT = "cut off by a test"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

# A process of a container by the number that it has in there; its own time is told the moment before the signal.
_SIGNAL = """
for file in $(grep -l "$1" /proc/[0-9]*/cgroup 2>/dev/null); do
    folder=${file%/cgroup}
    if [ "$(awk '/^NSpid/ { print $NF }' "$folder/status" 2>/dev/null)" = "$2" ]; then
        date +%s.%N
        kill -"$3" "${folder#/proc/}"
        exit
    fi
done
echo "there is no process $2 in container $1" >&2
exit 1
"""
# A node that is killed while one of its pods is frozen, as runc does now and then, cannot die before it thaws.
_THAW = """
find "/sys/fs/cgroup/freezer/docker/$1" -name freezer.state 2>/dev/null | while read -r state; do
    if grep -qs FROZEN "$state"; then echo THAWED >"$state"; fi
done
"""
TO_IT, FROM_IT = "-i", "-o"
BOTH_WAYS = f"{TO_IT} {FROM_IT}"
"""Which packets of a node are dropped, as iptables says it."""
_CUT = """
for chain in INPUT OUTPUT FORWARD; do
    for way in $3; do
        case $chain$way in INPUT-o | OUTPUT-i) continue ;; esac
        iptables --wait "$1" "$chain" $way eth0 -m comment --comment "$2" -j DROP
    done
done
"""


def docker(*args: str) -> str:
    """What a docker command prints."""
    return subprocess.run(["docker", *args], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def signal_process(pod: Pod, signal: str = "KILL", pid: int = AGENT, container: str = CONTAINER) -> float:
    """Send a signal to a process of a pod's container, by the number that it has in there."""
    (found,) = [status for status in pod["status"]["containerStatuses"] if status["name"] == container]
    number = found["containerID"].rpartition("/")[2]
    return float(docker("exec", pod["spec"]["nodeName"], "sh", "-c", _SIGNAL, "-", number, str(pid), signal))


def delete_pod(kubectl: Kubectl, pod: str, grace: int) -> float:
    """Delete a pod with a grace period in seconds."""
    struck = time.time()
    kubectl("delete", "pod", pod, f"--grace-period={grace}", "--wait=false")
    return struck


def force_delete_pod(kubectl: Kubectl, pod: str) -> float:
    """Take a pod out of the API at once; its processes get no time."""
    struck = time.time()
    kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    return struck


def scale(kubectl: Kubectl, job: str, workers: int) -> float:
    """Give a job another number of workers."""
    struck = time.time()
    change = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}}
    kubectl("patch", "pytorchjob", job, "--type=merge", "-p", json.dumps(change))
    return struck


def kill_operator(operator: Kubectl, *pods: str) -> float:
    """Kill these pods of the operator, or all of them; their processes get no time."""
    which = pods or ("--selector=app.kubernetes.io/name=pytorchjob-operator",)
    struck = time.time()
    operator("delete", "pods", *which, "--grace-period=0", "--force", "--wait=false")
    return struck


def pause_node(node: str) -> float:
    """Freeze a node and all that runs on it: it answers nothing and closes nothing."""
    struck = time.time()
    docker("pause", node)
    return struck


def resume_node(node: str) -> None:
    """Let a frozen node go on, if it is one."""
    if docker("inspect", "--format", "{{.State.Paused}}", node) == "true":
        docker("unpause", node)


@contextmanager
def paused(node: str) -> Iterator[float]:
    """A node is frozen as long as this lasts."""
    try:
        yield pause_node(node)
    finally:
        resume_node(node)


def cut_node(node: str, ways: str = BOTH_WAYS) -> float:
    """Drop every packet between a node with its pods and all others; what runs there runs on.

    `ways`: those to the node alone, or those from it.
    """
    struck = time.time()
    docker("exec", node, "sh", "-c", _CUT, "-", "-I", CUT, ways)
    return struck


def mend_node(node: str, ways: str = BOTH_WAYS) -> None:
    """Undo `cut_node`, if it was done."""
    if CUT in docker("exec", node, "iptables-save", "--table", "filter"):
        docker("exec", node, "sh", "-c", _CUT, "-", "-D", CUT, ways)


@contextmanager
def cut(node: str) -> Iterator[float]:
    """A node is cut off as long as this lasts."""
    try:
        yield cut_node(node)
    finally:
        mend_node(node)


def kill_node(node: str) -> float:
    """Kill a node and all that runs on it."""
    number = docker("inspect", "--format", "{{.Id}}", node)
    struck = time.time()
    subprocess.run(["docker", "kill", node], capture_output=True, timeout=60, check=False)
    subprocess.run(["bash", "-c", _THAW, "-", number], timeout=60, check=False)
    until(lambda: docker("inspect", "--format", "{{.State.Running}}", node) == "false", 60)
    return struck


def start_node(kubectl: Kubectl, node: str) -> None:
    """Start a killed node, and wait until the cluster uses it again."""
    docker("start", node)
    kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=180s")
    system = ("--namespace=kube-system", f"--field-selector=spec.nodeName={node}")
    until(lambda: all(map(ready, kubectl.get("pods", *system)["items"])), 120, lambda: kubectl("get", "pods", *system))


@contextmanager
def cordoned(kubectl: Kubectl, *nodes: str) -> Iterator[None]:
    """No new pod is placed on these nodes as long as this lasts."""
    kubectl("cordon", *nodes)
    try:
        yield
    finally:
        kubectl("uncordon", *nodes)


def printed(kubectl: Kubectl, pod: Pod) -> str:
    """The end of what a pod's container has printed, read on its node: needs no API server."""
    meta = pod["metadata"]
    folder = f"/var/log/pods/{kubectl.namespace}_{meta['name']}_{meta['uid']}/{CONTAINER}"
    return docker("exec", pod["spec"]["nodeName"], "sh", "-c", 'tail -q -n 20 "$1"/*.log', "-", folder)


def ready(pod: Pod) -> bool:
    """Whether a pod is ready, or has done its work."""
    conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" or pod["status"].get("phase") == "Succeeded"


def restarts(kubectl: Kubectl, job: str) -> dict[str, int]:
    """How often the containers of a job's pods were restarted, by the pod's uid."""
    return {
        pod["metadata"]["uid"]: sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))
        for pod in kubectl.pods(job)
    }


def leader(operator: Kubectl, lease: str = "pytorchjob-operator") -> str:
    """The name of the operator's pod that leads."""
    holder: str = operator.get("lease", lease)["spec"].get("holderIdentity", "")
    names = [pod["metadata"]["name"] for pod in operator.get("pods")["items"]]
    return next((name for name in names if holder.startswith(name)), "")


def on_kind() -> bool:
    """Whether nodes are containers here, so that they can be killed."""
    return os.environ.get("PROVIDER") != "existing"


def pods_by_name(kubectl: Kubectl, job: str) -> dict[str, Pod]:
    """The job's pods that are not on their way out."""
    found = kubectl.get("pods", "-l", f"{JOB_LABEL}={job}")["items"]
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}
