"""A job without shared storage on the cluster: the pod of rank 0 is lost with its memory, and its last save is not."""

import re

from e2e import elastic, faults
from e2e.kubectl import Kubectl, until

TRAIN = """
import os, pathlib, time
import torch, torch.distributed as dist

folder = pathlib.Path("/checkpoints")
file = folder / "latest.pt"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
first = torch.load(file)["step"] if file.exists() else 0
print(f"start rank={rank} world={world} from={first} pid={os.getpid()} restarts=0", flush=True)
last = 1000000 if first == 0 else first + 50
for step in range(first + 1, last + 1):
    dist.all_reduce(torch.ones(1))
    if rank == 0 and step in (40, 80):
        torch.save({"step": step}, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    print(f"step={step} world={world}", flush=True)
    time.sleep(0.1)
dist.destroy_process_group()
print("done", flush=True)
"""
CHECKPOINT = {"directory": "/checkpoints", "memory": "64Mi"}
LIST = "cat /checkpoints/.pytorchjob/*_0_*/manifest.json"


def saves(kubectl: Kubectl, pod: str) -> int:
    """How many saves of rank 0 a pod holds."""
    return len(re.findall(r'"job"', kubectl("exec", pod, "--", "sh", "-c", LIST, check=False)))


def test_the_pod_of_rank_0_is_lost_with_its_memory_and_its_last_save_is_not(kubectl: Kubectl) -> None:
    job = elastic.elastic_job("in-memory", 2, train=TRAIN, agent={"checkpoint": CHECKPOINT})
    elastic.submit(kubectl, job)
    elastic.until_step(kubectl, "in-memory", 0, 81)
    until(lambda: saves(kubectl, "in-memory-worker-1") == 2, 60, lambda: f"\n{kubectl.story('in-memory')}")
    faults.force_delete_pod(kubectl, "in-memory-worker-0")
    kubectl("wait", "--for=condition=Succeeded", "ptj/in-memory", "--timeout=300s")
    found = elastic.starts(elastic.log(kubectl, "in-memory", 0))
    assert [start["from"] for start in found][-1] == 80
    assert [start["from"] for start in elastic.starts(elastic.log(kubectl, "in-memory", 1))] == [0, 80]
